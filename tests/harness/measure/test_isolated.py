"""Each model in a process of its own: it answers all that was asked, pinned, and a failure is one clear error."""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from harness.measure import energy, latency
from harness.measure import isolated as apart
from harness.measure.captioning_costs import Effort, count_captioning, count_mean_caption, time_captioning
from harness.measure.flops import COSTS as GMAC
from harness.measure.flops import count_caption
from harness.measure.isolated import BenchmarkJob, measure, run_isolated
from harness.utils.errors import BenchError
from results.records import Quantity
from zoo.captioner import Captioner, DecodingState, Visual
from zoo.decoding import beam_search

QUESTION = BenchmarkJob(
    model="updown",
    arguments={"d_model": 8, "d_ff": 8},
    vocab_size=20,
    visual_dim=8,
    regions=4,
    max_len=3,
    batches=(1, 2),
    widths=(1, 3),
    device="cpu",
    precisions=("fp32",),
    threads=1,
    effort=Effort(repeats=5, energy_seconds=0.0),
)


def test_every_pair_of_batch_and_width_has_every_cost() -> None:
    answers = measure(replace(QUESTION, precisions=("fp32", "bf16")))
    asked = [(answer.precision, answer.batch, answer.width) for answer in answers]
    assert asked == [(precision, *pair) for precision in ("fp32", "bf16") for pair in ((1, 1), (1, 3), (2, 1), (2, 3))]
    memory = {f"caption_peak_memory_{where}" for where in ("host", "device", "reserved")}
    assert all(set(answer.costs) == {*latency.COSTS, *energy.COSTS, *memory} for answer in answers)
    assert [answer.costs["latency_batch"].value for answer in answers[:4]] == [1, 1, 2, 2]
    assert all(answer.costs["latency_repeats"].value == 5 for answer in answers)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="pins to cores")
def test_another_process_answers_pinned_to_named_cores_and_what_its_model_prints_is_no_answer() -> None:
    plugin = str(Path(__file__).parents[1] / "plugins" / "ending_models.py")
    sizes = {"d_model": 8, "d_ff": 8, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1}
    question = replace(QUESTION, model="ending_prints", arguments=sizes, plugins=(plugin,), batches=(2,), widths=(1,))
    answers, environment = run_isolated(question)
    [answer] = answers
    assert (answer.model, answer.batch, answer.width) == ("ending_prints", 2, 1)
    assert answer.costs["latency_median"].value
    assert answer.costs["energy_per_image"].reason == "no CUDA device"
    assert answer.state["threads"] == environment["threads"] == 1
    assert environment["pinned_cores"] == sorted(os.sched_getaffinity(0))[:1]


def test_a_failure_in_there_is_one_error_with_what_it_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(
        "#!/bin/sh\necho 'Traceback' >&2\necho 'ZooError: no such model' >&2\nexit 1\n", encoding="utf-8"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(apart.sys, "executable", str(stand_in))
    with pytest.raises(BenchError, match=r"updown .*ZooError: no such model"):
        run_isolated(QUESTION)


QUICK = Effort(repeats=2, energy_seconds=1.0)


@dataclass
class Measured:
    costs: dict[str, Quantity]
    operators: dict[str, Any]
    state: dict[str, Any]


def measured(model: Captioner, visual: Visual) -> Measured:
    counted = count_captioning(model, visual, beam_size=2, max_len=3)
    timed = time_captioning(model, [visual], partial(beam_search, beam_size=2, max_len=3, bos=1, eos=2), effort=QUICK)
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
