"""Numbers as shown to readers: metrics times 100 with one decimal, counts, durations and sizes in a sensible unit."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

DASH = "\u2014"

METRICS = ("CIDEr-D", "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "SPICE")
DOMAINS = ("in-domain", "near-domain", "out-domain")


def metric_order(names: Iterable[str], known: Sequence[str] = METRICS) -> list[str]:
    """The known names in their order, then the others by name."""
    found = set(names)
    return [name for name in known if name in found] + sorted(found - set(known))


def domain_order(names: Iterable[str]) -> list[str]:
    """Domains from near to far, then any others by name, "overall" last."""
    found = set(names)
    return metric_order(found - {"overall"}, DOMAINS) + ["overall"] * ("overall" in found)


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
    """An interval as "98.1\u2013102.4" or, so that a dash is no sign, "-1.2 to 3.4"; empty where there is none."""
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
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes}\u202fmin {rest:02d}\u202fs"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours}\u202fh {minutes:02d}\u202fmin"


def size(number_of_bytes: float) -> str:
    for power, unit in ((3, "GiB"), (2, "MiB"), (1, "KiB")):
        if number_of_bytes >= 1024**power:
            return f"{significant(number_of_bytes / 1024**power)}\u202f{unit}"
    return f"{number_of_bytes:.0f}\u202fB"


def instant(moment: datetime | None) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC" if moment else DASH


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


@dataclass(frozen=True, slots=True)
class CostKind:
    """How a cost is shown: its column's heading, what it means, the table it belongs to.

    A `flag` is no amount. Of an `estimate` its bounds are shown, and what it assumes, which is its meaning.
    """

    label: str
    meaning: str
    theme: str
    flag: bool = False
    estimate: bool = False


_BY_THEME = {
    "Size and computation": {
        "parameters": ("Parameters", "elements of all distinct parameters, frozen ones included"),
        "gmac_beam_mean_length": (
            "Computation per caption",
            "beam search for one image, for a caption as long as the test split's captions were on average",
        ),
        "gmac_encoder": ("Encoding", "to encode one image's features"),
        "gmac_start": ("Before the first word", "to set up decoding of one image, such as the keys of cross-attention"),
        "gmac_step": ("One more word", "the last decoding step of one row of the beam"),
        "caption_length_mean": ("Caption length", "mean tokens of the test split's captions, the end token included"),
        "gmac_greedy": (
            "Longest caption, greedy",
            "greedy decoding of a caption of as many tokens as are allowed (maxlen)",
        ),
        "gmac_beam": ("Longest caption, beam", "beam search for a caption of as many tokens as are allowed (maxlen)"),
        "gmac_teacher_forced": ("Teacher-forced pass", "one pass over a whole caption, as in training"),
        "gmac_training": ("Training pass", "forward and backward over one image and one caption"),
    },
    "Time": {
        "train_seconds": ("Training time", "wall-clock time of all training steps, without validation"),
        "train_steps": ("Training steps", "optimiser steps"),
        "train_images_per_second": ("Training speed", "images per second in training"),
        "train_data_wait": ("Waiting for data", "share of training in which the next batch was not there yet"),
        "train_beside": ("Models trained alongside", "most other models that trained on the machine at the same time"),
        "train_gmac": ("Training computation", "all passes over all images that training saw"),
        "train_gmac_per_second": ("Computation rate", "training computation per second"),
        "train_utilisation": ("Utilisation", "computation rate against the peak on the device's data sheet"),
        "train_a100_hours_estimate": (
            "A100 hours, estimate",
            "an estimate, not a measurement: hours of one A100, between working at the rate that this device "
            "reached and working at the share of its peak that this device reached of its own",
        ),
        "caption_images_per_second": ("Captioning speed", "images per second over the test split, batched"),
        "score_seconds": ("Scoring time", "wall-clock time of tokenising and scoring the test split"),
    },
    "Latency": {
        "latency_median": (
            "Latency",
            "median time from features to finished captions, over the images that were timed",
        ),
        "latency_iqr": ("Quartile range", "inter-quartile range of the latency over images"),
        "latency_margin": (
            "Margin of the median",
            "how far the median of another run over the same images lies, in 9 of 10 tries",
        ),
        "latency_noisy": ("Noisy latency", "whether timings of the same image spread or drift, or others were at work"),
        "latency_throughput": ("Images per second", "at the median latency, one batch after another"),
        "latency_batch": ("Batch", "images in the batch that latency was timed with"),
        "latency_threads": ("Processor threads", "processor threads that latency was timed with"),
        "latency_repeats": ("Timings", "timed runs behind the latency"),
        "latency_images": ("Images timed", "different images that were timed"),
    },
    "Memory": {
        "train_peak_memory_host": ("Memory in training", "peak resident memory of the whole process in training"),
        "train_peak_memory_device": (
            "Accelerator in training",
            "peak memory of tensors on the accelerator in training",
        ),
        "train_peak_memory_reserved": (
            "Reserved in training",
            "most memory of the accelerator that torch held in training",
        ),
        "caption_peak_memory_host": ("Memory in captioning", "peak resident memory of the whole process in captioning"),
        "caption_peak_memory_device": (
            "Accelerator in captioning",
            "peak memory of tensors on the accelerator in captioning",
        ),
        "caption_peak_memory_reserved": (
            "Reserved in captioning",
            "most memory of the accelerator that torch held in captioning",
        ),
    },
    "Energy": {
        "energy_per_image": ("Energy per image", "of the whole device, to caption one image"),
        "energy_per_image_above_idle": ("Energy above idle", "the part of it above what the device draws while idle"),
        "idle_power": ("Idle power", "what the device draws while nothing runs"),
    },
}
THEMES = (*_BY_THEME, "Other")
_COSTS = {
    name: CostKind(*words, theme, flag=name == "latency_noisy", estimate=name == "train_a100_hours_estimate")
    for theme, costs in _BY_THEME.items()
    for name, words in costs.items()
}


def cost_kind(name: str, unit: str) -> CostKind:
    """How to show a cost; one that is not in the table above is named after itself and sorted by its unit."""
    if name in _COSTS:
        return _COSTS[name]
    theme = {"s": "Time", "images/s": "Time", "bytes": "Memory", "MiB": "Memory", "GiB": "Memory", "GMAC": THEMES[0]}
    words = name.replace("_", " ")
    words = words[:1].upper() + words[1:]
    return CostKind(words, f"{words}, in {unit}" if unit else words, theme.get(unit, THEMES[-1]))


def caption_count(names: Iterable[str]) -> str:
    """The GMAC of a caption to show first: of the generated length, or of full length in results that have no other."""
    return "gmac_beam_mean_length" if "gmac_beam_mean_length" in names else "gmac_beam"


def amount(name: str, value: float, unit: str) -> str:
    return ("yes" if value else "no") if cost_kind(name, unit).flag else cost(value, unit)


def cost_order(names: Iterable[str]) -> list[str]:
    """Costs in the order they are shown: the known ones, then any others in the order given."""
    found = list(dict.fromkeys(names))
    return [name for name in _COSTS if name in found] + [name for name in found if name not in _COSTS]
