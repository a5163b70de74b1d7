"""Autocast for a run's precision, shared by training, captioning and timing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Autocast to bfloat16 for "bf16", whatever the weights are kept in; nothing for "fp32"."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()
