"""A trained model on disk, with all that captioning new images needs: `run.json` beside its weights."""

import difflib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import Field, field_validator

from harness.benchmark.context import BenchmarkData, ModelInputs, RunContext
from harness.config.features import FeatureConfig
from harness.config.limits import MAX_CHANNELS
from harness.config.preset import Decoding
from harness.config.schedule import Strict
from harness.data.hub import HubPreprocessing
from harness.data.images import ImagePreprocessing, without_stored_control
from harness.data.regions.opening import needs_backbone
from harness.data.vocabularies import load_vocabulary
from harness.data.vocabulary import Vocabulary
from harness.key import key_name
from harness.training.checkpoint import WEIGHTS, is_whole, load_weights
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.workspace import Workspace
from results.files import read_model
from zoo import Captioner, Pretraining, create_model, list_models
from zoo.decoding import Ensemble
from zoo.errors import first_line
from zoo.safety import no_larger_than

FILE = "run.json"
VOCABULARY = "vocabulary.json"
AGAIN = "run it again: the same `bench run` command with --reuse none"


class SavedModel(Strict):
    """How a saved model was built, and what it reads.

    `backbone_digest` is over the backbone's architecture and weights; models on pixels carry these themselves. A
    pretrained model that was not `trained` further keeps its weights in the folder that its arguments name;
    `pretrained` is the repository or folder of published weights; `pretraining` is what the weights of an imported
    checkpoint were trained on; `graph_entries` are what a scene graph's numbers stand for (`ImageGraphs.entries`).
    An ensemble is described as one of its `members`, runs whose folders lie beside its own.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"pretrained", "pretraining", "graph_entries", "members"})
    format: Literal["captionbench run 1"] = "captionbench run 1"
    model: str
    arguments: dict[str, Any]
    visual_dim: int = Field(ge=0, le=MAX_CHANNELS)
    features: FeatureConfig
    backbone_digest: str
    preprocessing: ImagePreprocessing | HubPreprocessing
    decoding: Decoding
    trained: bool = True
    pretrained: str | None = None
    pretraining: Pretraining | None = None
    graph_entries: tuple[str, ...] | None = None
    members: tuple[str, ...] = ()

    @field_validator("preprocessing", mode="before")
    @classmethod
    def _of_release_1(cls, stored: Any) -> Any:
        return without_stored_control(stored)

    def save(self, folder: Path) -> None:
        """Write `run.json` in one instant."""
        write_text(folder / FILE, self.model_dump_json(indent=1) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read what `save` wrote; BenchError if the folder holds no finished run, StoreError where a damaged one."""
        path = folder / FILE
        if not path.is_file():
            reason = f"{path} is missing: the run has no model, as those of human, majority, retrieval and captions"
            raise BenchError(reason, "name a run of a trained model, or train it again")
        run = read_model(cls, path, "description of a run", AGAIN)
        if run.trained and not run.members and not (folder / WEIGHTS).is_file():
            raise BenchError(f"{folder} has no trained weights yet", "let `bench run` finish its training")
        return run

    def build(self, folder: Path) -> tuple[Captioner, Vocabulary]:
        """The trained model, in float32 and evaluation mode, and its vocabulary.

        Raises:
            BenchError: files are missing, damaged or of another model, or the model is not registered, or cannot be
                built: of sizes that its weights do not have, too.
            ZooError: the weights are no numbers.
        """
        if self.members:
            return self._build_members(folder)
        if self.model not in list_models():
            raise BenchError(
                f"the run {folder.name} is of the model {self.model!r}, which is not in the zoo",
                "add the plug-in that registers it: --plugin FILE.py",
            )
        vocabulary = load_vocabulary(folder / VOCABULARY)
        sizes = {"vocab_size": len(vocabulary), "visual_dim": self.visual_dim}
        weights = folder / WEIGHTS
        try:
            # Damaged weights are told where they are read.
            with no_larger_than([weights], "cpu") if self.trained and is_whole(weights) else nullcontext():
                model = create_model(self.model, **sizes, **self.arguments)
        except Exception as error:  # whatever its arguments lead the model to
            raise BenchError(
                f"{folder / FILE}: {self.model} cannot be built as it says: {first_line(error)}",
                getattr(error, "hint", None) or AGAIN,
            ) from error
        model.float()  # some are published in half precision, and none runs or trains in it
        if self.trained:
            load_weights(model, weights)
        return model.eval(), vocabulary

    def _build_members(self, folder: Path) -> tuple[Captioner, Vocabulary]:
        built = []
        for key in self.members:
            member_folder = find_member(key, folder)
            member = SavedModel.load(member_folder)
            if member.members:
                raise BenchError(f"{key} is an ensemble itself", "name its members")
            built.append(member.build(member_folder))
            same = {
                "vocabularies": built[0][1].digest() == built[-1][1].digest(),
                "decodings": member.decoding == self.decoding,
                "features": (member.backbone_digest, member.visual_dim) == (self.backbone_digest, self.visual_dim),
                "images": member.preprocessing == self.preprocessing,
                "scene graphs": member.graph_entries in {None, self.graph_entries},
            }
            if differing := next((part for part, is_same in same.items() if not is_same), None):
                raise BenchError(
                    f"the ensemble's members {self.members[0]} and {key} have other {differing}",
                    "only models of the same conditions make an ensemble",
                )
        return Ensemble([model for model, _ in built]).eval(), built[0][1]


