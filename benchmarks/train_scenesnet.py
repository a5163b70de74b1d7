"""Train the weights of `scenesnet`, some three minutes on one core.

    uv run python benchmarks/train_scenesnet.py scenesnet.safetensors

The network learns to name what is in the boxes of 10,000 scenes of another seed than the data set's, and prints how
often it is right on 1,000 more. Only shapes of the training split are drawn. Other versions of torch and other
processors give slightly other weights: those that ship were made once, and their digest is in the signature.
"""

import io
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torchvision.ops import roi_align

from harness.data.backbones.scenesnet import CHANNELS, STRIDE, convolutions
from harness.data.scenes.dataset import ScenesConfig, draw_scene
from harness.data.scenes.drawing import BACKGROUND_COLOURS, OBJECT_COLOURS, TEXTURES
from harness.data.scenes.layout import SEEN
from harness.utils.atomic import replacing

SEED = 1
"""Of the scenes; the data set's is 0."""
IMAGES, HELD_OUT, EPOCHS, BATCH, RATE = 10_000, 1_000, 12, 64, 3e-3
QUESTIONS = {
    "shape": SEEN,
    "colour": tuple(OBJECT_COLOURS),
    "size": ("small", "large"),
    "background": tuple(BACKGROUND_COLOURS),
    "texture": TEXTURES,
}
"""What is asked of the mean over each object's box, with the possible answers."""


@dataclass(frozen=True, slots=True)
class Scenes:
    """Pixels (N, 3, S, S), boxes (K, 4) in cells, and the numbers of the answers (K, questions) of each image."""

    pixels: Tensor
    boxes: list[Tensor]
    answers: list[Tensor]

    def __len__(self) -> int:
        return len(self.pixels)


def draw(count: int, split: str) -> Scenes:
    """Scenes of the other seed, with what there is to see."""
    pixels, boxes, answers = [], [], []
    for number in range(count):
        drawn = draw_scene(ScenesConfig(seed=SEED), split, None, number)
        with Image.open(io.BytesIO(drawn.png)) as image:
            pixels.append(np.array(image.convert("RGB")))
        scene = drawn.scene
        said = [
            (item.shape, item.colour, "large" if item.large else "small", scene.background, scene.texture)
            for item in scene.items
        ]
        answers.append(
            torch.tensor(
                [[names.index(word) for names, word in zip(QUESTIONS.values(), row, strict=True)] for row in said]
            )
        )
        boxes.append(torch.tensor(drawn.boxes, dtype=torch.float32) / STRIDE)
    return Scenes(torch.from_numpy(np.stack(pixels)).permute(0, 3, 1, 2) / 127.5 - 1, boxes, answers)


def train(scenes: Scenes) -> tuple[nn.Sequential, nn.Module]:
    """The network with batch normalisation, and the linear layer that answers."""
    network = nn.Sequential()
    for layer in convolutions():
        network.append(layer)
        if isinstance(layer, nn.Conv2d) and len(network) < 3 * len(CHANNELS) - 2:
            network.append(nn.BatchNorm2d(layer.out_channels))
    answering = nn.Linear(CHANNELS[-1], sum(map(len, QUESTIONS.values())))
    parameters = [*network.parameters(), *answering.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=RATE, weight_decay=1e-4)
    steps = EPOCHS * (len(scenes) // BATCH)
    rates = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    for epoch in range(EPOCHS):
        for group in torch.split(torch.randperm(len(scenes)), BATCH):
            if len(group) < BATCH:
                continue
            loss = torch.stack([F.cross_entropy(*pair) for pair in answer(network, answering, scenes, group)]).sum()
            optimiser.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            rates.step()
        print(f"epoch {epoch + 1}: loss {loss.item():.3f}", flush=True)
    return network.eval(), answering


def answer(network: nn.Module, answering: nn.Module, scenes: Scenes, group: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Logits and right answers of each question, for all objects of some images."""
    images = group.tolist()
    pooled = roi_align(network(scenes.pixels[group]), [scenes.boxes[image] for image in images], 1, aligned=True)
    logits = answering(pooled.flatten(1)).split([len(names) for names in QUESTIONS.values()], dim=1)
    right = torch.cat([scenes.answers[image] for image in images])
    return list(zip(logits, right.unbind(1), strict=True))


@torch.no_grad()
def folded(network: nn.Sequential, scenes: Scenes) -> nn.Sequential:
    """The network without batch normalisation, its channels of mean 0 and deviation 1 over the objects' boxes."""
    plain = nn.Sequential()
    for layer in network:
        if isinstance(layer, nn.BatchNorm2d):
            before = plain[-1]
            assert isinstance(before, nn.Conv2d)
            plain[-1] = fuse_conv_bn_eval(before, layer)
        else:
            plain.append(layer)
    pooled = roi_align(plain(scenes.pixels), scenes.boxes, 1, aligned=True).flatten(1)
    deviation, last = pooled.std(dim=0), plain[-1]
    assert isinstance(last, nn.Conv2d)
    assert last.bias is not None
    last.bias.copy_((last.bias - pooled.mean(dim=0)) / deviation)
    last.weight.div_(deviation.view(-1, 1, 1, 1))
    return plain


def main(path: Path) -> None:
    """Train, print how often the answers are right, and write the weights in half precision."""
    torch.manual_seed(0)
    scenes, held_out = draw(IMAGES, "train"), draw(HELD_OUT, "val")
    network, answering = train(scenes)
    with torch.no_grad():
        answers = answer(network, answering, held_out, torch.arange(len(held_out)))
    for name, (logits, right) in zip(QUESTIONS, answers, strict=True):
        print(f"{name}: {100 * (logits.argmax(dim=1) == right).double().mean():.1f} % right on other scenes")
    weights = {name: value.half() for name, value in folded(network, held_out).state_dict().items()}
    with replacing(path) as partial:
        partial.write_bytes(save(weights))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
