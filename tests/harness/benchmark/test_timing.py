"""Which images captions are timed of, and under what: chosen alike for every model, one by one, as the run captions."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.benchmark import timing
from harness.benchmark.context import Execution, RunContext
from harness.benchmark.timing import DEFERRED, ELSEWHERE, OTHER_SEED, time_deferred, time_model, timed_images
from harness.config.execution import ExecutionConfig
from harness.config.load import list_presets, load_preset
from harness.config.preset import Decoding, Preset
from harness.measure.captioning_costs import Timed
from harness.measure.latency import COSTS
from harness.utils.workspace import Workspace
from results.records import Quantity
from tests.harness.benchmark.small_runs import FixedServices, make_spec
from zoo import Visual, VisualSpec, create_model, model_card

SPLIT = [1000 + 3 * number for number in range(300)]


def test_images_are_chosen_by_a_fixed_seed_and_spread_over_the_split() -> None:
    chosen = timed_images(SPLIT, 50)
    assert chosen == timed_images(list(SPLIT), 50)
    places = [SPLIT.index(image_id) for image_id in chosen]
    assert [place // 6 for place in places] == list(range(50)), "one of each six"
    assert len({place % 6 for place in places}) == 6, "and not always the same one"


@pytest.mark.parametrize("count", [300, 301, 5000])
def test_of_a_small_split_all_images_are_timed(count: int) -> None:
    assert timed_images(SPLIT, count) == SPLIT
    assert timed_images([7], count) == [7]


def test_every_preset_times_50_images_at_least() -> None:
    assert {name for name in list_presets() if load_preset(name).latency_repeats < 50} == set()


class Numbered:
    """Shows of an image its number."""

    def visual(self, image_ids: list[int], _: VisualSpec) -> Visual:
        features = torch.tensor(image_ids, dtype=torch.float32)[:, None, None]
        return Visual(features, torch.ones(len(image_ids), 1, dtype=torch.bool))


def context(jobs: int = 1, **settings: Any) -> Any:
    preset = Preset.model_validate({**load_preset("smoke").model_dump(), **settings})
    return SimpleNamespace(
        data=SimpleNamespace(evaluated={"test": [SimpleNamespace(image_id=image_id) for image_id in SPLIT]}),
        inputs=SimpleNamespace(vocabulary=SimpleNamespace(bos=1, eos=2), decoding=Decoding(beam_size=2, max_len=4)),
        execution=Execution(torch.device("cpu"), "bf16", ExecutionConfig(jobs=jobs)),
        preset=preset,
        source=lambda _: Numbered(),
    )


def test_each_image_is_timed_alone_twice_and_in_the_run_s_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def measure(_model: object, visuals: list[Visual], **settings: Any) -> Timed:
        asked.update(settings, images=[visual.features for visual in visuals])
        return Timed()

    monkeypatch.setattr(timing, "time_captioning", measure)
    model = create_model("blind", vocab_size=9, visual_dim=1, **model_card("blind").tiny)
    time_model(model, context())
    assert [features.shape for features in asked["images"]] == [(1, 1, 1)] * 50
    assert [int(features) for features in asked["images"]] == timed_images(SPLIT, 50)
    assert (asked["effort"].repeats, asked["precision"], asked["threads"]) == (2, "bf16", 1)
    time_model(model, context(latency_repeats=7))
    assert len(asked["images"]) == 7


def test_images_and_runs_are_counted_where_they_are_really_timed() -> None:
    model = create_model("blind", vocab_size=9, visual_dim=1, **model_card("blind").tiny)
    costs = time_model(model, context(latency_repeats=3)).costs
    assert (costs["latency_images"].value, costs["latency_repeats"].value) == (3, 6)
    assert costs["latency_median"].value
    assert {cost.reason for cost in time_model(model, context(jobs=2)).costs.values()} == {DEFERRED}


@pytest.mark.parametrize("here", [("a0", "a1", "b1", "c1"), ("a1",)])
def test_a_preset_may_have_one_seed_a_model_timed_of_those_that_are_here(
    monkeypatch: pytest.MonkeyPatch, small: RunContext, tmp_path: Path, here: tuple[str, ...]
) -> None:
    preset = small.preset.model_copy(update={"timed_seeds": 1})
    context = replace(small, preset=preset)
    specs = [make_spec(f"{model}{seed}", model, context, seed=seed) for seed in (0, 1) for model in "abc"]
    lacking = {"a0", "a1", "b1", "c1"}
    stored: dict[str, dict[str, Quantity]] = {}
    monkeypatch.setattr(timing, "runs_without_cost", lambda *_: lacking)
    monkeypatch.setattr(timing, "add_costs", lambda _store, key, costs, _where: stored.update({key: costs}))
    monkeypatch.setattr(timing, "_time_stored", lambda *_: Timed({"latency_median": Quantity(0.5, unit="s")}))
    workspace = Workspace(tmp_path)
    for key in here:
        workspace.run_folder(key).mkdir(parents=True)
    with FixedServices(workspace, context) as services:
        time_deferred(specs, services)
    found = {key: costs["latency_median"] for key, costs in stored.items()}
    timed = {"a0", "b1", "c1"} & set(here) or {"a1"}
    assert {key for key, cost in found.items() if cost.value} == timed
    assert found.keys() == lacking
    for key in lacking - timed:
        assert found[key].reason == (OTHER_SEED if key in here else ELSEWHERE)
        assert set(stored[key]) >= set(COSTS), "what a run lacks, it lacks with a reason"
