"""Typed configuration of the visual features: a backbone, or regions; also built from command-line values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from harness.config.limits import MAX_SIDE
from harness.config.schedule import Strict
from harness.utils.errors import BenchError
from harness.utils.files import absolute, expanded, shortened

_WINDOWS = r"^windows:([2-9]|1\d)$"
RegionSourceName = Literal["boxes"] | Annotated[str, Field(pattern=_WINDOWS)]


FEATURES_NOT_IN_KEY: Final[Mapping[str, str]] = {
    "weights": "a place on one machine; the signature's `feat` has the digest of what lies there",
    "sentence_graphs": "a place on one machine; the signature's `sentences` has the digest of what lies there",
    "regions.source": "a place on one machine; the signature's `feat` has the digest of what lies there",
    "graphs": "the signature's `graph` has its settings and the digest of what it names, for models that read a graph",
}
"""Settings of the features that no score depends on, each with the reason."""


class RegionConfig(Strict):
    """Regions in place of grid cells: their source, which of them are kept, and how features are pooled for boxes.

    `source` is "boxes" (the data set's own), "windows:N" (the whole image and its N x N tiles), or a file or folder
    (`harness.data.regions.opening`). `keep` is "all", "fixed:N", "first:N" or "adaptive:LEAST-MOST"
    (`harness.data.regions.regions`). A box is pooled to `bins` x `bins`.
    """

    source: RegionSourceName | Path
    keep: str = Field("all", pattern=r"^(all|(fixed|first):[1-9]\d{0,4}|adaptive:[1-9]\d{0,4}-[1-9]\d{0,4})$")
    bins: int = Field(1, gt=0, le=14)

    @model_validator(mode="after")
    def _order_the_limits(self) -> Self:
        if self.limits is not None and self.limits[0] > self.limits[1]:
            raise ValueError("the minimum number of regions is above the maximum")
        return self

    @property
    def limits(self) -> tuple[int, int] | None:
        """Minimum and maximum number of regions kept per image; None for all."""
        min_count, _, max_count = self.keep.partition(":")[2].partition("-")
        return (int(min_count), int(max_count or min_count)) if min_count else None

    @property
    def as_listed(self) -> bool:
        """Whether the first regions of an image are kept, whatever their scores and areas."""
        return self.keep.startswith("first:")


class GraphConfig(Strict):
    """Scene graphs beside regions, for models that read them.

    `source` is "scenes" (what the embedded data's generator composed) or a JSON file (`harness.data.graphs`).
    `noise` is the rate of faults in graphs of scenes, `seed` theirs. Words of graphs that no caption has are read if
    training images have them `min_count` times; edges have as many labels as the `labels` most frequent predicates.
    """

    source: Literal["scenes"] | Path
    noise: float = Field(0.0, ge=0, le=1, allow_inf_nan=False)
    seed: int = Field(0, ge=0)
    min_count: int = Field(10, gt=0)
    labels: int = Field(20, gt=0, le=10_000)


class FeatureConfig(Strict):
    """The backbone whose features all models get; `options` go to timm's constructor.

    `weights` is a file, or "random" on explicit request. With `regions`, models get region features, not grid cells.
    `graphs` are of these regions. `sentence_graphs` is a file of the scene graphs of captions, for schedules with a
    stage that learns from them.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"regions", "graphs", "sentence_graphs"})

    backbone: str = "filterbank"
    weights: Literal["random"] | Path | None = None
    options: dict[str, str] = Field(default_factory=dict)
    image_size: int | None = Field(None, gt=0, le=MAX_SIDE)
    normalisation: Literal["imagenet", "half", "clip"] | None = None
    regions: RegionConfig | None = None
    graphs: GraphConfig | None = None
    sentence_graphs: Path | None = None

    @field_validator("regions", mode="before")
    @classmethod
    def _parse_regions(cls, regions: object) -> object:
        return region_config(regions) if isinstance(regions, str) else regions

    @field_validator("graphs", mode="before")
    @classmethod
    def _parse_graphs(cls, graphs: object) -> object:
        return parse_graphs(graphs) if isinstance(graphs, str) else graphs

    def resolved(self) -> FeatureConfig:
        """The same configuration with absolute paths."""
        changed: dict[str, object] = {
            name: absolute(expanded(path))
            for name in ("weights", "sentence_graphs")
            if isinstance(path := getattr(self, name), Path)
        }
        for name, part in (("regions", self.regions), ("graphs", self.graphs)):
            if part is not None and isinstance(part.source, Path):
                changed[name] = part.model_copy(update={"source": absolute(expanded(part.source))})
        return self.model_copy(update=changed)

    def files(self) -> dict[str, Path]:
        """The paths, by what lies there."""
        places = {
            "weights": self.weights,
            "regions": self.regions and self.regions.source,
            "graphs": self.graphs and self.graphs.source,
            "sentence_graphs": self.sentence_graphs,
        }
        return {name: path for name, path in places.items() if isinstance(path, Path)}

    def without_files(self) -> FeatureConfig:
        """The same with the last part of every path alone."""
        return self.with_files(**{name: Path(path.name) for name, path in self.files().items()})

    def with_files(
        self,
        weights: Path | None = None,
        regions: Path | None = None,
        graphs: Path | None = None,
        sentence_graphs: Path | None = None,
    ) -> FeatureConfig:
        """The same with these paths in place of its own; None keeps what is there."""
        changed: dict[str, object] = {}
        if weights is not None:
            changed["weights"] = weights
        if regions is not None and self.regions is not None:
            changed["regions"] = self.regions.model_copy(update={"source": regions})
        if graphs is not None and self.graphs is not None:
            changed["graphs"] = self.graphs.model_copy(update={"source": graphs})
        if sentence_graphs is not None:
            changed["sentence_graphs"] = sentence_graphs
        return self.model_copy(update=changed)

    def in_key(self) -> dict[str, object]:
        """The settings that a score may depend on and that no digest of content names."""
        return self.dump_without(FEATURES_NOT_IN_KEY)


