"""One run, exactly as it is executed: JSON in its row of the store, YAML from `bench db show` and for `bench run`."""

from __future__ import annotations

import difflib
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import yaml
from pydantic import Field, JsonValue, TypeAdapter, ValidationError

from harness.config.evaluation import TokenizerName
from harness.config.execution import ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.preset import Preset
from harness.config.schedule import Strict, field_names
from harness.config.tuning import AppliedTuning
from harness.utils.errors import BenchError
from harness.utils.files import absolute, expanded, shortened
from harness.utils.hashing import canonical_json
from results.records import RunSpec
from zoo.kinds import GraphKind, VisualKind


class RunData(Strict):
    """The data set as all runs of a benchmark use it.

    Attributes:
        name: name and digest of annotations, pictures and images left out, as signatures have it.
        sees: what the models of the benchmark see; an image that one of them cannot read is left out for all. Empty
            where no row needs pictures.
        graphs: the kinds of scene graphs that they read.
        limit: how many images of each split are scored, its first ones; None for all.
        left_out: the reason by the id of each image that is not used, because the experiment says so.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"limit", "left_out"})
    name: str = ""
    sees: tuple[VisualKind, ...] = ()
    graphs: tuple[GraphKind, ...] = ()
    skip_bad_images: bool = False
    limit: int | None = Field(None, ge=1)
    left_out: dict[int, str] = Field(default_factory=dict)


class RunFiles(Strict):
    """Where the inputs of a run lie on this machine; nothing here is in the key.

    Attributes:
        data: `scenes`, or a file or folder as `bench run --data` takes it.
        checkpoint: a folder with published weights.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"data", "images", "weights", "regions", "graphs", "sentence_graphs", "captions", "checkpoint"}
    )
    data: str | None = None
    images: Path | None = None
    weights: Path | None = None
    regions: Path | None = None
    graphs: Path | None = None
    sentence_graphs: Path | None = None
    captions: Path | None = None
    checkpoint: Path | None = None


class MadeFrom(Strict):
    """How the preset of a run came about; of it the signature, and so the key, has the tuning alone.

    Attributes:
        preset: the name of the preset that was asked for.
        digest: of the shipped preset of this name; None if none ships.
        deviations: settings that differ from it, with both values.
        schedule, size: the preset's before tuning, as signatures name them.
        budget: how many times the preset's epochs.
        tuned: the values of `bench tune` that are applied.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"budget", "tuned"})
    preset: str
    digest: str | None
    deviations: tuple[str, ...] = ()
    schedule: str
    size: str
    budget: int = 1
    tuned: AppliedTuning | None = None


class Conditions(Strict):
    """What all runs of a benchmark have in common, and what is opened for them.

    `preset` is that of the experiment; in a run, with budget and tuned values applied. Paths of `features` are their
    last parts: `files` has the whole ones. `tokenizer` makes words of captions, in the vocabulary and before they are
    scored; `language` is METEOR's, None if it follows from the tokenizer.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"tokenizer", "language"})
    data: RunData = RunData()
    features: FeatureConfig = FeatureConfig()
    preset: Preset
    precision: Literal["fp32", "bf16"] = "fp32"
    tokenizer: TokenizerName = "python"
    language: str | None = None
    files: RunFiles = RunFiles()
    execution: ExecutionConfig = ExecutionConfig()

    @classmethod
    def of_inputs(
        cls, data: str, images: Path | None, features: FeatureConfig, *, described: RunData, **others: Any
    ) -> Self:
        """Of the inputs as they were asked for: paths become absolute, and stand in `files` alone."""
        features = features.resolved()
        data_path = absolute(expanded(data))
        files = RunFiles(
            data=str(data_path) if data_path.exists() else data,
            images=None if images is None else absolute(expanded(images)),
            **features.files(),
        )
        return cls(data=described, features=features.without_files(), files=files, **others)

    def located_features(self) -> FeatureConfig:
        """The features with the paths of `files`."""
        files = self.files
        return self.features.with_files(
            weights=files.weights,
            regions=files.regions,
            graphs=files.graphs,
            sentence_graphs=files.sentence_graphs,
        )

    def opened(self) -> str:
        """Equal for runs that share data, features and vocabulary."""
        preset = self.preset
        sentences = any(not stage.gives_ciders for stage in preset.schedule.stages)
        files = self.files.model_copy(update={"captions": None, "checkpoint": None})
        data = self.data.model_copy(update={"name": ""})  # which is known once they are opened
        read = [data, self.located_features(), files, preset.vocabulary, preset.decoding, preset.recipe]
        dumped = [part and part.model_dump(mode="json") for part in read]
        others = [preset.size.get("max_len"), sentences, self.precision, self.execution.device]
        return canonical_json([*dumped, *others, self.tokenizer, self.language])


class RunBase(Conditions):
    """A row's name and seed, and how its preset came about."""

    model: str
    seed: int = 0
    made_from: MadeFrom

    @abstractmethod
    def in_key(self) -> dict[str, Any]:
        """The settings that may move a score and that the signature does not name."""


