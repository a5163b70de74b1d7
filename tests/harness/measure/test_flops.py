"""Whole-model counts: by hand on a small captioner, against torch's own counter on every registered model."""

from __future__ import annotations

import json
import logging
import warnings
from collections import Counter
from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from harness.errors import BenchError
from harness.measure.flops import FlopCounts, count_flops
from harness.measure.inputs import example_visual
from zoo.captioner import Captioner, Visual, VisualSpec
from zoo.registry import create_model, model_card

DIM, WIDTH, VOCABULARY, REGIONS = 8, 16, 12, 6
ENCODER = REGIONS * DIM * WIDTH
START = REGIONS * WIDTH * WIDTH
STEP = 3 * 2 * WIDTH * WIDTH + 2 * REGIONS * WIDTH + WIDTH * VOCABULARY
CONTRACTIONS = {"linear", "matmul", "bmm", "mm", "addmm", "baddbmm", "scaled_dot_product_attention", "conv", "einsum"}


def test_tiny_captioner_by_hand(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    counts = count_flops(tiny, visual(), caption_length=7, beam_size=3)
    assert counts.encoder.macs == ENCODER
    assert counts.start.macs == START
    assert counts.step.macs == STEP
    assert counts.step.by_operator["scaled_dot_product_attention"] == 2 * REGIONS * WIDTH
    assert counts.greedy.macs == counts.teacher_forced.macs == ENCODER + START + 7 * STEP
    assert counts.beam.macs == ENCODER + START + STEP + 6 * 3 * STEP
    assert counts.parameters == sum(parameter.numel() for parameter in tiny.parameters())
    assert counts.uncounted["tanh_"] == 7
    assert "linear" not in counts.uncounted


def test_width_one_is_greedy(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    counts = count_flops(tiny, visual(), caption_length=4)
    assert counts.beam == counts.greedy


def test_a_caption_of_one_word_is_one_step(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    counts = count_flops(tiny, visual(), caption_length=1, beam_size=5)
    assert counts.beam.macs == counts.greedy.macs == ENCODER + START + STEP


def test_counting_leaves_the_model_as_it_was(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    tiny.train()
    tiny.cell.eval()
    before = {name: value.clone() for name, value in tiny.state_dict().items()}
    generator = torch.get_rng_state()
    fast_path = torch.backends.mha.get_fastpath_enabled()
    count_flops(tiny, visual(), caption_length=3)
    assert tiny.training
    assert tiny.dropout.training
    assert not tiny.cell.training
    assert torch.backends.mha.get_fastpath_enabled() == fast_path
    assert torch.equal(torch.get_rng_state(), generator)
    assert all(torch.equal(value, before[name]) for name, value in tiny.state_dict().items())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in tiny.modules())
    assert all(parameter.requires_grad for parameter in tiny.parameters())


def test_counts_depend_on_nothing_but_shapes(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    first = count_flops(tiny, visual(), caption_length=5, beam_size=2)
    with torch.no_grad():
        for parameter in tiny.parameters():
            parameter.normal_()
    torch.set_num_threads(2)
    tiny.train()
    assert (
        count_flops(tiny, Visual(torch.zeros(1, REGIONS, DIM), visual().mask), caption_length=5, beam_size=2) == first
    )
    assert count_flops(tiny.double(), visual(), caption_length=5, beam_size=2) == first


def test_fused_transformer_paths_do_not_hide_operators(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    class Fused(type(tiny)):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 32, batch_first=True)

        def encode(self, visual: Visual):  # type: ignore[no-untyped-def]
            memory = super().encode(visual)
            return type(memory)(self.layer(memory.features), memory.mask)

    extra = count_flops(Fused(), visual(), caption_length=2).encoder.macs - ENCODER
    projections = REGIONS * (4 * WIDTH * WIDTH + 2 * WIDTH * 32)
    assert extra == projections + 2 * REGIONS * REGIONS * WIDTH + 2 * 5 * REGIONS * WIDTH


def test_quiet(
    tiny: Captioner, visual: Callable[..., Visual], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    with warnings.catch_warnings(), caplog.at_level(logging.DEBUG):
        warnings.simplefilter("error")
        count_flops(tiny, visual(), caption_length=3)
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_costs_and_operators_can_be_stored(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    counts = count_flops(tiny, visual(), caption_length=3, beam_size=2)
    costs = counts.quantities()
    assert costs["gmac_beam"].value == counts.beam.macs / 1e9
    assert costs["gmac_beam"].unit == "GMAC"
    assert costs["parameters"].value == counts.parameters
    assert set(costs) == {"parameters", *(f"gmac_{part}" for part in counts.operators())}
    assert json.loads(json.dumps(counts.operators()))["step"]["macs"] == STEP


def test_wrong_questions_are_refused(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    with pytest.raises(BenchError, match="batch of 2"):
        count_flops(tiny, visual(2))
    with pytest.raises(BenchError, match="33 tokens"):
        count_flops(tiny, visual(), caption_length=33)
    with pytest.raises(BenchError, match="0 tokens"):
        count_flops(tiny, visual(), caption_length=0)


@pytest.mark.parametrize("kind", ["grid", "regions", "pooled", "none", "pixels"])
def test_example_visual_has_the_shape_a_model_asks_for(kind: str) -> None:
    seen = example_visual(VisualSpec(kind, 5), length=9)  # type: ignore[arg-type]
    assert seen.batch_size == 1
    if kind == "pixels":
        assert seen.pixels is not None
        assert seen.pixels.shape == (1, 3, 224, 224)
        return
    tokens = 9 if kind in {"grid", "regions"} else 1
    assert seen.features is not None
    assert seen.features.shape == (1, tokens, 5)
    assert seen.mask is not None
    assert bool(seen.mask.all())
    assert (seen.boxes is not None) == (kind == "regions")


def _tiny_model(name: str) -> Captioner:
    torch.manual_seed(0)
    return create_model(name, vocab_size=30, visual_dim=DIM, **model_card(name).tiny).eval()


def _contractions(counted: Counter[str] | dict[str, int]) -> int:
    return sum(macs for operator, macs in counted.items() if operator in CONTRACTIONS)


def _matrix_vector(matrix: list[int], vector: list[int], **_: object) -> int:
    """Flops of aten.mv, which torch's counter passes over: attention scored by one vector needs it."""
    return 2 * matrix[0] * vector[0]


def test_registered_models_agree_with_torchs_own_counter(architecture: str) -> None:
    """Two counters, one on traces and one on dispatched kernels: equal within 2 % on matrix products."""
    model = _tiny_model(architecture)
    length = min(10, model.max_len)
    visual = example_visual(model.visual, length=9)
    counts = count_flops(model, visual, caption_length=length)
    model.requires_grad_(False)
    with FlopCounterMode(display=False, custom_mapping={torch.ops.aten.mv: _matrix_vector}) as reference:
        model(visual, torch.ones(1, length, dtype=torch.long))
    assert _contractions(counts.teacher_forced.by_operator) == pytest.approx(reference.get_total_flops() / 2, rel=0.02)


def test_registered_models_add_up(architecture: str) -> None:
    model = _tiny_model(architecture)
    length = min(10, model.max_len)
    counts: FlopCounts = count_flops(model, example_visual(model.visual, length=9), caption_length=length, beam_size=3)
    rest = counts.greedy.macs - counts.encoder.macs - counts.start.macs
    assert 0 < rest <= length * counts.step.macs
    assert counts.greedy.macs < counts.beam.macs <= counts.greedy.macs + 2 * rest
    assert counts.step.macs > 0
    assert counts.greedy.macs <= 1.01 * counts.teacher_forced.macs  # no prefix is decoded anew
