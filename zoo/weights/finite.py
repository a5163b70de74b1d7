"""Weights that are no numbers: one NaN makes every caption of its model nonsense, without any other sign."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from zoo.errors import ZooError


def not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """The name of the first tensor with NaN or infinity in it, None where all are numbers; nothing is copied."""
    for name, tensor in tensors:
        # The extremes pass on a NaN, and are read without a second tensor of that size.
        if tensor.is_floating_point() and tensor.numel():
            least, most = tensor.aminmax()
            if not (least.isfinite() and most.isfinite()):
                return name
    return None


def refuse_not_finite(tensors: Mapping[str, Tensor], what: str) -> None:
    """ZooError that begins with `what`, the file, where a tensor has NaN or infinity in it."""
    if (name := not_finite(tensors.items())) is not None:
        raise ZooError(
            f"{what}: the tensor {name} holds NaN or infinity",
            "fetch or copy the file again, or train anew: a training that writes such weights had diverged",
        )
