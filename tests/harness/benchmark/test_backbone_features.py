"""Cached features in place of a model's own backbone: the run's where the weights are the run's, its own otherwise."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from harness.benchmark.context import RunContext
from harness.benchmark.run import build_model, model_arguments
from harness.benchmark.train import _Tuned
from tests.harness.benchmark.small_runs import make_context

END_TO_END = "expansionnet_v2/end-to-end"


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """Of a small network as the backbone, whose features other models of the run read."""
    return make_context(tmp_path_factory.mktemp("end"), backbone="resnet10t", weights="random", image_size=32)


@pytest.fixture
def model(context: RunContext) -> Any:
    """A model with the run's own backbone within it."""
    arguments = model_arguments(END_TO_END, context.preset.model_arguments(END_TO_END), context.data.backbone)
    size = {"vocab_size": len(context.inputs.vocabulary), "visual_dim": context.data.visual_dim}
    return build_model(END_TO_END, arguments, **size, backbone=context.data.backbone)


def tune(model: Any) -> None:
    """Change one weight of the backbone, as a stage that trains it does."""
    with torch.no_grad():
        next(model.backbone.parameters()).add_(0.1)


def test_a_tuned_backbone_describes_itself_by_its_weights(context: RunContext, model: Any) -> None:
    same, again = (_Tuned(model.backbone, context.data.backbone) for _ in range(2))
    tune(model)
    other = _Tuned(model.backbone, context.data.backbone)
    assert same.digest == again.digest
    assert len({context.data.backbone.digest, same.digest, other.digest}) == 3
    assert other.describe() == f"{context.data.backbone.describe()}, tuned#{other.digest[:8]}"
    assert (other.name, other.dim, other.grid) == ("resnet10t, tuned", same.dim, context.data.backbone.grid)
    assert other.preprocessing == context.data.backbone.preprocessing


def test_features_are_of_the_backbone_at_rest(context: RunContext, model: Any) -> None:
    tuned = _Tuned(model.backbone, context.data.backbone)
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    model.train()
    before = {name: value.clone() for name, value in model.backbone.named_buffers()}
    first, second = tuned(pixels), tuned(pixels)
    assert torch.equal(first, second)
    assert model.backbone.training, "and then it goes on training"
    assert any("running_mean" in name for name in before)
    assert all(torch.equal(value, before[name]) for name, value in model.backbone.named_buffers())
    torch.testing.assert_close(first, context.data.backbone(pixels), atol=1e-4, rtol=1e-4)
