"""Whole-model counts, by hand on a small captioner; those on disk equal those that are made."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.measure import flops as module
from harness.measure.captioning_costs import count_captioning, count_mean_caption
from harness.measure.flops import CountCache, FlopCounts, PartCount, count_caption, count_flops
from harness.utils.errors import BenchError
from zoo.captioner import Captioner, Visual

DIM, WIDTH, VOCABULARY, REGIONS = 8, 16, 12, 6
ENCODER = REGIONS * DIM * WIDTH
START = REGIONS * WIDTH * WIDTH
STEP = 3 * 2 * WIDTH * WIDTH + 2 * REGIONS * WIDTH + WIDTH * VOCABULARY


def test_tiny_captioner_by_hand(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    counts = count_flops(tiny, visual(), caption_length=7, beam_size=3)
    ninth = count_flops(tiny, visual(), caption_length=1, beam_size=5, step_position=9)
    assert (counts.step_position, ninth.step_position) == (7, 9)
    assert ninth.step.macs == STEP
    assert ninth.beam.macs == ninth.greedy.macs == ENCODER + START + STEP
    assert (counts.encoder.macs, counts.start.macs) == (ENCODER, START)
    assert counts.step.macs == STEP
    assert counts.step.by_operator["scaled_dot_product_attention"] == 2 * REGIONS * WIDTH
    assert counts.greedy.macs == counts.teacher_forced.macs == ENCODER + START + 7 * STEP
    assert counts.beam.macs == ENCODER + START + STEP + 6 * 3 * STEP
    assert counts.parameters == sum(parameter.numel() for parameter in tiny.parameters())
    assert counts.beam.uncounted["tanh_"] == 7
    assert "linear" not in counts.beam.uncounted


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


def test_training_is_forward_and_backward_with_dropout(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    tiny.cell.requires_grad_(False)
    found = count_flops(tiny, visual(), caption_length=5).training
    # Of every product: forward, and the gradients of weights and inputs, where anyone wants these. The features and
    # the embedded words of the first step, and the weights of the cell, want none.
    projections = 2 * ENCODER + 3 * START
    cells, heads = 6 * WIDTH * WIDTH, 3 * WIDTH * VOCABULARY
    assert found.macs == projections + 5 * (2 * cells + heads + (3 * 2 * REGIONS * WIDTH))
    assert found.by_operator.keys() >= {"addmm", "mm"}


def test_wrong_questions_are_refused(tiny: Captioner, visual: Callable[..., Visual]) -> None:
    with pytest.raises(BenchError, match="33 tokens"):
        count_flops(tiny, visual(), caption_length=33)
    with pytest.raises(BenchError, match="at position 40 tokens"):
        count_flops(tiny, visual(), caption_length=3, step_position=40)
    with pytest.raises(BenchError, match="0 tokens"):
        count_flops(tiny, visual(), caption_length=0)


MADE_BY = {"model": "tiny", "arguments": {"d_model": 16}, "sources": "0123"}


def test_another_seed_takes_up_the_very_counts(
    tiny: Captioner, visual: Callable[..., Visual], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh = count_captioning(tiny, visual(), beam_size=3, max_len=5)
    spoken = count_mean_caption(tiny, visual(), beam_size=3, length=4.5)
    first = count_captioning(tiny, visual(), beam_size=3, max_len=5, cache=CountCache(tmp_path, MADE_BY))
    count_mean_caption(tiny, visual(), beam_size=3, length=4.5, cache=CountCache(tmp_path, MADE_BY))
    for name in ("count_flops", "count_caption"):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("counted again"))
    for parameter in tiny.parameters():
        nn.init.normal_(parameter)
    again = count_captioning(tiny, visual(), beam_size=3, max_len=5, cache=CountCache(tmp_path, MADE_BY))
    assert again == first == fresh
    assert str(again.operators) == str(fresh.operators), "operators in the same order"
    assert count_mean_caption(tiny, visual(), beam_size=3, length=4.5, cache=CountCache(tmp_path, MADE_BY)) == spoken


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tiny: Captioner, visual: Callable[..., Visual]) -> list[str]:
    """What is counted, each time with the same result."""
    made = count_flops(tiny, visual(), caption_length=1), count_caption(tiny, visual(), 1)
    asked: list[str] = []
    for name, result in zip(("count_flops", "count_caption"), made, strict=True):
        monkeypatch.setattr(module, name, lambda *_, name=name, result=result, **__: asked.append(name) or result)
    return asked


@pytest.mark.parametrize("changed", ["length", "width", "regions", "arguments", "dropout", "frozen", "type"])
def test_what_a_count_depends_on_is_counted_anew(
    tiny: Captioner, visual: Callable[..., Visual], tmp_path: Path, counted: list[str], changed: str
) -> None:
    CountCache(tmp_path, MADE_BY).flops(tiny, visual(), caption_length=4, beam_size=2)
    if changed == "dropout":
        tiny.set_dropout(0.0)
    elif changed == "frozen":
        next(tiny.parameters()).requires_grad_(False)
    elif changed == "type":
        tiny.double()
    image = visual(regions=5) if changed == "regions" else visual()
    length, width = 5 if changed == "length" else 4, 3 if changed == "width" else 2
    made_by = {**MADE_BY, "arguments": {"d_model": 17}} if changed == "arguments" else MADE_BY
    for _ in range(2):
        CountCache(tmp_path, made_by).flops(tiny, image, caption_length=length, beam_size=width)
    assert counted == ["count_flops"] * 2
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"macs": 1}'])
def test_a_damaged_file_is_counted_and_written_anew(
    tiny: Captioner, visual: Callable[..., Visual], tmp_path: Path, counted: list[str], damage: str
) -> None:
    kept = CountCache(tmp_path, MADE_BY)

    def count() -> tuple[FlopCounts, PartCount]:
        return kept.flops(tiny, visual(), caption_length=4, beam_size=2), kept.caption(tiny, visual(), 4, 2)

    first = count()
    sound = {path: path.read_text() for path in tmp_path.iterdir()}
    for path in sound:
        path.write_text(damage)
    assert count() == first
    assert counted == ["count_flops", "count_caption"] * 2
    assert {path: path.read_text() for path in tmp_path.iterdir()} == sound
