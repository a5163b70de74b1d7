"""What every registered model's counts obey: a second counter, sums of parts, and how they grow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from functools import cache

import numpy as np
import pytest
import torch

from harness.measure.element_wise import PASSES
from harness.measure.flops import FlopCounts, count_caption, count_encoder, count_flops, count_step
from harness.measure.inputs import batch_of, example_visual
from harness.measure.training_flops import count_dispatched
from zoo.captioner import Captioner
from zoo.registry import create_model, model_card

CHANNELS, REGIONS, LENGTH = 8, 9, 10
CONTRACTIONS = {"linear", "matmul", "bmm", "mm", "addmm", "baddbmm", "scaled_dot_product_attention", "conv", "einsum"}
SECOND_COUNTER: Mapping[str, str] = {}
"""Models whose two counts differ by more than 2 %, each with the reason; none does."""

STEP = {
    # Multiply-accumulates of a step as a polynomial of its position: a state that summarises what went before (0),
    # attention over what went before (1), expansion of all that went before by all that went before (2).
    **dict.fromkeys(("aoanet", "att2all", "att2in", "cgru", "image_transformer"), 0),
    **dict.fromkeys(("show_attend_tell", "show_tell", "updown"), 0),
    **dict.fromkeys(("blind", "blip", "git", "vit_gpt2", "m2", "object_relation_transformer"), 1),
    **dict.fromkeys(("transformer", "transformer_aoa", "transformer_base"), 1),
    **dict.fromkeys(("expansionnet_v1", "expansionnet_v2"), 2),
    **dict.fromkeys(("expansionnet_v1/baseline", "expansionnet_v1/dynamic-encoder-1"), 1),
    **dict.fromkeys(("expansionnet_v1/static-64", "expansionnet_v2/static-16"), 1),
}
ENCODER = {
    # The same of the encoder and the number of regions: projections and static expansion (1), attention between
    # regions (2), dynamic expansion of all regions by all regions (3).
    **dict.fromkeys(("aoanet/no-refiner", "att2all", "att2in", "cgru", "show_attend_tell", "updown"), 1),
    **dict.fromkeys(("expansionnet_v1", "expansionnet_v2"), 1),
    **dict.fromkeys(("aoanet", "image_transformer", "m2", "object_relation_transformer"), 2),
    **dict.fromkeys(("transformer", "transformer_aoa", "transformer_base"), 2),
    **dict.fromkeys(("expansionnet_v1/baseline", "expansionnet_v2/dynamic-16"), 2),
    "expansionnet_v1/dynamic-encoder-1": 3,
}


@cache
def tiny(name: str) -> Captioner:
    torch.manual_seed(0)
    return create_model(name, vocab_size=30, visual_dim=CHANNELS, **model_card(name).tiny).eval()


@cache
def whole(name: str) -> FlopCounts:
    model = tiny(name)
    length = min(LENGTH, model.max_len)
    return count_flops(model, example_visual(model.visual, length=REGIONS), caption_length=length, beam_size=3)


def degree(values: list[int]) -> int:
    """Of the polynomial through values at consecutive points; at least two points more than the degree are needed."""
    differences, found = np.array(values), 0
    while differences.any():
        differences, found = np.diff(differences), found + 1
    assert len(differences) > 0
    return found - 1


def documented(name: str, by_name: Mapping[str, int]) -> int:
    return by_name.get(name, by_name[name.partition("/")[0]])


def test_two_counters_agree(architecture: str) -> None:
    """One on traces and one on dispatched kernels: equal within 2 % on products."""
    counts = whole(architecture)
    model = deepcopy(tiny(architecture)).requires_grad_(False)  # torch's counter hooks itself to what wants gradients
    visual = example_visual(model.visual, length=REGIONS)
    model.encode(visual)  # makes what evaluation keeps
    with count_dispatched() as reference:
        model(visual, torch.ones(1, counts.caption_length, dtype=torch.long))
    traced = sum(macs for name, macs in counts.teacher_forced.by_operator.items() if name in CONTRACTIONS)
    same = math.isclose(traced, reference.get_total_flops() / 2, rel_tol=0.02)
    assert same != (architecture in SECOND_COUNTER)


def test_parts_add_up(architecture: str) -> None:
    counts = whole(architecture)
    rest = counts.greedy.macs - counts.encoder.macs - counts.start.macs
    assert 0 < rest <= counts.caption_length * counts.step.macs
    assert counts.greedy.macs < counts.beam.macs <= counts.greedy.macs + 2 * rest
    assert counts.step.macs > 0
    assert counts.greedy.macs <= 1.01 * counts.teacher_forced.macs  # no prefix is decoded anew


def test_a_training_step_is_two_to_four_passes(architecture: str) -> None:
    """A forward and two backward ones, but for what wants no gradient and what evaluation shortens."""
    counts = whole(architecture)
    assert 2 < counts.training.macs / counts.teacher_forced.macs < 4


def test_every_uncounted_operator_is_estimated(architecture: str) -> None:
    for part in (whole(architecture).beam, whole(architecture).teacher_forced):
        assert set(part.uncounted) <= set(PASSES)
        assert set(part.element_wise) == set(part.uncounted)
        assert 0 < part.uncounted_share < 1


def test_grows_as_documented(architecture: str) -> None:
    """Steps with their position, encoders with regions, and captions linearly with the beam's width."""
    model = tiny(architecture)
    seen = example_visual(model.visual, length=REGIONS)
    assert degree([count_step(model, seen, position).macs for position in range(1, 6)]) == documented(
        architecture, STEP
    )
    assert degree([count_caption(model, seen, 2, width).macs for width in (1, 2, 3)]) == 1
    if model.visual.kind in {"grid", "regions"}:
        lengths = [example_visual(model.visual, length=length) for length in range(6, 11)]
        assert degree([count_encoder(model, visual).macs for visual in lengths]) == documented(architecture, ENCODER)
        assert degree([count_step(model, visual, 1).macs for visual in lengths[:3]]) == 1


@pytest.mark.parametrize("name", ["transformer_base", "updown", "expansionnet_v2", "m2"])
def test_a_batch_costs_its_images(name: str) -> None:
    """Counted per image, so that no batch changes it: a batch of three costs three times as much."""
    model = deepcopy(tiny(name)).requires_grad_(False)
    one = example_visual(model.visual, length=REGIONS)
    model.encode(one)  # makes what evaluation keeps
    macs = []
    for batch in (1, 3):
        with count_dispatched() as counter:
            model(batch_of(one, batch), torch.ones(batch, 5, dtype=torch.long))
        macs.append(counter.get_total_flops())
    assert macs[1] == 3 * macs[0]
