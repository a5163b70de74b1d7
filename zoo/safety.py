"""What is refused of a stranger's run or weights: weights that are no numbers, networks that are larger than the
weights meant for them, and backbones that would read other files.
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

_TIMES = 2  # a tied tensor is stored once, and registered twice
_MORE_TENSORS, _MORE_NUMBERS = 1_000, 2**24


@contextmanager
def no_larger_than(weights: Iterable[Path], device: str) -> Iterator[None]:
    """While it lasts, no module may be built of far more parameters, or numbers in them, than these weights have.

    So it is refused before memory is filled.

    Args:
        weights: .safetensors files, whose heads alone are read.
        device: the type of device that it is built on; parameters that are put elsewhere afterwards are not counted.

    Raises:
        ZooError: a network outgrows the weights.
        SafetensorError, OSError: of a head that cannot be read.
    """
    tensors, numbers = _stored(weights)
    built = {"tensors": 0, "numbers": 0}

    def count(_module: nn.Module, _name: str, parameter: nn.Parameter) -> None:
        if parameter.device.type != device:
            return
        built["tensors"] += 1
        built["numbers"] += parameter.numel()
        if built["tensors"] > _TIMES * tensors + _MORE_TENSORS or built["numbers"] > _TIMES * numbers + _MORE_NUMBERS:
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
    """ZooError for what `timm.create_model` would load from a file or the hub, by a name or an option.

    An option may be a parameter of the classes in the model's own file, which build layers and nothing else.
    `checkpoint_path`, `pretrained_cfg` and their like are parameters of `timm.create_model` alone.
    """
    import timm  # takes a second to import, and models without a backbone do not need it

    if not timm.is_model(name):
        raise ZooError(f"the backbone {name!r} is no model of timm's", "backbone=... is a name of timm.list_models()")
    source = sys.modules[timm.model_entrypoint(name).__module__]
    layers = [entry for entry in vars(source).values() if inspect.isclass(entry) and issubclass(entry, nn.Module)]
    layers = [layer for layer in layers if layer.__module__ == source.__name__]
    allowed = {parameter for layer in layers for parameter in inspect.signature(layer).parameters}
    if refused := sorted(set(options) - allowed):
        raise ZooError(
            f"the backbone {name!r} has no option {', '.join(refused)}",
            f"options of its layers are {', '.join(sorted(allowed - {'args', 'kwargs'}))}",
        )


def _stored(weights: Iterable[Path]) -> tuple[int, int]:
    """How many tensors files hold, and how many numbers."""
    tensors = numbers = 0
    for file in weights:
        with safe_open(file, "pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - not a dictionary
                tensors += 1
                numbers += math.prod(stored.get_slice(name).get_shape())
    return tensors, numbers


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
    """ZooError that begins with `what`, the file, where a tensor has NaN or infinity, which makes captions nonsense."""
    if (name := not_finite(tensors.items())) is not None:
        raise ZooError(
            f"{what}: the tensor {name} holds NaN or infinity",
            "fetch or copy the file again, or train anew: a training that writes such weights had diverged",
        )
