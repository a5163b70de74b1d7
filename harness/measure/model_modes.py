"""Context managers that set a model's mode and restore its state."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn


@contextmanager
def eval_mode(model: nn.Module) -> Iterator[None]:
    """Evaluation mode within the context; then the training flag of every submodule is restored."""
    training = {module: module.training for module in model.modules()}
    model.eval()
    try:
        yield
    finally:
        for module, flag in training.items():
            module.training = flag


@contextmanager
def preserve_state(model: nn.Module) -> Iterator[None]:
    """Restore what passes in training mode change: flags, buffers (running statistics), gradients, random generators.

    The context begins in evaluation mode.
    """
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    # Only of the model's GPU: with several GPUs torch would warn, and save the state of each.
    gpus = {parameter.device for parameter in model.parameters() if parameter.device.type == "cuda"}
    with eval_mode(model), torch.random.fork_rng(gpus):
        try:
            yield
        finally:
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
            for parameter, gradient in gradients:
                parameter.grad = gradient
