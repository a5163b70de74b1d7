"""A training schedule: typed stages, read from `schedules/*.yaml`, unknown keys rejected."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from harness.config.limits import MAX_BATCH, MAX_BEAM, MAX_COUNT, MAX_RATE, MAX_STEPS, MAX_TOKENS
from harness.utils.errors import BenchError
from results.statistics.learning import IDLE_RATE, IDLE_SHARE


class Strict(BaseModel):
    """Frozen settings that reject unknown keys, infinity and NaN.

    `omit_if_default` names settings that were added after results had been stored: a dump omits them while they have
    their default, so that run keys and signatures that do not use them stay the same. Those of base classes count too.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    omit_if_default: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = dump(self)
        unused = self._unused()
        return {name: value for name, value in content.items() if name not in unused}

    def _unused(self) -> set[str]:
        """The settings that a dump omits."""
        fields = type(self).model_fields
        omitted: set[str] = set()
        for base in type(self).__mro__:
            omitted.update(vars(base).get("omit_if_default", ()))
        defaults = {name: fields[name].get_default(call_default_factory=True) for name in omitted}
        return {name for name, default in defaults.items() if getattr(self, name) == default}

    def dump_without(self, paths: Iterable[str]) -> dict[str, Any]:
        """The settings as JSON, less those at dotted paths."""
        content = self.model_dump(mode="json")
        for path in paths:
            *parents, last = path.split(".")
            node: Any = content
            for parent in parents:
                node = node.get(parent) if isinstance(node, dict) else None
            if isinstance(node, dict):
                node.pop(last, None)
        return content


def field_names(model: type[BaseModel], parents: Iterable[int | str]) -> list[str]:
    """The names of the settings of a model, or of the part of it that these names lead to."""
    for name in parents:
        annotation = model.model_fields[str(name)].annotation
        kinds = (annotation, *get_args(annotation))
        models = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]
        if not models:
            return []
        model = models[0]
    return [field.alias or name for name, field in model.model_fields.items()]


Beta = Annotated[float, Field(ge=0, lt=1)]


class Optimiser(Strict):
    """The optimiser of a stage.

    `muon` is for the matrices of hidden layers, with AdamW for all else (`harness.training.optimisers`). `radam` is
    torch's; `radam_liu` is the authors' first release, which skips its first steps (`harness.training.optimisers`), for
    the paper track.
    """

    name: Literal["adam", "adamw", "muon", "radam", "radam_liu"] = "adamw"
    betas: tuple[Beta, Beta] = (0.9, 0.98)
    eps: float = Field(1e-9, gt=0, le=1)
    weight_decay: float = Field(0.0, ge=0, le=MAX_RATE)

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.name == "radam_liu" and self.weight_decay:
            raise ValueError("radam_liu has no weight decay")
        return self


class Plateau(Strict):
    """When annealing `plateau` multiplies the learning rate by `factor`: after more than `patience` validations without
    a rise of CIDEr-D by more than a ten-thousandth of the best.

    `negated` is the released code of AoANet and Image Transformer, for the paper track: torch's ReduceLROnPlateau gets
    the negative CIDEr-D, so that a score up to a ten-thousandth *below* the best counts as a rise, and becomes it.
    """

    THRESHOLD: ClassVar[float] = 1e-4
    patience: int = Field(3, ge=0, le=MAX_COUNT)
    negated: bool = False

    def rises(self, cider: float, best: float) -> bool:
        """Whether a validation's CIDEr-D is better than the best before it; the first one always is."""
        if best == -math.inf:
            return True
        return cider > best * (1 - self.THRESHOLD if self.negated else 1 + self.THRESHOLD)


