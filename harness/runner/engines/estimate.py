"""How much memory of the host a run may take, to ask a cluster for."""

from __future__ import annotations

from collections.abc import Sequence

from harness.measure.estimate import MOMENTS, WEIGHT
from harness.runner.context import RunContext
from harness.utils.plugins import contain_exits
from results.records import RunSpec
from zoo.width import count_parameters

BASE_BYTES = 1_000_000_000
"""Of a process that trains: Python, torch, prepared images and batches (`docs/training.md`)."""
_COPIES = 2
"""Of the weights besides: the best ones, and a checkpoint while it is written."""


def memory_bytes(specs: Sequence[RunSpec], context: RunContext) -> int:
    """An estimate for the largest of the runs: a process, and weights, gradients, moments and copies of a model."""
    per_parameter = 2 * WEIGHT + MOMENTS + _COPIES * WEIGHT
    return BASE_BYTES + per_parameter * max((_parameters(spec, context) for spec in specs), default=0)


def _parameters(spec: RunSpec, context: RunContext) -> int:
    """Of a model that is trained from random weights on features; others are counted as nothing."""
    if spec.kind != "trained" or "pretrained" in spec.config:
        return 0
    sizes = {"vocab_size": len(context.inputs.vocabulary), "visual_dim": context.data.visual_dim}
    try:
        with contain_exits():
            return count_parameters(spec.model, **sizes, **spec.config["arguments"])
    except Exception:  # its own run says why it cannot be built
        return 0
