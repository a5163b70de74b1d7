"""Products that autocast must not round."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocasts(like: Tensor) -> bool:
    """Whether autocast is on for the device of `like`."""
    device = like.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def exactly(like: Tensor) -> AbstractContextManager[None]:
    """No autocast, which would round products to half precision, on the device of `like`."""
    return torch.autocast(like.device.type, enabled=False) if autocasts(like) else nullcontext()
