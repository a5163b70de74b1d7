"""One run by its kind: where it leaves its files, which seed it starts from, which models and features it refuses."""

import dataclasses
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from harness.benchmark import run as module
from harness.benchmark.baselines import majority_caption
from harness.benchmark.context import RunContext
from harness.benchmark.costs import weights_folder
from harness.benchmark.models import build_model, check_captioner, model_arguments
from harness.benchmark.pretrained import Pretrained
from harness.benchmark.run import RunTools, evaluate_run, score_reference, train_run
from harness.benchmark.saved_model import SavedModel
from harness.config.features import FeatureConfig
from harness.config.run import PretrainedRun, ReferenceRun, RunBase, RunConfig, StoredRun, TrainedRun
from harness.data.hub import WeightsMissing
from harness.inference.generate import Captions
from harness.measure.captioning_costs import Counted, Timed
from harness.training.trainer import TrainState
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.records import Outcome
from tests.harness.benchmark.small_runs import FixedServices, make_context, quiet, run_config, save_run
from zoo import Captioner, Memory, create_model, model_card, register_model
from zoo.laws import BrokenLawError
from zoo.models.show_attend_tell import ShowAttendTell

END_TO_END = "expansionnet_v2/end-to-end"
Kind = TypeVar("Kind", bound=RunBase)
SUMMARY = TrainState(seconds=3.0, images=4, total_steps=2, best=1.0, micro_batches=3)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What training and captioning are asked for; neither is done."""
    found: dict[str, Any] = {}

    def train_model(model: Captioner, seed: int, _: object, folder: Path, *__: object, **___: object) -> TrainState:
        weights = {name: value.clone() for name, value in model.state_dict().items()}
        found.update(seed=seed, folder=folder, initial=weights, drawn=torch.initial_seed())
        return SUMMARY

    def caption(model: Captioner, _words: object, _source: object, ids: list[int], decoding: Any, **_: Any) -> Captions:
        found.update(model=model, decoding=decoding)
        return Captions(dict.fromkeys(ids, "a dog"), {image_id: [5] for image_id in ids}, len(ids), 1.0)

    monkeypatch.setattr(module, "train_model", train_model)
    monkeypatch.setattr(module, "caption_images", caption)
    monkeypatch.setattr(module, "attends", lambda _: False)
    monkeypatch.setattr(module, "count_mean_caption", lambda *_, **__: {})
    monkeypatch.setattr(module, "time_model", lambda *_: Timed())
    monkeypatch.setattr(module, "count_captioning", lambda *_, **__: Counted())
    return found


def run(config: RunConfig, context: RunContext, workspace: Workspace, key: str = "a-s4") -> Outcome:
    """Execute a run under this context."""
    with FixedServices(workspace, context) as services:
        tools = RunTools(weights_folder(key, config, workspace), services.store, services.evaluator(context), quiet())
        if isinstance(config, ReferenceRun):
            return score_reference(config.model, context.data, services.evaluator(context))
        if isinstance(config, TrainedRun):
            return train_run(config, context, tools)
        assert isinstance(config, PretrainedRun | StoredRun)
        return evaluate_run(config, context, tools)


def trained(context: RunContext, seed: int = 0, model: str = "show_tell") -> TrainedRun:
    arguments = context.preset.model_arguments(model)
    return run_config(context, model).model_copy(update={"seed": seed, "arguments": arguments})


def of_kind(kind: type[Kind], context: RunContext, model: str, **fields: Any) -> Kind:
    """A run of another kind under this context."""
    common = {name: value for name, value in dict(run_config(context, model)).items() if name in RunBase.model_fields}
    return kind(**{**common, **fields})


@pytest.mark.parametrize("each", [4, 16])  # bytes of a weight; with gradient and moments
def test_a_model_that_no_memory_holds_is_not_built(
    monkeypatch: pytest.MonkeyPatch, small: RunContext, workspace: Workspace, seen: dict[str, Any], each: int
) -> None:
    config = trained(small, seed=4)
    run(config, small, workspace)
    parameters = sum(value.numel() for value in seen["initial"].values())
    monkeypatch.setattr("harness.measure.memory.free_memory", lambda _: each * parameters - 1)
    with pytest.raises(BenchError, match=f"would have {parameters:,} parameters"):
        run(config, small, workspace)


def test_a_model_is_trained_in_the_folder_of_its_key(
    small: RunContext, workspace: Workspace, seen: dict[str, Any]
) -> None:
    outcome = run(trained(small, seed=4), small, workspace)
    folder = workspace.run_folder("a-s4")
    assert (seen["folder"], seen["seed"], seen["drawn"]) == (folder, 4, 4)
    assert outcome.checkpoint == str(folder / "best.safetensors")
    assert outcome.costs["train_seconds"].value == SUMMARY.seconds
    assert outcome.environment["training"]["passes_per_batch"] == 3
    (folder / "best.safetensors").touch()
    saved = SavedModel.load(folder)
    assert (saved.model, saved.trained, saved.pretrained) == ("show_tell", True, None)
    assert (saved.visual_dim, saved.backbone_digest) == (small.data.visual_dim, small.data.backbone.digest)
    assert (saved.decoding, saved.preprocessing) == (small.inputs.decoding, small.inputs.preprocessing)
    assert (folder / "vocabulary.json").is_file()


def test_initial_weights_are_those_of_the_seed(small: RunContext, workspace: Workspace, seen: dict[str, Any]) -> None:
    weights = []
    for seed in (0, 1, 0):
        torch.rand(7)
        run(trained(small, seed=seed), small, workspace)
        weights.append(torch.cat([value.flatten() for value in seen["initial"].values()]))
    assert torch.equal(weights[0], weights[2])
    assert not torch.equal(weights[0], weights[1])


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small model stands for any published one, and brings a decoding of three tokens along."""

    def open_published(self: Pretrained, context: RunContext) -> tuple[Captioner, RunContext, dict[str, Any]]:
        model = create_model("blind", vocab_size=9, visual_dim=0, **model_card("blind").tiny)
        inputs = replace(context.inputs, decoding=context.inputs.decoding.model_copy(update={"max_len": 3}))
        return model, replace(context, inputs=inputs), {"folder": self.where}

    monkeypatch.setattr(Pretrained, "open", open_published)


