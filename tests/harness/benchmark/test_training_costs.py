"""What training was expected to take and what it came to; an A100's hours are an estimate, or NULL with the reason."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from harness.benchmark import training_costs as module
from harness.benchmark.training_costs import COSTS, Prediction, no_training, predict_training, training_costs
from harness.config.schedule import Schedule
from harness.measure.estimate import FORWARD_AND_BACKWARD, Speed
from harness.measure.flops.counting import count_flops
from harness.measure.memory import PeakMemory
from harness.measure.model_modes import preserve_state
from harness.measure.speed import a100_seconds, peak_macs
from harness.training.state import TrainingSummary
from results.records import Quantity
from zoo.captioner import Captioner, Visual
from zoo.registry import create_model, model_card

STAGE = {"name": "xe", "epochs": 3, "batch_size": 4, "captions_per_image": 2, "learning_rate": {"peak": 0.1}}
SUMMARY = TrainingSummary(seconds=30.0, images=24, steps=6, best_cider=1.0, data_wait_seconds=10.0)


def context_of(*stages: dict[str, Any], device: str = "cpu", precision: str = "fp32", devices: int = 1) -> Any:
    """What of a run's conditions counts here: eight images of two captions of three words each."""
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [STAGE | stage for stage in stages]})
    return SimpleNamespace(
        preset=SimpleNamespace(schedule=schedule, vocabulary=SimpleNamespace(max_len=20)),
        data=SimpleNamespace(train=tuple(SimpleNamespace(captions=("a red ball", "a blue box")) for _ in range(8))),
        inputs=SimpleNamespace(vocabulary=_Words(), decoding=SimpleNamespace(max_len=6)),
        execution=SimpleNamespace(
            device=torch.device(device), precision=precision, config=SimpleNamespace(devices=devices, jobs=3)
        ),
    )


class _Words:
    preparation = "words"

    def __len__(self) -> int:
        return 12

    def tokenize(self, caption: str) -> list[str]:
        return caption.split()


