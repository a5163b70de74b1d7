"""The authors' numbers as float64 tensors, and their parameters under the zoo's names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from zoo.weights import expansionnet

_FOLDER = Path(__file__).parent.parent / "fixtures" / "zoo"


class Official:
    """One npz file; `official["in/x"]` is a tensor, `official.size("d_ff")` a plain value.

    `zoo_name` gives the zoo's name of a parameter, by the authors' name of it in a whole model.
    """

    def __init__(self, name: str, zoo_name: Callable[[str], str] = expansionnet.zoo_name) -> None:
        with np.load(_FOLDER / f"{name}.npz", allow_pickle=False) as arrays:
            self._arrays = dict(arrays)
        self._zoo_name = zoo_name

    def __getitem__(self, key: str) -> Tensor:
        return torch.from_numpy(self._arrays[key])

    def size(self, key: str) -> Any:
        return self._arrays[f"cfg/{key}"].tolist()

    def group(self, prefix: str) -> dict[str, Tensor]:
        """Every tensor under `prefix`, by the rest of its name."""
        return {key.removeprefix(prefix): self[key] for key in self._arrays if key.startswith(prefix)}

    def load(self, layer: nn.Module, place: str = "") -> nn.Module:
        """Put the parameters into `layer`, which stands at `place` in the authors' model."""
        layer.double().eval().load_state_dict(self._named(self.group("param/"), place))
        return layer

    def check_gradients(self, module: nn.Module, place: str = "", group: str = "grad/param/") -> None:
        """Compare the gradient of every parameter with the authors'."""
        parameters = self.group("param/")
        found = {key: value for key, value in self.group(group).items() if key in parameters}
        expected = self._named(found, place)
        assert expected.keys() == dict(module.named_parameters()).keys()
        for name, parameter in module.named_parameters():
            torch.testing.assert_close(parameter.grad, expected[name], atol=1e-10, rtol=1e-10, msg=name)

    def _named(self, tensors: dict[str, Tensor], place: str) -> dict[str, Tensor]:
        own_place = self._zoo_name(place)
        return {self._zoo_name(place + key).removeprefix(own_place): value for key, value in tensors.items()}


@pytest.fixture
def official() -> type[Official]:
    """Open a fixture file by name, with its family's naming: `official("aoanet", aoa.zoo_name)`."""
    return Official