@pytest.mark.usefixtures("published")
def test_published_weights_are_evaluated_as_they_are(
    small: RunContext, workspace: Workspace, seen: dict[str, Any]
) -> None:
    outcome = run(of_kind(PretrainedRun, small, "git/pretrained", weights="somebody/git"), small, workspace, "git-s0")
    assert "seed" not in seen, "nothing was trained"
    assert seen["decoding"].max_len == 3, "with its own inputs"
    assert outcome.costs["train_seconds"].value is None
    assert "nothing was trained here" in (outcome.costs["train_seconds"].reason or "")
    saved = SavedModel.load(workspace.run_folder("git-s0"))
    assert (saved.trained, saved.pretrained, saved.arguments) == (False, "somebody/git", {"folder": "somebody/git"})


@pytest.mark.usefixtures("published")
def test_published_weights_are_trained_further(small: RunContext, workspace: Workspace, seen: dict[str, Any]) -> None:
    run(of_kind(TrainedRun, small, "git/finetuned", seed=1, weights="somebody/git"), small, workspace, "git-s1")
    assert (seen["seed"], seen["folder"]) == (1, workspace.run_folder("git-s1"))
    assert seen["decoding"].max_len == 3


def test_weights_that_are_nowhere_leave_no_folder(
    small: RunContext, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "nothing"))
    with pytest.raises(WeightsMissing):
        run(of_kind(PretrainedRun, small, "git/pretrained", weights="somebody/git"), small, workspace, "git-s0")
    assert not workspace.run_folder("git-s0").exists()


def stored(context: RunContext) -> StoredRun:
    return of_kind(StoredRun, context, "stored-run")


def test_a_stored_run_is_evaluated_from_its_own_folder(
    small: RunContext, workspace: Workspace, seen: dict[str, Any]
) -> None:
    folder = save_run(workspace, "stored-run", small)
    outcome = run(stored(small), small, workspace, "stored-run-s0-b")
    assert outcome.checkpoint == str(folder / "best.safetensors")
    assert seen["decoding"].max_len == 5
    assert not seen["model"].training
    assert "stored before" in (outcome.costs["train_seconds"].reason or "")
    assert not workspace.run_folder("stored-run-s0-b").exists()


REGIONS = FeatureConfig.model_validate({"regions": {"source": "boxes", "bins": 2}})
FILES = FeatureConfig.model_validate({"regions": {"source": "somewhere/att"}})


@pytest.mark.parametrize(
    ("theirs", "ours", "complaint", "hint"),
    [
        ({"features": REGIONS}, {}, "stored-run .*regions.* grid", "add --regions"),
        ({}, {"feature_config": REGIONS}, "stored-run .*grid.* regions", "leave out --regions"),
        ({"features": REGIONS}, {"feature_config": FILES}, "other regions: those of boxes", "regions.bins"),
        ({"preprocessing": {"size": 99}}, {}, "sees images as .*99", "--image-size"),
        ({"backbone_digest": "other"}, {}, "filterbank", "--backbone filterbank"),
    ],
)
def test_a_stored_run_refuses_other_features(
    small: RunContext, workspace: Workspace, seen: dict[str, Any], theirs: Any, ours: Any, complaint: str, hint: str
) -> None:
    save_run(workspace, "stored-run", small, **theirs)
    context = replace(small, data=replace(small.data, **ours))
    with pytest.raises(BenchError, match=complaint) as caught:
        run(stored(small), context, workspace, "stored-run-s0-b")
    assert hint in (caught.value.hint or "")
    assert seen == {}


