"""What `bench plan` prints of printed training times."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from harness.cli.plan_published import show_published_times
from harness.config.load import load_preset


def shown(preset: str) -> str:
    """What `bench plan` prints of a preset's times."""
    text = io.StringIO()
    show_published_times(load_preset(preset), Console(file=text, width=80, highlight=False))
    return text.getvalue()


@pytest.mark.parametrize(
    ("preset", "says"),
    [
        ("expansionnet-v2-paper", "2.5 days, 60 device-hours: expansionnet_v2, static G={32, 64, 128, 256, 512}"),
        ("expansionnet-v2-paper", "single Nvidia A100 (expansionnet_v2, Table VII)"),
        ("expansionnet-v2-paper", "15 days, 6 times the authors' own, in the arXiv version, but 7 days"),
        ("expansionnet-v1-paper", "210 hours, 840 device-hours: transformer_base, RL, N=6; standard"),
        ("aoanet-paper", "7 days, 168 device-hours: aoanet"),
        ("puret-paper", "training time in print: none, of the recipe puret-paper"),
    ],
)
def test_the_plan_prints_them_with_their_source(preset: str, says: str) -> None:
    assert says in shown(preset)


def test_the_controlled_track_has_none() -> None:
    assert shown("quick") == ""
