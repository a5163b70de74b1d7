"""What nobody means: refused by a command before any work, with the option or file named, and nothing written.

Numbers beyond all sense, options without effect, empty values, databases that would be lost, pipes and devices where a
file is read.
"""

import json
import os
from pathlib import Path

import pytest

from harness.config.load import load_preset
from harness.utils.errors import BenchError
from results.errors import StoreError
from tests.harness.conftest import bench
from zoo import ZooError, create_model, list_models, model_card
from zoo.registry import check_sizes

REFERENCES = {"images": [{"id": 1}], "annotations": [{"image_id": 1, "caption": "a red ball"}]}
NUMBERS = {
    "cost measure --batch 1,99999999": "--batch",
    "cost measure --beam 99999": "--beam",
    "cost measure --energy-seconds inf": "--energy-seconds",
    "cost measure --energy-seconds nan": "--energy-seconds",
    "flops --models blind --position 21": "--position 21",
    "flops --models blind --position 6 --caption-length 5": "--position 6",
    "plan --seeds 3 --first-seed 2147483646": "--first-seed",
    "run --devices 1000 --device cpu --backbone filterbank": "--devices",
    "run --jobs 99999": "--jobs",
    f"run --jobs {'9' * 5000}": "--jobs",
    "run --seeds 3 --first-seed 2147483646": "--first-seed",
}
WITHOUT_EFFECT = {
    "evaluate predictions.json --references references.json --split val": "names no splits",
    "export submission predictions.json --server coco --images references.json --out up --workspace w": "--workspace",
    "doctor --out file.json": "--out: for --gpu alone",
    "plan --data coco --backbone resnet18 --graphs x": "--backbone, --graphs: not used",
    "plan --data coco --regions no-folder": "--regions: not used",
    "plan --detect 1 --seeds 3 --models blind": "--models, --seeds: not used by --detect",
    "plan --region-count first:3": "--region-count needs --regions",
    "regress --seeds 7": "--seeds: read with --against alone",
    "run --set accept_mixed=perhaps": "accept_mixed",
    "run --set features.region=boxes": "features.region",
    "run --data .": "contains no dataset*.json",
    "run --data nowhere": "there is no data set at nowhere",
    "tune --data nowhere": "there is no data set at nowhere",
}
EMPTY = (
    "caption a.png --run",
    "data features scenes --backbone",
    "flops --backbone",
    "import-weights m c.pth --vocabulary v --backbone",
    "report --workspace",
    "run --backbone",
    "run --db",
    "run --workspace",
)
IN_MEMORY = (
    "sqlite://",
    "sqlite:///",
    "sqlite:///:memory:",
    "sqlite+pysqlite://",
    ":memory:",
    "sqlite:///file::memory:?uri=true",
    "sqlite:///file:a?mode=memory&uri=true",
)
READING = (
    "data features {}",
    "data nocaps {} references.json --out joined.json",
    "data verify {}",
    "db upgrade --db {}",
    "db merge {} --workspace .",
    "evaluate references.json --references {}",
    "evaluate {} --references references.json",
    "import-weights expansionnet_v2 references.json --vocabulary {}",
    "import-weights expansionnet_v2 {} --vocabulary references.json",
    "prefetch spice --from {}",
    "regress --baseline {}",
    "report --db {}",
    "run --data {} --backbone filterbank",
    "run --tuned {}",
)
WRITING = (
    "caption a.png --run key --out",
    "compare a b --out",
    "cost measure --models nothing --out",
    "data nocaps nowhere nowhere --out",
    "evaluate nowhere --references nowhere --out",
    "export leaderboard --out",
)
CASES: list[tuple[list[str], str]] = [
    *((words.split(), said) for words, said in (NUMBERS | WITHOUT_EFFECT).items()),
    *(([*words.split(), empty], f"{words.split()[-1]} is empty") for words in EMPTY for empty in ("", " ")),
    *((["run", "--workspace", "w", "--db", db], f"--db {db} is a database in memory") for db in IN_MEMORY),
    *((words.format(file).split(), file) for words in READING for file in ("pipe", "zero", "loop", "~nobody-here/x")),
    *(([*words.split(), place], place) for words in WRITING for place in ("folder", "file/out", "loop", "x" * 300)),
    (["attention", "a.png", "--run", "key", "--out", "file"], "--out file"),
    (["export", "submission", "k", "--server", "coco", "--images", "l.json", "--out", "file"], "--out file"),
    (["data", "verify", "scenes", "--workspace", "file"], "file"),
    (["data", "features", "scenes", "--workspace", "file"], "file"),
]


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The current folder, with what is no regular file, and references."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("zero").symlink_to("/dev/zero")
    Path("loop").symlink_to("loop")
    Path("folder").mkdir()
    Path("file").touch()
    Path("references.json").write_text(json.dumps(REFERENCES))
    Path("predictions.json").write_text(json.dumps(REFERENCES["annotations"]))
    return tmp_path


