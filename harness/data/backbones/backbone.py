"""The interface of frozen image encoders."""

from typing import Any, Protocol, runtime_checkable

from torch import Tensor

from harness.data.backbones.filterbank import FilterBank
from harness.data.backbones.scenesnet import ScenesNet
from harness.data.images import ImagePreprocessing


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
