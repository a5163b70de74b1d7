"""Typed configuration of a benchmark run: a preset of the controlled track, or a recipe of the paper track."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, field_validator, model_validator

from harness.config.features import FeatureConfig
from harness.config.limits import MAX_BEAM, MAX_COUNT, MAX_ENERGY_S, MAX_TOKENS
from harness.config.schedule import Schedule, Strict
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from zoo import model_card
from zoo.errors import ZooError
from zoo.registry import SIZES, check_heads, check_sizes

NOT_SCORED: Final[Mapping[str, str]] = {
    "summary": "description for the reader",
    "schedule.summary": "description for the reader",
    "features": "features of the embedded data; those that a run uses are in the key themselves",
    "seeds": "number of seeds where the command names none; each is in the key of its own run",
    "timed_seeds": "number of seeds whose captions are timed: affects costs, no score",
    "latency_repeats": "number of images whose captioning is timed: affects costs, no score",
    "energy_seconds": "length of the energy measurement: affects costs, no score",
    "recipe.models": "which models may use the preset",
    "recipe.backbone": "which features may be used; those that a run uses are in the key themselves",
    "recipe.published": "scores to compare with",
}
"""Settings of a preset that no score depends on, each with the reason."""
NOT_IN_KEY: Final[Mapping[str, str]] = {
    "name": "names settings, all of which are in the key themselves",
    "schedule.name": "names settings, all of which are in the key themselves",
    **NOT_SCORED,
}
"""Settings of a preset that are not in the run key, each with the reason."""


class Decoding(Strict):
    """How captions are generated; the score of a hypothesis is its log-probability / length ** length_penalty.

    All but the first three are for the paper track, as authors' code has them. `count_bos` counts the begin token in
    that length, `cut_unfinished` drops the last word of captions without an end token (ExpansionNet). Words in `banned`
    are never generated: `<unk>` is the unknown word, else shown like any other. `release_finished` gives the places of
    finished hypotheses in the beam to unfinished ones. Words of `bad_endings` are never the last;
    `trigram_penalty` is taken off the log-probability of a word for each time that the caption has the trigram it makes
    already (AoANet, ImageCaptioning.pytorch).
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"count_bos", "cut_unfinished", "banned", "release_finished", "bad_endings", "trigram_penalty"}
    )
    beam_size: int = Field(3, gt=0, le=MAX_BEAM)
    max_len: int = Field(20, gt=0, le=MAX_TOKENS, description="most generated tokens, the end token included")
    length_penalty: float = Field(1.0, ge=-10, le=10)
    count_bos: bool = False
    cut_unfinished: bool = False
    banned: tuple[str, ...] = ()
    release_finished: bool = False
    bad_endings: tuple[str, ...] = ()
    trigram_penalty: float = Field(0.0, ge=0, le=1000)

    def paper_deviations(self) -> tuple[str, ...]:
        """Settings that only the paper track uses, for parity with released code; part of the signature."""
        in_use = {
            "ranking=count-bos": self.count_bos,
            "unfinished=cut": self.cut_unfinished,
            f"banned={'+'.join(self.banned)}": self.banned,
            "finished=released": self.release_finished,
            f"never-last={'+'.join(self.bad_endings)}": self.bad_endings,
            f"trigrams-{self.trigram_penalty:g}": self.trigram_penalty,
        }
        return tuple(name for name, used in in_use.items() if used)