def contents(folder: Path) -> set[Path]:
    """All but a workspace that is made, and its database."""
    return {path for path in folder.rglob("*") if not path.name.startswith(("workspace", "bench.sqlite"))}


@pytest.mark.parametrize(("words", "said"), CASES, ids=[" ".join(words)[:80] for words, _ in CASES])
def test_what_nobody_means_is_refused(place: Path, words: list[str], said: str) -> None:
    before = contents(place)
    result = bench(*words)
    error = result.exception
    assert isinstance(error, BenchError | StoreError | ZooError | SystemExit), (error, result.output)
    assert isinstance(error, SystemExit) == ("hint: " in result.output)
    assert result.exit_code in {1, 2}, "1 of an error that the root says, which this way of calling does not see"
    text = f"{error} {result.output}"
    assert said in text
    assert "\n" not in str(error)
    if not isinstance(error, SystemExit):
        assert error.hint or "cannot be read" in text
    assert contents(place) == before


RATE = "schedule.stages.0.learning_rate"


@pytest.mark.parametrize(
    ("setting", "values", "example"),
    [
        (
            "size.d_model",
            ["-5", "0", ".nan", ".inf", "48.5", "48.0", "wide", "true", "~", "9999999"],
            "size.d_model=128",
        ),
        ("size.n_heads", ["0", "-1", "99999"], "size.d_model=128"),
        ("size.dropout", ["1", "-0.1", ".nan"], "size.d_model=128"),
        ("size.n_encoder_layers", ["0", "1.5"], "size.d_model=128"),
        ("decoding.length_penalty", [".nan", ".inf", "1e3", "-11"], "decoding.length_penalty=1.0"),
        ("decoding.beam_size", ["0", "257", ".nan", "2.5"], "decoding.beam_size=3"),
        ("decoding.max_len", ["0", "1001"], "decoding.max_len=20"),
        ("schedule.stages.0.optimiser.betas.0", ["[2, 3]", "[.nan, 0.9]", "[-1, 0.9]", "[1, 0.9]"], "betas=[0.9,0.98]"),
        (f"{RATE}.peak", [".inf", ".nan", "0", "-1", "1e9", "1e400", "0x" + "f" * 1500], f"{RATE}.peak=0.002"),
        (f"{RATE}.warmup_share", ["-1", "1.5", ".inf"], f"{RATE}.warmup_share=0.1333"),
        (f"{RATE}.every_epochs", ["0", "1.0e-300", ".nan"], f"{RATE}.every_epochs=1.0"),
        (f"{RATE}.minimum", [".nan", "-1"], f"{RATE}.minimum=0.0"),
        ("schedule.stages.0.epochs", ["0", "99999999999999999999"], "schedule.stages.0.epochs="),
        ("schedule.stages.0.batch_size", ["0", "99999999"], "schedule.stages.0.batch_size="),
        ("schedule.stages.0.clip_norm", [".nan", ".inf", "0"], "schedule.stages.0.clip_norm=1.0"),
        ("schedule.stages.0.dropout", [".nan", "1", "-1"], "schedule.stages.0.dropout=0.0"),
        ("energy_seconds", [".inf", ".nan", "-1", "1e5"], "energy_seconds=0.0"),
        ("latency_repeats", ["1", "99999999999999999999"], "latency_repeats=50"),
        ("vocabulary.min_count", ["0", ".nan", "9999999999"], "vocabulary.min_count=1"),
    ],
)
def test_settings_out_of_range_name_themselves(setting: str, values: list[str], example: str) -> None:
    for value in values:
        with pytest.raises(BenchError) as caught:
            load_preset("quick-scst", (f"{setting.removesuffix('.0')}={value}",))
        assert setting in str(caught.value)
        assert len(str(caught.value)) < 400
        assert example in (caught.value.hint or "")


def test_heads_that_do_not_divide_the_width_are_told() -> None:
    with pytest.raises(BenchError, match=r"size\.d_model 128 .*n_heads 3.* 126 or 129"):
        load_preset("quick-scst", ("size.n_heads=3",))


@pytest.mark.parametrize("wrong", [{"d_model": -5}, {"d_model": float("nan")}, {"n_heads": 0}, {"visual_dim": -1}])
def test_models_refuse_sizes_before_they_are_built(wrong: dict[str, float]) -> None:
    given = {"vocab_size": 9, "visual_dim": 4, **model_card("transformer_base").tiny, **wrong}
    with pytest.raises(ZooError, match=next(iter(wrong))):
        create_model("transformer_base", **given)


def test_sizes_of_all_cards_are_allowed() -> None:
    for name in list_models():
        card = model_card(name)
        for arguments in (card.arguments, {**card.arguments, **card.tiny}, {**card.arguments, **card.small}):
            check_sizes(arguments)
