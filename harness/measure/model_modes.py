"""What measuring must not change of a model: evaluation mode for a while, and training mode for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode; afterwards every submodule has its own training flag again."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, flag in training.items():
            module.training = flag


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Let passes in training mode leave no trace: flags, buffers (running statistics), gradients, random numbers."""
    flags = {module: module.training for module in model.modules()}
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    # Of the GPU that the model is on: of several, torch would warn, and ask each for its random numbers.
    gpus = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    with torch.random.fork_rng(gpus):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
            for parameter, gradient in gradients:
                parameter.grad = gradient
            for module, flag in flags.items():
                module.training = flag