class TrainedRun(RunBase):
    """A model of the zoo that is trained here, from random weights or from published ones.

    `weights` are the repository or the folder's name of published weights; `arguments` are those that the model is
    created with, besides its card's.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"weights"})
    kind: Literal["trained"] = "trained"
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    weights: str | None = None

    def in_key(self) -> dict[str, Any]:
        """All that training reads; of published weights the signature names processor and tokenizer."""
        if self.weights is not None:
            return {"preset": self.preset.in_key()}
        return {"arguments": self.arguments, "preset": self.preset.in_key(), "features": self.features.in_key()}


class PretrainedRun(RunBase):
    """Published weights in a model of the zoo, as they are."""

    kind: Literal["pretrained"] = "pretrained"
    weights: str

    def in_key(self) -> dict[str, Any]:
        """How they are decoded."""
        return {"max_len": self.preset.size["max_len"], "decoding": self.preset.decoding.model_dump(mode="json")}


class HubRun(RunBase):
    """A checkpoint of transformers' own interface: a repository or a folder's name, and how it is asked.

    Attributes:
        prompt: a template's name, a text, or None for the family's default.
        clean: rules of what is done to captions.
        attention, dtype: None for the network's and the run's own.
        batch: images at once; None for what memory has room for. As that, it is not in the key.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"revision", "prompt", "clean", "attention", "dtype", "batch"}
    )
    kind: Literal["hub"] = "hub"
    weights: str
    revision: str | None = None
    prompt: str | None = None
    clean: tuple[str, ...] = ()
    attention: str | None = None
    dtype: str | None = None
    batch: int | None = Field(None, ge=1)

    def in_key(self) -> dict[str, Any]:
        """How it is decoded; the signature names prompt, rules, attention and arithmetic."""
        return {"decoding": self.preset.decoding.model_dump(mode="json")}


class CaptionsRun(RunBase):
    """Captions that another system wrote.

    Attributes:
        sha256: of the file.
        path_digest: of the machine and the path; equal for runs of earlier contents of the file.
        named_by: the field that names the images; None if positions do.
        subset: which images it has, as the signature says it; empty if it has all.
        scores: the files of other metrics in the captions' folder, by metric; `scores_sha256` are theirs.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset(
        {"id_field", "subset", "scores", "scores_sha256", "caption_field", "by_position", "format"}
    )
    kind: Literal["captions"] = "captions"
    sha256: str
    path_digest: str
    id_field: str | None = None
    named_by: str | None = None
    subset: str = ""
    caption_field: str | None = None
    by_position: bool = False
    format: str | None = None
    scores: dict[str, str] = Field(default_factory=dict)
    scores_sha256: dict[str, str] = Field(default_factory=dict)

    def in_key(self) -> dict[str, Any]:
        """What is in the files, and how it is matched."""
        settings: dict[str, Any] = {"captions": self.sha256, "file": self.path_digest, "named_by": self.named_by}
        if self.scores_sha256:
            settings["scores"] = self.scores_sha256
        if self.caption_field is not None:
            settings["caption_field"] = self.caption_field
        if self.by_position:
            settings["by_position"] = True
        if self.format is not None:
            settings["format"] = self.format
        return settings


class EnsembleRun(RunBase):
    """Several runs together, by their keys."""

    kind: Literal["ensemble"] = "ensemble"
    members: tuple[str, ...]

    def in_key(self) -> dict[str, Any]:
        """The keys, which are over all that the members depend on."""
        return {"members": list(self.members)}


class StoredRun(RunBase):
    """A run of the workspace, named by its key, that is captioned and scored again."""

    kind: Literal["stored"] = "stored"

    def in_key(self) -> dict[str, Any]:
        """Nothing: its name is the other run's key."""
        return {}


class ReferenceRun(RunBase):
    """A row without a model: `human`, `retrieval` or `majority`."""

    kind: Literal["reference"] = "reference"

    def in_key(self) -> dict[str, Any]:
        """Nothing: the signature has the data."""
        return {}


RunConfig = Annotated[
    TrainedRun | PretrainedRun | HubRun | CaptionsRun | EnsembleRun | StoredRun | ReferenceRun,
    Field(discriminator="kind"),
]
_RUN: TypeAdapter[RunConfig] = TypeAdapter(RunConfig)
_KINDS: Mapping[str, type[RunBase]] = {kind.model_fields["kind"].default: kind for kind in RunBase.__subclasses__()}


def config_of(spec: RunSpec) -> RunConfig:
    """The configuration of a stored run; BenchError if its row has none, or not in this release's words."""
    if spec.config is None:
        raise BenchError(
            f"run {spec.key} is stored without its configuration, as in a published database or by an older release",
            "`bench report` shows its settings; the `bench run` command that made it plans it anew",
        )
    return parse_run(spec.config, f"run {spec.key}")


def parse_run(content: Mapping[str, Any], source: str) -> RunConfig:
    """A run's configuration of its JSON; BenchError that names the field, and the nearest known one."""
    try:
        return _RUN.validate_json(canonical_json(dict(content)))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"][1:]) or "kind"
        hint = "`bench db show KEY` prints a run's configuration"
        message = first["msg"]
        if first["type"] == "extra_forbidden":
            message = "there is no such field"
            known = field_names(_KINDS[str(first["loc"][0])], first["loc"][1:-1])
            if near := difflib.get_close_matches(str(first["loc"][-1]), known, n=2):
                hint = f"did you mean {' or '.join(near)}?"
        raise BenchError(f"{source}: {shortened(where)}: {message[:1].lower()}{message[1:]}", hint) from error


def write_run(config: RunConfig) -> str:
    """The YAML of a run's configuration, which `bench run` executes."""
    content = config.model_dump(mode="json")
    ordered = {name: content.pop(name) for name in ("kind", "model", "seed")}
    last = {name: content.pop(name) for name in ("made_from", "files", "execution")}
    return yaml.safe_dump(
        {**ordered, **content, **last}, sort_keys=False, allow_unicode=True, default_flow_style=None, width=100
    )
