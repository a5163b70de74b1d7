"""What runs cost: passes, training, an A100's hours, and which captions are timed."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from harness.benchmark import costs as timing
from harness.benchmark.context import ComputeDevice, RunContext
from harness.benchmark.costs import (
    DEFERRED,
    ELSEWHERE,
    OTHER_SEED,
    TRAINING_COSTS,
    macs_per_image,
    pass_costs,
    time_deferred,
    time_model,
    timed_images,
    training_costs,
)
from harness.config.execution import ExecutionConfig
from harness.config.load import PRESETS, load_preset
from harness.config.preset import Decoding, Preset
from harness.config.schedule import Schedule
from harness.measure.captioning_costs import Timed
from harness.measure.estimate import FORWARD_AND_BACKWARD
from harness.measure.flops import count_flops
from harness.measure.inputs import example_for
from harness.measure.latency import COSTS as LATENCIES
from harness.measure.memory import PeakMemory
from harness.measure.model_modes import preserve_state
from harness.measure.speed import peak_macs
from harness.training.trainer import TrainState
from harness.utils.workspace import Workspace
from results.records import Quantity
from tests.harness.benchmark.small_runs import FixedServices, make_spec
from tests.harness.measure.conftest import TinyCaptioner
from zoo import Captioner, Visual, VisualSpec, create_model, model_card


def test_a_model_on_features_is_counted_as_it_is(tiny: TinyCaptioner) -> None:
    costs = pass_costs(tiny, cells=9, caption_length=5)
    whole = count_flops(tiny, example_for(tiny, length=9), caption_length=5, beam_size=1)
    assert costs.backbone == 0
    assert (costs.encoder, costs.start, costs.step) == (whole.encoder.macs, whole.start.macs, whole.step.macs)
    assert costs.caption == whole.teacher_forced.macs - whole.encoder.macs


def test_a_models_own_backbone_is_counted_apart() -> None:
    model = create_model(
        "expansionnet_v2/end-to-end", vocab_size=50, visual_dim=0, **model_card("expansionnet_v2/end-to-end").tiny
    ).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    costs = pass_costs(model, cells=144, caption_length=5)
    whole = count_flops(model, example_for(model, length=144), caption_length=5, beam_size=1)
    assert costs.backbone > 0
    assert costs.encoder > 0
    assert costs.backbone + costs.encoder == whole.encoder.macs
    assert costs.caption == whole.teacher_forced.macs - whole.encoder.macs
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


STAGE = {"name": "xe", "epochs": 3, "batch_size": 4, "captions_per_image": 2, "learning_rate": {"peak": 0.1}}
SUMMARY = TrainState(
    seconds=30.0, images=24, total_steps=6, best=1.0, data_wait_seconds=10.0, images_at_stage_ends=[18, 24]
)


def context_of(*stages: dict[str, Any], device: str = "cpu", precision: str = "fp32", devices: int = 1) -> Any:
    """What of a run's conditions counts here: eight images of two captions of three words each."""
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [STAGE | stage for stage in stages]})
    return SimpleNamespace(
        preset=SimpleNamespace(schedule=schedule, vocabulary=SimpleNamespace(max_len=20)),
        data=SimpleNamespace(train=tuple(SimpleNamespace(captions=("a red ball", "a blue box")) for _ in range(8))),
        inputs=SimpleNamespace(vocabulary=_Words(), decoding=SimpleNamespace(max_len=6)),
        compute=SimpleNamespace(
            device=torch.device(device), precision=precision, settings=SimpleNamespace(devices=devices, jobs=3)
        ),
    )


class _Words:
    preparation = "words"

    def __len__(self) -> int:
        return 12

    def tokenize(self, caption: str) -> list[str]:
        return caption.split()


@pytest.mark.parametrize("captions", [1, 2])
def test_an_images_work_is_the_schedules_over_its_images(
    tiny: Captioner, visual: Callable[..., Visual], captions: int
) -> None:
    counts = count_flops(tiny, visual(), caption_length=6)
    found = macs_per_image(tiny, counts, context_of({"captions_per_image": captions}))
    decoder = (counts.teacher_forced.macs - counts.encoder.macs) * 4 / 6  # three words and an end of six tokens
    assert found == [pytest.approx(FORWARD_AND_BACKWARD * (counts.encoder.macs + captions * decoder))]


