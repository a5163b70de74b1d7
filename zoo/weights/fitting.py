"""Load the authors' tensors into a registered model, and report all mismatches at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from zoo.captioner import Captioner
from zoo.errors import ZooError
from zoo.registry import create_model


def build_fitting(
    name: str, state_dict: Mapping[str, Tensor], own_names: Mapping[str, str], sizes: Mapping[str, Any], hint: str
) -> Captioner:
    """Build a registered model with the authors' weights, in their floating-point type.

    Args:
        name: a registered model.
        state_dict: the authors' tensors.
        own_names: the authors' name of every tensor to be used, by the zoo's name.
        sizes: arguments of `create_model`.
        hint: what to check if tensors do not match.

    Raises:
        ZooError: names every tensor that is missing, unknown or of another shape.
    """
    model = create_model(name, **sizes)
    wanted = model.state_dict()
    problems = [f"{key}: unknown to {name}" for own, key in sorted(own_names.items()) if own not in wanted]
    for own, parameter in wanted.items():
        if own not in own_names:
            problems.append(f"{own}: not in the state dict")
        elif (shape := state_dict[own_names[own]].shape) != parameter.shape:
            problems.append(f"{own_names[own]}: shape {tuple(shape)}, but {name} has {tuple(parameter.shape)}")
    if problems:
        raise ZooError(f"the state dict does not fit {name}:\n  " + "\n  ".join(problems), hint)
    found = {own: state_dict[key] for own, key in own_names.items()}
    model.to(next(tensor.dtype for tensor in found.values() if tensor.is_floating_point()))
    model.load_state_dict(found)
    return model


def sizes_of_shapes(
    state_dict: Mapping[str, Tensor], where: Mapping[str, tuple[str, int]], what: str, needed: Iterable[str] = ()
) -> dict[str, int]:
    """Sizes read off tensor shapes: `where` maps an argument to a tensor's name and one of its axes.

    `needed` names further tensors that must exist.

    Raises:
        ZooError: a tensor is missing, so this is not a state dict of `what`.
    """
    missing = sorted({*needed, *(key for key, _ in where.values())} - set(state_dict))
    if missing:
        raise ZooError(
            f"this is not a state dict of {what}: {', '.join(missing)} missing",
            "pass the checkpoint's 'model_state_dict'",
        )
    for key, axis in where.values():
        if state_dict[key].ndim <= axis:
            raise ZooError(
                f"this is not a state dict of {what}: {key} has the shape {tuple(state_dict[key].shape)}",
                "pass the checkpoint's 'model_state_dict'",
            )
    return {size: state_dict[key].shape[axis] for size, (key, axis) in where.items()}


def count_layers(state_dict: Mapping[str, Tensor], stack: str) -> int:
    """Number of layers whose tensors are called `stack`.INDEX.something."""
    rest = (key.removeprefix(f"{stack}.") for key in state_dict if key.startswith(f"{stack}."))
    return len({key.split(".")[0] for key in rest})