@pytest.mark.usefixtures("seen")
def test_regions_from_files_are_told_apart_by_their_width(small: RunContext, workspace: Workspace) -> None:
    context = replace(small, data=replace(small.data, feature_config=FILES))
    dim = small.data.visual_dim
    folder = save_run(workspace, "stored-run", small, features=FILES, backbone_digest="of no matter")
    assert run(stored(small), context, workspace, "stored-run-s0-b").checkpoint == str(folder / "best.safetensors")
    other: Any = SimpleNamespace(dim=dim + 1, digest=small.data.backbone.digest)
    context = replace(context, data=replace(context.data, features=None, backbone=other))
    with pytest.raises(BenchError, match=f"other regions: those of .*att, of {dim} channels"):
        run(stored(small), context, workspace, "stored-run-s0-b")


def test_a_model_that_sees_nothing_takes_any_features(
    small: RunContext, workspace: Workspace, seen: dict[str, Any]
) -> None:
    save_run(workspace, "stored-run", small, model="blind", backbone_digest="other")
    run(stored(small), small, workspace, "stored-run-s0-b")
    assert "model" in seen


@pytest.mark.parametrize("row", ["human", "retrieval", "majority"])
def test_a_reference_row_is_scored_without_a_folder(small: RunContext, workspace: Workspace, row: str) -> None:
    outcome = run(of_kind(ReferenceRun, small, row), small, workspace, row)
    train = [caption for sample in small.data.train for caption in sample.captions]
    expected: dict[str, Callable[[Any], list[str]]] = {
        "human": lambda sample: [sample.captions[0]],
        "retrieval": lambda _: train,
        "majority": lambda _: [majority_caption(small.data.train)],
    }
    assert [result.split for result in outcome.splits] == ["test", "nocaps"]
    for result in outcome.splits:
        for sample in small.data.evaluated[result.split]:
            assert result.captions[sample.image_id] in expected[row](sample)
    assert outcome.costs["score_seconds"].value
    assert outcome.costs["parameters"].reason == "a reference row has no model"
    assert not workspace.run_folder(row).exists()


@pytest.fixture(scope="module")
def through_network(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """Conditions whose backbone is a network that models on pixels can train."""
    folder = tmp_path_factory.mktemp("network")
    return make_context(folder, "pixels", backbone="resnet10t", weights="random", image_size=32)


def test_a_model_with_a_backbone_begins_with_the_run_s(through_network: RunContext) -> None:
    backbone, preset = through_network.data.backbone, through_network.preset
    arguments = model_arguments(END_TO_END, preset.model_arguments(END_TO_END), backbone)
    assert arguments["backbone"] == "resnet10t"
    torch.manual_seed(5)
    model = build_model(END_TO_END, arguments, vocab_size=9, visual_dim=0, backbone=backbone)
    theirs: Any = backbone
    inner = model.get_submodule("backbone").state_dict()
    assert all(torch.equal(value, theirs.state_dict()[name]) for name, value in inner.items())


def test_weights_that_the_backbone_has_not_are_named(
    through_network: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    backbone: Any = through_network.data.backbone
    arguments = model_arguments(END_TO_END, through_network.preset.model_arguments(END_TO_END), backbone)
    kept = backbone.state_dict()
    for name in ("bn1.weight", "bn1.bias"):
        del kept[name]
    monkeypatch.setattr(type(backbone), "state_dict", lambda _: kept)
    with pytest.raises(BenchError, match=r"resnet10t .*bn1\.bias, bn1\.weight"):
        build_model(END_TO_END, arguments, vocab_size=9, visual_dim=0, backbone=backbone)


def test_a_backbone_that_cannot_learn_is_refused(small: RunContext) -> None:
    with pytest.raises(BenchError, match="filterbank has nothing to train") as caught:
        model_arguments(END_TO_END, {}, small.data.backbone)
    assert "--backbone NAME" in (caught.value.hint or "")
    assert model_arguments("show_tell", {"d_model": 8}, small.data.backbone) == {"d_model": 8}


class Leaks(ShowAttendTell):
    """Its words see the next one."""

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        return super().decode(memory, tokens) + tokens.roll(-1, 1)[..., None].cos() * torch.arange(self.vocab_size)


@pytest.mark.parametrize("entry", [ShowAttendTell, Leaks])
def test_a_model_and_random_numbers_are_as_before(small: RunContext, entry: type[ShowAttendTell]) -> None:
    register_model(dataclasses.replace(model_card("show_attend_tell"), name="mine", entry=entry))
    sizes = {"vocab_size": len(small.inputs.vocabulary), "visual_dim": small.data.visual_dim}
    model = create_model("mine", **sizes, **model_card("mine").tiny)
    before, weights = torch.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    check_captioner("show_attend_tell", model, small)  # the zoo's own is not asked
    if entry is Leaks:
        with pytest.raises(BrokenLawError, match="later"):
            check_captioner("mine", model, small)
    else:
        check_captioner("mine", model, small)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
