"""What a user asks for: models, data, training and where it runs; a YAML file, options, or both.

data: {annotations: dataset_flickr8k.json.gz, images: flickr8k/images}
features: {backbone: tf_efficientnet_lite2, weights: lite2.safetensors, image_size: 320, regions: windows:7}
models: [transformer_base, expansionnet_v2, blind, human]
preset: flickr8k
seeds: 5
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

import yaml
from pydantic import ConfigDict, Field, ValidationError, field_validator, model_validator

from harness.config.evaluation import TokenizerName, parse_language
from harness.config.features import FeatureConfig, parse_graphs
from harness.config.limits import MAX_COUNT, MAX_HOURS, MAX_MEMORY_GB, MAX_PROCESSES, MAX_SEED, MAX_SEEDS
from harness.config.model_patterns import split_patterns
from harness.config.preset import Preset
from harness.config.schedule import Strict, field_names
from harness.utils.errors import BenchError
from harness.utils.files import expanded, reason, shortened
from harness.utils.yaml_value import load_bounded, parse_yaml_value
from results.files import read_text

LONGEST = 200_000  # characters of a file
_OF_PRESET: Final = frozenset({*Preset.model_fields, "stages"})
DEFAULT_DATA, DEFAULT_PRESET = "scenes", "quick"
PRESET_OF_SCENES: Final = {DEFAULT_DATA: DEFAULT_PRESET, "scenes-6k": "quick-6k"}
"""The embedded data sets, and the preset that trains on each where none is named."""
Setting = str | int | float | bool | None | list[Any] | dict[str, Any]


class DataChoice(Strict):
    """The data set: 'scenes', 'scenes-6k', a Karpathy folder or its JSON file, and where its pictures lie.

    With a `limit`, the first images alone of each split that is scored. `left_out` are the ids of images that are not
    used, with the reason, which reports show.
    """

    annotations: str = DEFAULT_DATA
    images: Path | None = None
    limit: int | None = Field(None, ge=1, le=MAX_COUNT)
    skip_bad_images: bool = False
    left_out: dict[int, str] = Field(default_factory=dict)


class MetricChoice(Strict):
    """Further metrics: `more` are those that need nothing, the others are named by what they need."""

    more: bool = False
    clip: str | None = None
    bert: str | None = None
    instances: tuple[Path, ...] = ()

    @property
    def any(self) -> bool:
        """Whether any further metric is computed."""
        return self.more or self.clip is not None or self.bert is not None or bool(self.instances)


class ExecutionChoice(Strict):
    """Where and how runs are executed; nothing here changes what they give."""

    device: str = "auto"
    devices: int | None = Field(None, ge=1, le=MAX_PROCESSES)
    jobs: Literal["auto"] | int = "auto"
    executor: str = "here"
    cpus_per_run: float | None = Field(None, ge=0.01, le=MAX_PROCESSES)
    gpus_per_run: float | None = Field(None, ge=0, le=MAX_PROCESSES)
    memory_per_run: float | None = Field(None, ge=0.1, le=MAX_MEMORY_GB)
    hours_per_run: float | None = Field(None, ge=0.1, le=MAX_HOURS)
    log: tuple[str, ...] = ()

    @field_validator("jobs")
    @classmethod
    def _check_jobs(cls, jobs: Literal["auto"] | int) -> Literal["auto"] | int:
        if jobs != "auto" and not 1 <= int(jobs) <= MAX_PROCESSES:
            raise ValueError(f"must be a positive integer, {MAX_PROCESSES} at most, or auto")
        return jobs


class Experiment(Strict):
    """What `bench run`, `bench plan` and `bench tune` are asked for.

    Attributes:
        models: names, globs and `all`; `hf:NAME`, `captions:FILE` and `ensemble:MODEL:SEEDS`.
        features: what models see; None for what the preset says, on the embedded data.
        set: changes of the preset by dotted name, as `size.d_model: 128`.
        tokenizer: how captions become words, in the vocabulary and before they are scored.
        language: the one of METEOR; None for English, or the tokenizer's.
        seeds: trainings of each model; None for the preset's number.
        budgets: multiples of the preset's epochs, ascending.
        tuned: `workspace`, or files of `bench tune --export`.
        plugins: modules or files that register models.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, populate_by_name=True)
    models: tuple[str, ...] = ("all",)
    pretrained: dict[str, str] = Field(default_factory=dict)
    hub: dict[str, str] = Field(default_factory=dict)
    cards: Path | None = None
    allow_subset: bool = False
    plugins: tuple[str, ...] = ()
    data: DataChoice = DataChoice()
    tokenizer: TokenizerName = "python"
    language: str | None = None
    features: FeatureConfig | None = None
    preset: str = DEFAULT_PRESET
    changes: dict[str, Setting] = Field(default_factory=dict, alias="set")
    seeds: int | None = Field(None, ge=1, le=MAX_SEEDS)
    first_seed: int = Field(0, ge=0, le=MAX_SEED)
    budgets: tuple[int, ...] = (1,)
    tuned: tuple[str, ...] = ()
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    metrics: MetricChoice = MetricChoice()
    reuse: Literal["same", "any", "none"] = "same"
    accept_mixed: bool = False
    execution: ExecutionChoice = ExecutionChoice()
    workspace: Path = Path("workspace")
    db: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _choose_preset_of_scenes(cls, content: object) -> object:
        """Embedded data without a preset have their own."""
        if not isinstance(content, dict) or content.get("preset"):
            return content
        data = content.get("data", {})
        name = data.get("annotations") if isinstance(data, dict) else data
        if isinstance(name, str) and name in PRESET_OF_SCENES:
            return {**content, "preset": PRESET_OF_SCENES[name]}
        return content

    @field_validator("models", mode="before")
    @classmethod
    def _split_models(cls, models: object) -> object:
        return split_patterns(models) if isinstance(models, str) else models

    @field_validator("changes", mode="before")
    @classmethod
    def _dotted_changes(cls, changes: object) -> object:
        return _dotted(changes) if isinstance(changes, dict) else changes

    @field_validator("language")
    @classmethod
    def _parse_language(cls, language: str | None) -> str | None:
        return None if language is None else parse_language(language)

    @field_validator("data", mode="before")
    @classmethod
    def _name_data(cls, data: object) -> object:
        return {"annotations": data} if isinstance(data, str) else data

    @field_validator("budgets", mode="before")
    @classmethod
    def _list_budgets(cls, budgets: object) -> object:
        return (budgets,) if isinstance(budgets, int) else budgets

    @field_validator("budgets")
    @classmethod
    def _order_budgets(cls, budgets: tuple[int, ...]) -> tuple[int, ...]:
        if not budgets or budgets[0] < 1 or list(budgets) != sorted(set(budgets)) or budgets[-1] > MAX_COUNT:
            raise ValueError("must be ascending whole numbers from 1 on, such as 1,2,4")
        return budgets


