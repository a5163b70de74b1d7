"""The authors' numbers as float64 tensors, and their parameters under the zoo's names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zoo.weights.expansionnet import zoo_name

_FOLDER = Path(__file__).parent.parent / "fixtures" / "zoo"


class Official:
    """One npz file; `official["in/x"]` is a tensor, `official.size("d_ff")` a plain value."""

    def __init__(self, name: str) -> None:
        with np.load(_FOLDER / f"expansionnet_{name}.npz", allow_pickle=False) as arrays:
            self._arrays = dict(arrays)

    def __getitem__(self, key: str) -> Tensor:
        return torch.from_numpy(self._arrays[key])

    def size(self, key: str) -> Any:
        return self._arrays[f"cfg/{key}"].tolist()

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Every tensor under `prefix`, by the rest of its name."""
        return {key.removeprefix(prefix): self[key] for key in self._arrays if key.startswith(prefix)}

    def load(self, layer: nn.Module, place: str = "") -> nn.Module:
        """Put the parameters into `layer`, which stands at `place` in the authors' model."""
        own_place = zoo_name(place)
        named = {zoo_name(place + key).removeprefix(own_place): value for key, value in self.group("param/").items()}
        layer.double().eval().load_state_dict(named)
        return layer

    def check_gradients(self, module: nn.Module, place: str = "", group: str = "grad/param/") -> None:
        """Compare the gradient of every parameter with the authors'."""
        own_place = zoo_name(place)
        expected = {zoo_name(place + key).removeprefix(own_place): value for key, value in self.group(group).items()}
        assert expected.keys() == dict(module.named_parameters()).keys()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(parameter.grad, expected[name], atol=1e-10, rtol=1e-10, msg=name)


@pytest.fixture
def official() -> type[Official]:
    """Open a fixture file by name: `official("attention")`."""
    return Official
