"""The settings that `bench tune` searches, the same for every model, and a preset with the values that were chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from pydantic import Field

from harness.config.preset import Preset
from harness.config.schedule import Stage, Strict
from harness.utils.errors import BenchError

WIDTHS: Final = (0.5, 0.75, 1.0, 1.5, 2.0)

TRIAL_SEED: Final = 1_000_000
"""The training seed of all trials, which no run has by default: values are not chosen for the seeds that are shown."""


class SearchSpace(Strict):
    """What is searched, the same for all models, in all stages or in the one of this name, the last of its preset.

    `learning_rate` bounds a factor of a stage's peak, on a logarithmic scale; `dropout_scale` one of the rates that a
    model was built with, its authors', where every other trial keeps the preset's dropout: below 2, since the largest
    rate of a registered model is 0.5 and rates are below 1. `warmup` is a share of a stage's updates, a `clip_norm` of
    0 is no limit, and `width` are factors of d_model and d_ff, none where it is not searched.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"stage"})

    learning_rate: tuple[float, float] = (0.3, 3.0)
    dropout_scale: tuple[float, float] = (0.0, 1.5)
    warmup: tuple[float, float] = (0.0, 0.3)
    clip_norm: tuple[float, ...] = (0.0, 0.5, 1.0, 5.0)
    width: tuple[float, ...] = ()
    stage: str | None = None


class Budget(Strict):
    """What every model's tuning may cost: `trials`, the untuned one and those that are stopped early too.

    `updates` are the most optimiser steps of one, in what is searched. After `startup_trials` the sampler learns from
    scores, and some are stopped early. In files of captionbench 1, `finalists` were trained again on `seeds` more.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"finalists", "seeds"})

    trials: int = Field(gt=0)
    updates: int = Field(gt=0)
    startup_trials: int = Field(gt=0)
    seed: int = Field(0, ge=0)
    finalists: int = Field(0, ge=0)
    seeds: int = Field(0, ge=0)


class TunedValues(Strict):
    """One point of the search space, None what the preset has; `then` has those of other searches, by stage."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"then"})

    learning_rate: float | None = Field(None, gt=0)
    dropout_scale: float | None = Field(None, ge=0)
    warmup: float | None = Field(None, ge=0, le=1)
    clip_norm: float | None = Field(None, ge=0)
    width: float | None = Field(None, gt=0)
    then: tuple[tuple[str, TunedValues], ...] = ()

    @classmethod
    def of_params(cls, params: Mapping[str, Any]) -> TunedValues:
        """The values of a trial's parameters, rounded to the four digits that are shown, stored and trained with."""
        return cls(**{name: float(f"{value:.4g}") for name, value in params.items()})

    def describe(self) -> str:
        """For people, as `learning_rate x2.1, dropout_scale x0.4`."""
        factors = {"learning_rate", "dropout_scale", "width"}
        parts = []
        for name, value in self.model_dump(exclude_none=True).items():
            sign = "x" if name in factors else ""
            parts.append(f"{name} {sign}{value:g}")
        return ", ".join(parts) or "as in the preset"


EndedAs = Literal["finished", "pruned", "failed"]


class TunedTrial(TunedValues):
    """A trial: its values, training seed and end.

    `score` is its best validation CIDEr-D as a fraction, the last one where it was pruned, None if it failed.
    """

    state: EndedAs
    score: float | None = None
    seed: int = TRIAL_SEED

    @property
    def values(self) -> TunedValues:
        """The values that the trial trained with."""
        return TunedValues(**self.model_dump(exclude={"state", "score", "seed"}))


class AppliedTuning(Strict):
    """Tuned values of a run's model, for all stages, so many first ones or a named one; `label` is the signature's."""

    label: str
    values: TunedValues
    stages: int | str | None = None


