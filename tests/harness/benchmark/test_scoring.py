"""What is scored of a split beside its scores: the same captions against one reference less, and people's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from harness.benchmark.context import BenchmarkData
from harness.benchmark.scoring import SINGLE, SPICE_ONCE, score_people, score_split
from harness.data.dataset import Sample
from harness.metrics.evaluator import Evaluator
from harness.metrics.java import JavaError
from harness.metrics.meteor import MeteorSession
from harness.metrics.signature import EvaluationSettings
from harness.utils.errors import BenchError
from results.records import SplitResult

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
    model, _ = score_split("test", people.captions, data(pairs), evaluator)
    assert values(model) == values(people)


def test_fewer_references_change_a_models_score(evaluator: Evaluator) -> None:
    model, _ = score_split("test", {1: "a dog runs", 2: "two cats", 3: "a kite"}, data(SAMPLES), evaluator)
    against_all, less = model.scores["overall"]["BLEU-1"].value, model.held_out["BLEU-1"].value
    assert against_all is not None
    assert less is not None
    assert less < against_all
    assert model.held_out["METEOR"].reason == "METEOR was not asked for"
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
        model, _ = score_split("test", {1: "a dog runs", 2: "two cats", 3: "a kite"}, data(SAMPLES), evaluator)
        assert asked == ["METEOR", "SPICE"]
        people, _ = score_people("test", data(SAMPLES), evaluator)
    assert model.held_out["METEOR"].reason == "it hung"
    assert (model.scores["overall"]["SPICE"].value, model.held_out["SPICE"].reason) == (0.5, SPICE_ONCE)
    assert (people.held_out["SPICE"].value, asked.count("SPICE")) == (0.5, 4), "people's in each of three rounds"


def test_single_references_leave_nothing_to_hold_out(evaluator: Evaluator) -> None:
    single = data([Sample(1, "1.png", "test", ("a dog",)), Sample(2, "2.png", "test", ("a cat",))])
    model, _ = score_split("test", {1: "a dog", 2: "a cat"}, single, evaluator)
    assert {score.reason for score in model.held_out.values()} == {SINGLE}
    with pytest.raises(BenchError, match="test: no image has a second reference") as raised:
        score_people("test", single, evaluator)
    assert raised.value.hint == "leave human out of --models"
