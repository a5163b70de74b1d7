"""The costs: a line each, read by tables, pages and exports.

A new cost is a measurement in `harness/measure/` and a line in `COSTS`. Its unit is stored with its value. One
without a line is shown too, named after itself.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, Literal

from results.metrics import LAST

CostType = Literal["amount", "condition", "flag", "estimate", "evaluation"]
"""An amount; a condition of the measurement, which is said once where all rows have the same; yes or no; an estimate
between bounds, which are shown with its meaning; what the evaluation took, which is no cost of a captioner: pages
of runs show it, no table compares it."""
Theme = Literal["Size and computation", "Time", "Latency", "Memory", "Energy", "Other"]
THEMES: Final[tuple[Theme, ...]] = ("Size and computation", "Time", "Latency", "Memory", "Energy", "Other")

_THEME_OF_UNIT: Final[dict[str, Theme]] = {
    "s": "Time",
    "images/s": "Time",
    "bytes": "Memory",
    "MiB": "Memory",
    "GiB": "Memory",
    "GMAC": "Size and computation",
}


# How names of costs spell units out; a unit that a name does not spell out is appended as it is.
_SPELT_OUT: Final = {
    "s": "seconds",
    "h": "hours",
    "images/s": "images_per_second",
    "GMAC": "gmac",
    "GMAC/s": "gmac_per_second",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CostInfo:
    """One cost: its name, what it means, and where and how it is shown.

    Attributes:
        name: as it is stored.
        label: the heading of its column.
        meaning: a phrase.
        theme: the table of costs that it belongs to.
        short: the heading where room is scarce, if not the label.
        better: which direction is better.
        type: what it is.
        position: its place among the costs of the leaderboard; None: it is not in the leaderboard.
        exported: whether exports to Markdown and LaTeX have it without `--metrics`.
        priority: columns of a low one get room first in a narrow terminal.
        legend: what the terminal says of it below its tables.
        stands_in_for: the cost that leaderboards show instead, where results have it.
        csv: the name of its column in CSV, if not its name with its unit.
    """

    name: str
    label: str
    meaning: str
    theme: Theme
    short: str = ""
    better: Literal["higher", "lower"] = "lower"
    type: CostType = "amount"
    position: int | None = None
    exported: bool = False
    priority: int = LAST
    legend: str = ""
    stands_in_for: str = ""
    csv: str = ""

    @property
    def short_heading(self) -> str:
        return self.short or self.label


COSTS: tuple[CostInfo, ...] = (
    CostInfo(
        name="parameters",
        label="Parameters",
        meaning="elements of all distinct parameters, frozen ones included",
        theme="Size and computation",
        short="Params",
        csv="params",
        position=1,
        priority=100,
    ),
    CostInfo(
        name="gmac_beam_mean_length",
        label="Computation per caption",
        meaning="beam search for one image, for a caption as long as the test split's captions were on average",
        theme="Size and computation",
        short="MAC",
        csv="gmac",
        position=2,
        priority=20,
        exported=True,
        legend="multiply-accumulates of one image's caption by beam search",
    ),
    CostInfo(
        name="gmac_encoder",
        label="Encoding",
        meaning="to encode one image's features",
        theme="Size and computation",
    ),
    CostInfo(
        name="gmac_start",
        label="Before the first word",
        meaning="to set up decoding of one image, such as the keys of cross-attention",
        theme="Size and computation",
    ),
    CostInfo(
        name="gmac_step",
        label="One more word",
        meaning="the last decoding step of one row of the beam",
        theme="Size and computation",
    ),
    CostInfo(
        name="caption_length_mean",
        label="Caption length",
        meaning="mean tokens of the test split's captions, the end token included",
        theme="Size and computation",
    ),
    CostInfo(
        name="gmac_greedy",
        label="Longest caption, greedy",
        meaning="greedy decoding of a caption of as many tokens as are allowed (maxlen)",
        theme="Size and computation",
    ),
    CostInfo(
        name="gmac_beam",
        label="Longest caption, beam",
        meaning="beam search for a caption of as many tokens as are allowed (maxlen)",
        theme="Size and computation",
        short="MAC",
        csv="gmac_longest",
        position=3,
        priority=30,
        legend="multiply-accumulates of one image's caption by beam search",
        stands_in_for="gmac_beam_mean_length",
    ),
    CostInfo(
        name="gmac_teacher_forced",
        label="Teacher-forced pass",
        meaning="one pass over a whole caption, as in training",
        theme="Size and computation",
    ),
    CostInfo(
        name="gmac_training",
        label="Training pass",
        meaning="forward and backward over one image and one caption",
        theme="Size and computation",
    ),
    CostInfo(
        name="train_seconds",
        label="Training time",
        meaning="wall-clock time of all training steps, without validation",
        theme="Time",
        short="Training",
        csv="train_s",
        position=5,
        priority=50,
        legend="the time of all steps",
    ),
    CostInfo(
        name="train_steps",
        label="Training steps",
        meaning="optimiser steps",
        theme="Time",
        type="condition",
    ),
    CostInfo(
        name="train_images_per_second",
        label="Training speed",
        meaning="images per second in training",
        theme="Time",
        better="higher",
    ),
    CostInfo(
        name="train_data_wait",
        label="Waiting for data",
        meaning="share of training in which the next batch was not there yet",
        theme="Time",
    ),
    CostInfo(
        name="train_beside",
        label="Models trained alongside",
        meaning="most other models that trained on the machine at the same time",
        theme="Time",
        type="condition",
    ),
    CostInfo(
        name="train_gmac",
        label="Training computation",
        meaning="all passes over all images that training saw",
        theme="Time",
    ),
    CostInfo(
        name="train_gmac_per_second",
        label="Computation rate",
        meaning="training computation per second",
        theme="Time",
    ),
    CostInfo(
        name="train_utilisation",
        label="Utilisation",
        meaning="computation rate against the peak on the device's data sheet",
        theme="Time",
    ),
    CostInfo(
        name="train_a100_hours_estimate",
        label="A100 hours, estimate",
        meaning="an estimate, not a measurement: hours of one A100, between working at the rate that this device "
        "reached and working at the share of its peak that this device reached of its own",
        theme="Time",
        type="estimate",
    ),
    CostInfo(
        name="caption_images_per_second",
        label="Captioning speed",
        meaning="images per second over the test split, batched",
        theme="Time",
        better="higher",
    ),
    CostInfo(
        name="score_seconds",
        label="Scoring time",
        meaning="wall-clock time of tokenising and scoring the test split",
        theme="Time",
        type="evaluation",
    ),
    CostInfo(
        name="latency_median",
        label="Latency",
        csv="latency_s",
        meaning="median time from features to finished captions, over the images that were timed",
        theme="Latency",
        position=4,
        priority=40,
        legend="the time of one image's caption by beam search",
    ),
    CostInfo(
        name="latency_iqr",
        label="Quartile range",
        meaning="inter-quartile range of the latency over images",
        theme="Latency",
    ),
    CostInfo(
        name="latency_margin",
        label="Margin of the median",
        meaning="how far the median of another run over the same images lies, in 9 of 10 tries",
        theme="Latency",
    ),
    CostInfo(
        name="latency_noisy",
        label="Noisy latency",
        meaning="whether timings of the same image spread or drift, or others were at work",
        theme="Latency",
        type="flag",
    ),
    CostInfo(
        name="latency_throughput",
        label="Images per second",
        meaning="at the median latency, one batch after another",
        theme="Latency",
        better="higher",
    ),
    CostInfo(
        name="latency_batch",
        label="Batch",
        meaning="images in the batch that latency was timed with",
        theme="Latency",
        type="condition",
    ),
    CostInfo(
        name="latency_threads",
        label="Processor threads",
        meaning="processor threads that latency was timed with",
        theme="Latency",
        type="condition",
    ),
    CostInfo(
        name="latency_repeats",
        label="Timings",
        meaning="timed runs behind the latency",
        theme="Latency",
        type="condition",
    ),
    CostInfo(
        name="latency_images",
        label="Images timed",
        meaning="different images that were timed",
        theme="Latency",
        type="condition",
    ),
    CostInfo(
        name="train_peak_memory_host",
        label="Memory in training",
        meaning="peak resident memory of the whole process in training",
        theme="Memory",
    ),
    CostInfo(
        name="train_peak_memory_device",
        label="Accelerator in training",
        meaning="peak memory of tensors on the accelerator in training",
        theme="Memory",
    ),
    CostInfo(
        name="train_peak_memory_reserved",
        label="Reserved in training",
        meaning="most memory of the accelerator that torch held in training",
        theme="Memory",
    ),
    CostInfo(
        name="caption_peak_memory_host",
        label="Memory in captioning",
        meaning="peak resident memory of the whole process in captioning",
        theme="Memory",
    ),
    CostInfo(
        name="caption_peak_memory_device",
        label="Accelerator in captioning",
        meaning="peak memory of tensors on the accelerator in captioning",
        theme="Memory",
    ),
    CostInfo(
        name="caption_peak_memory_reserved",
        label="Reserved in captioning",
        meaning="most memory of the accelerator that torch held in captioning",
        theme="Memory",
    ),
    CostInfo(
        name="energy_per_image",
        label="Energy per image",
        meaning="of the whole device, to caption one image",
        theme="Energy",
    ),
    CostInfo(
        name="energy_per_image_above_idle",
        label="Energy above idle",
        meaning="the part of it above what the device draws while idle",
        theme="Energy",
    ),
    CostInfo(
        name="idle_power",
        label="Idle power",
        meaning="what the device draws while nothing runs",
        theme="Energy",
    ),
)
"""In the order of display."""


def cost_info(name: str, unit: str) -> CostInfo:
    """What is known of a cost; one without a line is named after itself, and belongs where its unit does."""
    info = next((cost for cost in COSTS if cost.name == name), None)
    if info is not None:
        return info
    words = name.replace("_", " ")
    label = words[:1].upper() + words[1:]
    return CostInfo(
        name=name,
        label=label,
        meaning=f"{label}, in {unit}" if unit else label,
        theme=_THEME_OF_UNIT.get(unit, "Other"),
        better="higher" if unit == "images/s" else "lower",
    )


def with_unit(name: str, unit: str) -> str:
    """A cost's name with its unit, unless the name has it: "latency_median_s", "gmac_beam"; counts have none."""
    if unit in {"", "1"} or f"_{_SPELT_OUT.get(unit, unit)}_" in f"_{name}_":
        return name
    return f"{name}_{unit.replace('/', '_per_').replace('%', 'percent')}"


