"""The floating-point type under autocast, and computing without autocast."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def autocasts(like: Tensor) -> bool:
    """Whether autocast is on for the device of `like`."""
    device = like.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def no_autocast(like: Tensor) -> AbstractContextManager[None]:
    """No autocast, which would round products to half precision, on the device of `like`."""
    return torch.autocast(like.device.type, enabled=False) if autocasts(like) else nullcontext()


def product_type(like: Tensor) -> torch.dtype:
    """The type in which matrix products of tensors such as `like` are computed: that of autocast where it is on."""
    return torch.get_autocast_dtype(like.device.type) if autocasts(like) else like.dtype


def full_precision(x: Tensor) -> Tensor:
    """Convert to at least float32; integers and masks stay as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32)) if x.is_floating_point() else x
