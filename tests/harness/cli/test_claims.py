"""`bench claims`: files of claims, and the tables that their rows make."""

import json
import math
import shlex
from itertools import pairwise
from pathlib import Path

import pytest

from harness.config.load import CLAIMS, load_claims, load_preset
from harness.utils.errors import BenchError
from results.comparison.claims import judge
from results.errors import StoreError
from results.runs.reading import finished
from results.store.store import Store
from tests.documentation.parsing import check
from tests.harness.conftest import DrawScenes, bench_ok, bench_or_raise, set_options
from tests.results.comparison.claim_stores import Trained, store_of
from tests.results.comparison.test_claims import HIGHER
from zoo.registry import select_models


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A workspace in which a new model is better than an old one, and a file with claims beside."""
    store_of(tmp_path / "bench.sqlite", [Trained("new|model", 5), Trained("old", 0)])
    missing = HIGHER | {"runs": {"models": ["gone"]}, "commands": ["bench run --models gone"]}
    (tmp_path / "own.yaml").write_text(json.dumps({"claims": [HIGHER, missing]}), encoding="utf-8")
    return tmp_path


def claims(place: Path, *words: str) -> str:
    return bench_ok("claims", str(place / "own.yaml"), "-w", str(place), *words).stdout


def test_the_table_has_verdicts_reasons_and_what_to_type(place: Path) -> None:
    said = claims(place)
    table, _, rest = said.partition("\n\n")
    assert max(map(len, said.splitlines())) <= 80
    assert "+1.9" in table
    assert "supported" in table
    assert "no runs" in table
    assert "no finished run of gone" in rest
    assert "bench run --models gone" in rest


def test_markdown_is_a_page_with_every_claim(place: Path) -> None:
    out = place / "claims.md"
    assert claims(place, "--format", "markdown", "--out", str(out)).strip() == str(out)
    page = out.read_text(encoding="utf-8")
    assert r"new\|model (3 seeds) less old (3 seeds)" in page
    assert "| 1. A helps | scenes | +1.9 | +5." in page
    assert page.endswith("```sh\nbench run --models gone\n```\n")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("claims: []", "claims: tuple should have at least 1 item"),
        ("claims: [{sentence: x}]", "claims.0.runs: field required"),
        ("a: [", "is not a YAML value"),
        ("claims: &a [*a]", "alias"),
        ("claims:\n- direction: higher\n  direction: lower\n", "line 3 has the key 'direction' again"),
        ("3", "the file: input should be"),
    ],
)
def test_bad_yaml_is_one_error_that_names_the_field(place: Path, text: str, named: str) -> None:
    (place / "own.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(BenchError) as caught:
        claims(place)
    assert named in str(caught.value)
    assert "docs/claims.md" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"metric": "CIDER"}, "no metric 'CIDER'"),
        ({"split": "tset"}, "no split 'tset'"),
        ({"varies": ["schedule", "scheduel"]}, "no field of the signature 'scheduel'"),
        ({"runs": {"models": ["old"], "signature": {"beem": "3"}}}, "no field of the signature 'beem'"),
    ],
)
def test_names_that_no_run_can_have_are_refused(place: Path, wrong: dict[str, object], named: str) -> None:
    (place / "own.yaml").write_text(json.dumps({"claims": [HIGHER, HIGHER | wrong]}), encoding="utf-8")
    with pytest.raises(StoreError, match=f"claim 2: there is {named}"):
        claims(place)


def test_a_file_that_is_not_there_names_those_that_ship(place: Path) -> None:
    (place / "own.yaml").unlink()
    with pytest.raises(BenchError, match="cannot be read") as caught:
        claims(place)
    assert "papers" in (caught.value.hint or "")


def test_the_page_of_what_the_papers_claim_has_the_claims_that_ship() -> None:
    page = (Path(__file__).parents[3] / "docs/claims.md").read_text(encoding="utf-8")
    for number, claim in enumerate(load_claims("papers"), 1):
        assert f"\n| {number}. {claim.sentence} | " in page


@pytest.mark.parametrize("name", CLAIMS)
def test_claims_that_ship_name_models_and_commands_that_exist(name: str) -> None:
    for claim in load_claims(name):
        for sides in claim.sides():
            assert all(select_models(pattern) for side in (sides.runs, sides.than) for pattern in side.models)
        assert claim.commands
        for command in claim.commands:
            words = shlex.split(command)
            check(words)
            changes = tuple(value for option, value in pairwise(words) if option == "--set")
            assert load_preset(words[words.index("--preset") + 1], changes).schedule.stages


@pytest.mark.parametrize("number", [pytest.param(11, marks=pytest.mark.campaign), 12])  # 11 also trains on rewards
def test_a_claim_on_cost_that_ships_is_judged_by_the_runs_of_its_commands(
    number: int, draw_scenes: DrawScenes, tmp_path: Path
) -> None:
    layers = {"size.n_encoder_layers": 1, "size.n_decoder_layers": 1}
    small = layers | {"size.d_model": 16, "size.d_ff": 16, "decoding.max_len": 3, "latency_repeats": 2}
    data = draw_scenes(train=24, val=4, test=6)
    claim = load_claims("papers")[number - 1]
    for words in map(shlex.split, claim.commands):
        changes = tuple(value for option, value in pairwise(words) if option == "--set")
        own: dict[str, object] = {}
        for place, stage in enumerate(load_preset(words[words.index("--preset") + 1], changes).schedule.stages):
            own[f"schedule.stages.{place}.epochs"] = 1
            if stage.objective == "self_critical":
                own[f"schedule.stages.{place}.self_critical.max_len"] = 3
        seeing = [] if "--backbone" in words else ["--backbone", "filterbank", "--backbone-option", "grid=2"]
        fixed = ["--data", data, "--workspace", tmp_path, "--jobs", 1]
        words = [*words[1:], *set_options(small | own), *seeing, *fixed]
        assert bench_or_raise(*words)[0] == 0
    with Store(tmp_path / "bench.sqlite", read_only=True) as store:
        [row] = judge(store, [claim])
        sides = [[run for run in finished(store) if side.has(run)] for side in (claim.runs, claim.than)]
    assert [len(side) for side in sides] == [2, 2]
    gmac = [math.prod(run.costs["train_gmac"].value or 0.0 for run in side) ** 0.5 for side in sides]
    assert f"train_gmac {gmac[1] / gmac[0]:.2f} times" in row.reason
    assert "train_seconds" in row.reason
    assert row.ratio is not None
    told = "supported" if row.ratio[1] > 1 else "contradicted" if row.ratio[2] < 1 else "cannot be told"
    assert row.verdict == told
