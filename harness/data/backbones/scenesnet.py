"""A small convolutional network for the embedded data set: its weights ship with the package, nothing is downloaded.

Five 3 x 3 convolutions, 84 thousand weights, 64 channels at an eighth of the image's size. It was trained once to name
shape, colour and size of the objects of other scenes than those of the data set, and their backgrounds
(`benchmarks/train_scenesnet.py`), as bottom-up features come from a detector trained on other images with
objects and attributes (Anderson et al., CVPR 2018). Novel shapes of the `nocaps` split are new to it, too.
"""

import hashlib
from importlib import resources
from typing import Final

import torch
from safetensors.torch import load
from torch import Tensor, nn

from harness.data.images import ImagePreprocessing
from harness.utils.errors import BenchError

NAME: Final = "scenesnet"
WEIGHTS: Final = "scenesnet.safetensors"
CHANNELS: Final = (16, 32, 48, 64, 64)
STRIDES: Final = (2, 2, 2, 1, 1)
STRIDE: Final = 8


def convolutions() -> nn.Sequential:
    """The network: pixels (B, 3, S, S) in [-1, 1] to a map (B, 64, S / 8, S / 8)."""
    layers: list[nn.Module] = []
    before = 3
    for channels, stride in zip(CHANNELS, STRIDES, strict=True):
        layers += [nn.Conv2d(before, channels, 3, stride, padding=1), nn.ReLU()]
        before = channels
    return nn.Sequential(*layers[:-1])


class ScenesNet:
    """The network as a backbone: pixels (B, 3, S, S) in [-1, 1] to cells (B, S / 8 * S / 8, 64).

    S is a multiple of 8; objects have the sizes that it was trained on at 96.
    """

    name = NAME
    dim = CHANNELS[-1]

    def __init__(self, image_size: int = 96) -> None:
        if image_size % STRIDE:
            raise BenchError(
                f"scenesnet cannot cut {image_size} pixels into cells of {STRIDE}", "for instance --image-size 96"
            )
        self.grid = (image_size // STRIDE, image_size // STRIDE)
        self.preprocessing = ImagePreprocessing(
            size=image_size, resize="squash", interpolation="bilinear", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)
        )
        stored = resources.files("harness.data.backbones").joinpath(WEIGHTS).read_bytes()
        self.digest = hashlib.sha256(stored).hexdigest()
        self._network = convolutions()
        self._network.load_state_dict({name: value.float() for name, value in load(stored).items()})
        self._network.eval().requires_grad_(False)

    def describe(self) -> str:
        """Name, digest of the weights and input size, as a score's signature shows them."""
        return f"{NAME}#{self.digest[:8]}@{self.preprocessing.size}"

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        """Features of normalised pixels, float32, cells row by row."""
        cells: Tensor = self._network.to(pixels.device)(pixels)
        return cells.flatten(2).transpose(1, 2).contiguous()