def feature_config(
    backbone: str,
    weights: Path | None,
    options: tuple[str, ...],
    image_size: int | None,
    normalisation: str | None,
    regions: RegionConfig | None = None,
) -> FeatureConfig:
    """A `FeatureConfig` of command-line values; BenchError for options that are no KEY=VALUE, and normalisations."""
    settings: dict[str, str] = {}
    for option in options:
        key, separator, settings[key] = option.partition("=")
        if not separator:
            raise BenchError(f"--backbone-option {option!r} has no '='", "write --backbone-option KEY=VALUE")
    try:
        return FeatureConfig(
            backbone=backbone,
            weights="random" if weights == Path("random") else weights,
            options=settings,
            image_size=image_size,
            normalisation=normalisation,
            regions=regions,
        )
    except ValidationError as error:
        raise BenchError(f"--normalisation {normalisation!r} is unknown", "choose imagenet, half or clip") from error


def region_config(source: str | None, keep: str = "all") -> RegionConfig | None:
    """A `RegionConfig` from command-line values, None for grid cells; BenchError for values that cannot be used."""
    if source is None:
        if keep != "all":
            raise BenchError("--region-count needs --regions", "add --regions boxes")
        return None
    windows = source.startswith("windows:")
    if windows and not re.fullmatch(_WINDOWS, source):
        raise BenchError(
            f"--regions {shortened(source)!r} is no number of windows",
            "write windows:4 for the whole image and its 4 x 4 tiles; 2 to 19 tiles a side",
        )
    is_built_in = windows or source == "boxes"
    try:
        return RegionConfig(source=source if is_built_in else expanded(source), keep=keep)
    except ValidationError as error:
        raise BenchError(
            f"--region-count {keep!r} is unknown", "choose all, fixed:36, first:50 or adaptive:10-100"
        ) from error


def graph_config(source: str | None, regions: RegionConfig | None = None) -> GraphConfig | None:
    """A `GraphConfig` of a text as `parse_graphs` takes it, for these regions; None for no graphs."""
    if source is None:
        return None
    graphs = parse_graphs(source)
    check_graph_regions(graphs, regions)
    return graphs


def check_graph_regions(graphs: GraphConfig, regions: RegionConfig | None) -> None:
    """BenchError for no regions, or regions whose places in the graph would be lost."""
    if regions is None:
        raise BenchError(f"--graphs {graphs.source} needs --regions: objects are regions", "add --regions boxes")
    if regions.limits is not None and not regions.as_listed:
        raise BenchError(
            f"--graphs {graphs.source}: with --region-count {regions.keep} objects would no longer be the regions in "
            "order",
            "leave --region-count out, or keep the first ones: --region-count first:36",
        )


def parse_graphs(text: str) -> GraphConfig:
    """Scene graphs of a text: a file, or `scenes`, with settings behind a colon: `scenes:noise=0.3,seed=1`."""
    name, colon, settings = text.partition(":")
    pairs = [part.partition("=")[::2] for part in settings.split(",")] if name == "scenes" and colon else []
    content: dict[str, object] = {"source": "scenes" if name == "scenes" else expanded(text)}
    try:
        if any(setting not in {"noise", "seed"} for setting, _ in pairs):
            raise ValueError("unknown setting")
        content |= {setting: float(value) if setting == "noise" else int(value) for setting, value in pairs}
        return GraphConfig.model_validate(content)
    except ValueError as error:  # pydantic's is one
        raise BenchError(
            f"--graphs {shortened(text)!r} cannot be understood",
            "write scenes, scenes:noise=0.3, scenes:noise=0.3,seed=1 or a file; noise is between 0 and 1",
        ) from error
