"""Runs as a store gives them back: configuration, status, scores, costs and epochs.

Metrics are fractions as coco-caption computes them (CIDEr-D 1.2 is shown as 120); reports choose units and colours.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from results.records import (
    CodeRecord,
    EpochRecord,
    Quantity,
    Role,
    RunKind,
    Status,
    budget_of,
    stages_of,
    without_names,
)
from results.runs.scores import RunScores
from results.statistics.learning import Learning, idle_share, learning, mean_learning

SYSTEMS: Final = "systems"
"""The track of systems that were not trained here, whatever track their runs were stored with."""
_SYSTEM_KINDS: Final = frozenset({"captions", "pretrained", "hub"})
_SCORED_BY: Final = frozenset({"data", "nrefs", "tok", "df", "meteor", "subset", "rev", "v"})
"""What separates tables of systems: the images, their references, and how captions are scored."""
_OF_SYSTEM: Final = (
    *("feat", "vocab", "prompt", "search", "clean", "attn", "prec", "beam", "maxlen", "lenpen"),
    *("pretraining", "ids"),
)
"""The fields by which rows of one system differ: its processor, prompt, precision and decoding."""
_VARIES: Final = ("arguments", "preset", "pretrained", "weights", "tuned")
"""The fields by which rows of one model that is trained here differ."""
_NAMES: Final = frozenset({"preset.name", "preset.summary", "preset.schedule.name", "preset.schedule.summary"})
"""Settings that only describe the others."""
NO_PART: Final = "none"
"""What a signature says of conditions that a row has no part in."""


@dataclass(frozen=True)
class Run:
    """One planned run, whatever its status, and what came of it.

    `scores` of all metrics, and `held_out`, against one reference less, and `costs` are in the order they were recorded
    in, empty unless the run is finished. `members` are those of an ensemble that were read with it.
    Any field of `environment` may be missing. Scores of single images and captions stay in the store until they are
    needed (`results.runs.reading`).
    """

    id: int
    key: str
    model: str
    role: Role
    kind: RunKind
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
    code: CodeRecord | None
    epochs: list[EpochRecord] = field(default_factory=list)
    scores: RunScores = field(default_factory=RunScores)
    held_out: RunScores = field(default_factory=RunScores)
    costs: dict[str, Quantity] = field(default_factory=dict)
    members: list[Run] = field(default_factory=list)

    @property
    def state(self) -> str:
        """The status, but "interrupted" for a running run whose end was recorded."""
        return "interrupted" if self.status == "running" and self.finished_at is not None else self.status

    @property
    def ended(self) -> datetime:
        """When it finished, of a finished run."""
        assert self.finished_at is not None, "the tables hold no finished run without a time"
        return self.finished_at

    @property
    def conditions(self) -> dict[str, str]:
        """The signature, with the track where the signature does not name it."""
        return {"track": self.track, **self.signature}

    @property
    def made_by(self) -> str:
        """The release and the commit that ran, as far as they are known."""
        commit, dash, changed = str(self.environment.get("commit") or "").partition("-")
        return f"{self.code_version} {commit[:12]}{dash}{changed}".strip()

    @property
    def card(self) -> dict[str, Any]:
        """What its configuration says of its model, or of the system that wrote its captions; empty without."""
        return self.config.get("card") or {}

    @property
    def is_system(self) -> bool:
        """Whether it is of a system that was not trained here."""
        return self.role == "model" and self.kind in _SYSTEM_KINDS

    @property
    def table_track(self) -> str:
        """The track of the table that it stands in."""
        return SYSTEMS if self.is_system else self.track

    @property
    def table_signature(self) -> dict[str, str]:
        """The fields of the signature that all rows of its table have in common."""
        if not self.is_system:
            return self.signature
        return {name: value for name, value in self.signature.items() if name in _SCORED_BY}

    @property
    def table_conditions(self) -> dict[str, str]:
        """As `conditions`, of its table."""
        return {"track": self.table_track, **self.table_signature}

    @cached_property
    def comparable(self) -> tuple[str, str, frozenset[tuple[str, str]]]:
        """Equal for runs whose scores on a split may be compared; of a results revision any release is."""
        fields = dict(self.table_signature)
        if "rev" in self.signature:
            fields.pop("v", None)
        return self.fingerprint, self.table_track, frozenset(without_names(fields).items())

    @property
    def budget(self) -> int:
        """How many times the epochs of its preset it was trained for (`bench run --budgets`)."""
        return budget_of(self.config)

    @cached_property
    def budget_series(self) -> object:
        """Equal for runs that differ in nothing but the budget: of one schedule, this many times as long."""
        name = self.signature.get("schedule", "").partition("#")[0].partition("*")[0]
        fingerprint, track, signature = self.comparable
        other_fields = frozenset((field, value) for field, value in signature if field != "schedule")
        stages = [_of_one_budget(stage, self.budget) for stage in stages_of(self.config)]
        return fingerprint, track, other_fields, name, json.dumps(stages, sort_keys=True)

    @cached_property
    def variant(self) -> dict[str, str]:
        """What tells it from other runs of its model: dotted configuration fields but seeds, and the code version.

        What only describes is none of it, nor are the members of an ensemble, which are its seed. Files of captions are
        seeds of one system where a card names them.
        """
        config: dict[str, Any] = {name: self.config[name] for name in _VARIES if name in self.config}
        made_by = {"code": self.code.model or ""} if self.code else {"code_version": self.code_version}
        file = {} if self.card.get("named", True) else {"captions": self.card["sha256"][:8]}
        if self.is_system:
            fields = {name: self.signature.get(name, NO_PART) for name in _OF_SYSTEM}
            return {name: value for name, value in fields.items() if value != NO_PART} | file | made_by
        settings = {path: value for path, value in _flat(config, "") if path not in _NAMES}
        return {**settings, **file, **made_by}

    @cached_property
    def learning(self) -> Learning | None:
        """How its training ended, of an ensemble its members' on average; None where nothing was trained here."""
        if not self.epochs:
            trained = [ended for member in self.members if (ended := member.learning) is not None]
            return mean_learning(trained) if trained else None
        last = max(epoch.stage for epoch in self.epochs)
        of_stage = [epoch for epoch in self.epochs if epoch.stage == last]
        stages = stages_of(self.config)
        planned, rate = map(stages[last].get, ("epochs", "learning_rate")) if last < len(stages) else (None, None)
        epochs = planned if isinstance(planned, int) else None
        stepwise = isinstance(rate, Mapping) and rate.get("annealing") == "step"
        ended_as = learning(
            [epoch.val_cider for epoch in of_stage if epoch.val_cider is not None],
            stopped_early=epochs is not None and len(of_stage) < epochs,
            idle=idle_share([epoch.learning_rate for epoch in of_stage], stepwise=stepwise),
        )
        return replace(ended_as, stage=last, epochs=epochs)

    @property
    def pretraining(self) -> StoredPretraining | None:
        """What its weights had seen before, by the card in its configuration; None where that says nothing."""
        card = self.card.get("pretraining")
        return None if card is None else StoredPretraining(**card)

    def stage_speeds(self) -> dict[str, float]:
        """Images a second over all epochs of each stage, by the stage's name, in the order of training."""
        images = defaultdict[str, float](float)
        seconds = defaultdict[str, float](float)
        for epoch in self.epochs:
            images[epoch.stage_name] += epoch.images_per_second * epoch.seconds
            seconds[epoch.stage_name] += epoch.seconds
        return {name: images[name] / spent for name, spent in seconds.items() if spent > 0}


