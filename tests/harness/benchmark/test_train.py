"""Training under a run's conditions: alone and on several devices, and what a stage sees of the images."""

import io
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.benchmark.context import RunContext, open_context
from harness.benchmark.models import build_model, model_arguments
from harness.benchmark.own_backbone import CachedBackboneSource, TunedBackbone
from harness.benchmark.train import train_model
from harness.config.execution import ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.load import load_preset
from harness.config.run import Conditions, RunData
from harness.config.schedule import Schedule
from harness.data import pixels
from harness.data.features import Features
from harness.data.pixels import PixelSource
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.training.distributed import other_ranks
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.records import EpochRecord
from tests.harness.benchmark.kills import Killed, curves
from tests.harness.benchmark.small_runs import quiet
from zoo import Captioner, Visual, VisualSpec

STAGE = {
    "name": "xe", "epochs": 2, "batch_size": 7, "captions_per_image": 2, "dropout": 0.0, "clip_norm": 1.0,
    "learning_rate": {"peak": 0.01, "warmup_steps": 2},
}  # fmt: skip
NETWORK = {"backbone": "resnet10t", "weights": "random", "image_size": 32}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """29 training images: batches of 7 whose last holds one, of which the second process gets none."""
    folder = tmp_path_factory.mktemp("data")
    return prepare_scenes(folder, ScenesConfig(train=29, val=4, test=4, nocaps_per_domain=1))


def context_of(data: Path, workspace: Path, stages: list[dict[str, Any]], **features: Any) -> RunContext:
    """A quick run's, with another schedule."""
    small = ("size.d_model=16", "size.d_ff=16", "size.n_heads=2", "size.n_encoder_layers=1", "size.n_decoder_layers=1")
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": stages})
    conditions = Conditions.of_inputs(
        str(data),
        None,
        FeatureConfig.model_validate(features),
        described=RunData(sees=("pixels" if features else "grid",)),
        preset=load_preset("quick", small).model_copy(update={"schedule": schedule}),
    )
    return open_context(conditions, Workspace(workspace), quiet())


def model_of(name: str, context: RunContext) -> Captioner:
    """An untrained one, the same every time."""
    torch.manual_seed(3)
    size = {"vocab_size": len(context.inputs.vocabulary), "visual_dim": context.data.visual_dim}
    arguments = model_arguments(name, context.preset.model_arguments(name, **size), context.data.backbone)
    return build_model(name, arguments, **size, backbone=context.data.backbone)


@pytest.mark.usefixtures("forked_workers")
def test_two_processes_train_as_one_does_and_go_on_after_a_kill(data: Path, tmp_path: Path) -> None:
    context = context_of(data, tmp_path, [STAGE, STAGE | {"name": "second", "epochs": 1}])
    alone: list[EpochRecord] = []
    summary = train_model(model_of("transformer_base", context), 0, context, tmp_path / "one", alone.append, quiet())

    both = replace(context, compute=replace(context.compute, settings=ExecutionConfig(devices=2)))
    together: list[EpochRecord] = []

    def die(record: EpochRecord) -> None:
        together.append(record)
        raise Killed

    with pytest.raises(Killed), other_ranks(2):
        train_model(model_of("transformer_base", both), 0, both, tmp_path / "two", die, quiet())
    together.clear()  # nothing of the epoch was final
    two = model_of("transformer_base", both)
    with other_ranks(2):
        again = train_model(two, 0, both, tmp_path / "two", together.append, quiet())
    assert [row[:4] for row in curves(together)] == [row[:4] for row in curves(alone)]
    assert [row.train_loss for row in together] == pytest.approx([row.train_loss for row in alone], abs=1e-6)
    assert [row.val_cider for row in together] == pytest.approx([row.val_cider for row in alone], abs=1e-6)
    assert (again.total_steps, again.images) == (summary.total_steps, summary.images)
    assert not torch.distributed.is_initialized()


