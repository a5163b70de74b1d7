"""What `results.runs.fetch` returns and reports read: plain values, free of the database and of torch.

Metrics are fractions as coco-caption computes them (CIDEr-D 1.2 is shown as 120); reports choose units and colours.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from results.records import CodeRecord, EpochRecord, Quantity, Role, Status
from results.runs.machines import OtherMachine
from results.runs.pretraining import Pretraining
from results.statistics.learning import Learning, State, mean_learning


@dataclass(frozen=True, slots=True)
class Spread:
    """One score over the seeds of a row.

    `n` seeds were measured; `mean` is None when n is 0. `sd` is the sample standard deviation (n - 1 in the
    denominator), None when n < 2. `reason` says why seeds were not measured; it is always set when n is 0, and may
    be set beside a mean when some of the seeds lack the score. `low` and `high` bound the 95 % interval of the mean,
    and `over` says over what: the images alone, or seeds and images (`results.statistics.architecture`). All three are
    None where images' scores are not stored.
    """

    mean: float | None
    sd: float | None
    n: int
    reason: str | None = None
    low: float | None = None
    high: float | None = None
    over: str | None = None


@dataclass(frozen=True, slots=True)
class FloorTest:
    """A row against a floor, by their scores of single images, averaged over seeds.

    `difference` is the row's mean less the floor's, `p` of a paired sign-flip test after Holm's correction for all rows
    and floors of the group.
    """

    floor: str
    difference: float
    p: float
    significant: bool

    @property
    def above(self) -> bool:
        """Whether the row is significantly above the floor."""
        return self.significant and self.difference > 0


@dataclass(frozen=True, slots=True)
class Standing:
    """A row's place among the rows of its group on one metric: ranks `best` to `worst`, 1 the best.

    Both are None with a `reason`: one seed, a training that had not ended, a floor (`is_floor`) or a row that is not
    above each of its group's `floors`. `against_best` and `against_above` are p-values over seeds and images, after
    Holm's correction for all pairs of placed rows, of the difference from the best row and from the next better one.
    """

    best: int | None = None
    worst: int | None = None
    reason: str | None = None
    against_best: float | None = None
    against_above: float | None = None
    floors: tuple[FloorTest, ...] = ()
    is_floor: bool = False

    @property
    def not_above(self) -> tuple[FloorTest, ...]:
        """The floors that the row is not significantly above."""
        return tuple(test for test in self.floors if not test.above)


@dataclass(frozen=True, slots=True)
class SignificanceTest:
    """The tests behind a group's places on `metric`: all pairs of `rows` rows on `images` images, at level `alpha`.

    Before these, `floor_tests` times a row against a floor: paired sign-flip tests over images of the means over seeds,
    by `resamples` resamples from `seed`.
    """

    metric: str
    images: int
    rows: int
    resamples: int
    seed: int
    alpha: float
    floor_tests: int = 0


@dataclass(frozen=True, slots=True)
class Reseeding:
    """How far other seeds moved the rows of a group, on its ranking metric.

    Over `rows` rows of `seeds` seeds or more: the pooled standard `deviation` of a seed's score, the `largest`
    difference of two seeds of a row, and the most `ranks` that a row moves where each seed is ranked alone (None with
    one row). Fractions.
    """

    rows: int
    seeds: int
    deviation: float
    largest: float
    ranks: int | None


@dataclass(frozen=True, slots=True)
class DatasetInfo:
    """A recorded data set.

    `split_sizes` are the whole splits' image counts, training included; `evaluated` counts the images recorded with
    references, by split. `skipped` maps the file names of images left out to the reason.
    """

    name: str
    fingerprint: str
    root: str
    split_sizes: dict[str, int]
    evaluated: dict[str, int]
    skipped: dict[str, str]
    recorded_at: datetime


@dataclass(frozen=True, slots=True)
class Row:
    """One model (or reference) of a leaderboard: its finished runs of one configuration, over seeds.

    `seeds` and `keys` run in parallel, ascending by seed. `scores[metric]` are over the whole split;
    `domains[domain][metric]` over each domain alone, empty where the data has none. `costs[name]` is the mean over the
    seeds that have it (`reason` where none has), its bounds the means of theirs; times, rates and energy only over
    seeds on the machine of most runs of the group, where the row has such. `other_machines` says where it has not.
    `code_version` is as planned, "" where unknown. `pretraining` is what the weights saw before the run, None where
    the run's card names nothing.

    `differs` names what sets this row apart, dotted configuration fields or signature fields to values (None: has no
    such field). For a row of `Group.rows`: from the other rows of the same model, empty when there is no other. For a
    row of `Group.references`: from the group's signature. `standings` has the row's place by metric, and nothing for
    references. `learning[seed]` says how the seed's training ended, of those that were trained. `outdated` says why the
    row is not of the newest code, None where it is. `held_out[metric]` are scores over the whole split against one
    reference less, each left out in turn; empty where releases before 0.3.0 scored. `more[metric]` are those of
    `results.runs.more_metrics`, empty unless asked for.
    """

    model: str
    role: Role
    seeds: tuple[int, ...]
    keys: tuple[str, ...]
    scores: dict[str, Spread]
    domains: dict[str, dict[str, Spread]]
    costs: dict[str, Quantity]
    code_version: str = ""
    other_machines: dict[str, OtherMachine] = field(default_factory=dict)
    differs: dict[str, str | None] = field(default_factory=dict)
    standings: dict[str, Standing] = field(default_factory=dict)
    learning: dict[int, Learning] = field(default_factory=dict)
    outdated: str | None = None
    pretraining: Pretraining | None = None
    held_out: dict[str, Spread] = field(default_factory=dict)
    more: dict[str, Spread] = field(default_factory=dict)

    @property
    def training_end(self) -> State:
        """How training ended, on average over the seeds."""
        return mean_learning(self.learning.values()).state

    @property
    def still_learning(self) -> bool:
        """Whether validation was still rising when training ended, on average over the seeds."""
        return self.training_end == "still learning"


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that may be ranked against each other: same data, same split, same track, same signature.

    `signature` is common to all `rows`, in display order. `rows` are sorted by mean `metric`, best first; rows
    without one come last, by name. `references` (human, retrieval ...) are rows of the same data set and split whose
    signature may differ, as their `differs` says: show them apart, never ranked. `separating` names the fields that
    differ between this group and any other group of the same data set name and split; empty when it is the only one.
    A group whose `rows` are empty has references only, no model yet; its signature is empty too. `test` is what the
    rows' places on `metric` come from, None where nothing was tested. `reseeding` is of this group, or else of the
    newest other one of the same data set and split that has rows with several seeds.
    """

    dataset: str
    fingerprint: str
    split: str
    track: str
    signature: dict[str, str]
    rows: tuple[Row, ...]
    references: tuple[Row, ...]
    separating: tuple[str, ...]
    test: SignificanceTest | None = None
    metric: str = "CIDEr-D"
    reseeding: Reseeding | None = None

    @property
    def name(self) -> str:
        """Data set and split, and that its models were trained with rewards where those of another group were not."""
        rewards = "reward" in self.separating and "reward" in self.signature
        return f"{self.dataset} {self.split}" + (" with rewards" if rewards else "")


