"""Numbers as people read them: metrics times 100 with one decimal, GMAC, durations and sizes with a sensible unit."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

DASH = "\u2014"

METRICS = ("CIDEr-D", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "SPICE")
DOMAINS = ("in-domain", "near-domain", "out-domain")


def metric_order(names: Iterable[str]) -> list[str]:
    """Metrics in the order they are shown: the field's usual one, CIDEr-D first, then any others by name."""
    found = set(names)
    return [name for name in METRICS if name in found] + sorted(found - set(METRICS))


def domain_order(names: Iterable[str]) -> list[str]:
    """Domains from near to far, then any others by name, "overall" last."""
    found = set(names) - {"overall"}
    known = [name for name in DOMAINS if name in found] + sorted(found - set(DOMAINS))
    return known + (["overall"] if "overall" in names else [])


def percent(value: float) -> str:
    """A fraction as the papers print it: 0.9834 is 98.3."""
    return f"{100 * value:.1f}"


def significant(value: float, digits: int = 3) -> str:
    """A plain decimal number of `digits` significant digits, without an exponent for everyday sizes."""
    if value == 0:
        return "0"
    if not 1e-4 <= abs(value) < 1e7:
        return f"{value:.{digits - 1}e}"
    text = f"{float(f'{value:.{digits - 1}e}'):,.10f}".rstrip("0").rstrip(".")
    whole, _, decimals = text.partition(".")
    missing = digits - len((whole + decimals).lstrip("-0").replace(",", ""))
    if missing > 0 and abs(value) < 10 ** (digits - 1):
        decimals += "0" * missing
    return f"{whole}.{decimals}" if decimals else whole


def count(value: float) -> str:
    """How many: 1,234,567 is 1.23 M."""
    for size, suffix in ((1e9, "\u202fG"), (1e6, "\u202fM"), (1e3, "\u202fk")):
        if abs(value) >= size:
            return significant(value / size) + suffix
    return f"{value:,.0f}"


def duration(seconds: float) -> str:
    """Seconds as "12.3 ms", "4.56 s", "3 min 05 s" or "2 h 07 min"."""
    if seconds < 1:
        return f"{significant(1000 * seconds)}\u202fms"
    if seconds < 59.95:
        return f"{significant(seconds)}\u202fs"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}\u202fmin {rest:02d}\u202fs"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}\u202fh {minutes:02d}\u202fmin"


def size(number_of_bytes: float) -> str:
    """Bytes in binary units."""
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number_of_bytes >= 1024**power:
            return f"{significant(number_of_bytes / 1024**power)}\u202f{unit}"
    return f"{number_of_bytes:.0f}\u202fB"


def instant(moment: datetime | None) -> str:
    """A moment as "2026-01-31 14:05 UTC"; the store keeps UTC."""
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else DASH


_BY_UNIT: dict[str, Callable[[float], str]] = {
    "s": duration,
    "bytes": size,
    "B": size,
    "MiB": lambda value: size(value * 1024**2),
    "GiB": lambda value: size(value * 1024**3),
    "GMAC": significant,
}


def cost(name: str, value: float, unit: str) -> str:
    """A cost in its own unit; counts such as parameters have none."""
    if unit in _BY_UNIT:
        return _BY_UNIT[unit](value)
    if not unit:
        return count(value)
    return f"{significant(value)}\u202f{unit}"


@dataclass(frozen=True, slots=True)
class CostKind:
    """How a cost is shown: its column's heading, what it means, and the table it belongs to."""

    label: str
    meaning: str
    theme: str


THEMES = ("Size and computation", "Time", "Memory", "Other")

_COSTS = {
    "parameters": CostKind("Parameters", "elements of all distinct parameters, frozen ones included", THEMES[0]),
    "gmac_encoder": CostKind("Encoder", "GMAC to encode one image's features", THEMES[0]),
    "gmac_start": CostKind("Start", "GMAC to set up decoding of one image, such as cross-attention keys", THEMES[0]),
    "gmac_step": CostKind("One step", "GMAC of the last decoding step of one row", THEMES[0]),
    "gmac_greedy": CostKind("Caption, greedy", "GMAC of a whole caption of one row: encoder, start, steps", THEMES[0]),
    "gmac_beam": CostKind("Caption, beam", "GMAC of a whole beam-searched caption: encoder, start, steps", THEMES[0]),
    "gmac_teacher_forced": CostKind("Teacher-forced", "GMAC of one pass over a whole caption, as in training", THEMES[0]),
}


def cost_kind(name: str, unit: str) -> CostKind:
    """How to show a cost; one that is not in the table above is named after itself and sorted by its unit."""
    if name in _COSTS:
        return _COSTS[name]
    theme = THEMES[3]
    if unit in {"s", "images/s"}:
        theme = THEMES[1]
    elif unit in {"bytes", "B", "MiB", "GiB"}:
        theme = THEMES[2]
    words = name.replace("_", " ")
    return CostKind(words[:1].upper() + words[1:], f"{words}, in {unit}" if unit else words, theme)


def cost_order(names: Iterable[str]) -> list[str]:
    """Costs in the order they are shown: the known ones, then any others in the order given."""
    found = list(dict.fromkeys(names))
    return [name for name in _COSTS if name in found] + [name for name in found if name not in _COSTS]
