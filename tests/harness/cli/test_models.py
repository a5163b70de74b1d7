"""`bench models`: the listing fits a terminal and costs nothing, and one model is shown in full."""

import pytest

import zoo
from harness.benchmark.baselines import REFERENCE_ROWS
from harness.utils.errors import BenchError
from tests.harness.conftest import bench, bench_ok
from zoo.registry import select_models


@pytest.fixture(autouse=True)
def terminal(monkeypatch):
    """A terminal of 80 columns."""
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("arguments", [("models",), ("models", "list")])
def test_every_model_is_listed_within_80_columns(arguments):
    shown = bench_ok(*arguments)
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    words = set(shown.stdout.split())
    models = set(select_models("all"))
    variants = set(zoo.list_models()) - models
    assert models <= words
    assert not variants & words
    assert f"{len(models)} models" in shown.stdout
    assert f"{len(variants)} variants" in shown.stdout
    assert set(REFERENCE_ROWS) <= set(shown.stdout.replace(",", "").split())


def test_a_pattern_narrows_the_listing():
    words = bench("models", "list", "transformer*").stdout.split()
    assert ("transformer_base" in words, "expansionnet_v2" in words) == (True, False)
    shown = bench("models", "list", "*/*").stdout
    assert all(len(line) <= 80 for line in shown.splitlines())
    assert set(zoo.list_models("*/*")) <= set(shown.split())


def test_a_pattern_without_match_is_an_error():
    error = bench("models", "list", "y*").exception
    assert isinstance(error, BenchError)
    assert "'y*'" in str(error)


@pytest.mark.parametrize("name", zoo.list_models())
def test_a_model_is_shown_with_its_origin_and_arguments(name):
    card, shown = zoo.model_card(name), bench("models", "show", name)
    assert shown.exit_code == 0
    text = " ".join(shown.stdout.split())
    for part in (card.source, card.licence, str(card.year), *card.arguments):
        assert part in text
    assert " ".join(card.paper.split()) in text
    seen = card.pretraining
    for part in () if seen is None else (*seen.data_sets, seen.captions, *seen.overlap.values(), seen.source):
        assert " ".join(part.split()) in text
    assert ("captions seen" in text) == (seen is not None)
    assert ("Arguments of the preset" in text) == bool(card.arguments)
