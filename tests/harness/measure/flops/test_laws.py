"""What holds for every registered model: a second counter, sums of parts, a complete row of costs, and their growth."""

import math
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import cache, partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from harness.measure import energy, flops, latency
from harness.measure.captioning_costs import Counted, Effort, count_captioning, count_mean_caption, time_captioning
from harness.measure.flops import COSTS as GMAC
from harness.measure.flops import PASSES, FlopCounts, count_caption, count_dispatched, count_encoder, trace, unfused
from harness.measure.inputs import batch_of, example_visual
from harness.measure.model_modes import eval_mode
from zoo.captioner import Captioner, DecodingState, Visual
from zoo.decoding import beam_search
from zoo.registry import create_model, model_card

CHANNELS, REGIONS, LENGTH, BEAM = 8, 6, 3, 2
CONTRACTIONS = {"linear", "matmul", "bmm", "mm", "addmm", "baddbmm", "scaled_dot_product_attention", "conv", "einsum"}


@cache
def tiny(name: str) -> Captioner:
    torch.manual_seed(0)
    return create_model(name, vocab_size=30, visual_dim=CHANNELS, **model_card(name).tiny).eval()


def example(model: Captioner, length: int = REGIONS) -> Visual:
    """One image of so many regions; as pixels a small one."""
    seen = example_visual(model.visual, length=length)
    return seen if seen.pixels is None else Visual(pixels=torch.zeros(1, 3, 32, 32))