def test_the_schedules_work_over_the_probed_speed(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: dict[str, Any] = {}

    def probe(model: Captioner, *given: object, **settings: Any) -> Speed:
        asked.update(
            settings, length=given[-1], rate=[layer.p for layer in model.modules() if isinstance(layer, nn.Dropout)]
        )
        return Speed(training=1e6, decoding=1e6)

    monkeypatch.setattr(module, "measure_speed", probe)
    counts = count_flops(tiny, visual(), caption_length=6)
    found = predict_training(tiny, visual(), counts, context_of({"dropout": 0.0}))
    decoder = (counts.teacher_forced.macs - counts.encoder.macs) * 4 / 6  # three words and an end of six tokens
    per_image = FORWARD_AND_BACKWARD * (counts.encoder.macs + 2 * decoder)
    assert found.macs_per_image == pytest.approx(per_image)
    assert found.seconds.value == pytest.approx(8 * 3 * per_image / 1e6)
    assert asked == {"images": 4, "captions": 2, "min_s": module.PROBE_S, "length": 4, "rate": [0.0]}
    assert tiny.dropout.p == 0.5
    halved = predict_training(tiny, visual(), counts, context_of({"dropout": None}, devices=2))
    assert halved.seconds.value == pytest.approx(8 * 3 * per_image / 2e6)
    assert (asked["images"], asked["rate"]) == (2, [0.5])


def test_the_probe_really_trains_and_leaves_no_trace(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    before = {name: value.clone() for name, value in tiny.state_dict().items()}
    numbers = torch.get_rng_state()
    found = predict_training(tiny, visual(), count_flops(tiny, visual(), caption_length=6), context_of({}))
    assert found.seconds.value is not None
    assert found.seconds.value > 0
    assert all(torch.equal(value, before[name]) for name, value in tiny.state_dict().items())
    assert all(parameter.grad is None for parameter in tiny.parameters())
    assert torch.equal(torch.get_rng_state(), numbers)
    assert tiny.training


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
    pixels = Visual(pixels=torch.zeros(1, 3, 32, 32))
    counts = count_flops(model, pixels, caption_length=6)
    frozen, trained = (
        predict_training(model, pixels, counts, context_of({"backbone": backbone}))
        for backbone in ("frozen", "trained")
    )
    assert (trained.macs_per_image or 0) > 2 * (frozen.macs_per_image or 0) > 0


def test_no_count_and_no_probe_are_reasons(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    uncounted = predict_training(tiny, visual(), None, context_of({}))
    assert "could not be counted" in str(uncounted.seconds.reason)

    def fail(*_: object, **__: object) -> Speed:
        raise RuntimeError("out of\nmemory")

    monkeypatch.setattr(module, "measure_speed", fail)
    unprobed = predict_training(tiny, visual(), count_flops(tiny, visual(), caption_length=6), context_of({}))
    assert unprobed.seconds.reason == "the probe failed: RuntimeError: out of memory"
    assert unprobed.macs_per_image is not None
    with PeakMemory() as memory:
        pass
    costs = training_costs(SUMMARY, memory, uncounted, context_of({}))
    assert {costs[name].reason for name in COSTS if name.startswith(("train_g", "train_u", "train_a"))} == {
        uncounted.seconds.reason
    }


def test_what_training_came_to_on_a_cpu() -> None:
    with PeakMemory() as memory:
        pass
    prediction = Prediction(Quantity(25.0, unit="s"), macs_per_image=1e9)
    costs = training_costs(SUMMARY, memory, prediction, context_of({}))
    assert {name: cost.unit for name, cost in costs.items()} == COSTS
    values = {name: cost.value for name, cost in costs.items()}
    assert values["train_seconds"] == 30
    assert values["predicted_train_seconds"] == 25
    assert values["train_images_per_second"] == 24 / 30
    assert values["train_data_wait"] == 25
    assert values["train_beside"] == 2
    assert values["train_gmac"] == 24
    assert values["train_gmac_per_second"] == pytest.approx(0.8)
    assert values["train_a100_hours_estimate"] is values["train_utilisation"] is None
    assert "no GPU" in str(costs["train_a100_hours_estimate"].reason)


def test_a100_hours_follow_the_utilisation_of_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "NVIDIA H200")
    with PeakMemory() as memory:
        pass
    conditions = context_of({}, device="cuda", precision="bf16", devices=2)
    prediction = Prediction(Quantity(25.0, unit="s"), macs_per_image=1e13)
    costs = training_costs(SUMMARY, memory, prediction, conditions)
    share = 24e13 / 30 / (2 * 989e12 / 2)
    assert costs["train_utilisation"].value == pytest.approx(100 * share)
    estimate = costs["train_a100_hours_estimate"]
    assert estimate.value == estimate.high == pytest.approx(24e13 / (share * 156e12) / 3600)
    assert estimate.low == pytest.approx(2 * 30 / 3600)  # as fast as here, and two devices were at work
    assert estimate.unit == "h"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "Some Device")
    unknown = training_costs(SUMMARY, memory, prediction, conditions)
    assert "peak rate of Some Device" in str(unknown["train_a100_hours_estimate"].reason)


def test_nothing_trained_is_a_complete_row_of_reasons() -> None:
    assert {(cost.value, cost.reason) for cost in no_training("stored before").values()} == {(None, "stored before")}
    assert set(no_training("")) == set(COSTS)


def test_peak_rates() -> None:
    assert peak_macs("NVIDIA A100-SXM4-80GB", "bf16") == 156e12
    assert peak_macs("NVIDIA H100 PCIe", "bf16") == 378e12
    assert peak_macs("NVIDIA H100 80GB HBM3", "fp32") == 33.5e12
    assert peak_macs("NVIDIA H100 NVL", "bf16") == peak_macs("NVIDIA H200 NVL", "bf16") == 417.5e12
    assert peak_macs("NVIDIA H200", "bf16") == 494.5e12
    assert peak_macs("NVIDIA A1000", "fp32") is None


def test_a100_hours_lie_between_equal_share_and_equal_rate() -> None:
    work = 156e12 * 60
    assert a100_seconds(work, 50e12, 494.5e12, "bf16") == pytest.approx((60 * 494.5 / 50, 60 * 156 / 50))
    assert a100_seconds(work, 312e12, 494.5e12, "bf16")[1] == pytest.approx(60), "its own peak is the most it reaches"
    same_share, same_rate = a100_seconds(work, 20e12, 35e12, "bf16")
    assert same_share < same_rate, "a slower device"
    assert a100_seconds(work, 78e12, 156e12, "bf16") == pytest.approx((120, 120)), "an A100 itself"
