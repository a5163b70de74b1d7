"""Pairs of models beside the differences that papers print."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness.config.load import load_pairs
from harness.utils.errors import BenchError
from results.comparison.comparison import compare_models
from results.comparison.pairs import PairResult, PrintedPair, compare_pairs
from results.runs.reading import StoredRuns, stored_runs
from results.store.store import Store
from tests.harness.conftest import ROOT, bench_ok, bench_or_raise
from zoo import list_models

BASELINES = ROOT / "baselines"
SCENES = str(BASELINES / "scenes.sqlite")
UPDATES = ("504", "1,008", "2,016", "4,032")


@pytest.fixture(scope="module")
def results() -> list[PairResult]:
    """The pairs that ship, of the board of scenes."""
    with Store(SCENES, read_only=True) as store:
        return compare_pairs(stored_runs(store), load_pairs("papers"))


def test_pairs_that_ship_are_of_models_of_the_zoo() -> None:
    pairs = load_pairs("papers")
    assert {pair.a for pair in pairs} | {pair.b for pair in pairs} <= set(list_models())
    assert all(pair.printed and pair.source for pair in pairs)


def test_each_pair_is_compared_under_all_conditions(results: list[PairResult]) -> None:
    measured = [result for result in results if result.difference is not None]
    assert len(measured) == 40, "ten pairs after four lengths of training"
    assert {result.seeds for result in measured} == {(5, 5)}
    [updown] = [r for r in measured if (r.pair.a, r.conditions) == ("updown", "scenes, 2,016 updates")]
    assert updown.difference == pytest.approx(0.3852, abs=5e-5)
    assert updown.verdict == "as printed"


def test_a_difference_and_its_error_are_those_of_the_models_runs(results: list[PairResult]) -> None:
    with Store(SCENES, read_only=True) as store:
        runs = stored_runs(store).runs
        result = next(r for r in results if r.pair.a == "gcn_lstm" and r.conditions.endswith("4,032 updates"))
        chosen = [run for run in runs if "train_steps" in run.costs and run.costs["train_steps"].value == 4032]
        sides = [
            StoredRuns(store, [run for run in chosen if run.model == model]) for model in (result.pair.b, result.pair.a)
        ]
        [pair] = compare_models(*sides, {}, 0).pairs
    [score] = [score for score in pair.scores if (score.split, score.metric) == ("test", "CIDEr-D")]
    assert score.test is not None
    assert result.score is not None
    assert result.score.test is not None
    assert result.difference == pytest.approx(score.estimate.value, abs=1e-12)
    assert result.score.test.uncorrected_p == score.test.uncorrected_p, "before it is corrected for other tests"


def test_an_interval_excludes_zero_where_the_test_is_significant(results: list[PairResult]) -> None:
    for result in results:
        if result.score is None or result.score.test is None:
            continue
        estimate = result.score.estimate
        low, high = estimate.low, estimate.high
        assert low is not None
        assert high is not None
        assert (low > 0 or high < 0) == estimate.is_significant == (result.verdict != "not significant")
        if result.verdict in {"as printed", "opposite"}:
            assert (low > 0) == (result.verdict == "as printed"), "all that ship are printed above 0"


def test_the_page_of_scenes_shows_these_differences_and_verdicts(results: list[PairResult]) -> None:
    measured = {(result.pair, result.conditions): result for result in results if result.difference is not None}
    rows = []
    for pair in dict.fromkeys(pair for pair, _ in measured):
        of_pair = [measured[pair, f"scenes, {updates} updates"] for updates in UPDATES]
        differences = " | ".join(f"{100 * (result.difference or 0):+.1f}" for result in of_pair)
        verdicts = " | ".join(result.verdict for result in of_pair[2:])
        rows.append(f"| `{pair.a}` − `{pair.b}` | {pair.printed:+.1f} | {differences} | {verdicts} |")
    page = (ROOT / "docs" / "scenes.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in page if line.startswith("| `") and "` − `" in line] == rows


def test_runs_with_rewards_are_labelled_so() -> None:
    words = ("compare", "--pairs", "papers", "--db", BASELINES / "flickr8k_rewards.sqlite", "--format", "json")
    measured = [pair for pair in json.loads(bench_ok(*words).stdout) if pair["difference"] is not None]
    labels = {pair["conditions"] for pair in measured}
    assert labels == {"flickr8k, 4,250 updates with rewards", "flickr8k, 1,750 updates"}


@pytest.mark.parametrize("name", ["scenes", "flickr8k", "flickr8k_rewards", "coco_released"])
def test_a_terminal_of_80_columns_shows_whole_rows(name: str) -> None:
    words = ("compare", "--pairs", "papers", "--db", BASELINES / f"{name}.sqlite")
    measured = [pair for pair in json.loads(bench_ok(*words, "--format", "json").stdout) if pair["low"] is not None]
    text = bench_ok(*words).stdout
    assert max(map(len, text.splitlines())) <= 80
    ends = [f"{100 * pair['high']:+.2f}" for pair in measured]
    rows = [line for line in text.splitlines() if "…" in line]
    assert len(rows) == len(ends)
    assert all(end in row and pair["verdict"] in row for row, end, pair in zip(rows, ends, measured, strict=True))


def test_models_without_runs_have_a_reason(results: list[PairResult]) -> None:
    missing = [result for result in results if result.difference is None]
    assert {result.verdict for result in missing} == {"not measured"}
    assert all(result.pair.a in str(result.reason) or result.pair.b in str(result.reason) for result in missing)
    assert len(missing) == 5


@pytest.mark.parametrize(("seeds", "verdict"), [(1, "one seed"), (3, "not significant")])
def test_one_seed_has_no_verdict(tmp_path: Path, make: Any, seeds: int, verdict: str) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(make.dataset())
        for seed in range(seeds):
            for model, score in (("updown", 0.2), ("aoanet", 0.9)):
                make.run(store, make.outcome(score + seed / 1e4), model, seed)
        [result] = compare_pairs(stored_runs(store), (PrintedPair(a="updown", b="aoanet", printed=1.0),))
    assert result.verdict == verdict
    assert result.difference == pytest.approx(-0.7)


def test_the_command_writes_every_form(tmp_path: Path) -> None:
    file = tmp_path / "pairs.yaml"
    file.write_text("- {a: updown, b: att2all}\n- {a: nobody, b: updown, printed: 2}\n")
    words = ("compare", "--pairs", file, "--db", SCENES)
    *known, unknown = json.loads(bench_ok(*words, "--format", "json").stdout)
    assert [entry["verdict"] for entry in known] == ["a higher"] * 4
    assert (unknown["verdict"], unknown["difference"], unknown["printed"]) == ("not measured", None, 2.0)
    assert bench_ok(*words, "--format", "markdown").stdout.count("| updown | att2all |") == 4
    text = bench_ok(*words).stdout
    assert all(f"{100 * entry['difference']:+.2f}" in text for entry in known)
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("- {a: updown}", "0.b"),
        ("- {a: updown, b: aoanet, printed: much}", "0.printed"),
        ("- {a: updown, b: aoanet, printed: .nan}", "0.printed"),
        ("- {a: updown, b: aoanet, claim: x}", "0.claim"),
        ("updown", "the file"),
        ("- !!python/object/apply:os.system [ls]", "YAML"),
    ],
)
def test_a_file_that_is_no_list_of_pairs_is_refused(tmp_path: Path, text: str, named: str) -> None:
    file = tmp_path / "pairs.yaml"
    file.write_text(text)
    with pytest.raises(BenchError, match=named) as caught:
        load_pairs(str(file))
    assert str(file) in str(caught.value)


@pytest.mark.parametrize("words", [("a", "b", "--pairs", "papers"), ("--pairs", "papers", "--captions", "3"), ("a",)])
def test_pairs_stand_in_place_of_two_sides(words: tuple[str, ...]) -> None:
    with pytest.raises(BenchError):
        bench_or_raise("compare", *words)