class LearningRate(Strict):
    """A warm-up over `warmup_steps`, then annealing, never below `minimum` after the warm-up.

    Warm-ups: `linear` rises by peak / warmup_steps from the first step on; `linear-from-zero` is one step behind it;
    `hyperbolic` is peak / (steps left), near zero until its very end (ExpansionNet's code, for the paper track).
    Annealings: `step` multiplies by `factor` every `every_epochs`, from epoch `from_epoch` of the stage on; `cosine`
    falls to `floor` times the peak at the last step; `plateau` multiplies by `factor` when validation stops improving;
    `noam` (Vaswani et al. 2017) falls with the root of the step: theirs with peak = (d_model * warmup_steps) ** -0.5.
    `warmup_share`, `from_share` and `every_share` are shares of the stage's steps, in place of steps or epochs.
    """

    SHARES: ClassVar[Mapping[str, str]] = {
        "warmup_share": "warmup_steps",
        "from_share": "from_epoch",
        "every_share": "every_epochs",
    }
    omit_if_default: ClassVar[frozenset[str]] = frozenset({"warmup", "minimum", "from_epoch", "plateau", *SHARES})
    peak: float = Field(gt=0, le=MAX_RATE)
    warmup_steps: int = Field(0, ge=0, le=MAX_STEPS)
    warmup_share: float | None = Field(None, ge=0, le=1)
    warmup: Literal["linear", "linear-from-zero", "hyperbolic"] = "linear"
    annealing: Literal["constant", "step", "cosine", "plateau", "noam"] = "constant"
    factor: float = Field(0.8, gt=0, le=1)
    every_epochs: float = Field(1.0, ge=1e-6, le=MAX_COUNT)
    every_share: float | None = Field(None, ge=1e-6, le=1)
    from_epoch: float = Field(0.0, ge=0, le=MAX_COUNT)
    from_share: float | None = Field(None, ge=0, le=1)
    floor: float = Field(0.0, ge=0, le=1)
    minimum: float = Field(0.0, ge=0, le=MAX_RATE)
    plateau: Plateau = Plateau()

    @model_validator(mode="before")
    @classmethod
    def _one_unit(cls, settings: Any) -> Any:
        for share, count in cls.SHARES.items():
            if isinstance(settings, dict) and settings.get(share) is not None and count in settings:
                raise ValueError(
                    f"learning_rate: {share} {settings[share]} and {count} {settings[count]} exclude each other; "
                    f"set {share} alone, or make it null"
                )
        return settings

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.annealing == "noam" and not (self.warmup_steps or self.warmup_share):
            raise ValueError("annealing noam needs warmup_steps above 0")
        if self.annealing != "plateau" and self.plateau != Plateau():
            raise ValueError("learning_rate: plateau needs annealing plateau; leave it out")
        return self

    def _unused(self) -> set[str]:
        return super()._unused() | {count for share, count in self.SHARES.items() if getattr(self, share) is not None}

    def times(self, budget: int) -> LearningRate:
        """The rates of a stage of `budget` times the epochs: as many warm-up steps, then the same shape, stretched."""
        changes: dict[str, Any] = {"from_epoch": self.from_epoch * budget, "every_epochs": self.every_epochs * budget}
        if self.warmup_share is not None:
            changes["warmup_share"] = self.warmup_share / budget
        return self.model_copy(update=changes)

    def warmup_of(self, total_steps: int) -> int:
        """The steps of the warm-up in a stage of `total_steps`; at least one where annealing needs it."""
        if self.warmup_share is None:
            return self.warmup_steps
        return max(round(self.warmup_share * total_steps), int(self.annealing == "noam"))

    def at(self, step: int, steps_per_epoch: int, total_steps: int, reductions: int = 0) -> float:
        """The rate of step `step` (from 0) of a stage of `total_steps`, after `reductions` on a plateau."""
        warmup = self.warmup_of(total_steps)
        step_factor = self._step_factor(step, steps_per_epoch, total_steps) if self.annealing == "step" else 1.0
        if step < warmup:
            if self.warmup == "hyperbolic":
                return self.peak / (warmup - step) * step_factor
            return self.peak * (step + int(self.warmup == "linear")) / warmup
        rate = self.peak * self.factor**reductions * step_factor
        if self.annealing == "cosine":
            progress = (step - warmup) / max(total_steps - warmup, 1)
            rate *= self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
        if self.annealing == "noam":
            rate *= math.sqrt(warmup / (step + 1))
        return max(rate, self.minimum)

    def idle_share(self, steps_per_epoch: int, total_steps: int) -> float:
        """The share of a stage's steps at its end whose rate is near zero (`IDLE_RATE`); plateaus are not foreseen.

        After the warm-up a rate never rises, so that the first such step is found by bisection.
        """
        after_warmup = range(self.warmup_of(total_steps), total_steps)
        idle_rate = IDLE_RATE * self.peak

        def is_idle(step: int) -> bool:
            return self.at(step, steps_per_epoch, total_steps) < idle_rate

        first = bisect_left(after_warmup, True, key=is_idle)
        return (len(after_warmup) - first) / max(total_steps, 1)

    def _step_factor(self, step: int, steps_per_epoch: int, total_steps: int) -> float:
        """The factor of annealing `step` that all reductions up to this step make together."""
        start = self.from_epoch * steps_per_epoch if self.from_share is None else self.from_share * total_steps
        width = self.every_epochs * steps_per_epoch if self.every_share is None else self.every_share * total_steps
        intervals = max(step - start, 0) / width
        if self.every_share is not None:
            intervals = round(intervals, 6)  # a share that has no finite decimals still ends at a whole step
        return float(self.factor ** math.floor(intervals))