def read_experiment(path: Path) -> dict[str, Any]:
    """The content of an experiment file; paths relative to its folder become absolute. BenchError if it is invalid."""
    try:
        content = load_bounded(read_text(path), longest=LONGEST)
    except (OSError, ValueError) as error:
        hint = "name a YAML file"
        if not path.suffix:
            hint += f"; models are named by --models {shortened(str(path))}"
        raise BenchError(f"the experiment {path} cannot be read: {reason(error)}", hint) from error
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise BenchError(f"the experiment {path} is no mapping of names to values", "begin with: models: [updown]")
    if is_run(content):
        return content
    if isinstance(content.get("data"), str):
        content["data"] = {"annotations": content["data"]}
    if isinstance(content.get("models"), str):
        content["models"] = list(split_patterns(content["models"]))
    _map_paths(content, path.absolute().parent, str)
    return content


def is_run(content: Mapping[str, Any]) -> bool:
    """Whether a file's content is the configuration of one run, as `bench db show` prints it."""
    return "kind" in content


def validate_experiment(content: Mapping[str, Any], source: str) -> Experiment:
    """Validate an experiment; BenchError that names the wrong field, and the nearest existing one."""
    try:
        return Experiment.model_validate(dict(content))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        hint = f"{source}: see docs/experiments.md"
        if first["type"] == "extra_forbidden":
            message = "there is no such field"
            near = difflib.get_close_matches(str(first["loc"][-1]), field_names(Experiment, first["loc"][:-1]), n=2)
            hint = f"did you mean {' or '.join(near)}?" if near else f"fields: {', '.join(field_names(Experiment, ()))}"
        raise BenchError(f"{source}: {shortened(field)}: {message[:1].lower()}{message[1:]}", hint) from error
    except BenchError as error:  # of features, named by their option
        raise BenchError(f"{source}: {error}", error.hint) from error


def change_content(content: dict[str, Any], changes: Iterable[str]) -> None:
    """Apply `NAME=VALUE` of `--set`: to the experiment if it has such a field, else to the preset."""
    for change in changes:
        name, equals, text = change.partition("=")
        if not equals:
            raise BenchError(f"--set {shortened(change)!r} has no '='", "write --set KEY.PATH=VALUE")
        value = parse_yaml_value(change, text)
        first = name.partition(".")[0]
        fields = field_names(Experiment, ())
        if first in fields:
            put_value(content, name, value)
        elif first not in _OF_PRESET and (near := difflib.get_close_matches(first, fields, n=1, cutoff=0.75)):
            hint = f"did you mean --set {name.replace(first, near[0], 1)}={shortened(text)}?"
            raise BenchError(f"--set {shortened(change)}: there is no field {first}", hint)
        else:
            content["set"] = {**_mapping("set", content.get("set")), name: value}


