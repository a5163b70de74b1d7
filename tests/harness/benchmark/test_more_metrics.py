"""`--more-metrics`: computed from stored captions, once, and nothing else of a run changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.benchmark.context import RunContext
from harness.benchmark.scoring import add_more_metrics, more_evaluator
from harness.metrics.more.measure import MoreEvaluator, MoreSettings
from results import Outcome, Quantity, SplitResult, Store
from results.records import RunSpec
from results.runs.reading import finished
from tests.harness.benchmark.small_runs import make_context, make_spec, quiet
from tests.harness.metrics.tiny_models import write_clip


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    return make_context(tmp_path_factory.mktemp("scenes"))


@pytest.fixture
def store(tmp_path: Path, context: RunContext) -> Iterator[Store]:
    with Store(tmp_path / "bench.sqlite") as opened:
        opened.record_dataset(context.data.record("f" * 16))
        yield opened


def finish(store: Store, spec: RunSpec, context: RunContext, caption: str | None = None) -> RunSpec:
    """A finished run that says `caption` of every image, or the first reference."""
    store.plan([spec])
    splits = tuple(
        SplitResult(
            split,
            {each.image_id: caption or each.captions[0] for each in samples},
            {"overall": {"CIDEr-D": Quantity(0.5)}},
            {},
        )
        for split, samples in context.data.evaluated.items()
    )
    store.finish(spec.key, Outcome(splits, {}, {}))
    return spec


def test_objects_of_scenes_and_a_clip_model(
    store: Store, context: RunContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [
        finish(store, make_spec("says"), context, "a red hexagon"),
        finish(store, make_spec("people", "human", role="reference"), context),
    ]
    before = [run.scores for run in finished(store)]
    settings = MoreSettings.parse(str(write_clip(tmp_path / "clip")), None, ())
    evaluator = more_evaluator(settings, context.data, "cpu")
    assert add_more_metrics(specs, evaluator, context.data, store, quiet()) == {}
    says, people = finished(store)
    assert [says.scores, people.scores] == before
    assert says.more["test"]["caption_words"].value == 3
    assert says.more["test"]["CHAIR-s (objects:scenes)"].value == 1  # no split but nocaps shows hexagons
    assert people.more["test"]["CHAIR-s (objects:scenes)"].value == 0
    assert says.more["test"]["self-CIDEr"].value is None
    assert 0 < (people.more["test"]["self-CIDEr (captions:5, df:references)"].value or 0) < 1
    [name] = [name for name in says.more["nocaps"] if name.startswith("CLIPScore")]
    assert says.more["nocaps"][name].value is not None
    assert "--bert" in (says.more["test"]["BERTScore"].reason or "")
    # What is there is not computed again; another model's scores stand beside the first's.
    monkeypatch.setattr(MoreEvaluator, "measure", lambda *_: pytest.fail("measured again"))
    add_more_metrics(specs, more_evaluator(settings, context.data, "cpu"), context.data, store, quiet())


def test_what_was_asked_for_and_not_measured_is_told_each_time(
    store: Store, context: RunContext, tmp_path: Path
) -> None:
    spec = finish(store, make_spec("says"), context)
    (tmp_path / "no-model").mkdir()
    for given in ({"clip": str(tmp_path / "no-model")}, {"bert": str(tmp_path / "no-model")}):
        settings = MoreSettings.parse(given.get("clip"), given.get("bert"), ())
        for _ in range(2):
            evaluator = more_evaluator(settings, context.data, "cpu")
            lacking = add_more_metrics([spec], evaluator, context.data, store, quiet())
            assert all("no-model" in name for name in lacking)
            assert len(lacking) == len(given.keys() & {"clip"}) + 1  # CLIPScore and RefCLIPScore, or BERTScore


def test_people_are_no_references_of_their_own(
    store: Store, context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    measure = MoreEvaluator.measure
    monkeypatch.setattr(MoreEvaluator, "measure", lambda own, system: seen.append(system) or measure(own, system))
    spec = finish(store, make_spec("people", "human", role="reference"), context)
    evaluator = more_evaluator(MoreSettings(), context.data, "cpu")
    add_more_metrics([spec], evaluator, context.data, store, quiet())
    for system in seen:
        assert all(system.captions[image_id] not in texts for image_id, texts in system.references.items())
        assert all(len(texts) == 5 for texts in system.sets.values())
    assert len(seen) == 2
