"""The authors' numbers as float64 tensors, and their parameters under the zoo's names."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

_FOLDER = Path(__file__).parent.parent / "fixtures" / "zoo"


class Official:
    """One npz file; `official["in/x"]` is a tensor, `official.size("d_ff")` a plain value."""

    def __init__(self, name: str) -> None:
        with np.load(_FOLDER / f"{name}.npz", allow_pickle=False) as arrays:
            self._arrays = dict(arrays)

    def __getitem__(self, key: str) -> Tensor:
        return torch.from_numpy(self._arrays[key])

    def __contains__(self, key: str) -> bool:
        return key in self._arrays

    def size(self, key: str) -> Any:
        return self._arrays[f"cfg/{key}"].tolist()

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Every tensor under `prefix`, by the rest of its name."""
        return {key.removeprefix(prefix): self[key] for key in self._arrays if key.startswith(prefix)}


@pytest.fixture
def official() -> type[Official]:
    """Open a fixture file by name: `official("aoanet")`."""
    return Official


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)