def cost_order(names: Iterable[str]) -> list[str]:
    """Costs as tables show them: the known ones, then any others in the order given."""
    distinct = dict.fromkeys(names)
    registered = [cost.name for cost in COSTS if cost.name in distinct]
    return registered + [name for name in distinct if name not in registered]


def leaderboard_costs(measured: Collection[str]) -> list[CostInfo]:
    """The costs of the leaderboard of which there are results, in its order."""
    chosen = [cost for cost in COSTS if cost.position is not None and cost.name in measured]
    return sorted((cost for cost in chosen if cost.stands_in_for not in measured), key=lambda cost: cost.position or 0)


def cost_legends() -> dict[str, str]:
    """What the terminal says of the leaderboard's costs, by their short headings."""
    explained = sorted((cost for cost in COSTS if cost.legend), key=lambda cost: cost.position or 0)
    return {cost.short_heading: cost.legend for cost in explained}


OTHER_SEED: Final = "another seed of the model was timed"
"""Why a run has no times: seeds of a model hardly differ in time, and a preset may time one alone."""


def compared_costs() -> list[CostInfo]:
    """The costs that a comparison shows first: the leaderboard's, less that which depends on what captions say."""
    return [cost for cost in COSTS if cost.position is not None and cost.name != "gmac_beam_mean_length"]


def exported_costs() -> list[CostInfo]:
    """The costs that Markdown and LaTeX have without `--metrics`."""
    return [cost for cost in COSTS if cost.exported]