def apart(work: Callable[..., Any], *given: Any, **named: Any) -> Any:
    """Call `work` in a thread of its own: a trace keeps the stack of every operator, of which pytest's is most."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work, *given, **named).result()


@cache
def counted(name: str) -> Counted:
    model = tiny(name)
    with patch.object(torch.Tensor, "repeat_interleave", repeated):
        found: Counted = apart(count_captioning, model, example(model), beam_size=BEAM, max_len=LENGTH)
    return found


def repeated(rows: torch.Tensor, times: int, dim: int, original: Any = torch.Tensor.repeat_interleave) -> torch.Tensor:
    assert isinstance(times, int), "a trace's sizes are tensors of the host, by which a GPU repeats nothing"
    return original(rows, times, dim)


def whole(name: str) -> FlopCounts:
    return counted(name).counts


def test_two_counters_agree(architecture: str) -> None:
    """One on traces and one on dispatched kernels: equal within 2 % on products."""
    counts = whole(architecture)
    model = deepcopy(tiny(architecture)).requires_grad_(False)  # torch's counter hooks itself to what wants gradients
    visual = example(model)
    model.encode(visual)  # makes what evaluation keeps
    with sdpa_kernel(SDPBackend.MATH), count_dispatched() as reference:
        model(visual, torch.ones(1, counts.caption_length, dtype=torch.long))
    traced = sum(macs for name, macs in counts.teacher_forced.by_operator.items() if name in CONTRACTIONS)
    assert math.isclose(traced, reference.get_total_flops() / 2, rel_tol=0.02)


@pytest.mark.parametrize(("length", "width"), [(6, 1), (9, 3)])
def test_captions_equal_unrolled_ones(architecture: str, length: int, width: int) -> None:
    """Extrapolated from a few steps, by operator, as one trace of encoder, start and all steps."""
    apart(_check_unrolled, architecture, length, width)


def _check_unrolled(architecture: str, length: int, width: int) -> None:
    model = tiny(architecture)
    visual = example(model)

    def caption(traced: Visual) -> tuple[list[torch.Tensor], DecodingState]:
        state, token, logits = model.start(model.encode(traced)), torch.ones(1, dtype=torch.long), []
        for position in range(length):
            if position == 1 and width > 1:
                state = state.expand(width)
            words, state = model.step(token.expand(width if position else 1), state)
            logits.append(words)
        return logits, state

    with torch.no_grad(), eval_mode(model), unfused():
        model.encode(visual)  # makes what evaluation keeps
        unrolled = trace(model, caption, visual)
    with patch.object(flops, "trace", wraps=trace) as traces:
        assert count_caption(model, visual, length, width) == unrolled
    assert traces.call_count == 7, "the steps are a polynomial of their position"


def test_steps_that_are_no_polynomial_are_traced_one_by_one() -> None:
    model = tiny("transformer_base")
    visual = example(model)
    expected = apart(count_caption, model, visual, 9, 3)
    constant = patch.object(flops, "_extrapolate", lambda steps, _: steps[0])
    with constant, patch.object(flops, "trace", wraps=trace) as traces:
        assert apart(count_caption, model, visual, 9, 3) == expected
    assert traces.call_count == 2 + 9


def test_parts_add_up(architecture: str) -> None:
    counts = whole(architecture)
    rest = counts.greedy.macs - counts.encoder.macs - counts.start.macs
    assert 0 < rest <= counts.caption_length * counts.step.macs
    assert counts.greedy.macs < counts.beam.macs <= counts.greedy.macs + (BEAM - 1) * rest
    assert counts.step.macs > 0
    assert counts.greedy.macs <= 1.03 * counts.teacher_forced.macs  # no prefix is decoded anew


def test_a_training_step_is_two_to_four_passes(architecture: str) -> None:
    """A forward and two backward ones, but for what wants no gradient and what evaluation shortens."""
    counts = whole(architecture)
    assert 2 < counts.training.macs / counts.teacher_forced.macs < 4
    assert not [name for name in counts.training.by_operator if "attention" in name], "kernels of this device alone"


def test_every_uncounted_operator_is_estimated(architecture: str) -> None:
    for part in (whole(architecture).beam, whole(architecture).teacher_forced):
        assert set(part.uncounted) <= set(PASSES)
        assert set(part.element_wise) == set(part.uncounted)
        assert 0 < part.uncounted_share < 1


def test_every_model_has_a_complete_row_without_a_gpu(architecture: str) -> None:
    model, found = tiny(architecture), counted(architecture)
    visual = example(model)
    effort = Effort(repeats=2, energy_seconds=1.0)
    search = partial(beam_search, beam_size=BEAM, max_len=2, bos=1, eos=2)
    timed = time_captioning(model, [visual], search, effort=effort)
    said = apart(count_mean_caption, model, visual, beam_size=BEAM, length=LENGTH - 2.0)
    costs = found.costs | timed.costs | said
    assert set(costs) == {"parameters", *GMAC, *latency.COSTS, *energy.COSTS, *said}
    assert (said["gmac_beam_mean_length"].value or 0.0) < (costs["gmac_beam"].value or 0.0)
    for name, cost in costs.items():
        if name in {"latency_margin", *energy.COSTS}:
            assert cost.value is None
            assert cost.reason in {"no CUDA device", "fewer than 5 timed runs"}
        else:
            assert cost.reason is None
            assert cost.value > 0 or name in {"gmac_encoder", "gmac_start", "latency_noisy"}
    assert found.operators["beam"]["macs"] == round(1e9 * (costs["gmac_beam"].value or 0))
    assert timed.state["threads"] == 1
    assert isinstance(timed.state["noise"], list)


@pytest.mark.parametrize("name", ["transformer_base", "updown", "expansionnet_v2", "m2"])
def test_a_batch_costs_its_images(name: str) -> None:
    """Counted per image, so that no batch changes it: a batch of three costs three times as much."""
    model = deepcopy(tiny(name)).requires_grad_(False)
    one = example(model)
    model.encode(one)  # makes what evaluation keeps
    macs = []
    for batch in (1, 3):
        with sdpa_kernel(SDPBackend.MATH), count_dispatched() as counter:
            model(batch_of(one, batch), torch.ones(batch, 5, dtype=torch.long))
        macs.append(counter.get_total_flops())
    assert macs[1] == 3 * macs[0]


STEP = {
    # Multiply-accumulates of a step as a polynomial of its position: a state that summarises what went before (0),
    # attention over what went before (1), expansion of all that went before by all that went before (2).
    **dict.fromkeys(("adaptive_attention", "aoanet", "att2all", "att2in", "cgru", "gcn_lstm"), 0),
    **dict.fromkeys(("image_transformer", "sgae", "show_attend_tell", "show_tell", "updown", "x_lan"), 0),
    **dict.fromkeys(("blind", "blip", "get", "git", "vit_gpt2", "m2", "object_relation_transformer"), 1),
    **dict.fromkeys(("dlct", "grit", "rstnet", "transformer", "transformer_aoa", "transformer_base"), 1),
    **dict.fromkeys(("puret", "x_transformer"), 1),
    **dict.fromkeys(("expansionnet_v1", "expansionnet_v2"), 2),
    **dict.fromkeys(("expansionnet_v1/baseline", "expansionnet_v1/dynamic-encoder-1"), 1),
    **dict.fromkeys(("expansionnet_v1/static-64", "expansionnet_v2/static-16"), 1),
}
ENCODER = {
    # The same of the encoder and the number of regions: projections and static expansion (1), attention between
    # regions (2), dynamic expansion of all regions by all regions (3).
    **dict.fromkeys(("adaptive_attention", "aoanet/no-refiner", "att2all", "att2in", "cgru"), 1),
    **dict.fromkeys(("gcn_lstm/no-graph", "sgae", "show_attend_tell", "updown"), 1),
    **dict.fromkeys(("expansionnet_v1", "expansionnet_v2", "grit", "x_lan", "x_transformer"), 1),
    **dict.fromkeys(("aoanet", "dlct", "get", "image_transformer", "m2", "object_relation_transformer"), 2),
    **dict.fromkeys(("gcn_lstm", "puret", "rstnet"), 2),
    **dict.fromkeys(("transformer", "transformer_aoa", "transformer_base"), 2),
    **dict.fromkeys(("expansionnet_v1/baseline", "expansionnet_v2/dynamic-16"), 2),
    "expansionnet_v1/dynamic-encoder-1": 3,
}


def degree(values: list[int]) -> int:
    """Of the polynomial through values at consecutive points, two more than it should have."""
    differences, found = np.array(values), 0
    while differences.any():
        differences, found = np.diff(differences), found + 1
    assert len(differences) > 0, "of a higher degree than documented"
    return found - 1


def documented(name: str, by_name: Mapping[str, int]) -> int | None:
    """The degree of a model, or of its family; None for a model that is in no table."""
    return by_name.get(name, by_name.get(name.partition("/")[0]))


def step_macs(model: Captioner, visual: Visual, positions: Collection[int]) -> dict[int, int]:
    """Of one step alone, by the number of those before it."""
    found = {}
    with torch.no_grad(), eval_mode(model), unfused():
        state, token = model.start(model.encode(visual)), torch.ones(1, dtype=torch.long)
        for position in range(max(positions) + 1):
            if position in positions:
                found[position] = trace(model, lambda last: model.step(token, last), state).macs
            _, state = model.step(token, state)
    return found


def test_grows_as_documented(architecture: str) -> None:
    """Steps with their position, encoders with regions, and captions linearly with the beam's width."""
    apart(_check_growth, architecture)


def _check_growth(architecture: str) -> None:
    model, counts = tiny(architecture), whole(architecture)
    seen, last = example(model), LENGTH - 1  # where a step is counted
    steps, encoder = documented(architecture, STEP), documented(architecture, ENCODER)
    if steps is not None:
        positions = range(max(0, last - 1 - steps), max(0, last - 1 - steps) + steps + 2)
        by_position = step_macs(model, seen, {*positions} - {last}) | {last: counts.step.macs}
        assert degree([by_position[position] for position in positions]) == steps
    assert degree([counts.greedy.macs, counts.beam.macs, count_caption(model, seen, LENGTH, BEAM + 1).macs]) == 1
    if encoder is not None and model.visual.kind in {"grid", "regions", "regions+grid"}:
        longer = [example(model, REGIONS + more) for more in range(1, encoder + 2)]
        assert degree([counts.encoder.macs, *(count_encoder(model, visual).macs for visual in longer)]) == encoder
        assert degree([counts.step.macs, *(step_macs(model, visual, {last})[last] for visual in longer[:2])]) == 1
