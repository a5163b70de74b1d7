"""Autocast for a run's precision, shared by training, captioning and timing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch


def set_products(device: torch.device, precision: str) -> None:
    """Have a GPU multiply what autocast leaves in float32 as TF32 beside "bf16", and exactly for "fp32".

    Its algorithms of convolutions are not chosen by timing, which would not choose the same ones every time.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "bf16"
        torch.backends.cudnn.benchmark = False


@contextmanager
def exact_products() -> Iterator[None]:
    """Turn TF32 off on a GPU, so that features do not depend on the precision of the training around them."""
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Autocast to bfloat16 for "bf16", whatever the weights are kept in; nothing for "fp32"."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()
