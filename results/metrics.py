"""The metrics: a line each, read by data frames, tables, pages and exports.

A new metric of every run is a file in `harness/metrics/`, its call in `harness/metrics/evaluator.py`, and a line in
`METRICS`. All of them are fractions that tables show times 100, and more is better: gates and ranks count on it.

The name of a metric of `--more-metrics` is stored with the model or list that it depends on in parentheses, as
"CLIPScore (clip:openai/clip-vit-large-patch14@0123456789ab)": scores of different models never share a name.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Final, Literal

Better = Literal["higher", "lower", "neither"]
BETTER: Final[dict[Better, str]] = {"higher": "more", "lower": "less", "neither": "neither"}
NumberFormat = Literal["percent", "count", "decimal"]
"""Times 100 with one decimal; a whole number; three significant digits."""

RANKING_METRIC: Final = "CIDEr-D"
LAST: Final = 1000
"""The priority of columns that have none of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricInfo:
    """One metric: its name, what it means, and where and how it is shown.

    Attributes:
        name: as its scores are stored, less what they depend on.
        meaning: a sentence.
        label: the heading of its column, if not the name.
        short: the heading where room is scarce, if not the label.
        better: which direction is better.
        number: how a score is written.
        secondary: the page shows it with "all metrics" alone, and exports where `--metrics` names it.
        priority: columns of a low one get room first in a narrow terminal; None: they are not shown there.
        by_domain: whether the page has a table of it by domain.
        held_out: whether it is also computed with each reference left out in turn.
        is_mean: whether a split's score is the mean over its images; others sum statistics before they divide.
        highest: the highest score that there can be.
    """

    name: str
    meaning: str
    label: str = ""
    short: str = ""
    better: Better = "higher"
    number: NumberFormat = "percent"
    secondary: bool = False
    priority: int | None = LAST
    by_domain: bool = False
    held_out: bool = True
    is_mean: bool = True
    highest: float = 1.0

    @property
    def heading(self) -> str:
        return self.label or self.name

    @property
    def short_heading(self) -> str:
        return self.short or self.heading


METRICS: tuple[MetricInfo, ...] = (
    MetricInfo(
        name="BLEU-1",
        meaning="share of the caption's words that a reference has, with a penalty for short captions.",
        short="B-1",
        secondary=True,
        priority=110,
        is_mean=False,
    ),
    MetricInfo(
        name="BLEU-2",
        meaning="the geometric mean of that share for words and pairs of words.",
        short="B-2",
        secondary=True,
        priority=120,
        is_mean=False,
    ),
    MetricInfo(
        name="BLEU-3",
        meaning="the same for up to three words.",
        short="B-3",
        secondary=True,
        priority=130,
        is_mean=False,
    ),
    MetricInfo(
        name="BLEU-4",
        meaning="the same for up to four words.",
        short="B-4",
        priority=60,
        is_mean=False,
    ),
    MetricInfo(
        name="METEOR",
        meaning="words aligned to a reference exactly, by stem, synonym or paraphrase; recall counts most.",
        short="M",
        priority=80,
        is_mean=False,
    ),
    MetricInfo(
        name="ROUGE-L",
        meaning="longest common subsequence with a reference.",
        short="R",
        priority=90,
    ),
    MetricInfo(
        name="CIDEr-D",
        meaning="agreement with the references on n-grams of 1 to 4 words, each weighted by how rarely references of "
        "other images use it, with a penalty for other lengths. The tables are sorted by it. It can exceed 100.",
        short="C",
        priority=10,
        by_domain=True,
        highest=10.0,
    ),
    MetricInfo(
        name="SPICE",
        meaning="agreement of the objects, attributes and relations that a parser finds in captions and references.",
        short="S",
        priority=70,
        by_domain=True,
        held_out=False,
    ),
)
"""The metrics of every run, in the order in which they are computed and papers print them."""