@dataclass(frozen=True, slots=True)
class Tuned:
    """Tuned values by model, and the trials that they were chosen from, where these are known.

    `label` is the signature's, the same for all models that were tuned alike. A model without values is trained as the
    preset is, and signed so. With `stages`, the values are for so many first stages alone, or for the one of this name,
    which they were found for.
    """

    label: str
    values: Mapping[str, TunedValues]
    trials: Mapping[str, Sequence[TunedTrial]] = field(default_factory=dict)
    stages: int | str | None = None

    def of(self, model: str) -> AppliedTuning | None:
        """The tuned values of a model, if it has any."""
        values = self.values.get(model)
        return None if values is None else AppliedTuning(label=self.label, values=values, stages=self.stages)

    def record(self, model: str, preset: Preset) -> dict[str, Any]:
        """Learning rate, state and score of a model's trials for a run's record; empty if the trials are not known."""
        stages = preset.schedule.stages
        peak = next((stage for stage in stages if stage.name == self.stages), stages[0]).learning_rate.peak
        trials = [
            {"learning_rate": peak * (trial.learning_rate or 1.0), "state": trial.state, "score": trial.score}
            for trial in self.trials.get(model, ())
        ]
        return {"tuning": {"trials": trials}} if trials else {}


def default_params(preset: Preset, space: SearchSpace, updates: Sequence[int]) -> dict[str, float]:
    """The point of the search space that is nearest to the untuned preset, in the sampler's parameters."""
    index = -1 if space.stage else 0
    stage = preset.schedule.stages[index]
    steps = updates[index]
    dropout_scale = stage.dropout_scale
    if dropout_scale is None:  # a rate above 0 is a scale of its own for each model, and is taken for 1
        dropout_scale = 0.0 if stage.dropout == 0.0 else 1.0
    params = {
        "learning_rate": 1.0,
        "dropout_scale": _within(dropout_scale, space.dropout_scale),
        "warmup": _within(stage.learning_rate.warmup_of(steps) / steps, space.warmup),
        "clip_norm": min(space.clip_norm, key=lambda limit: abs(limit - (stage.clip_norm or 0.0))),
    }
    if space.width:
        params["width"] = 1.0
    return params


def tuned_preset(preset: Preset, values: TunedValues, stages: int | str | None = None) -> Preset:
    """The preset with these values in all stages, so many first ones, or the one named; BenchError as `scaled`."""
    size = preset.size if values.width is None else scaled(preset, values.width)
    tuned = list(preset.schedule.stages)
    for index, stage in enumerate(tuned):
        if _is_tuned(stage, index, stages):
            tuned[index] = _tuned_stage(stage, values, preset.schedule.budget)
    preset = with_stages(preset.model_copy(update={"size": size}), tuned)
    for name, later_values in values.then:
        preset = tuned_preset(preset, later_values, name)
    return preset


def _is_tuned(stage: Stage, index: int, stages: int | str | None) -> bool:
    """Whether tuned values for `stages`, see `tuned_preset`, are for this one."""
    if isinstance(stages, str):
        return stage.name == stages
    return stages is None or index < stages


def with_stages(preset: Preset, stages: Sequence[Stage]) -> Preset:
    """The preset with these stages in place of its own."""
    return preset.model_copy(update={"schedule": preset.schedule.model_copy(update={"stages": tuple(stages)})})


def scaled(preset: Preset, factor: float) -> dict[str, int | float]:
    """The sizes with d_model (a multiple of the heads) and d_ff times `factor`; BenchError if the preset lacks one."""
    size = preset.size
    if missing := {"d_model", "d_ff", "n_heads"} - size.keys():
        raise BenchError(
            f"--tune-width: the preset {preset.name!r} leaves {', '.join(sorted(missing))} to the models",
            "leave out --tune-width, or state sizes, as --set size.d_model=256",
        )
    heads = int(size["n_heads"])
    d_model = max(round(size["d_model"] * factor / heads), 1) * heads
    return {**size, "d_model": d_model, "d_ff": max(round(size["d_ff"] * factor), 1)}


def _tuned_stage(stage: Stage, values: TunedValues, budget: int) -> Stage:
    """The stage with these values; the warm-up, tuned at a `budget` of 1, keeps its number of steps."""
    rate = stage.learning_rate
    rate_changes: dict[str, Any] = {}
    if values.learning_rate is not None:
        rate_changes["peak"] = rate.peak * values.learning_rate
    if values.warmup is not None:
        rate_changes |= {"warmup_steps": 0, "warmup_share": values.warmup / budget}
    changes: dict[str, Any] = {"learning_rate": rate.model_copy(update=rate_changes)}
    if values.clip_norm is not None:
        changes["clip_norm"] = values.clip_norm or None
    if values.dropout_scale is not None:
        changes |= {"dropout": None, "dropout_scale": values.dropout_scale}  # one excludes the other
    return stage.model_copy(update=changes)


def _within(value: float, bounds: tuple[float, float]) -> float:
    return min(max(value, bounds[0]), bounds[1])
