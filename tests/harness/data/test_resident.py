"""Features held on a device: batches equal those of their source bit for bit, and they are held only where they fit."""

from collections.abc import Sequence
from dataclasses import fields

import pytest
import torch

from harness.data import pixels as module
from harness.data.features import NullSource
from harness.data.pixels import IMAGES_AT_ONCE, ResidentSource, hold, resident
from zoo import Visual, VisualSpec

CPU = torch.device("cpu")
REGIONS = VisualSpec("regions+grid", 4, 3)
IMAGES = list(range(100, 100 + IMAGES_AT_ONCE + 3))
"""More than are read at once."""


class Regions:
    """Regions with boxes, and a grid beside them: the longest image is of the second chunk, one has no region."""

    def __init__(self, exact_in_half: bool = True) -> None:
        random = torch.Generator().manual_seed(0)
        counts = {image: 1 + image % 5 for image in IMAGES} | {IMAGES[2]: 0, IMAGES[-1]: 9}
        self.features = {
            image: torch.randn(count, 4, generator=random).half().float() for image, count in counts.items()
        }
        self.boxes = {image: torch.rand(count, 4, generator=random) for image, count in counts.items()}
        self.grid = {image: torch.randn(2, 3, 3, generator=random).half().float() for image in IMAGES}
        if not exact_in_half:
            self.features[IMAGES[-2]] += 1e-4

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:  # noqa: ARG002
        """Padded to the longest of the images."""
        features = [self.features[image] for image in image_ids]
        return Visual(
            features=torch.nn.utils.rnn.pad_sequence(features, batch_first=True),
            mask=torch.nn.utils.rnn.pad_sequence([torch.ones(len(each)) for each in features], batch_first=True).bool(),
            boxes=torch.nn.utils.rnn.pad_sequence([self.boxes[image] for image in image_ids], batch_first=True),
            grid=torch.stack([self.grid[image] for image in image_ids]),
        )


def parts(visual: Visual) -> dict[str, torch.Tensor]:
    """What is set."""
    every = {part.name: getattr(visual, part.name) for part in fields(visual)}
    return {name: value for name, value in every.items() if value is not None}


@pytest.mark.parametrize("exact", [True, False], ids=["half", "single"])
@pytest.mark.parametrize("chosen", [IMAGES[:5], [IMAGES[-1], IMAGES[-2], IMAGES[0]], [IMAGES[2]]])
def test_batches_equal_those_of_the_source(exact: bool, chosen: list[int]) -> None:
    source = Regions(exact)
    held = hold(source, IMAGES, REGIONS, CPU, 10**6)
    expected, found = parts(source.visual(chosen, REGIONS)), parts(held.visual(chosen, REGIONS))
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        assert value.dtype == found[name].dtype, name
        assert torch.equal(value, found[name]), name
    features, grid, boxes_and_mask = len(IMAGES) * 9 * 4, len(IMAGES) * 18 * 2, len(IMAGES) * 9 * (16 + 1)
    assert held.nbytes == features * (2 if exact else 4) + grid + boxes_and_mask


def test_features_are_held_only_where_they_fit() -> None:
    held = hold(Regions(), IMAGES, REGIONS, CPU, 10**6)
    assert hold(Regions(), IMAGES, REGIONS, CPU, held.nbytes) is not None
    assert hold(Regions(), IMAGES, REGIONS, CPU, held.nbytes - 1) is None


def test_half_of_the_free_memory_is_for_features(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    source, held = Regions(), hold(Regions(), IMAGES, REGIONS, CPU, 10**6)
    monkeypatch.setattr(module, "device_memory", lambda _: 2 * held.nbytes)
    assert isinstance(resident(source, IMAGES, REGIONS, CPU, said.append), ResidentSource)
    monkeypatch.setattr(module, "device_memory", lambda _: 2 * held.nbytes - 2)
    assert resident(source, IMAGES, REGIONS, CPU, said.append) is source
    assert ["lie on the device" in line for line in said] == [True, False]
    assert "read batch by batch" in said[1]


def test_nothing_is_moved_on_a_processor_nor_for_models_without_features(monkeypatch: pytest.MonkeyPatch) -> None:
    source, blind = Regions(), NullSource()
    assert resident(source, IMAGES, REGIONS, CPU, pytest.fail) is source
    monkeypatch.setattr(module, "device_memory", lambda _: 2**30)
    assert resident(source, IMAGES, VisualSpec("none", 0), CPU, pytest.fail) is source
    assert resident(blind, IMAGES, REGIONS, CPU, pytest.fail) is blind
