"""A run's conditions at their smallest, on a few drawn scenes, and what a finished run leaves."""

import io
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from harness.benchmark.context import RunContext, open_context
from harness.benchmark.plan_runs import Planner
from harness.benchmark.rows import RequestedModel, resolve_models
from harness.benchmark.saved_model import SavedModel
from harness.benchmark.services import Services
from harness.config.execution import ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.load import load_preset
from harness.config.preset import Decoding
from harness.config.run import Conditions, MadeFrom, RunBase, RunData, TrainedRun
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.training.checkpoint import save_weights
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import RunSpec
from zoo import create_model, model_card
from zoo.kinds import GraphKind, VisualKind

SIZES = {"d_model": 16, "d_ff": 16, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "max_len": 12}
CHANGES = (*(f"size.{name}={value}" for name, value in SIZES.items()), "decoding.max_len=8", "latency_repeats=2")


def quiet(said: io.StringIO | None = None) -> Reporter:
    """A reporter that writes to `said`, or to nobody."""
    return Reporter(Console(file=said or io.StringIO(), width=400))


def requested(*names: str) -> list[RequestedModel]:
    """Models as `--models` names them."""
    return resolve_models(names, Workspace(Path("nowhere")))


def make_context(
    folder: Path, sees: VisualKind = "grid", reads: Collection[GraphKind] = (), **features: Any
) -> RunContext:
    """The conditions of a run on four scenes to train, two to validate, three to test and three of nocaps' domains.

    Args:
        folder: gets the data and the workspace.
        sees: the kind of visual input that features are made for.
        reads: the kinds of scene graphs that models read.
        features: of the `FeatureConfig`; a filterbank of 2 x 2 cells if there are none.
    """
    config = FeatureConfig.model_validate(features or {"backbone": "filterbank", "options": {"grid": "2"}})
    data = str(prepare_scenes(folder / "data", ScenesConfig(train=4, val=2, test=3, nocaps_per_domain=1)))
    described = RunData(sees=(sees,), graphs=tuple(reads))
    preset = load_preset("smoke", CHANGES)
    conditions = Conditions.of_inputs(data, None, config, described=described, preset=preset)
    return open_context(conditions, Workspace(folder / "workspace"), quiet())


class FixedServices(Services):
    """Services whose context is given; their store knows the context's data."""

    def __init__(self, workspace: Workspace, context: RunContext, said: io.StringIO | None = None) -> None:
        super().__init__(workspace, quiet(said))
        workspace.root.mkdir(parents=True, exist_ok=True)
        self.fixed = context
        self.store.record_dataset(context.data.record(context.signature["data"]))

    def context(self, conditions: Conditions, **_: Any) -> RunContext:
        """The given one, with the jobs and the preset of the conditions."""
        context = replace(self.fixed, compute=replace(self.fixed.compute, settings=conditions.execution))
        made_from = conditions.made_from if isinstance(conditions, RunBase) else None
        return context.with_preset(conditions.preset, made_from)


def conditions_of(context: RunContext, **execution: Any) -> Conditions:
    """The conditions of runs under this context."""
    data = context.data
    return Conditions.of_inputs(
        str(data.dataset.root.parent),
        None,
        data.feature_config,
        described=RunData(name=data.fields.data, sees=("grid",)),
        preset=context.preset,
        execution=ExecutionConfig(**execution),
    )


def planner(context: RunContext, workspace: Workspace | None = None, **others: Any) -> Planner:
    """Plans runs under this context."""
    return Planner(conditions_of(context), context, workspace or Workspace(Path("nowhere")), **others)


def run_config(context: RunContext, model: str = "blind", **execution: Any) -> TrainedRun:
    """The configuration of a run under this context."""
    fields = dict(conditions_of(context, **execution))
    made_from = MadeFrom(preset="smoke", digest=None, schedule="smoke", size="smoke")
    return TrainedRun(model=model, made_from=made_from, **fields)


def save_run(workspace: Workspace, key: str, context: RunContext, model: str = "show_tell", **changes: Any) -> Path:
    """Write a run with random weights, as a finished one leaves it; `changes` are of its `SavedModel`."""
    folder, data = workspace.run_folder(key), context.data
    arguments = dict(model_card(model).tiny)
    torch.manual_seed(1)
    built = create_model(model, vocab_size=len(context.inputs.vocabulary), visual_dim=data.visual_dim, **arguments)
    context.inputs.vocabulary.save(folder / "vocabulary.json")
    save_weights(built, folder / "best.safetensors")
    described: dict[str, Any] = {
        "model": model,
        "arguments": arguments,
        "visual_dim": data.visual_dim,
        "features": data.feature_config,
        "backbone_digest": data.backbone.digest,
        "preprocessing": context.inputs.preprocessing,
        "decoding": Decoding(beam_size=1, max_len=5),
    }
    SavedModel(**described | changes).save(folder)
    return folder


def make_spec(key: str, model: str = "blind", context: RunContext | None = None, **changes: Any) -> RunSpec:
    """A planned run of no particular settings; under a context, with a configuration."""
    plain: dict[str, Any] = {
        "key": key, "model": model, "role": "model", "seed": 0, "track": "controlled", "dataset": "f" * 16,
        "record": {"arguments": {}}, "signature": {"nrefs": "5"},
    }  # fmt: skip
    if context is not None:
        config = run_config(context, model).model_dump(mode="json")
        plain |= {"dataset": context.signature["data"], "config": config}
    return RunSpec(**plain | changes)