DOMAIN_METRICS: tuple[MetricInfo, ...] = (
    MetricInfo(
        name="CIDEr-D (df:domain)",
        meaning="CIDEr-D of a domain whose n-grams are weighted by its own references alone.",
    ),
    MetricInfo(
        name="CIDEr-D (df:split)",
        meaning="CIDEr-D of a domain whose n-grams are weighted by the whole split's references.",
    ),
)
"""What domains have besides: CIDEr-D with the document frequencies that "CIDEr-D" is not computed with."""

MORE_METRICS: tuple[MetricInfo, ...] = (
    MetricInfo(
        name="caption_words",
        meaning="mean number of words of a caption",
        label="Words",
        better="neither",
        number="decimal",
    ),
    MetricInfo(
        name="caption_words_sd",
        meaning="standard deviation of the number of words over captions",
        label="Words SD",
        better="neither",
        number="decimal",
    ),
    MetricInfo(name="distinct-1", meaning="different words over all words of the captions"),
    MetricInfo(name="distinct-2", meaning="different pairs of words over all pairs"),
    MetricInfo(
        name="vocabulary_used",
        meaning="different words in all captions together",
        label="Vocabulary",
        number="count",
    ),
    MetricInfo(name="self-CIDEr", meaning="how much several captions of one image differ, 0 if all are the same"),
    MetricInfo(
        name="CHAIR-i",
        meaning="mentions of objects that are not in the image, of all mentions of objects",
        better="lower",
    ),
    MetricInfo(
        name="CHAIR-s",
        meaning="captions that mention an object that is not in the image",
        better="lower",
    ),
    MetricInfo(name="CLIPScore", meaning="similarity of image and caption to a CLIP model, without references"),
    MetricInfo(name="RefCLIPScore", meaning="harmonic mean of CLIPScore and the similarity to the closest reference"),
    MetricInfo(name="BERTScore", meaning="F1 of matched token embeddings of caption and closest reference"),
)
"""The metrics of `bench run --more-metrics`, in the order of display."""


def metric_names() -> tuple[str, ...]:
    """The names of the metrics of every run, in the order in which they are computed."""
    return tuple(metric.name for metric in METRICS)


def metric_order(names: Iterable[str]) -> list[str]:
    """Names of scores as tables show them: the metric that ranks, the others of every run, then any others by name."""
    registered = sorted(metric_names(), key=lambda name: name != RANKING_METRIC)
    distinct = set(names)
    return [name for name in registered if name in distinct] + sorted(distinct - set(registered))


def metric_info(name: str) -> MetricInfo:
    """What is known of a score of every run or of a domain; of one that was computed elsewhere its name alone."""
    info = next((metric for metric in (*METRICS, *DOMAIN_METRICS) if metric.name == name), None)
    return info or MetricInfo(name=name, meaning="", secondary=True, priority=None)


def metrics_by_domain() -> list[str]:
    """The scores that the page has a table of by domain, each followed by what only domains have of it."""
    chosen = [name for name in metric_order(metric_names()) if metric_info(name).by_domain]
    others = [metric.name for metric in DOMAIN_METRICS]
    return [name for metric in chosen for name in (metric, *(other for other in others if base_name(other) == metric))]


def more_metric_info(name: str) -> MetricInfo:
    """What is known of a metric of `--more-metrics`, by its stored name."""
    base = base_name(name)
    return next(metric for metric in MORE_METRICS if metric.name == base)


def base_name(metric: str) -> str:
    return metric.partition(" (")[0]


def depends_on(metric: str) -> str:
    """What a stored metric depends on, "" where on nothing."""
    return metric.partition(" (")[2].removesuffix(")")


@cache
def is_more(metric: str) -> bool:
    return base_name(metric) in {more.name for more in MORE_METRICS}


def more_order(metrics: Iterable[str]) -> list[str]:
    names = [metric.name for metric in MORE_METRICS]
    return sorted(set(metrics), key=lambda metric: (names.index(base_name(metric)), metric))