@dataclass(frozen=True, slots=True)
class Failure:
    """A planned run without a result: `status` is planned, running, failed or skipped.

    `reason` is None only for planned and running runs; `error_class` and `log_tail` are set for failed ones.
    """

    key: str
    model: str
    role: Role
    seed: int
    track: str
    dataset: str
    status: Status
    reason: str | None
    error_class: str | None
    log_tail: str | None
    attempts: int
    started_at: datetime | None
    finished_at: datetime | None

    @property
    def state(self) -> str:
        """The status, but "interrupted" for a running run whose end was recorded."""
        return "interrupted" if self.status == "running" and self.finished_at is not None else self.status


@dataclass(frozen=True, slots=True)
class CostRow:
    """What one finished run cost, by name; `operators` as measured (counted and uncounted ones)."""

    key: str
    model: str
    role: Role
    seed: int
    track: str
    dataset: str
    costs: dict[str, Quantity]
    operators: dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunDetail:
    """Everything about one run, whatever its status.

    `scores[split][domain][metric]`, domain "overall" first; scores and costs are empty unless the run is finished.
    """

    key: str
    model: str
    role: Role
    seed: int
    track: str
    dataset: str
    fingerprint: str
    status: Status
    reason: str | None
    error_class: str | None
    log_tail: str | None
    attempts: int
    code_version: str
    started_at: datetime | None
    finished_at: datetime | None
    checkpoint: str | None
    config: dict[str, Any]
    signature: dict[str, str]
    environment: dict[str, Any]
    operators: dict[str, Any]
    epochs: tuple[EpochRecord, ...]
    scores: dict[str, dict[str, dict[str, Quantity]]]
    costs: dict[str, Quantity]
    code: CodeRecord | None = None

    @property
    def state(self) -> str:
        """The status, but "interrupted" for a running run whose end was recorded."""
        return "interrupted" if self.status == "running" and self.finished_at is not None else self.status


@dataclass(frozen=True, slots=True)
class GalleryCaption:
    """One run's caption of one image; `cider` is its CIDEr-D on that image alone, None where it was not scored."""

    model: str
    role: Role
    seed: int
    key: str
    caption: str
    cider: float | None


@dataclass(frozen=True, slots=True)
class GalleryItem:
    """One image with its references and the models' captions, in the same order of runs for every image.

    `file` is relative to `DatasetInfo.root`. `mean_cider` is over the captions of role "model", None where no model
    has a score.
    """

    image_id: int
    file: str
    domain: str | None
    references: tuple[str, ...]
    captions: tuple[GalleryCaption, ...]
    mean_cider: float | None