class Accumulation(Strict):
    """How the gradients of several backward passes are combined into one optimiser step.

    `mean`: a batch is processed in `parts` micro-batches, whose gradients are averaged: less memory, the same step.
    `summed` is ExpansionNet's code, for the paper track: gradients of whole batches are summed, undivided, until the
    number of the batch, from 0, is a multiple of `parts`: the first makes a step alone, and rates count batches.
    """

    parts: int = Field(1, gt=0, le=MAX_BATCH)
    gradients: Literal["mean", "summed"] = "mean"


class ScheduledSampling(Strict):
    """Scheduled sampling (Bengio et al. 2015): the model's own words as inputs, with a probability that rises.

    In epoch e each input but the first is replaced, with probability min(step * floor((e - start) / every), most), by a
    word drawn from the model's distribution at the previous position; epochs up to `start` use the ground truth alone.
    A negative `start` counts epochs of the stages before.
    """

    start: int = Field(0, ge=-MAX_COUNT, le=MAX_COUNT)
    every: int = Field(5, gt=0, le=MAX_COUNT)
    step: float = Field(0.05, gt=0, le=1)
    most: float = Field(0.25, gt=0, le=1)

    def probability(self, epoch: int) -> float:
        """The probability in epoch `epoch` of the stage, from 0."""
        return min(self.step * (max(epoch - self.start, 0) // self.every), self.most)


class SelfCritical(Strict):
    """Self-critical sequence training (Rennie et al. 2017) with CIDEr-D as reward.

    `captions`: they are `sampled` from the model, or all `beams` of a search (Cornia et al. 2020, M2). `baseline`:
    `others` is the mean reward of the image's other captions (Luo 2020), `mean` that of all of them (M2), `greedy` the
    reward of the greedy caption. `average`: the loss is a mean over `captions` (of their summed log-probabilities),
    over all `tokens`, or over `max_len` steps of each caption, also those after its end, which add nothing (M2).

    `end_in_reward`: the end token counts as a word in captions, references and document frequencies; without it
    truncated captions get the same reward as complete ones. `documents`: document frequencies count the `images` in
    whose references an n-gram occurs, or the `captions` (M2's code).

    `gradient`: whose log-probabilities are differentiated. `second-pass` are those of a teacher-forced pass over the
    captions with dropout masks of its own: off-policy wherever the stage has dropout. `steps` are those that captions
    were drawn by; `prefixes` too, and every word follows from a pass over the whole prefix; both need
    `sampling_dropout`, which leaves dropout on while captions are drawn. Greedy ones are decoded without.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"captions", "documents", "end_in_reward", "gradient", "sampling_dropout"}
    )
    captions: Literal["sampled", "beams"] = "sampled"
    samples: int = Field(5, gt=1, le=MAX_BEAM, description="captions of an image, sampled ones or beams")
    max_len: int = Field(20, gt=0, le=MAX_TOKENS, description="most sampled tokens, the end token included")
    baseline: Literal["others", "greedy", "mean"] = "others"
    average: Literal["captions", "tokens", "steps"] = "captions"
    end_in_reward: bool = True
    documents: Literal["images", "captions"] = "images"
    gradient: Literal["second-pass", "steps", "prefixes"] = "second-pass"
    sampling_dropout: bool = False

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.gradient != "second-pass" and not self.sampling_dropout:
            raise ValueError(
                f"gradient {self.gradient} differentiates the pass that draws the captions, which has the stage's "
                "dropout: it needs sampling_dropout true"
            )
        return self

    def signature(self) -> str:
        """How the reward treats the end token, in the notation of SacreEOS (Hu et al. 2023)."""
        baseline = {"others": "average", "greedy": "greedy", "mean": "mean"}[self.baseline]
        drawn = f"{self.samples},beams" if self.captions == "beams" else str(self.samples)
        return _reward_signature(self.end_in_reward, baseline, drawn, self.documents)


class Reinforce(Strict):
    """REINFORCE with CIDEr-D as reward, one caption sampled per image, and a baseline linear in the decoder's state.

    For recurrent models. `end_in_reward` as of `SelfCritical`.
    """

    max_len: int = Field(20, gt=0, le=MAX_TOKENS, description="most sampled tokens, the end token included")
    end_in_reward: bool = True

    def signature(self) -> str:
        """How the reward treats the end token, in the notation of SacreEOS."""
        return _reward_signature(self.end_in_reward, "linear", "1")


def _reward_signature(end_in_reward: bool, baseline: str, drawn: str, documents: str = "images") -> str:
    mode = "STANDARD_wInit" if end_in_reward else "NO<EOS>"
    frequencies = "" if documents == "images" else f",df={documents}"
    return f"{mode}+Cider-D[n4,s6.0{frequencies}]+{baseline}[nspi{drawn}]"


class Stage(Strict):
    """One stage of training. Batches count images; each brings `captions_per_image` captions, encoded once.

    With `batch_of: captions`, a batch counts captions, an image is encoded once for each, and an epoch uses every one.
    `drop_last` drops a smaller last batch. `backbone: trained` needs a model that owns a backbone. `dropout` is one
    rate at every site of the model, `dropout_scale` a factor of its authors' rates. The objective `sentence_graph` says
    captions from their scene graphs, and is validated by their loss; a model without a part for them passes over it.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {
            *("accumulation", "backbone", "batch_of", "clip_value", "constant_rates", "dictionary", "drop_last"),
            *("dropout_masks", "dropout_scale", "reinforce", "scheduled_sampling", "self_critical"),
        }
    )
    READ_BY: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("label_smoothing", "scheduled_sampling"), "cross_entropy or sentence_graph"),
        **{name: name for name in ("reinforce", "self_critical")} | {"dictionary": "sentence_graph"},
    }
    name: str
    objective: Literal["cross_entropy", "self_critical", "reinforce", "sentence_graph"] = "cross_entropy"
    epochs: int = Field(gt=0, le=MAX_COUNT)
    batch_size: int = Field(gt=0, le=MAX_BATCH)
    batch_of: Literal["images", "captions"] = "images"
    drop_last: bool = False
    captions_per_image: int = Field(5, gt=0, le=MAX_COUNT)
    backbone: Literal["frozen", "trained"] = "frozen"
    optimiser: Optimiser = Optimiser()
    learning_rate: LearningRate
    constant_rates: dict[str, Annotated[float, Field(gt=0, le=MAX_RATE)]] = Field(
        {}, description="learning rates of single parameters, by name, in place of learning_rate"
    )
    dictionary: bool = Field(False, description="of sentence_graph: graphs pass through the model's dictionary")
    accumulation: Accumulation = Accumulation()
    self_critical: SelfCritical = SelfCritical()
    reinforce: Reinforce = Reinforce()
    dropout: float | None = Field(0.1, ge=0, lt=1, description="of the whole model; null keeps the built-in rates")
    dropout_scale: float | None = Field(
        None, ge=0, le=MAX_COUNT, description="of the built-in rates, in place of dropout"
    )
    dropout_masks: Literal["torch", "packed"] = Field(
        "torch", description="packed: on a CPU, in float32, four elements from one random number, several times faster"
    )
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    scheduled_sampling: ScheduledSampling | None = None
    clip_norm: float | None = Field(None, gt=0)
    clip_value: float | None = Field(None, gt=0, description="every element of a gradient lies within +- this")
    validate_every: int = Field(1, gt=0, le=MAX_COUNT, description="epochs between validations by decoding")
    validation_beam_size: int = Field(1, gt=0, le=MAX_BEAM)
    patience: int | None = Field(
        None, gt=0, le=MAX_COUNT, description="validations without a better CIDEr-D before an early stop"
    )

    @model_validator(mode="before")
    @classmethod
    def _scale_in_place_of_a_rate(cls, settings: Any) -> Any:
        """With `dropout_scale`, the default of `dropout` is None."""
        scaled = isinstance(settings, dict) and settings.get("dropout_scale") is not None
        return {"dropout": None, **settings} if scaled else settings

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.dropout is not None and self.dropout_scale is not None:
            raise ValueError(
                f"stage {self.name}: dropout {self.dropout:g} and dropout_scale {self.dropout_scale:g} exclude each "
                "other; with dropout_scale, dropout is null"
            )
        for setting, needed in self.READ_BY.items():
            default = type(self).model_fields[setting].get_default()
            if self.objective not in needed and getattr(self, setting) != default:
                raise ValueError(f"stage {self.name}: {setting} needs the objective {needed}; leave it out")
        if self.constant_rates and self.optimiser.name == "muon":
            raise ValueError(f"stage {self.name}: constant_rates need another optimiser than muon")
        return self

    def steps_per_epoch(self, images: int, captions: int) -> int:
        """Batches of an epoch over so many images with so many captions."""
        count = captions if self.batch_of == "captions" else images
        return count // self.batch_size if self.drop_last else math.ceil(count / self.batch_size)

    def images_per_epoch(self, images: int, captions: int) -> int:
        """Images of an epoch, counted once for each caption where a batch counts captions."""
        count = captions if self.batch_of == "captions" else images
        return min(self.steps_per_epoch(images, captions) * self.batch_size, count)

    def times(self, budget: int) -> Stage:
        """The stage with `budget` times the epochs; counts of validations, such as patience, stay."""
        rate = self.learning_rate.times(budget)
        sampling = self.scheduled_sampling
        if sampling is not None:
            sampling = sampling.model_copy(update={"start": sampling.start * budget, "every": sampling.every * budget})
        changes = {"epochs": self.epochs * budget, "learning_rate": rate, "scheduled_sampling": sampling}
        return self.model_copy(update=changes)

    @property
    def gives_ciders(self) -> bool:
        """Whether validations give CIDEr-D; an objective that captions no images is validated by its own score."""
        return self.objective != "sentence_graph"

    def reward_signature(self) -> str | None:
        """The reward settings of the stage; None if it learns from captions alone."""
        if self.objective == "reinforce":
            return self.reinforce.signature()
        return self.self_critical.signature() if self.objective == "self_critical" else None


