"""A ready model's captions, scores and costs: every split is scored, the test split alone is measured."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from harness.benchmark.evaluate import count_costs, evaluate

from harness.benchmark import evaluate as module
from harness.benchmark.context import RunContext
from harness.inference.generate import caption_images
from harness.measure.captioning_costs import Timed
from harness.metrics.evaluator import Evaluator
from harness.metrics.signature import EvaluationSettings
from harness.utils.errors import BenchError
from results.records import Outcome, Quantity
from tests.harness.benchmark.small_runs import quiet
from zoo import Captioner, create_model, model_card

MEASURED = {"caption_images_per_second", "caption_length_mean", "gmac_beam_mean_length", "score_seconds"}


@pytest.fixture
def evaluator() -> Iterator[Evaluator]:
    with Evaluator(settings=EvaluationSettings(meteor=False)) as made:
        yield made


@pytest.fixture(autouse=True)
def timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Timing has tests of its own."""
    found = Timed({"latency_median": Quantity(2.0, unit="ms")}, {"load": 0.5})
    monkeypatch.setattr(module, "time_model", lambda *_: found)


def make(name: str, context: RunContext) -> Captioner:
    torch.manual_seed(0)
    size = {"vocab_size": len(context.inputs.vocabulary), "visual_dim": context.data.visual_dim}
    return create_model(name, **size, **model_card(name).tiny)


def evaluated(model: Captioner, context: RunContext, evaluator: Evaluator, said: io.StringIO | None = None) -> Outcome:
    return evaluate(
        model, context, evaluator, counted=count_costs(model, context),
        costs={"train_seconds": Quantity(9.0, unit="s"), "parameters": Quantity(7.0)},
        environment={"device": "cpu"}, weights=Path("folder/best.safetensors"), reporter=quiet(said),
    )  # fmt: skip


def test_every_evaluated_split_is_captioned_and_scored(small: RunContext, evaluator: Evaluator) -> None:
    outcome = evaluated(make("show_tell", small), small, evaluator)
    assert [result.split for result in outcome.splits] == ["test", "nocaps"]
    for result in outcome.splits:
        assert list(result.captions) == [sample.image_id for sample in small.data.evaluated[result.split]]
        assert result.scores["overall"]["CIDEr-D"].value is not None
    assert outcome.checkpoint == "folder/best.safetensors"
    assert outcome.environment == {"device": "cpu", "measurement": {"load": 0.5}}


def test_costs_are_of_the_test_split_alone(small: RunContext, evaluator: Evaluator) -> None:
    model = make("show_tell", small)
    whole = evaluated(model, small, evaluator)
    assert whole.costs.keys() >= MEASURED
    assert (whole.costs["latency_median"].value, whole.costs["train_seconds"].value) == (2.0, 9.0)
    assert whole.costs["parameters"].value == 7.0, "what was known before the run goes first"
    assert whole.costs["gmac_beam"].value
    assert whole.operators == count_costs(model, small).operators
    splits = small.data.evaluated
    test_alone = replace(small, data=replace(small.data, evaluated={"test": splits["test"]}))
    alone = evaluated(model, test_alone, evaluator)
    for cost in ("caption_length_mean", "gmac_beam_mean_length"):
        assert alone.costs[cost] == whole.costs[cost]


def test_other_splits_are_not_measured(
    small: RunContext, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = replace(small, data=replace(small.data, evaluated={"nocaps": small.data.evaluated["nocaps"]}))
    model, counted = make("transformer_base", small), count_costs(make("blind", small), small)
    monkeypatch.setattr(module, "_attention", lambda *_: pytest.fail("maps were made"))
    outcome = evaluate(
        model, without, evaluator, counted=counted, costs={}, environment={}, weights=Path("w"), reporter=quiet()
    )
    assert MEASURED.isdisjoint(outcome.costs)


def test_attention_maps_are_kept_of_the_test_split(small: RunContext, evaluator: Evaluator) -> None:
    test, nocaps = evaluated(make("transformer_base", small), small, evaluator).splits
    said = {image_id for image_id, caption in test.captions.items() if caption}
    assert {record.image_id for record in test.attention} == said != set()
    assert {record.grid for record in test.attention} == {(2, 2)}
    assert nocaps.attention == ()


def test_a_model_without_attention_has_no_maps_and_no_note(small: RunContext, evaluator: Evaluator) -> None:
    said = io.StringIO()
    assert evaluated(make("show_tell", small), small, evaluator, said).splits[0].attention == ()
    assert "attention" not in said.getvalue()


def test_maps_that_cannot_be_made_are_a_note(
    small: RunContext, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> Any:
        raise BenchError("7 visual tokens fit no picture")

    monkeypatch.setattr(module, "attention_records", refuse)
    said = io.StringIO()
    outcome = evaluated(make("transformer_base", small), small, evaluator, said)
    assert outcome.splits[0].attention == ()
    assert outcome.splits[0].scores["overall"]["CIDEr-D"].value is not None
    assert said.getvalue() == "  no attention maps: 7 visual tokens fit no picture\n"


def test_captions_are_made_with_the_run_s_decoding(
    small: RunContext, evaluator: Evaluator, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def caption(*given: Any, **settings: Any) -> Any:
        asked.append((given[4], settings["precision"], settings["title"]))
        return caption_images(*given, **settings)

    monkeypatch.setattr(module, "caption_images", caption)
    own = small.inputs.decoding.model_copy(update={"max_len": 2})
    context = replace(small, inputs=replace(small.inputs, decoding=own))
    outcome = evaluated(make("blind", small), context, evaluator)
    assert asked == [(own, "fp32", "  captioning test"), (own, "fp32", "  captioning nocaps")]
    assert (outcome.costs["caption_length_mean"].value or 9) <= 2