def test_running_statistics_are_put_back() -> None:
    norm = nn.BatchNorm1d(3).eval()
    with preserve_state(norm):
        norm.train()
        norm(torch.randn(8, 3) + 5).sum().backward()
    assert not norm.training
    assert torch.equal(norm.running_mean, torch.zeros(3))  # type: ignore[arg-type]
    assert norm.weight.grad is None


def test_gpus_without_the_model_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda *_: pytest.fail("a GPU was asked for its random numbers"))
    with preserve_state(nn.Linear(1, 1)):
        torch.rand(1)


def test_a_model_on_pixels_counts_its_backbone_apart() -> None:
    name = "expansionnet_v2/end-to-end"
    model = create_model(name, vocab_size=12, visual_dim=0, **model_card(name).tiny)
    counts = count_flops(model, Visual(pixels=torch.zeros(1, 3, 32, 32)), caption_length=6)
    frozen, trained = (
        macs_per_image(model, counts, context_of({"backbone": backbone}))[0] for backbone in ("frozen", "trained")
    )
    assert trained > 2 * frozen > 0


def test_without_a_count_there_is_a_reason(tiny: Captioner) -> None:
    assert macs_per_image(tiny, None, context_of({})) == []
    with PeakMemory() as memory:
        pass
    costs = training_costs(SUMMARY, memory, [], context_of({}))
    reasons = {costs[name].reason for name in TRAINING_COSTS if name.startswith(("train_g", "train_u", "train_a"))}
    assert len(reasons) == 1
    assert "counted" in (reasons.pop() or "")


def test_what_training_came_to_on_a_cpu() -> None:
    with PeakMemory() as memory:
        pass
    costs = training_costs(SUMMARY, memory, [1e9, 3e9], context_of({}))
    assert {name: cost.unit for name, cost in costs.items()} == TRAINING_COSTS
    values = {name: cost.value for name, cost in costs.items()}
    assert values["train_seconds"] == 30
    assert values["train_images_per_second"] == 24 / 30
    assert (values["train_data_wait"], values["train_beside"]) == (25, 2)
    assert values["train_gmac"] == 18 + 3 * 6, "each stage by the images that it saw"
    assert values["train_gmac_per_second"] == pytest.approx(36 / 30)
    assert values["train_a100_hours_estimate"] is values["train_utilisation"] is None
    assert "no GPU" in str(costs["train_a100_hours_estimate"].reason)


def test_a100_hours_follow_the_utilisation_of_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    with PeakMemory() as memory:
        pass
    conditions = context_of({}, device="cuda", precision="bf16", devices=2)
    costs = training_costs(SUMMARY, memory, [1e13, 1e13], conditions)
    share = 24e13 / 30 / (2 * 989e12 / 2)
    assert costs["train_utilisation"].value == pytest.approx(100 * share)
    estimate = costs["train_a100_hours_estimate"]
    assert estimate.value == estimate.high == pytest.approx(24e13 / (share * 156e12) / 3600)
    assert estimate.low == pytest.approx(2 * 30 / 3600)  # as fast as here, and two devices were at work
    assert estimate.unit == "h"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some Device")
    unknown = training_costs(SUMMARY, memory, [1e13, 1e13], conditions)
    assert "peak rate of Some Device" in str(unknown["train_a100_hours_estimate"].reason)


def test_peak_rates() -> None:
    assert peak_macs("NVIDIA A100-SXM4-80GB", "bf16") == 156e12
    assert peak_macs("NVIDIA H100 PCIe", "bf16") == 378e12
    assert peak_macs("NVIDIA H100 80GB HBM3", "fp32") == 33.5e12
    assert peak_macs("NVIDIA H100 NVL", "bf16") == peak_macs("NVIDIA H200 NVL", "bf16") == 417.5e12
    assert peak_macs("NVIDIA H200", "bf16") == 494.5e12
    assert peak_macs("NVIDIA A1000", "fp32") is None


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
    assert {name for name in PRESETS if load_preset(name).latency_repeats < 50} == set()


class Numbered:
    """Shows of an image its number."""

    def visual(self, image_ids: list[int], _: VisualSpec) -> Visual:
        features = torch.tensor(image_ids, dtype=torch.float32)[:, None, None]
        return Visual(features, torch.ones(len(image_ids), 1, dtype=torch.bool))