@dataclass(frozen=True, slots=True)
class StoredPretraining:
    """What weights were trained on: data sets, captions, the data sets whose captions these are, and who says so.

    `overlap` says by evaluated data set why images of it may have been seen. Without `data_sets` nothing is documented.
    """

    data_sets: Sequence[str]
    captions: str
    captions_of: Sequence[str]
    overlap: dict[str, str]
    source: str


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


_SHARE_DIGITS = 9  # a share is divided and multiplied by the budget
_COUNTED_IN_EPOCHS = {"learning_rate": ("from_epoch", "every_epochs"), "scheduled_sampling": ("start", "every")}
"""Settings of a stage that grow with its epochs under a larger budget, as `harness.config.schedule` has it."""


def _of_one_budget(stage: Mapping[str, Any], budget: int) -> dict[str, Any]:
    """A stage's settings as they are in the schedule whose `budget`-fold it is of."""
    settings_of_one = dict(stage)
    if isinstance(settings_of_one.get("epochs"), int):
        settings_of_one["epochs"] = settings_of_one["epochs"] / budget
    for part, names in _COUNTED_IN_EPOCHS.items():
        settings = settings_of_one.get(part)
        if isinstance(settings, Mapping):
            divided = {name: settings[name] / budget for name in names if isinstance(settings.get(name), int | float)}
            settings_of_one[part] = {**settings, **divided}
    rate = settings_of_one.get("learning_rate")
    if isinstance(rate, Mapping) and isinstance(rate.get("warmup_share"), int | float):
        settings_of_one["learning_rate"] = {**rate, "warmup_share": round(rate["warmup_share"] * budget, _SHARE_DIGITS)}
    return settings_of_one


def _flat(config: dict[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    """Dotted paths to JSON values; fields named "seed" are left out at every depth."""
    for name, value in config.items():
        if name == "seed":
            continue
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", json.dumps(value, sort_keys=True, ensure_ascii=False)
