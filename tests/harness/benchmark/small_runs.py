"""A run's conditions at their smallest, on a few drawn scenes, and what a finished run leaves."""

from __future__ import annotations

import io
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from harness.benchmark.context import RunContext, prepare_context
from harness.benchmark.saved_model import SavedModel
from harness.config.features import FeatureConfig
from harness.config.load import load_preset
from harness.config.preset import Decoding
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.metrics.signature import EvaluationSettings
from harness.training.checkpoint import save_weights
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.records import RunSpec
from zoo import create_model, model_card
from zoo.captioner import GraphKind, VisualKind

SIZES = {"d_model": 16, "d_ff": 16, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 1, "max_len": 12}
CHANGES = (*(f"size.{name}={value}" for name, value in SIZES.items()), "decoding.max_len=8", "latency_repeats=2")


def quiet(said: io.StringIO | None = None) -> Reporter:
    """A reporter that writes to `said`, or to nobody."""
    return Reporter(Console(file=said or io.StringIO(), width=400))


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
    return prepare_context(
        str(prepare_scenes(folder / "data", ScenesConfig(train=4, val=2, test=3, nocaps_per_domain=1))),
        images=None,
        preset=load_preset("smoke", CHANGES),
        feature_config=config,
        sees={"a model": sees},
        graphs=reads,
        evaluation=EvaluationSettings(meteor=False),
        skip_bad_images=False,
        device=torch.device("cpu"),
        precision="fp32",
        workspace=Workspace(folder / "workspace"),
        reporter=quiet(),
    )


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


def make_spec(key: str, model: str = "blind", **changes: Any) -> RunSpec:
    """A planned run of no particular settings."""
    plain: dict[str, Any] = {
        "key": key, "model": model, "role": "model", "seed": 0, "track": "controlled", "dataset": "f" * 16,
        "config": {"arguments": {}}, "signature": {"nrefs": "5"},
    }  # fmt: skip
    return RunSpec(**plain | changes)
