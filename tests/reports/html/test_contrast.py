"""Colours that can be read: WCAG AA, in both schemes, for every text on every ground it stands on."""

from __future__ import annotations

import re

import pytest

from reports.html.plots import COLOURS
from reports.html.rendering import asset

TEXT = [
    *((ink, ground) for ink in ("ink", "soft", "accent", "warn") for ground in ("paper", "card", "faint")),
    ("good", "good-soft"),
    ("warn", "warn-soft"),
    *((f"c{number}", "card") for number in range(COLOURS)),
]
GRAPHICS = [("bar", "card"), ("soft", "card"), ("soft", "paper"), ("accent", "card")]


def schemes() -> dict[str, dict[str, str]]:
    """The style sheet's colours by scheme; the dark one changes what it names."""
    light, dark = re.findall(r":root \{(.*?)\}", asset("style.css"), re.DOTALL)
    found = [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in (light, dark)]
    return {"light": found[0], "dark": found[0] | found[1]}


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2.2)."""
    channels = (int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5))
    linear = (value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels)
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), TEXT)
def test_text(scheme: str, ink: str, ground: str) -> None:
    colours = schemes()[scheme]
    assert contrast(colours[ink], colours[ground]) >= 4.5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("ink", "ground"), GRAPHICS)
def test_graphics(scheme: str, ink: str, ground: str) -> None:
    colours = schemes()[scheme]
    assert contrast(colours[ink], colours[ground]) >= 3
