"""A row of costs stays complete whatever a model's code raises."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor

from harness.measure import latency
from harness.measure.captioning_costs import Effort, count_captioning, count_mean_caption, time_captioning
from harness.measure.flops.counting import COSTS as GMAC
from harness.measure.flops.counting import count_caption
from results.records import Quantity
from zoo.captioner import Captioner, DecodingState, Visual

QUICK = Effort(repeats=2, energy_seconds=1.0)


@dataclass
class Measured:
    costs: dict[str, Quantity]
    operators: dict[str, Any]
    state: dict[str, Any]


def measured(model: Captioner, visual: Visual, *, max_len: int = 3) -> Measured:
    counted = count_captioning(model, visual, beam_size=2, max_len=max_len)
    timed = time_captioning(model, [visual], beam_size=2, max_len=max_len, bos=1, eos=2, effort=QUICK)
    return Measured(counted.costs | timed.costs, counted.operators, timed.state)


def test_uncountable_cost_is_null_and_others_remain(
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


def test_what_was_said_lies_between_the_counts_of_whole_lengths(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    four, five = (count_caption(tiny, visual(), length, 3).macs / 1e9 for length in (4, 5))
    found = count_mean_caption(tiny, visual(), beam_size=3, length=4.25)
    assert found["caption_length_mean"] == Quantity(4.25, unit="tokens")
    assert found["gmac_beam_mean_length"].value == pytest.approx(0.75 * four + 0.25 * five, rel=1e-12)
    assert found["gmac_beam_mean_length"].unit == "GMAC"
    assert count_mean_caption(tiny, visual(), beam_size=3, length=5.0)["gmac_beam_mean_length"].value == five
    assert four < five
