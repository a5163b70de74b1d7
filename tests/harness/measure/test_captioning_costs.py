"""A complete row of costs for every registered model on a machine without a GPU, whatever a model's code raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from harness.measure import energy, latency
from harness.measure.captioning_costs import Effort, count_captioning, time_captioning
from harness.measure.flops import COSTS as GMAC
from harness.measure.inputs import example_visual
from results.records import Quantity
from zoo.captioner import Captioner, DecodingState, Visual
from zoo.registry import create_model, model_card

QUICK = Effort(repeats=2, seconds=0.01, energy_seconds=1.0)
WITHOUT_GPU = set(energy.COSTS)
FEW_RUNS = {"latency_margin"}


@dataclass
class Measured:
    costs: dict[str, Quantity]
    operators: dict[str, Any]
    state: dict[str, Any]


def measured(model: Captioner, visual: Visual, *, max_len: int = 3) -> Measured:
    counted = count_captioning(model, visual, beam_size=2, max_len=max_len)
    timed = time_captioning(model, visual, beam_size=2, max_len=max_len, bos=1, eos=2, effort=QUICK)
    return Measured(counted.costs | timed.costs, counted.operators, timed.state)


def test_every_registered_model_has_a_complete_row(architecture: str) -> None:
    torch.manual_seed(0)
    model = create_model(architecture, vocab_size=20, visual_dim=8, **model_card(architecture).tiny)
    found = measured(model, example_visual(model.visual, length=9))
    assert set(found.costs) == {"parameters", *GMAC, *latency.COSTS, *energy.COSTS}
    for name, cost in found.costs.items():
        if name in WITHOUT_GPU | FEW_RUNS:
            assert cost.value is None
            assert cost.reason
        else:
            assert cost.reason is None
            assert cost.value is not None
            assert cost.value > 0 or name in {"gmac_encoder", "gmac_start", "latency_noisy"}
    assert found.operators["beam"]["macs"] == round(1e9 * (found.costs["gmac_beam"].value or 0))
    assert found.state["threads"] == 1
    assert isinstance(found.state["noise"], list)


def test_what_a_model_does_not_let_count_is_null_and_the_rest_stands(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(tiny), "decode", _raise)
    tiny.train()
    found = measured(tiny, visual())
    assert {found.costs[name].reason for name in GMAC} == {"KeyError: 'no such projection'"}
    assert {found.costs[name].unit for name in GMAC} == {"GMAC"}
    assert found.operators == {}
    assert found.costs["latency_median"].value is not None
    assert found.costs["parameters"].value == sum(parameter.numel() for parameter in tiny.parameters())
    assert tiny.training


def _raise(*_: object) -> Tensor:
    raise KeyError("no such projection")


def test_what_a_model_does_not_let_time_is_null_too(
    tiny: Captioner, visual: Callable[..., Visual], monkeypatch: pytest.MonkeyPatch
) -> None:
    def reorder(*_: object) -> DecodingState:
        raise RuntimeError("out\nof memory")

    monkeypatch.setattr(DecodingState, "reorder", reorder)
    found = measured(tiny, visual())
    assert {found.costs[name].reason for name in latency.COSTS} == {"RuntimeError: out of memory"}
    assert {name: found.costs[name].unit for name in latency.COSTS} == latency.COSTS
    assert found.costs["gmac_beam"].value is not None


def test_a_caption_longer_than_the_model_can_is_a_reason(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    found = measured(tiny, visual(), max_len=33)
    assert "33 tokens" in str(found.costs["gmac_beam"].reason)
    assert "33" in str(found.costs["latency_median"].reason)
