"""What is scored of a split, and of stored captions afterwards; and the rows of people and of simple baselines."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from harness.benchmark import scoring
from harness.benchmark.baselines import majority_caption, retrieved_captions
from harness.benchmark.context import BenchmarkData, RunContext
from harness.benchmark.scoring import (
    SINGLE,
    SPICE_ONCE,
    add_facts,
    add_more_metrics,
    more_evaluator,
    score_people,
    score_split,
)
from harness.data.dataset import Sample
from harness.data.scenes.dataset import annotations_of
from harness.metrics.chair import KnownObjects, coco_words
from harness.metrics.evaluator import Evaluator
from harness.metrics.java import JavaError
from harness.metrics.meteor import MeteorSession
from harness.metrics.more.measure import MoreEvaluator, MoreSettings
from harness.metrics.signature import EvaluationSettings
from harness.utils.errors import BenchError
from results import Outcome, Quantity, SplitResult, Store
from results.comparison.comparison import compare_models
from results.metrics import depends_on
from results.records import RunSpec
from results.runs.reading import StoredRuns, finished, image_influences, stored_runs
from results.runs.run import Run
from results.runs.scores import OVERALL
from tests.harness.benchmark.small_runs import make_spec, quiet
from tests.harness.metrics.tiny_models import write_clip

SAMPLES = (
    Sample(1, "1.png", "test", ("a red dog runs", "the dog runs fast", "a dog")),
    Sample(2, "2.png", "test", ("two cats sleep on a sofa", "cats asleep on a sofa")),
    Sample(3, "3.png", "test", ("a kite flies over the sea", "one kite over a sea")),
)


@pytest.fixture
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(settings=EvaluationSettings(meteor=False)) as made:
        yield made


def data(samples: Sequence[Sample]) -> BenchmarkData:
    return cast("BenchmarkData", SimpleNamespace(evaluated={"test": tuple(samples)}))


def values(result: SplitResult) -> dict[str, Any]:
    return {metric: score.value for metric, score in result.held_out.items()}


def test_people_are_scored_against_one_reference_less(evaluator: Evaluator) -> None:
    result, seconds = score_people("test", data(SAMPLES), evaluator)
    assert result.captions == {sample.image_id: sample.captions[0] for sample in SAMPLES}
    assert values(result) == {metric: score.value for metric, score in result.scores["overall"].items()}
    assert result.held_out["CIDEr-D"].value
    assert result.scores["overall"]["CIDEr-D"].low is not None
    assert seconds > 0


def test_a_model_that_speaks_as_people_do_scores_as_they_do(evaluator: Evaluator) -> None:
    """Of two equal references an image, every round scores the same caption against the same reference."""
    pairs = [Sample(sample.image_id, "", "test", sample.captions[:1] * 2) for sample in SAMPLES]
    people, _ = score_people("test", data(pairs), evaluator)
    model, _ = score_split("test", people.captions, data(pairs), evaluator, held_out=True)
    assert values(model) == values(people)


def test_fewer_references_change_a_models_score(evaluator: Evaluator) -> None:
    captions = {1: "a dog runs", 2: "two cats", 3: "a kite"}
    model, _ = score_split("test", captions, data(SAMPLES), evaluator, held_out=True)
    alone, _ = score_split("test", captions, data(SAMPLES), evaluator)
    assert (alone.scores, alone.per_image, alone.held_out) == (model.scores, model.per_image, {})
    against_all, less = model.scores["overall"]["BLEU-1"].value, model.held_out["BLEU-1"].value
    assert against_all is not None
    assert less is not None
    assert less < against_all
    assert model.held_out["METEOR"].reason == "METEOR was not requested"
    assert all(score.low is None for score in model.held_out.values())


def test_slow_and_failing_programs_run_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked = []
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"21\"' >&2\n")
    java.chmod(0o755)

    def hang(*_: object, **__: object) -> None:
        asked.append("METEOR")
        raise JavaError("it hung")

    def parse(references: dict[int, list[str]], *_: object, **__: object) -> Any:
        asked.append("SPICE")
        return np.full(len(references), 0.5)

    monkeypatch.setattr(MeteorSession, "statistics", hang)
    monkeypatch.setattr("harness.metrics.evaluator.run_spice", parse)
    monkeypatch.setenv("BENCH_JAVA", str(java))
    with Evaluator(settings=EvaluationSettings(spice=True)) as evaluator:
        captions = {1: "a dog runs", 2: "two cats", 3: "a kite"}
        model, _ = score_split("test", captions, data(SAMPLES), evaluator, held_out=True)
        assert asked == ["METEOR", "SPICE"]
        people, _ = score_people("test", data(SAMPLES), evaluator)
    assert model.held_out["METEOR"].reason == "it hung"
    assert (model.scores["overall"]["SPICE"].value, model.held_out["SPICE"].reason) == (0.5, SPICE_ONCE)
    assert (people.held_out["SPICE"].value, asked.count("SPICE")) == (0.5, 4), "people's in each of three rounds"


def test_single_references_leave_nothing_to_hold_out(evaluator: Evaluator) -> None:
    single = data([Sample(1, "1.png", "test", ("a dog",)), Sample(2, "2.png", "test", ("a cat",))])
    model, _ = score_split("test", {1: "a dog", 2: "a cat"}, single, evaluator, held_out=True)
    assert {score.reason for score in model.held_out.values()} == {SINGLE}
    with pytest.raises(BenchError, match="test: no image has a second reference") as raised:
        score_people("test", single, evaluator)
    assert raised.value.hint == "leave human out of --models"


@pytest.fixture
def store(tmp_path: Path, small: RunContext) -> Iterator[Store]:
    with Store(tmp_path / "bench.sqlite") as opened:
        opened.record_dataset(small.data.record("f" * 16))
        yield opened


def finish(store: Store, spec: RunSpec, small: RunContext, caption: str | None = None) -> RunSpec:
    """A finished run that says `caption` of every image, or the first reference."""
    store.plan([spec])
    splits = tuple(
        SplitResult(
            split,
            {each.image_id: caption or each.captions[0] for each in samples},
            {"overall": {"CIDEr-D": Quantity(0.5)}},
            {},
        )
        for split, samples in small.data.evaluated.items()
    )
    store.finish(spec.key, Outcome(splits, {}, {}))
    return spec


def usual_scores(run: Run) -> dict[str, dict[str, dict[str, Quantity]]]:
    """By split, domain and metric."""
    return {split: run.scores.by_domain(split) for split in run.scores.splits}


def test_objects_of_scenes_and_a_clip_model(
    store: Store, small: RunContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    specs = [
        finish(store, make_spec("says"), small, "a red hexagon"),
        finish(store, make_spec("people", "human", role="reference"), small),
    ]
    before = [usual_scores(run) for run in finished(store)]
    settings = MoreSettings.parse(str(write_clip(tmp_path / "clip")), None, ())
    assert add_more_metrics(specs, more_evaluator(settings, small.data, "cpu"), small.data, store, quiet()) == {}
    says, people = finished(store)
    assert [usual_scores(says), usual_scores(people)] == before
    assert says.scores.rows["test", OVERALL, "caption_words"].value == 3
    chair = "CHAIR-s (objects:scenes)"
    assert says.scores.rows["test", OVERALL, chair].value == 1  # no split but nocaps shows hexagons
    assert people.scores.rows["test", OVERALL, chair].value == 0
    assert says.scores.rows["test", OVERALL, "self-CIDEr"].value is None
    assert 0 < (people.scores.rows["test", OVERALL, "self-CIDEr (captions:5, df:references)"].value or 0) < 1
    [name] = [name for name in says.scores.metrics("nocaps", kind="further") if name.startswith("CLIPScore")]
    assert says.scores.rows["nocaps", OVERALL, name].value is not None
    assert "--bert" in (says.scores.rows["test", OVERALL, "BERTScore"].reason or "")
    # What is there is not computed again; another model's scores stand beside the first's.
    monkeypatch.setattr(MoreEvaluator, "measure", lambda *_: pytest.fail("measured again"))
    add_more_metrics(specs, more_evaluator(settings, small.data, "cpu"), small.data, store, quiet())


def test_what_was_asked_for_and_not_measured_is_told_each_time(store: Store, small: RunContext, tmp_path: Path) -> None:
    spec = finish(store, make_spec("says"), small)
    (tmp_path / "no-model").mkdir()
    for given in ({"clip": str(tmp_path / "no-model")}, {"bert": str(tmp_path / "no-model")}):
        settings = MoreSettings.parse(given.get("clip"), given.get("bert"), ())
        for _ in range(2):
            lacking = add_more_metrics([spec], more_evaluator(settings, small.data, "cpu"), small.data, store, quiet())
            assert all("no-model" in name for name in lacking)
            assert len(lacking) == len(given.keys() & {"clip"}) + 1  # CLIPScore and RefCLIPScore, or BERTScore


def test_people_are_no_references_of_their_own(
    store: Store, small: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    measure = MoreEvaluator.measure
    monkeypatch.setattr(MoreEvaluator, "measure", lambda own, system: seen.append(system) or measure(own, system))
    spec = finish(store, make_spec("people", "human", role="reference"), small)
    add_more_metrics([spec], more_evaluator(MoreSettings(), small.data, "cpu"), small.data, store, quiet())
    for system in seen:
        assert all(system.captions[image_id] not in texts for image_id, texts in system.references.items())
        assert all(len(texts) == 5 for texts in system.sets.values())
    assert len(seen) == 2


def influences(store: Store, run: Run, metric: str) -> list[float]:
    """Those of the test split's images."""
    with store.reading() as connection:
        return list(image_influences(connection, [run], "test", metric).by_image(run.id).values())