def test_a_later_frozen_stage_reads_the_tuned_features(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    frozen = STAGE | {"epochs": 1, "batch_size": 29}
    tuned = frozen | {"name": "tuned", "backbone": "trained", "learning_rate": {"peak": 0.1}}
    stages = [frozen, tuned, frozen | {"name": "last", "epochs": 2}]
    context = context_of(data, tmp_path, stages, **NETWORK)
    model = model_of("expansionnet_v2/end-to-end", context)
    looked: list[int] = []
    monkeypatch.setattr(PixelSource, "visual", watched(PixelSource.visual, looked))
    records: list[EpochRecord] = []
    train_model(model, 0, context, tmp_path / "run", records.append, quiet())
    train, val = 29, 4
    assert sum(looked) == train + val, (
        "only the stage that trains the backbone reads pictures, to learn and to validate"
    )
    caches = [Features(folder) for folder in (tmp_path / "cache" / "features").iterdir()]
    [first] = [cache for cache in caches if len(cache) > train + val]
    [second] = [cache for cache in caches if len(cache) == train + val]
    image = context.data.train[0].image_id
    assert not (first.grid_features([image]) == second.grid_features([image])).all()
    pixels = context.source(model.visual).visual([image], model.visual)
    model.eval()
    with torch.no_grad():
        seen = model.encode(pixels).features
        cached = model.encode(CachedBackboneSource(second).visual([image], model.visual)).features
    torch.testing.assert_close(cached, seen, atol=2e-2, rtol=2e-2)

    again: list[EpochRecord] = []
    monkeypatch.setattr("harness.data.feature_cache._extract", None)  # a stage begun anew finds its cache
    shutil.rmtree(tmp_path / "run")
    train_model(model_of("expansionnet_v2/end-to-end", context), 0, context, tmp_path / "run", again.append, quiet())
    assert curves(again) == curves(records)


def watched(visual: Callable[..., Visual], looked: list[int]) -> Callable[..., Visual]:
    """The same, counting the images."""

    def watch(self: PixelSource, image_ids: Sequence[int], spec: VisualSpec) -> Visual:
        looked.append(len(image_ids))
        return visual(self, image_ids, spec)

    return watch


def test_a_vanished_cache_is_one_error_and_training_resumes(data: Path, tmp_path: Path) -> None:
    stages = [STAGE | {"epochs": 3}]
    whole: list[EpochRecord] = []
    calm = context_of(data, tmp_path / "calm", stages)
    train_model(model_of("transformer_base", calm), 0, calm, tmp_path / "calm" / "run", whole.append, quiet())

    context = context_of(data, tmp_path, stages)
    records: list[EpochRecord] = []

    def remove(record: EpochRecord) -> None:
        records.append(record)
        shutil.rmtree(tmp_path / "cache" / "features", ignore_errors=True)

    with pytest.raises(BenchError, match=r"feature cache .*last good checkpoint: .*step-") as caught:
        train_model(model_of("transformer_base", context), 0, context, tmp_path / "run", remove, quiet())
    assert "goes on from its last checkpoint" in (caught.value.hint or "")
    assert len(records) == 1
    context = context_of(data, tmp_path, stages)
    train_model(model_of("transformer_base", context), 0, context, tmp_path / "run", records.append, quiet())
    assert curves(records) == curves(whole)


def test_features_on_the_device_train_the_same_weights(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stages = [STAGE | {"epochs": 1}, STAGE | {"name": "again", "epochs": 1}]
    trained, said = [], io.StringIO()
    for free in (None, 2**30):
        monkeypatch.setattr(pixels, "device_memory", lambda _, free=free: free)
        context = context_of(data, tmp_path, stages)
        model = model_of("transformer_base", context)
        train_model(model, 0, context, tmp_path / f"run-{free}", lambda _: None, quiet(said))
        trained.append(model.state_dict())
    assert all(torch.equal(value, trained[1][name]) for name, value in trained[0].items())
    assert said.getvalue().count("features of 29 training images are on the device") == 1, "once for both stages"


def test_devices_that_are_not_there_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    ExecutionConfig(devices=2).check(torch.device("cuda"))
    ExecutionConfig(devices=8).check(torch.device("cpu"))
    ExecutionConfig(devices=1).check(torch.device("cuda:1"))
    with pytest.raises(BenchError, match="this machine has 2"):
        ExecutionConfig(devices=3).check(torch.device("cuda"))
    with pytest.raises(BenchError, match="contradict"):
        ExecutionConfig(devices=2).check(torch.device("cuda:1"))


def test_a_tuned_backbone_is_named_by_its_weights_and_makes_features_at_rest(data: Path, tmp_path: Path) -> None:
    context = context_of(data, tmp_path, [STAGE], **NETWORK)
    model: Any = model_of("expansionnet_v2/end-to-end", context)
    own = context.data.backbone
    same, again = (TunedBackbone(model.backbone, own) for _ in range(2))
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model.train()
    before = {name: value.clone() for name, value in model.backbone.named_buffers()}
    first, second = same(pixels), same(pixels)
    assert torch.equal(first, second)
    assert model.backbone.training, "and then it goes on training"
    assert any("running_mean" in name for name in before)
    assert all(torch.equal(value, before[name]) for name, value in model.backbone.named_buffers())
    torch.testing.assert_close(first, own(pixels), atol=1e-4, rtol=1e-4)
    with torch.no_grad():
        next(model.backbone.parameters()).add_(0.1)
    other = TunedBackbone(model.backbone, own)
    assert same.digest == again.digest
    assert len({own.digest, same.digest, other.digest}) == 3
    assert other.describe() == f"{own.describe()}, tuned#{other.digest[:8]}"
    assert (other.dim, other.grid, other.preprocessing) == (own.dim, own.grid, own.preprocessing)