class VocabularyConfig(Strict):
    """The vocabulary, learnt from the training captions alone: `words`, or subwords (`bpe`).

    `min_count` is the minimum frequency of a word, or of a pair of subwords that is merged (at most `merges` merges).
    Lengths, those of decoding too, count tokens: with `bpe` subwords, of which a caption has slightly more than words.
    Longer training captions are cut.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"kind", "merges"})
    kind: Literal["words", "bpe"] = "words"
    merges: int = Field(5000, gt=0, le=MAX_COUNT)
    min_count: int = Field(5, gt=0, le=MAX_COUNT)
    max_len: int = Field(20, gt=1, le=MAX_TOKENS, description="most tokens of a training caption, with begin and end")


class Published(Strict):
    """Scores that the paper reports for this recipe, as printed."""

    source: str
    split: str
    scores: dict[str, float]


class Recipe(Strict):
    """A paper's data preparation, and whose training it has, for its models.

    `captions` says how they are split into words (`harness.data.vocabulary.PREPARATIONS`): `karpathy-tokens` are those
    of the data set's file, counted over all of its splits. `restval`: whether images that Karpathy's file keeps apart
    so are trained on. `non_rgb`: what becomes of images that are not stored as RGB. `by`: whose training it is, that of
    the models' `authors`, or of Luo's ImageCaptioning.pytorch where theirs is not known. `backbone`: the one of the
    features, by timm's name with the tag of its weights; None: any.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"backbone", "by", "restval"})
    models: tuple[str, ...] = Field(min_length=1)
    captions: Literal["words", "expansionnet", "karpathy-tokens"] = "words"
    restval: Literal["train", "dropped"] = "train"
    non_rgb: Literal["convert", "black"] = "convert"
    by: Literal["authors", "luo"] = "authors"
    backbone: str | None = None
    published: Published | None = None

    def covers(self, model: str) -> bool:
        """Whether the recipe is one for this model."""
        return any(fnmatchcase(model, pattern) for pattern in self.models)

    def settings(self) -> Iterator[str]:
        """Names of the data settings that differ from the controlled track, and whose training is not its authors'."""
        for name in ("captions", "restval", "non_rgb", "by"):
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                yield f"{name.replace('_', '-')}={value}"