def test_facts_of_finished_runs(store: Store, small: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [
        finish(store, make_spec("says"), small, "a dragon on a red hexagon"),
        finish(store, make_spec("people", "human", role="reference"), small),
    ]
    before, said = [usual_scores(run) for run in finished(store)], io.StringIO()
    add_facts(specs, small.data, store, quiet(said))
    assert "dragon (6)" in said.getvalue()
    says, people = stored_runs(store).runs
    assert [usual_scores(says), usual_scores(people)] == before
    domains = people.scores.domains("nocaps", "fact")
    assert (domains[0], len(domains)) == (OVERALL, 4)
    assert says.scores.rows["test", OVERALL, "facts-parsed"].value == 0
    assert (
        says.scores.rows["test", OVERALL, "facts-precision (object)"].value == 0
    )  # no split but nocaps shows hexagons
    assert "no caption states" in (says.scores.rows["test", OVERALL, "facts-precision (size)"].reason or "")
    precision = people.scores.rows["test", OVERALL, "facts-precision (object)"]
    assert (precision.value, precision.low, precision.high) == (1, 1, 1)
    recall = people.scores.rows["test", OVERALL, "facts-recall (colour)"].value
    assert np.mean(influences(store, people, "facts-recall (colour)")) == recall
    # What is there is not computed again; what two runs state is compared beside their scores.
    monkeypatch.setattr(scoring, "measure_facts", lambda *_: pytest.fail("measured again"))
    add_facts(specs, small.data, store, quiet())
    [pair] = compare_models(StoredRuns(store, [says]), StoredRuns(store, [people]), {}, 0).pairs
    assert {(fact.split, depends_on(fact.metric)) for fact in pair.facts if fact.test} >= {("test", "object")}
    assert not any("facts" in score.metric for score in pair.scores)


def test_words_of_finished_runs_where_no_scenes_are_known(
    store: Store, small: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Pictures of scenes by other numbers than their own are those of other data.
    ids = [replace(sample, image_id=sample.image_id + 1) for sample in small.data.dataset.samples]
    data = replace(small.data, dataset=replace(small.data.dataset, samples=tuple(ids)))
    assert annotations_of(small.data.dataset) is not None
    specs = [
        finish(store, make_spec("says"), small, "a red dog and an elephant"),
        finish(store, make_spec("people", "human", role="reference"), small),
    ]
    add_facts(specs, data, store, quiet())
    says, people = stored_runs(store).runs
    facts = says.scores.metrics("test", kind="fact")
    assert (facts["facts-words"].value, facts["facts-words"].unit) == (1, "references")
    assert facts["facts-precision (object)"].value == 0
    assert (people.scores.rows["test", OVERALL, "facts-recall (colour)"].value or 0) > 0
    assert np.mean(influences(store, says, "facts-F (colour)")) == facts["facts-F (colour)"].value
    [pair] = compare_models(StoredRuns(store, [says]), StoredRuns(store, [people]), {}, 0).pairs
    assert {depends_on(fact.metric) for fact in pair.facts} == {"object", "colour", "count", "relation"}
    # They are measured again only where objects are given, which then count as right.
    monkeypatch.setattr(scoring, "measure_words", lambda *_: pytest.fail("measured again"))
    add_facts(specs, data, store, quiet())
    monkeypatch.undo()
    images = {sample.image_id: frozenset({"dog"}) for sample in small.data.evaluated["test"]}
    add_facts(specs, data, store, quiet(), KnownObjects(coco_words(), images, "instances", True))
    facts = finished(store)[0].scores.metrics("test", kind="fact")
    assert (facts["facts-precision (object)"].value, facts["facts-words"].unit) == (0.5, "instances")


def train_samples(*captions: tuple[str, ...]) -> list[Sample]:
    return [Sample(number, f"{number}.png", "train", texts) for number, texts in enumerate(captions)]


class Vectors:
    """Pooled features by image id."""

    def __init__(self, **rows: Sequence[float]) -> None:
        self._rows = {int(name.removeprefix("image")): row for name, row in rows.items()}
        self.asked: list[int] = []

    def pooled(self, image_ids: Sequence[int]) -> Any:
        self.asked.append(len(image_ids))
        return np.array([self._rows[image_id] for image_id in image_ids], dtype=np.float32)


TRAIN = train_samples(("a dog", "the dog"), ("a cat",), ("a bird",))


def retrieve(features: Vectors, *image_ids: int, block: int = 256) -> dict[int, str]:
    asked = [Sample(image_id, "", "test", ("unknown",)) for image_id in image_ids]
    vectors: Any = features
    return retrieved_captions(asked, TRAIN, vectors, block)


def test_an_image_gets_the_first_caption_of_the_nearest_by_angle() -> None:
    features = Vectors(image0=(9, 0), image1=(1, 1), image2=(0, 0.1), image7=(1, 0.1), image8=(50, 60), image9=(0, 7))
    assert retrieve(features, 7, 8, 9) == {7: "a dog", 8: "a cat", 9: "a bird"}


def test_equally_near_images_give_the_earlier_caption() -> None:
    features = Vectors(image0=(0, 1), image1=(2, 0), image2=(1, 0), image8=(4, 0), image9=(0, 0))
    assert retrieve(features, 8, 9) == {8: "a cat", 9: "a dog"}, "an image of zeros is as far from all"


def test_retrieval_in_blocks_gives_the_same_captions() -> None:
    generator = np.random.default_rng(0)
    features = Vectors(**{f"image{number}": generator.normal(size=4).tolist() for number in range(12)})
    whole = retrieve(features, *range(3, 12))
    features.asked.clear()
    assert retrieve(features, *range(3, 12), block=4) == whole
    assert features.asked == [len(TRAIN), 4, 4, 1]


def test_the_majority_caption_is_given_as_it_was_written() -> None:
    train = train_samples(("A dog runs!", "some dog"), ("A dog sits.", "a  Dog runs."), ("The cat", "a bird"))
    assert majority_caption(train) == "A dog runs!"


@pytest.mark.parametrize("order", [1, -1])
def test_ties_go_to_the_first_caption_by_its_tokens(order: int) -> None:
    assert majority_caption(train_samples(("Two birds",), ("one cat",), ("red car",))[::order]) == "one cat"
