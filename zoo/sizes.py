"""Sizes of models, checked before anything is built: torch refuses some, and builds nonsense or fills memory of others.

`SIZES` is the size contract; which of them a model has is its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zoo.errors import ZooError

LARGEST: Final[Mapping[str, int]] = {
    "d_model": 2**16,
    "d_ff": 2**18,
    "n_heads": 2**10,
    "n_encoder_layers": 1_000,
    "n_decoder_layers": 1_000,
    "max_len": 10_000,
    "patch_size": 10_000,
}
"""The largest value of each size that is a whole number, each far above any published model's."""
SIZES: Final = (
    "d_model",
    "d_ff",
    "n_heads",
    "n_encoder_layers",
    "n_decoder_layers",
    "dropout",
    "max_len",
    "patch_size",
)
"""The size contract: names of these arguments in every model that has them."""
_SHOWN = 40


def check_sizes(given: Mapping[str, Any]) -> None:
    """Refuse sizes with which no model can be built; names outside `SIZES`, and None, are left to the model.

    Raises:
        ZooError: a size that is not a whole number from 1 on, or a rate of dropout outside [0, 1).
    """
    for name, value in given.items():
        if value is None or name not in SIZES:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if name == "dropout":
            if not (number and 0 <= value < 1):
                raise ZooError(f"{name} must be at least 0 and below 1, not {_shown(value)}")
        elif not (number and isinstance(value, int) and 1 <= value <= LARGEST[name]):
            raise ZooError(f"{name} must be a whole number from 1 to {LARGEST[name]:,}, not {_shown(value)}")


def check_heads(given: Mapping[str, Any]) -> None:
    """Refuse a `d_model` that is no multiple of `n_heads`, where both are given; nearly all models split it so.

    Raises:
        ZooError: it is none.
    """
    d_model, n_heads = given.get("d_model"), given.get("n_heads")
    if d_model is not None and n_heads is not None and d_model % n_heads:
        below = d_model - d_model % n_heads
        nearest = f"{below} or {below + n_heads}" if below else f"{n_heads}"
        raise ZooError(f"d_model {d_model} is no multiple of n_heads {n_heads}; choose d_model {nearest}")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 4]} ..."
