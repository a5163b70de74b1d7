"""Control runs: a model of the benchmark under changes that are not the architecture, to compare differences with.

One control is the same model with as many further seeds: they are seeds of its row. The other is the same model and
seeds under a harmless change of the images' preprocessing: its signature has a field `preprocessing`, so that its runs
have a leaderboard group of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from harness.benchmark.context import RunContext
from harness.benchmark.rows import RequestedModel
from harness.config.features import FeatureConfig
from harness.data.images import Control, ImagePreprocessing, load_image
from harness.data.regions.opening import needs_backbone
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter

AUTO = "auto"
SAMPLED = 16
"""Training images that tell whether the resize filter changes anything."""


def choose_control(name: str, models: Sequence[RequestedModel], features: FeatureConfig) -> RequestedModel:
    """The model of `--control`; `auto` is the first trained one whose preprocessing can be varied, or else the first.

    Raises:
        BenchError: the benchmark does not train it, or trains none at all.
    """
    trained = [model for model in models if model.kind == "trained"]
    if not trained:
        raise BenchError("--control needs a trained model, but --models names none", "add one, or leave out --control")
    if name == AUTO:
        return next((model for model in trained if nothing_to_vary(model, features) is None), trained[0])
    for model in trained:
        if model.name == name:
            return model
    known = ", ".join(model.name for model in trained)
    raise BenchError(f"--control {name}: --models trains no model of this name", f"choose auto, or one of: {known}")


def nothing_to_vary(model: RequestedModel, features: FeatureConfig) -> str | None:
    """Why the preprocessing of images cannot be varied for a model, None where it can."""
    if model.weights is not None:
        return "images are prepared by the image processor of its published weights"
    if model.visual == "none":
        return "it sees no images"
    if model.visual != "pixels" and features.regions is not None and not needs_backbone(features.regions.source):
        return f"its features are read from {features.regions.source}, not made of images"
    return None


def vary(context: RunContext, model: RequestedModel, reporter: Reporter) -> RunContext | None:
    """The context with a harmless change of the preprocessing, to plan with; its features are still the old ones.

    None where there is nothing to vary for the model, which the reporter is told.

    Raises:
        BadImage: an image that was checked before cannot be read any more.
    """
    if (reason := nothing_to_vary(model, context.data.feature_config)) is not None:
        reporter.note(f"control: {model.name} with further seeds alone; no other preprocessing, since {reason}")
        return None
    data, backbone = context.data, copy.copy(context.data.backbone)
    images = [data.dataset.path(sample) for sample in data.train[:: max(len(data.train) // SAMPLED, 1)][:SAMPLED]]
    backbone.preprocessing = replace(backbone.preprocessing, control=_change(backbone.preprocessing, images))
    change = backbone.preprocessing.described_control()
    reporter.note(f"control: {model.name} with further seeds, and with preprocessing {change}")
    return replace(
        context,
        data=replace(data, backbone=backbone),
        inputs=replace(context.inputs, preprocessing=backbone.preprocessing),
        signature=context.signature | {"preprocessing": change},
    )


def _change(preprocessing: ImagePreprocessing, images: Sequence[Path]) -> Control:
    """The other resize filter where it changes most of the images: those of the input's size are not resized at all."""
    other = replace(preprocessing, control="other-filter")
    loaded = [load_image(path) for path in images]
    changed = sum(not np.array_equal(preprocessing(image), other(image)) for image in loaded)
    return "other-filter" if 2 * changed > len(images) else "rescaled"
