"""The typed configuration of a benchmark run: presets, overrides from the command line, and what identifies a run."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import yaml
from pydantic import Field, ValidationError, field_validator, model_validator

from harness.errors import BenchError
from harness.recipe import Recipe, unusual_training
from harness.training.schedule import Schedule, Strict
from zoo import model_card
from zoo.registry import SIZES


class Decoding(Strict):
    """How captions are generated; the score of a hypothesis is its log-probability / length ** length_penalty.

    `count_bos` counts the begin token in that length, `cut_unfinished` takes the last word from captions that have no
    end: both as ExpansionNet's code does, for the paper track.
    """

    later: ClassVar[frozenset[str]] = frozenset({"count_bos", "cut_unfinished"})
    beam_size: int = Field(3, gt=0)
    max_len: int = Field(20, gt=0, description="most generated tokens, the end token included")
    length_penalty: float = 1.0
    count_bos: bool = False
    cut_unfinished: bool = False

    def unusual_settings(self) -> tuple[str, ...]:
        """What reproduces released code against better knowledge, by name, for the signature."""
        named = {"ranking=count-bos": self.count_bos, "unfinished=cut": self.cut_unfinished}
        return tuple(name for name, on in named.items() if on)


class VocabularyConfig(Strict):
    """What captions are made of, learnt from the training captions alone: `words`, or pieces of them (`bpe`).

    `min_count` is how often a word must occur, or two pieces side by side to be merged, at most `merges` times.
    Lengths, those of decoding too, count tokens: pieces with `bpe`, of which a caption has a little more than words. A
    longer training caption loses its last words.
    """

    later: ClassVar[frozenset[str]] = frozenset({"kind", "merges"})
    kind: Literal["words", "bpe"] = "words"
    merges: int = Field(5000, gt=0)
    min_count: int = Field(5, gt=0)
    max_len: int = Field(20, gt=1, description="most tokens of a training caption, begin and end included")


class RegionConfig(Strict):
    """Regions in place of grid cells: where they come from, which are kept, and how features are cut for boxes.

    `source` is "boxes" (the data set's own), or a file or folder (`harness.data.regions.opening`). `keep` is "all",
    "fixed:N" or "adaptive:LEAST-MOST" (`harness.data.regions.checking`). `bins` a side are cut for a box.
    """

    source: Literal["boxes"] | Path
    keep: str = Field("all", pattern=r"^(all|fixed:[1-9]\d{0,4}|adaptive:[1-9]\d{0,4}-[1-9]\d{0,4})$")
    bins: int = Field(1, gt=0, le=14)

    @model_validator(mode="after")
    def _order_the_limits(self) -> Self:
        if self.limits is not None and self.limits[0] > self.limits[1]:
            raise ValueError("the least number of regions is above the most")
        return self

    @property
    def limits(self) -> tuple[int, int] | None:
        """Least and most regions that are kept of an image; None for all."""
        least, _, most = self.keep.partition(":")[2].partition("-")
        return (int(least), int(most or least)) if least else None


class FeatureConfig(Strict):
    """The backbone that all models see through; `options` go to timm's constructor.

    `weights` is a file, or "random" where the user says so. With `regions` the models see these in place of grid cells.
    """

    later: ClassVar[frozenset[str]] = frozenset({"regions"})

    backbone: str = "filterbank"
    weights: Literal["random"] | Path | None = None
    options: dict[str, str] = Field(default_factory=dict)
    image_size: int | None = Field(None, gt=0)
    normalisation: Literal["imagenet", "half", "clip"] | None = None
    regions: RegionConfig | None = None

    def resolved(self) -> FeatureConfig:
        """The same from whatever folder the command runs in."""
        changed: dict[str, object] = {}
        if isinstance(self.weights, Path):
            changed["weights"] = self.weights.expanduser().resolve()
        if self.regions is not None and isinstance(self.regions.source, Path):
            source = self.regions.source.expanduser().resolve()
            changed["regions"] = self.regions.model_copy(update={"source": source})
        return self.model_copy(update=changed)


def feature_config(
    backbone: str,
    weights: Path | None,
    options: tuple[str, ...],
    image_size: int | None,
    normalisation: str | None,
    regions: RegionConfig | None = None,
) -> FeatureConfig:
    """A `FeatureConfig` from command-line values; `options` are KEY=VALUE strings, the weights `random` no file.

    Raises:
        BenchError: an option without '=', or an unknown normalisation.
    """
    pairs = [option.partition("=") for option in options]
    for option, (_, separator, _) in zip(options, pairs, strict=True):
        if not separator:
            raise BenchError(f"--backbone-option {option!r} has no '='", "write --backbone-option KEY=VALUE")
    try:
        return FeatureConfig.model_validate(
            {
                "backbone": backbone,
                "weights": "random" if weights == Path("random") else weights,
                "options": {key: value for key, _, value in pairs},
                "image_size": image_size,
                "normalisation": normalisation,
                "regions": regions,
            }
        )
    except ValidationError as error:
        raise BenchError(f"--normalisation {normalisation!r} is unknown", "choose imagenet, half or clip") from error


def region_config(source: str | None, keep: str, bins: int) -> RegionConfig | None:
    """A `RegionConfig` from command-line values; None where the models are to see grid cells.

    Raises:
        BenchError: an unknown `keep`, or a source that is not there.
    """
    if source is None:
        return None
    chosen: str | Path = source if source == "boxes" else Path(source).expanduser()
    try:
        return RegionConfig.model_validate({"source": chosen, "keep": keep, "bins": bins})
    except ValidationError as error:
        raise BenchError(f"--region-count {keep!r} is unknown", "choose all, fixed:36 or adaptive:10-100") from error


class Preset(Strict):
    """Everything that the controlled track holds equal between models, under one name.

    `size` goes to every model. `small_models` takes the sizes that only some models have (lengths of expansions, say)
    from the small set of each model's card, instead of the paper's.

    With a `recipe`, the preset is one of the paper track: for the models of one paper, trained and evaluated as their
    authors did, settings included that the controlled track refuses.
    """

    later: ClassVar[frozenset[str]] = frozenset({"recipe", "latency_seconds", "energy_seconds"})
    name: str
    summary: str
    size: dict[str, int | float]
    small_models: bool = False
    vocabulary: VocabularyConfig = VocabularyConfig()
    decoding: Decoding = Decoding()
    schedule: Schedule
    latency_repeats: int = Field(10, ge=2, description="timed captions of one image at most")
    latency_seconds: float | None = Field(1.0, gt=0, description="after which no further one is timed; none: no limit")
    energy_seconds: float = Field(0.0, ge=0, description="of a window of energy, on devices that count it; 0: none")
    recipe: Recipe | None = None

    @field_validator("size")
    @classmethod
    def _know_the_sizes(cls, size: dict[str, int | float]) -> dict[str, int | float]:
        if unknown := sorted(set(size) - set(SIZES)):
            raise ValueError(f"there is no size {', '.join(unknown)}; sizes are {', '.join(SIZES)}")
        return size

    @model_validator(mode="after")
    def _keep_tracks_apart(self) -> Self:
        if self.recipe is None and (found := self.unusual_settings()):
            raise ValueError(f"{', '.join(found)}: for presets with a recipe alone, those of the paper track")
        return self

    def unusual_settings(self) -> tuple[str, ...]:
        """Everything that reproduces released code against better knowledge, by name, for the signature."""
        return (
            *(self.recipe.settings() if self.recipe else ()),
            *unusual_training(self.schedule),
            *self.decoding.unusual_settings(),
        )

    def model_arguments(self, model: str) -> dict[str, Any]:
        """The keyword arguments that `model` is built with under this preset.

        Raises:
            BenchError: the preset is a recipe for other models.
        """
        if self.recipe is not None and not self.recipe.covers(model):
            raise BenchError(
                f"the preset {self.name!r} is a paper's recipe for other models than {model}",
                f"add --models '{','.join(self.recipe.models)}', or choose a preset of the controlled track",
            )
        return {**self.size, **(model_card(model).small if self.small_models else {})}


def _yaml_files(package: str) -> dict[str, Any]:
    folder = resources.files(package)
    return {entry.name.removesuffix(".yaml"): entry for entry in folder.iterdir() if entry.name.endswith(".yaml")}


def list_schedules() -> list[str]:
    """Names of the schedules that come with the harness."""
    return sorted(_yaml_files("harness.training.schedules"))


def load_schedule(name: str) -> Schedule:
    """Read a schedule by name; BenchError where there is none."""
    files = _yaml_files("harness.training.schedules")
    if name not in files:
        raise BenchError(f"unknown schedule {name!r}", f"choose one of: {', '.join(sorted(files))}")
    return Schedule.model_validate({"name": name} | yaml.safe_load(files[name].read_text(encoding="utf-8")))


def list_presets() -> list[str]:
    """Names of the presets that come with the harness."""
    return sorted(_yaml_files("harness.presets"))


def load_preset(name: str, overrides: tuple[str, ...] = ()) -> Preset:
    """Read a preset, embed its schedule, and apply `KEY.PATH=VALUE` overrides.

    Args:
        name: one of `list_presets()`.
        overrides: for example `schedule.stages.0.epochs=3` or `size.d_model=256`; values are read as YAML.

    Raises:
        BenchError: unknown preset, unknown key or a value of the wrong type.
    """
    files = _yaml_files("harness.presets")
    if name not in files:
        raise BenchError(f"unknown preset {name!r} (--preset)", f"choose one of: {', '.join(sorted(files))}")
    content = yaml.safe_load(files[name].read_text(encoding="utf-8"))
    schedules = _yaml_files("harness.training.schedules")
    schedule = content["schedule"]
    content["schedule"] = {"name": schedule} | yaml.safe_load(schedules[schedule].read_text(encoding="utf-8"))
    if chosen := content.pop("stages", None):
        content["schedule"]["stages"] = [stage for stage in content["schedule"]["stages"] if stage["name"] in chosen]
    content["name"] = name
    for override in overrides:
        _apply(content, override)
    try:
        return Preset.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        told = first["msg"].removeprefix("Value error, ")
        what = told if first["type"] == "value_error" else f"{where}: {told.lower()} (got {first['input']!r})"
        raise BenchError(
            f"preset {name!r}: {what}",
            "check --set; for example --set schedule.stages.0.epochs=3",
        ) from error


def _apply(content: dict[str, Any], override: str) -> None:
    """Set one `KEY.PATH=VALUE` in a nested structure; a path that does not exist names the nearest part that does."""
    path, separator, text = override.partition("=")
    if not separator:
        raise BenchError(f"--set {override!r} has no '='", "write --set KEY.PATH=VALUE, as in --set size.d_model=256")
    *parents, last = path.split(".")
    node: Any = content
    try:
        value = yaml.safe_load(text)
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        if isinstance(node, list):
            node[int(last)] = value
        else:
            node[last] = value
    except (AttributeError, IndexError, TypeError, ValueError, yaml.YAMLError) as error:
        raise BenchError(
            f"--set {override!r}: there is no such setting",
            "write --set KEY.PATH=VALUE, as in --set schedule.stages.0.epochs=3",
        ) from error