def find_member(key: str, folder: Path) -> Path:
    """The folder of an ensemble's member, beside the ensemble's own; BenchError if `key` names no such place."""
    if Path(key).name != key or key == "..":
        raise BenchError(f"{folder / FILE}: {shortened(key)!r} is no key of a run")
    return folder.parent / key


def save_ensemble(members: Sequence[str], folder: Path) -> None:
    """Write to `folder` how these stored runs are opened together: as the first of them, or one that reads a graph."""
    saved = {key: SavedModel.load(find_member(key, folder)) for key in members}
    described_by = next((key for key in members if saved[key].graph_entries is not None), members[0])
    load_vocabulary(find_member(described_by, folder) / VOCABULARY).save(folder / VOCABULARY)
    saved[described_by].model_copy(update={"members": tuple(members)}).save(folder)


def open_saved(saved: SavedModel, folder: Path, context: RunContext) -> tuple[Captioner, RunContext]:
    """The model on the device of `context`, and the context with its own vocabulary, preprocessing and decoding."""
    model, vocabulary = saved.build(folder)
    inputs = ModelInputs(vocabulary, saved.preprocessing, saved.decoding, saved.graph_entries)
    return model.to(context.compute.device), replace(context, inputs=inputs)


def refuse_other_features(name: str, saved: SavedModel, data: BenchmarkData) -> None:
    """BenchError if a saved run was trained on other features than this benchmark has."""
    theirs = saved.features.regions
    ours = data.feature_config.regions
    if (theirs is None) != (ours is None):
        trained_on, available = ("grid cells", "regions") if theirs is None else ("regions", "grid cells")
        hint = "leave out --regions" if theirs is None else "add --regions SOURCE, of the kind that it was trained on"
        raise BenchError(f"{name} sees {trained_on}, and here are {available}", hint)
    if theirs is not None and ours is not None:
        cut = [(needs_backbone(regions.source), regions.bins) for regions in (theirs, ours)]
        if cut[0] != cut[1] or (not cut[0][0] and saved.visual_dim != data.visual_dim):
            raise BenchError(
                f"{name} was trained on other regions: those of {theirs.source}, of {saved.visual_dim} channels",
                "add --regions SOURCE (and --set features.regions.bins=N), of the kind that it was trained on",
            )
    through_backbone = theirs is None or needs_backbone(theirs.source)
    if through_backbone and saved.backbone_digest != data.backbone.digest:
        raise BenchError(
            f"{name} sees the features of {saved.features.backbone}, not those of {data.backbone.describe()}",
            f"add --backbone {saved.features.backbone} with the weights that it was trained with",
        )
    if through_backbone and saved.preprocessing.key() != data.backbone.preprocessing.key():
        raise BenchError(
            f"{name} sees images as {saved.preprocessing.key()}, and here they are {data.backbone.preprocessing.key()}",
            "give --image-size and --normalisation as in its training",
        )


def is_saved(name: str, workspace: Workspace) -> bool:
    """Whether `name` is the key of a run that the workspace holds."""
    return Path(name).name == name and (workspace.run_folder(name) / FILE).is_file()


def find_run(name: str, workspace: Workspace) -> Path:
    """The folder of a run: `name` is the folder itself, a key in the workspace, or a model.

    Of a model the newest run of the workspace is taken. BenchError if there is none, with the nearest names.
    """
    runs = workspace.run_folder("")
    names = sorted(entry.name for entry in runs.iterdir() if entry.is_dir()) if runs.is_dir() else []
    if name in names:
        return runs / name
    if Path(name).is_dir():
        return Path(name)
    folders = [
        runs / key for key in names if key.rpartition("-s")[0] == key_name(name) and (runs / key / FILE).is_file()
    ]
    if folders:
        trained = [folder for folder in folders if (folder / WEIGHTS).is_file()]  # another may be training
        return max(trained or folders, key=lambda folder: (folder / FILE).stat().st_mtime)
    if not names:
        raise BenchError(f"no run {name!r}: {runs} holds no runs", "train one with `bench run`, or set --workspace DIR")
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.3) or names[:3]
    raise BenchError(f"no run {name!r} in {runs}", f"did you mean {' or '.join(near)}?")
