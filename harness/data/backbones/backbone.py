"""The interface of frozen image encoders; opens a built-in one or any timm model by name."""

import difflib
from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from harness.config.features import FeatureConfig
from harness.config.limits import MAX_SIDE
from harness.data.backbones.filterbank import FilterBank
from harness.data.backbones.scenesnet import ScenesNet
from harness.data.images import ImagePreprocessing
from harness.utils.errors import BenchError
from harness.utils.files import shortened


class Backbone(Protocol):
    """A frozen image encoder: pixels (B, 3, H, W), prepared by `preprocessing`, to (B, h * w, C) float32.

    It computes on the pixels' device, without gradients; cells are ordered row by row from the top left. The hex
    `digest` changes with architecture, options or any weight.
    """

    preprocessing: ImagePreprocessing
    name: str
    dim: int
    grid: tuple[int, int]  # h, w
    digest: str

    def describe(self) -> str:
        """Name, weights and input size, as a score's signature shows them."""

    def __call__(self, pixels: Tensor) -> Tensor:
        """Features of the pixels."""


@runtime_checkable
class TrainableBackbone(Backbone, Protocol):
    """A backbone whose network can be part of a model on pixels; `level` is set where it gives an earlier map."""

    arguments: dict[str, Any]
    level: int | None

    def state_dict(self) -> dict[str, Tensor]:
        """The weights, by timm's names."""

    def rest(self) -> None:
        """Free its GPU memory until features are needed again."""


BUILT_IN = (FilterBank.name, ScenesNet.name)


def open_backbone(config: FeatureConfig) -> Backbone:
    """Open `filterbank`, `scenesnet` or a timm model, with or without a pretrained tag, frozen, to be evaluated.

    Without `weights` timm's own pretrained ones are fetched. `options` are settings of the filterbank (`grid`),
    `precision` and `level` of `TimmBackbone`, or keyword arguments of the timm model (`pad_type=same`). `image_size` is
    the side of the square input; that and the normalisation ("half" is x / 127.5 - 1) are the backbone's own where
    there is none. BenchError for an unknown name or option, or missing or mismatching weights, ZooError for unreadable
    ones.
    """
    name = config.backbone
    if name in BUILT_IN:
        return _open_built_in(config)

    # timm takes seconds to import, and the default does not need it.
    import timm
    from timm.models import get_arch_pretrained_cfgs

    from harness.data.backbones.timm_backbone import TimmBackbone

    architecture, _, tag = name.partition(".")
    if not timm.is_model(name):
        known = [*BUILT_IN, *timm.list_models()]
        near = difflib.get_close_matches(architecture, known, n=3, cutoff=0.5)
        raise BenchError(
            f"unknown backbone {shortened(name)!r}",
            hint=f"did you mean {' or '.join(near)}?" if near else "use filterbank, scenesnet or a model of timm's",
        )
    if "." in name and name not in (known := sorted(get_arch_pretrained_cfgs(architecture))):
        near = difflib.get_close_matches(name, known, n=3) or known[:5]
        raise BenchError(
            f"backbone {architecture} has no pretrained weights tagged {shortened(tag)!r}",
            hint=f"did you mean {' or '.join(near)}? {architecture} alone has timm's default weights",
        )
    return TimmBackbone(config)


def _open_built_in(config: FeatureConfig) -> Backbone:
    """The filterbank or scenesnet; what they have fixed is refused."""
    name, options = config.backbone, dict(config.options)
    if config.weights is not None or config.normalisation is not None:
        given = "--backbone-weights" if config.weights is not None else "normalisation"
        raise BenchError(f"{name} takes no {given}: it is fixed", hint="leave it out")
    if name == ScenesNet.name:
        if options:
            raise BenchError("scenesnet has no options", hint="leave out --backbone-option")
        return ScenesNet(config.image_size or 96)
    grid = options.pop("grid", "8")
    if options:
        raise BenchError(f"the filterbank has no option {', '.join(sorted(options))}", hint="its only option is grid=8")
    if not (grid.isdecimal() and len(grid) < 4 and 0 < int(grid) <= MAX_SIDE // 12):
        raise BenchError(
            f"the filterbank's grid must be 1 to {MAX_SIDE // 12}, not {shortened(grid)!r}", "write grid=8"
        )
    return FilterBank(int(grid), config.image_size or 12 * int(grid))
