"""Records that the store takes and returns: plain values, free of the database and of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Literal

Role = Literal["model", "reference"]
RunKind = Literal["trained", "pretrained", "hub", "captions", "ensemble", "stored", "reference"]
"""How a run is executed: trained here, published weights as they are (in the zoo, or by transformers itself), captions
that another system wrote, several runs together, a stored run again, or a row without a model."""
Status = Literal["planned", "running", "finished", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A measured number, or NULL with the reason why it was not measured. Exactly one of the two is set.

    `low` and `high` bound an interval in the unit of `value`, both or neither: the 95 % bootstrap interval of a score,
    the quartiles of a latency.
    """

    value: float | None
    reason: str | None = None
    unit: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True)
class ImageRecord:
    """One evaluated or training-set image as the report shows it; `file` is relative to the data set's root."""

    image_id: int
    file: str
    split: str
    references: tuple[str, ...]
    domain: str | None = None


@dataclass(frozen=True, slots=True)
class DatasetRecord:
    """A data set as it was used. `root` is where its pictures lie on this machine. `images`: evaluated splits only."""

    name: str
    fingerprint: str
    root: str
    split_sizes: dict[str, int]
    images: tuple[ImageRecord, ...]
    skipped: dict[str, str] = field(default_factory=dict)


CODE_FIELDS = frozenset({"v", "rev"})
"""Fields of a signature that name code: the release and the results revision. Comparisons are across them."""


_NAMED = frozenset({"size", "schedule"})


def without_names(conditions: Mapping[str, str]) -> dict[str, str]:
    """The fields of a signature less the names of preset and schedule, which stand before a digest of their settings.

    Example:
        >>> without_names({"beam": "3", "schedule": "quick*2#1a2b3c"})
        {'beam': '3', 'schedule': '1a2b3c'}
    """
    unnamed = dict(conditions)
    for name in _NAMED & unnamed.keys():
        _, hash_sign, digest = unnamed[name].partition("#")
        unnamed[name] = digest if hash_sign else unnamed[name]
    return unnamed


def without_code(conditions: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in conditions.items() if name not in CODE_FIELDS}


@dataclass(frozen=True, slots=True)
class CodeRecord:
    """The sources that a run was made by, as short digests of their syntax trees without comments and docstrings.

    `model` is over the modules that the model is made of, `harness` over those that train, decode and score; `revision`
    is the results revision, with a suffix where sources differ from the released ones. `files` are all digests by path.
    """

    model: str | None
    harness: str
    revision: str
    files: dict[str, str]

    def changed_files(self, other: CodeRecord) -> list[str]:
        """Paths of the files that only one of the two has or that differ between them, sorted."""
        paths = self.files.keys() | other.files.keys()
        return sorted(path for path in paths if self.files.get(path) != other.files.get(path))


@dataclass(frozen=True, slots=True)
class RunSpec:
    """One planned run: a model (or reference row) under one configuration and one seed.

    Attributes:
        key: identifies it over configuration, content and code.
        dataset: the fingerprint of a data set that the store knows.
        record: what only describes it, for reports.
        signature: every field that scores depend on, less model and seed.
        config: how it is executed, JSON of a `harness.config.run.RunConfig`; None of rows of captionbench 1 that did
            not say it.
    """

    key: str
    model: str
    role: Role
    seed: int
    track: str
    dataset: str
    record: dict[str, Any]
    signature: dict[str, str]
    _: KW_ONLY
    config: dict[str, Any] | None = None
    code_version: str = ""
    code: CodeRecord | None = None
    kind: RunKind = "trained"


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """One epoch of one training stage; validation values are None in epochs without validation."""

    stage: int
    stage_name: str
    objective: str
    epoch: int
    step: int
    learning_rate: float
    train_loss: float
    val_cider: float | None
    seconds: float
    images_per_second: float


@dataclass(frozen=True, slots=True)
class AttentionRecord:
    """The attention weights of each word of a run's caption of one image.

    `weights[word][place]` in [0, 1]. Places are the cells of a `grid` (height, width), row by row, or `boxes` (x1, y1,
    x2, y2 in fractions of the image); exactly one of the two is set. Of the places `sources`, `among[source][place]` is
    how the encoder relates them to all places; none of a model whose encoder does not attend.
    """

    image_id: int
    words: tuple[str, ...]
    weights: tuple[tuple[float, ...], ...]
    grid: tuple[int, int] | None = None
    boxes: tuple[tuple[float, float, float, float], ...] | None = None
    sources: tuple[int, ...] = ()
    among: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class SplitResult:
    """Captions and scores of one evaluated split.

    `scores[domain][metric]`, domain "overall" always there, are fractions as coco-caption computes them.
    `held_out[metric]` is the mean over leaving out each reference of every image in turn.
    `influences[metric][image_id]`, of metrics that are no mean over images, are jackknife pseudo-values of the score
    (`docs/statistics.md`).
    """

    split: str
    captions: dict[int, str]
    scores: dict[str, dict[str, Quantity]]
    per_image: dict[str, dict[int, float]]
    attention: tuple[AttentionRecord, ...] = ()
    held_out: dict[str, Quantity] = field(default_factory=dict)
    influences: dict[str, dict[int, float]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Outcome:
    """All that a finished run stores: results by split, costs by name, and the path of its checkpoint."""

    splits: tuple[SplitResult, ...]
    costs: dict[str, Quantity]
    environment: dict[str, Any]
    checkpoint: str | None = None
    operators: dict[str, Any] = field(default_factory=dict)


def stages_of(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The training stages of a run's configuration; none where nothing is trained."""
    stages: list[Mapping[str, Any]] = (config.get("preset") or {}).get("schedule", {}).get("stages", [])
    return stages


def budget_of(config: Mapping[str, Any]) -> int:
    """How many times the epochs of its preset a run's configuration trains (`bench run --budgets`)."""
    return int(config.get("preset", {}).get("schedule", {}).get("budget", 1))