class Schedule(Strict):
    """Stages in order, each from the best checkpoint of the one before; `budget` multiplies the preset's epochs."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"budget"})
    name: str
    budget: int = Field(1, gt=0, le=MAX_COUNT)
    summary: str
    stages: tuple[Stage, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _end_with_images(self) -> Self:
        last = self.stages[-1]
        if not last.gives_ciders:
            raise ValueError(f"stage {last.name}: the last stage must caption images, not {last.objective}")
        return self

    def times(self, budget: int) -> Schedule:
        """The schedule under a budget: every stage with so many times the epochs."""
        if budget == 1:
            return self
        stages = tuple(stage.times(budget) for stage in self.stages)
        return self.model_copy(update={"budget": budget, "stages": stages})

    def idle_stages(self, images: int, captions: int) -> Iterator[str]:
        """A warning for each stage whose learning rate is near zero for many of its steps, given the data's size.

        BenchError for a stage whose data do not fill a batch.
        """
        for index, stage in enumerate(self.stages):
            rate = stage.learning_rate
            steps = stage.steps_per_epoch(images, captions)
            if not steps:
                raise BenchError(
                    f"stage {stage.name}: {images} training images do not fill a batch of {stage.batch_size}",
                    f"choose a smaller one: --set schedule.stages.{index}.batch_size=...",
                )
            share = rate.idle_share(steps, stage.epochs * steps)
            if share > IDLE_SHARE:
                if rate.annealing != "step":
                    setting = "minimum"
                elif rate.every_share is None:
                    setting = "every_epochs"
                else:
                    setting = "every_share"
                yield (
                    f"stage {stage.name}: the learning rate is below a thousandth of its peak for the last "
                    f"{100 * share:.0f} % of the steps, in which next to nothing is learnt, and its rows get no rank; "
                    f"let it fall later, by a larger --set schedule.stages.{index}.learning_rate.{setting}=..."
                )