def timed_context(jobs: int = 1, **settings: Any) -> Any:
    preset = Preset.model_validate({**load_preset("smoke").model_dump(), **settings})
    decoding = Decoding(beam_size=2, max_len=4, release_finished=True, banned=("a",), trigram_penalty=2.0)

    def numbers_of(words: Sequence[str], _: str) -> tuple[int, ...]:
        return (5,) * len(words)

    return SimpleNamespace(
        data=SimpleNamespace(evaluated={"test": [SimpleNamespace(image_id=image_id) for image_id in SPLIT]}),
        inputs=SimpleNamespace(vocabulary=SimpleNamespace(bos=1, eos=2, numbers_of=numbers_of), decoding=decoding),
        compute=ComputeDevice(torch.device("cpu"), "bf16", ExecutionConfig(jobs=jobs)),
        preset=preset,
        source=lambda _: Numbered(),
    )


def test_each_image_is_timed_alone_twice_and_in_the_run_s_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def measure(_model: object, visuals: list[Visual], search: Any, **settings: Any) -> Timed:
        asked.update(settings, images=[visual.features for visual in visuals], search=search.keywords)
        return Timed()

    monkeypatch.setattr(timing, "time_captioning", measure)
    model = create_model("blind", vocab_size=9, visual_dim=1, **model_card("blind").tiny)
    time_model(model, timed_context())
    assert [features.shape for features in asked["images"]] == [(1, 1, 1)] * 50
    assert [int(features) for features in asked["images"]] == timed_images(SPLIT, 50)
    assert (asked["effort"].repeats, asked["precision"], asked["threads"]) == (2, "bf16", 1)
    search = asked["search"]
    assert (search["release_finished"], search["banned"], search["rules"].trigram_penalty) == (True, (5,), 2.0)
    time_model(model, timed_context(latency_repeats=7))
    assert len(asked["images"]) == 7


def test_images_and_runs_are_counted_where_they_are_really_timed() -> None:
    model = create_model("blind", vocab_size=9, visual_dim=1, **model_card("blind").tiny)
    costs = time_model(model, timed_context(latency_repeats=3)).costs
    assert (costs["latency_images"].value, costs["latency_repeats"].value) == (3, 6)
    assert costs["latency_median"].value
    assert {cost.reason for cost in time_model(model, timed_context(jobs=2)).costs.values()} == {DEFERRED}


@pytest.mark.parametrize("here", [("a0", "a1", "b1", "c1", "longer a0"), ("a1",)])
def test_a_preset_may_have_one_seed_a_row_timed_of_those_that_are_here(
    monkeypatch: pytest.MonkeyPatch, small: RunContext, tmp_path: Path, here: tuple[str, ...]
) -> None:
    context = replace(small, preset=small.preset.model_copy(update={"timed_seeds": 1}))
    specs = [make_spec(f"{model}{seed}", model, context, seed=seed) for seed in (0, 1) for model in "abc"]
    longer = specs[0].signature | {"schedule": "longer"}
    specs.append(replace(make_spec("longer a0", "a", context), signature=longer))
    lacking = {"a0", "a1", "b1", "c1", "longer a0"}
    stored: dict[str, dict[str, Quantity]] = {}
    monkeypatch.setattr(timing, "runs_without_cost", lambda *_: lacking)
    monkeypatch.setattr(timing, "add_costs", lambda _store, key, costs, _where: stored.update({key: costs}))
    monkeypatch.setattr(timing, "_time_stored", lambda *_: Timed({"latency_median": Quantity(0.5, unit="s")}))
    workspace = Workspace(tmp_path)
    for key in lacking:
        workspace.run_folder(key).mkdir(parents=True)
        (workspace.run_folder(key) / ("run.json" if key in here else "lock")).touch()
    with FixedServices(workspace, context) as services:
        time_deferred(specs, services)
    found = {key: costs["latency_median"] for key, costs in stored.items()}
    timed = {"a0", "b1", "c1", "longer a0"} & set(here) or {"a1"}
    assert {key for key, cost in found.items() if cost.value} == timed
    assert found.keys() == lacking
    for key in lacking - timed:
        assert found[key].reason == (OTHER_SEED if key in here else ELSEWHERE)
        assert set(stored[key]) >= set(LATENCIES), "what a run lacks, it lacks with a reason"
