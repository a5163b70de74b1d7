"""How much memory a run may take: of the host, to ask a cluster for it, and whether there is as much here."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from harness.benchmark.context import RunContext
from harness.measure.estimate import WEIGHT
from harness.measure.memory import TRAINED, counted_parameters, require_memory
from results.records import RunSpec

BASE_BYTES = 1_000_000_000
"""Of a process that trains: Python, torch, prepared images and batches (`docs/training.md`)."""
_COPIES = 2
"""Of the weights besides: the best ones, and a checkpoint while it is written."""


def memory_bytes(specs: Sequence[RunSpec], context: RunContext) -> int:
    """An estimate for the largest of the runs: a process, and weights, gradients, moments and copies of a model."""
    per_parameter = TRAINED + _COPIES * WEIGHT
    return BASE_BYTES + per_parameter * max((_parameters(spec, context) for spec in specs), default=0)


def require_room(spec: RunSpec, context: RunContext) -> None:
    """BenchError where what is trained does not fit into the memory that is free here."""
    parameters = _parameters(spec, context)
    require_memory(spec.model, parameters, torch.device("cpu"))  # where it is built
    require_memory(spec.model, parameters, context.execution.device, TRAINED)


def _parameters(spec: RunSpec, context: RunContext) -> int:
    """Of a model that is trained from random weights on features; others are counted as nothing."""
    if spec.kind != "trained" or "pretrained" in spec.config:
        return 0
    return counted_parameters(spec.model, **context.sizes, **spec.config["arguments"])
