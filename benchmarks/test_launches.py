"""Kernels that a training step and a beam search start, and how often the search waits for the device.

    pytest benchmarks/test_launches.py -n 0 -s

Models at the sizes of the preset `matched-width`, two images of 36 tokens, 5 captions of 20 words each; a beam of 5,
20 words, random weights. Operators that reach a backend are counted, less views and allocations, so that the numbers
are the same on every machine and hold for a GPU but for kernels that it fuses otherwise. They must not grow.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from harness.config.load import load_preset
from harness.measure.inputs import batch_of, example_visual
from harness.training.objectives import cross_entropy
from zoo import create_model
from zoo.decoding import beam_search

IMAGES, REGIONS, CHANNELS, WORDS, CAPTIONS, BEAM, VOCABULARY = 2, 36, 256, 20, 5, 5, 1000
WAITS = WORDS - 1
"""Whether all beams have ended is asked once a word; on a processor also, once, whether anything is padded."""
MOST = {
    "blind": (244, 1243),
    "cgru": (977, 737),
    "expansionnet_v2": (792, 2295),
    "image_transformer": (1074, 778),
    "puret": (658, 1657),
    "show_tell": (441, 390),
    "transformer_base": (406, 1293),
    "updown": (765, 697),
    "x_lan": (2204, 1022),
    "x_transformer": (1018, 3652),
}
"""Of a training step, forward and backward, and of a beam search with its encoder."""
_FREE = {
    *("_reshape_alias", "_unsafe_view", "alias", "detach", "lift_fresh"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
    *("is_same_size", "promote_types", "scalar_tensor"),
}
"""They start no kernel, though they are not marked as views."""


class Launches(TorchDispatchMode):
    """Counts kernels and waits of what runs within."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.waits = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name.removeprefix("aten::")
        if name == "_local_scalar_dense":
            self.waits += 1
        elif not func.is_view and name not in _FREE:
            self.kernels += 1
        return func(*args, **(kwargs or {}))


class Readings(TorchFunctionMode):
    """Counts tensors read as lists: a GPU is waited for, and no operator is dispatched on a processor."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = 0

    def __torch_function__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.waits += func is Tensor.tolist
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", MOST)
def test_launches_do_not_grow(name: str) -> None:
    torch.manual_seed(0)
    arguments = load_preset("matched-width").model_arguments(name)
    model = create_model(name, vocab_size=VOCABULARY, visual_dim=CHANNELS, **arguments)
    visual = batch_of(example_visual(model.visual, length=REGIONS), IMAGES)
    tokens = torch.randint(5, VOCABULARY, (IMAGES * CAPTIONS, WORDS + 1))
    with Launches() as training:
        cross_entropy(model.train()(visual, tokens[:, :-1]), tokens, 0.1).backward()  # type: ignore[no-untyped-call]
    model.eval()
    with torch.no_grad(), Readings() as readings, Launches() as search:
        beam_search(model, model.encode(visual), beam_size=BEAM, max_len=WORDS, bos=1, eos=2)
    waits = search.waits + readings.waits
    print(f"{name}: {training.kernels} a training step, {search.kernels} a search, {waits} waits")
    most_training, most_search = MOST[name]
    assert training.kernels <= most_training
    assert search.kernels <= most_search
    assert WAITS <= waits <= WAITS + 1, "fewer: the search ended before the last word"