class Preset(Strict):
    """All settings that the controlled track holds equal between models, under one name.

    `size` goes to every model; what it leaves out is each model's own, as published. With `parameters`, each model is
    as wide as brings it to that many, or to as many as the model of that name has at `size`; the widths of `size` then
    serve for their proportions, and for models that no width fits. With `small_models`, sizes that only some models
    have (lengths of expansions, for example) come from the `small` arguments of each model's card, not from the paper.

    A preset with a `recipe` belongs to the paper track: it trains and evaluates the models of one paper as their
    authors did, with settings that the controlled track refuses.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"parameters", "recipe", "energy_seconds", "features", "seeds", "timed_seeds"}
    )
    name: str
    summary: str
    size: dict[str, int | float]
    parameters: Annotated[int, Field(gt=0, le=10**12)] | str | None = Field(
        None, description="of every model, by its width (`zoo.width`): a number, or the model that has as many"
    )
    small_models: bool = False
    vocabulary: VocabularyConfig = VocabularyConfig()
    decoding: Decoding = Decoding()
    schedule: Schedule
    latency_repeats: int = Field(50, ge=2, le=MAX_COUNT, description="test images whose captions are timed, one by one")
    timed_seeds: int | None = Field(
        None, gt=0, description="of each row, where several models train at once; None: all"
    )
    energy_seconds: float = Field(
        0.0, ge=0, le=MAX_ENERGY_S, description="of a window of energy, on devices that count it; 0: none"
    )
    recipe: Recipe | None = None
    features: FeatureConfig | None = Field(None, description="of the embedded data, where the command names none")
    seeds: int = Field(1, gt=0, description="of each model, where the command names no number")

    @field_validator("size", mode="before")
    @classmethod
    def _know_the_sizes(cls, size: Any) -> Any:
        """Check names and values of sizes; pydantic reports a value that is no mapping."""
        if not isinstance(size, dict):
            return size
        unknown = sorted(str(name) for name in set(size) - set(SIZES))
        if unknown:
            raise ValueError(f"unknown size {shortened(', '.join(unknown))}; sizes are {', '.join(SIZES)}")
        for name, value in size.items():
            if value is None:
                raise ValueError(f"size.{name}: a size is a number; leave it out for each model's own")
        try:
            check_sizes(size)
            check_heads(size)
        except ZooError as error:
            raise ValueError(f"size.{error}") from error
        return size

    @model_validator(mode="after")
    def _keep_tracks_apart(self) -> Self:
        deviations = self.paper_deviations()
        if deviations and self.recipe is None:
            raise ValueError(f"{', '.join(deviations)}: only for presets with a recipe (the paper track)")
        return self

    def in_key(self) -> dict[str, Any]:
        """The settings that a score may depend on."""
        return self.dump_without(NOT_IN_KEY)

    def check_lengths(self) -> None:
        """BenchError if decoded or sampled captions may have more tokens than models of this `size` take."""
        longest = {"decoding": self.decoding.max_len}
        for index, stage in enumerate(self.schedule.stages):
            if (sampling := getattr(stage, stage.objective, None)) is not None:  # of captions for their rewards
                longest[f"schedule.stages.{index}.{stage.objective}"] = sampling.max_len
        for setting, length in longest.items():
            if length > self.size.get("max_len", MAX_TOKENS):
                raise BenchError(
                    f"{setting}.max_len {length} is above size.max_len {self.size['max_len']}",
                    f"type --set size.max_len={length}",
                )

    def paper_deviations(self) -> tuple[str, ...]:
        """Names of all settings that are kept only for parity with released code; part of the signature."""
        return (
            *(self.recipe.settings() if self.recipe else ()),
            *_unusual_training(self.schedule),
            *self.decoding.paper_deviations(),
        )

    def check_model(self, model: str) -> None:
        """BenchError if the preset is a recipe for other models."""
        if self.recipe is not None and not self.recipe.covers(model):
            raise BenchError(
                f"the preset {self.name!r} is a paper's recipe for other models than {model}",
                f"type --models '{','.join(self.recipe.models)}', or another --preset: `bench schedules` lists them",
            )

    def check_backbone(self, backbone: str) -> None:
        """BenchError if the preset is a recipe for features of another backbone, or of other weights of it."""
        if self.recipe is None or self.recipe.backbone in {None, backbone}:
            return
        expected = self.recipe.backbone
        raise BenchError(
            f"the preset {self.name!r} is a paper's recipe for features of {expected}, not of {backbone}",
            f"type --backbone {expected}, or, for other features than the paper's, --set recipe.backbone={backbone}",
        )

    def model_arguments(
        self, model: str, *, vocab_size: int | None = None, visual_dim: int | None = None
    ) -> dict[str, Any]:
        """The keyword arguments to create `model` with; `vocab_size` and `visual_dim` are needed with `parameters`.

        BenchError if the preset is a recipe for other models, ZooError if no width has as many parameters.
        """
        self.check_model(model)
        arguments = self._unmatched(model)
        if self.parameters is None:
            return arguments
        if vocab_size is None or visual_dim is None:
            raise ValueError(f"the width of {model} depends on vocab_size and visual_dim")
        return arguments | self.matched_widths(model, vocab_size=vocab_size, visual_dim=visual_dim)[0]

    def matched_widths(self, model: str, *, vocab_size: int, visual_dim: int) -> tuple[dict[str, int], str]:
        """The widths that give `parameters`, or the reason to keep those of `size`; ZooError without a d_model."""
        if self.parameters is None:
            return {}, ""
        from zoo.width import count_parameters, match_width  # with torch, which configuration alone does not need

        sizes = {"vocab_size": vocab_size, "visual_dim": visual_dim}
        target = self.parameters
        if isinstance(target, str):
            try:
                target = count_parameters(target, **sizes, **self._unmatched(target))
            except ZooError as error:
                raise ZooError(f"parameters: {error}", error.hint) from error
        try:
            return match_width(model, target, **sizes, **self._unmatched(model)), ""
        except Exception as error:  # of a model of one's own, building without memory may raise anything
            if "d_model" not in self.size:
                raise
            return {}, str(error)

    def _unmatched(self, model: str) -> dict[str, Any]:
        return {**self.size, **(model_card(model).small if self.small_models else {})}


def _unusual_training(schedule: Schedule) -> Iterator[str]:
    """Training settings known to be suboptimal, kept for parity with released code; each once."""
    stages = schedule.stages
    if any(stage.optimiser.name == "radam_liu" for stage in stages):
        yield "optimiser=radam_liu"
    for warmup in sorted({stage.learning_rate.warmup for stage in stages} - {"linear"}):
        yield f"warmup={warmup}"
    if any(stage.learning_rate.plateau.negated for stage in stages):
        yield "plateau=negated"
    if any(stage.accumulation.gradients == "summed" for stage in stages):
        yield "gradients=summed"
