"""Checks of runs and weights from others.

They refuse weights with NaN or infinity, networks larger than their weights, and backbones that would read other files.
"""

import inspect
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from safetensors import safe_open
from torch import Tensor, nn
from torch.nn.modules import module as hooks

from zoo.errors import ZooError

_COPIES = 2  # a tied tensor is stored once and registered twice
_EXTRA_TENSORS = 1_000
_EXTRA_NUMBERS = 2**24


@contextmanager
def no_larger_than(weights: Iterable[Path], device: str) -> Iterator[None]:
    """Within this context, refuse to build a network much larger than the weights, before it fills memory.

    Args:
        weights: .safetensors files, of which only the headers are read.
        device: the type of device that the network is built on; parameters on others are not counted.

    Raises:
        ZooError: the network has far more parameters than the weights.
        SafetensorError, OSError: a header cannot be read.
    """
    tensors, numbers = _count_stored(weights)
    max_tensors = _COPIES * tensors + _EXTRA_TENSORS
    max_numbers = _COPIES * numbers + _EXTRA_NUMBERS
    built = {"tensors": 0, "numbers": 0}

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter) -> None:
        if parameter.device.type != device:
            return
        built["tensors"] += 1
        built["numbers"] += parameter.numel()
        if built["tensors"] > max_tensors or built["numbers"] > max_numbers:
            raise ZooError(
                "its settings describe a larger network than its weights, "
                f"which have {tensors:,} tensors of {numbers:,} numbers"
            )

    handle = hooks.register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        handle.remove()


def refuse_unsafe_backbone(name: str, options: Iterable[str]) -> None:
    """ZooError for a name or option with which `timm.create_model` would load a file or access the hub.

    Allowed options are parameters of the classes in the model's module, which only build layers. `checkpoint_path`,
    `pretrained_cfg` and similar ones are parameters of `timm.create_model` itself.
    """
    import timm  # takes a second to import, and models without a backbone do not need it

    if not timm.is_model(name):
        raise ZooError(f"timm has no model {name!r}", "backbone=... is a name of timm.list_models()")
    source = sys.modules[timm.model_entrypoint(name).__module__]
    layers = [entry for entry in vars(source).values() if inspect.isclass(entry) and issubclass(entry, nn.Module)]
    layers = [layer for layer in layers if layer.__module__ == source.__name__]
    allowed = {parameter for layer in layers for parameter in inspect.signature(layer).parameters}
    if refused := sorted(set(options) - allowed):
        raise ZooError(
            f"the backbone {name!r} has no option {', '.join(refused)}",
            f"options of its layers are {', '.join(sorted(allowed - {'args', 'kwargs'}))}",
        )


def _count_stored(weights: Iterable[Path]) -> tuple[int, int]:
    """The number of tensors in files, and of their elements."""
    tensors = numbers = 0
    for file in weights:
        with safe_open(file, "pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - not a dictionary
                tensors += 1
                numbers += math.prod(stored.get_slice(name).get_shape())
    return tensors, numbers


def not_finite(tensors: Iterable[tuple[str, Tensor]]) -> str | None:
    """The name of the first tensor with NaN or infinity in it; None where all are finite."""
    for name, tensor in tensors:
        # Extremes propagate NaN and need no second tensor of that size.
        if tensor.is_floating_point() and tensor.numel():
            lowest, highest = tensor.aminmax()
            if not (lowest.isfinite() and highest.isfinite()):
                return name
    return None


def refuse_not_finite(tensors: Mapping[str, Tensor], source: str) -> None:
    """ZooError that names `source`, where a tensor has NaN or infinity in it."""
    name = not_finite(tensors.items())
    if name is not None:
        raise ZooError(
            f"{source}: the tensor {name} holds NaN or infinity",
            "fetch or copy the file again; if training wrote it, the training diverged: train again",
        )
