"""Numbers as shown to readers: metrics times 100 with one decimal, counts, durations and sizes in a sensible unit."""

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Final

from results.costs import cost_info
from results.metrics import NumberFormat

DASH = "\u2014"

DOMAINS = ("in-domain", "near-domain", "out-domain")


def domain_order(names: Iterable[str]) -> list[str]:
    """Domains from near to far, then any others by name, "overall" last."""
    present = set(names)
    ordered = [name for name in DOMAINS if name in present] + sorted(present - {*DOMAINS, "overall"})
    return [*ordered, "overall"] if "overall" in present else ordered


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def signed(value: float) -> str:
    """A difference times 100, always with its sign."""
    return f"{'−' if value < 0 else '+'}{percent(abs(value))}"


def listed(names: Sequence[str], word: str = "and", most: int = 1000) -> str:
    """As "a, b and c", with the last word given; of more than `most` as "a, b and 3 more"."""
    names = names if len(names) <= most else (*names[:most], f"{len(names) - most} more")
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def bounds(low: float | None, high: float | None, show: Callable[[float], str]) -> str:
    """An interval as "98.1\u2013102.4" or, so that a dash is no sign, "-1.2 to 3.4"; empty if there is none."""
    if low is None or high is None:
        return ""
    return f"{show(low)}{' to ' if low < 0 else chr(0x2013)}{show(high)}"


def significant(value: float) -> str:
    """A plain decimal number of three significant digits, without an exponent for everyday sizes."""
    if value == 0:
        return "0"
    rounded = f"{value:.2e}"
    if not 1e-4 <= abs(value) < 1e7:
        return rounded
    return f"{float(rounded):,.{max(0, 2 - int(rounded[-3:]))}f}"


def count(value: float, unit: str = "") -> str:
    for power, prefix in ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k")):
        # What three digits would round up to a thousand is one of the next prefix.
        if abs(value) >= 0.9995 * 10**power:
            return f"{significant(value / 10**power)}\u202f{prefix}{unit}"
    return f"{value:,.0f}\u202f{unit}" if unit else f"{value:,.0f}"


def macs(number: float) -> str:
    return count(number, "MAC")


def duration(seconds: float) -> str:
    if seconds < 1:
        return f"{significant(1000 * seconds)}\u202fms"
    if seconds < 59.95:
        return f"{significant(seconds)}\u202fs"
    minutes, seconds_left = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}\u202fmin {seconds_left:02d}\u202fs"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}\u202fh {minutes:02d}\u202fmin"


def size(number_of_bytes: float) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number_of_bytes >= 1024**power:
            return f"{significant(number_of_bytes / 1024**power)}\u202f{unit}"
    return f"{number_of_bytes:.0f}\u202fB"


def instant(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else DASH


SCORE_FORMATS: Final[dict[NumberFormat, Callable[[float], str]]] = {
    "percent": percent,
    "count": count,
    "decimal": significant,
}
_BY_UNIT: dict[str, Callable[[float], str]] = {
    "s": duration,
    "bytes": size,
    "MiB": lambda value: size(value * 1024**2),
    "GiB": lambda value: size(value * 1024**3),
    "GMAC": lambda value: macs(1e9 * value),
    "GMAC/s": lambda value: f"{macs(1e9 * value)}/s",
}
_COUNTED = {"images": "image", "threads": "thread", "runs": "run", "tokens": "token"}


def cost(value: float, unit: str) -> str:
    if unit in _BY_UNIT:
        return _BY_UNIT[unit](value)
    if unit in _COUNTED:
        number = count(value) if value == round(value) else significant(value)
        return f"{number}\u202f{_COUNTED[unit] if value == 1 else unit}"
    return f"{significant(value)}\u202f{unit}" if unit else count(value)


def amount(name: str, value: float, unit: str) -> str:
    """A cost in a sensible unit; of a flag whether it is set."""
    if cost_info(name, unit).type == "flag":
        return "yes" if value else "no"
    return cost(value, unit)