def put_value(content: dict[str, Any], field: str, value: Any) -> None:
    """Set a field by its dotted name; a short form of a parent becomes the mapping that it stands for."""
    *parents, last = field.split(".")
    node = content
    for depth, parent in enumerate(parents, start=1):
        node[parent] = _mapping(".".join(parents[:depth]), node.get(parent))
        node = node[parent]
    node[last] = value


def _mapping(field: str, value: object) -> dict[str, Any]:
    """The mapping that a field's value is, or stands for; BenchError for any other value."""
    if value is None:
        return {}
    if isinstance(value, dict):
        return value
    if isinstance(value, str) and field == "data":
        return {"annotations": value}
    if isinstance(value, str) and field == "features.regions":
        return {"source": value}
    if isinstance(value, str) and field == "features.graphs":
        return parse_graphs(value).model_dump(exclude_unset=True)
    raise BenchError(f"{field}: {shortened(str(value))!r} is no mapping of names to values", f"write {field}: {{...}}")


def _dotted(changes: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Flatten nested changes to dotted names, so that a group keeps the settings that are not named."""
    dotted: dict[str, Any] = {}
    for name, value in changes.items():
        if isinstance(value, dict) and value:
            dotted |= _dotted(value, f"{prefix}{name}.")
        else:
            dotted[f"{prefix}{name}"] = value
    return dotted


def write_experiment(experiment: Experiment, path: Path) -> str:
    """The text of an experiment's file: the fields that were set, with paths relative to its folder."""
    content = experiment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    _map_paths(content, Path.cwd(), partial(_below, folder=path.absolute().parent))
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100)


_PATHS: Final = (
    "models",
    "pretrained",
    "cards",
    "plugins",
    "data.annotations",
    "data.images",
    "features.weights",
    "features.sentence_graphs",
    "features.regions",
    "features.regions.source",
    "features.graphs",
    "features.graphs.source",
    "tuned",
    "metrics.clip",
    "metrics.bert",
    "metrics.instances",
    "workspace",
    "db",
)
"""Fields whose values may be paths."""
_WORDS: Final = frozenset({*PRESET_OF_SCENES, "boxes", "workspace", "random"})
"""Values that are no paths, whatever lies beside the file."""
_ALWAYS_PATHS: Final = frozenset(
    {"cards", "data.images", "features.weights", "features.sentence_graphs", "metrics.instances"}
)
"""Fields whose values name files even where these do not exist, unless they are such words."""


def _map_paths(content: dict[str, Any], base: Path, convert: Callable[[Path], str]) -> None:
    """Convert each value that is a path relative to `base`, also in lists and mappings."""
    for field in _PATHS:
        *parents, last = field.split(".")
        node: Any = content
        for parent in parents:
            node = node.get(parent) if isinstance(node, dict) else None
        value = node.get(last) if isinstance(node, dict) else None
        map_path = partial(_map_path, field=field, base=base, convert=convert)
        if isinstance(value, str):
            node[last] = map_path(value)
        elif isinstance(value, list):
            node[last] = [map_path(item) if isinstance(item, str) else item for item in value]
        elif isinstance(value, dict) and field == "pretrained":
            node[last] = {name: map_path(item) if isinstance(item, str) else item for name, item in value.items()}


def _map_path(text: str, field: str, base: Path, convert: Callable[[Path], str]) -> str:
    """The value with its path converted; reserved words, and most names of files that do not exist, stay unchanged."""
    if field == "models":
        prefix, _, value = text.partition(":")
        path = base / expanded(value)
        is_path = prefix == "captions" or (prefix == "hf" and path.exists())
        return f"{prefix}:{convert(path)}" if value and is_path else text
    path = base / expanded(text)
    if field in {"workspace", "db"}:
        is_path = "://" not in text
    elif field == "plugins":
        is_path = text.endswith(".py") and path.exists()
    else:
        named_as_path = field in _ALWAYS_PATHS or (field == "data.annotations" and "/" in text)
        is_path = text not in _WORDS and (named_as_path or path.exists())
    return convert(path) if is_path else text


def _below(path: Path, folder: Path) -> str:
    """A path as a file in this folder names it: relative where it lies below, else absolute."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)
