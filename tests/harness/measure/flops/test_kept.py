"""Counts on disk equal those that are made, for what they were made for and for nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from harness.measure.captioning_costs import count_captioning, count_mean_caption
from harness.measure.flops import kept as module
from harness.measure.flops.counting import count_caption, count_flops
from harness.measure.flops.kept import KeptCounts
from zoo.captioner import Captioner, Visual

MADE_BY = {"model": "tiny", "arguments": {"d_model": 16}, "sources": "0123"}


def _refuse(*_: object, **__: object) -> None:
    raise AssertionError("counted again")


@pytest.fixture
def nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def refuse() -> None:
        monkeypatch.setattr(module, "count_flops", _refuse)
        monkeypatch.setattr(module, "count_caption", _refuse)

    return refuse


def test_another_seed_takes_up_the_very_counts(
    tiny: Captioner, visual: Callable[..., Visual], tmp_path: Path, nothing_is_counted: Callable[[], None]
) -> None:
    fresh = count_captioning(tiny, visual(), beam_size=3, max_len=5)
    spoken = count_mean_caption(tiny, visual(), beam_size=3, length=4.5)
    first = count_captioning(tiny, visual(), beam_size=3, max_len=5, kept=KeptCounts(tmp_path, MADE_BY))
    count_mean_caption(tiny, visual(), beam_size=3, length=4.5, kept=KeptCounts(tmp_path, MADE_BY))
    nothing_is_counted()
    for parameter in tiny.parameters():
        nn.init.normal_(parameter)
    again = count_captioning(tiny, visual(), beam_size=3, max_len=5, kept=KeptCounts(tmp_path, MADE_BY))
    assert again == first == fresh
    assert str(again.operators) == str(fresh.operators), "operators in the same order"
    assert count_mean_caption(tiny, visual(), beam_size=3, length=4.5, kept=KeptCounts(tmp_path, MADE_BY)) == spoken


@pytest.mark.parametrize("changed", ["length", "width", "regions", "arguments", "dropout", "frozen", "type"])
def test_what_a_count_depends_on_is_counted_anew(
    tiny: Captioner, visual: Callable[..., Visual], tmp_path: Path, changed: str
) -> None:
    KeptCounts(tmp_path, MADE_BY).flops(tiny, visual(), caption_length=4, beam_size=2)
    if changed == "dropout":
        tiny.set_dropout(0.0)
    elif changed == "frozen":
        next(tiny.parameters()).requires_grad_(False)
    elif changed == "type":
        tiny.double()
    image = visual(regions=5) if changed == "regions" else visual()
    length, width = 5 if changed == "length" else 4, 3 if changed == "width" else 2
    made_by = {**MADE_BY, "arguments": {"d_model": 17}} if changed == "arguments" else MADE_BY
    found = KeptCounts(tmp_path, made_by).flops(tiny, image, caption_length=length, beam_size=width)
    assert found == count_flops(tiny, image, caption_length=length, beam_size=width)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("damage", ["", "{}", "[1]", '{"macs": 1}'])
def test_a_damaged_file_is_counted_and_written_anew(
    tiny: Captioner, visual: Callable[..., Visual], tmp_path: Path, damage: str
) -> None:
    kept = KeptCounts(tmp_path, MADE_BY)
    kept.flops(tiny, visual(), caption_length=4, beam_size=2)
    kept.caption(tiny, visual(), 4, 2)
    sound = {path: path.read_text() for path in tmp_path.iterdir()}
    for path in sound:
        path.write_text(damage)
    assert kept.flops(tiny, visual(), caption_length=4, beam_size=2) == count_flops(
        tiny, visual(), caption_length=4, beam_size=2
    )
    assert kept.caption(tiny, visual(), 4, 2) == count_caption(tiny, visual(), 4, 2)
    assert {path: path.read_text() for path in tmp_path.iterdir()} == sound


def test_what_cannot_be_counted_is_not_kept(
    tiny: Captioner, visual: Callable[..., Visual], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(tiny), "decode", lambda *_: torch.zeros(()).view(2))
    found = count_captioning(tiny, visual(), beam_size=2, max_len=3, kept=KeptCounts(tmp_path, MADE_BY))
    assert found.costs["gmac_beam"].value is None
    assert not list(tmp_path.iterdir())
