"""A captioner that decodes the whole prefix again for every word, as some released code samples captions."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from zoo import Captioner, Memory, Visual
from zoo.captioner import DecodingState

_EXTRA = "extra."


class WholePrefixes(Captioner):
    """Another captioner, of which a step is one pass of `decode` over all words so far, and no more.

    Every step draws the dropout masks of all positions anew, at all sites that teacher forcing has, which the steps of
    some models leave out. It takes about half as many passes of the decoder as a caption has words. In evaluation mode
    its words are those of `model`.

    Args:
        model: shares its weights and its mode; it is not registered as a part.
    """

    def __init__(self, model: Captioner) -> None:
        super().__init__()
        self._decoded = (model,)  # in a tuple, since a part would follow `train` and `eval`, and be counted twice
        self.visual, self.vocab_size, self.max_len = model.visual, model.vocab_size, model.max_len

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`."""
        return self._decoded[0].encode(visual)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """See `Captioner.decode`."""
        return self._decoded[0].decode(memory, tokens)

    def start(self, memory: Memory) -> DecodingState:
        """The memory, and no words yet."""
        images = {_EXTRA + name: value for name, value in memory.extra.items()}
        words = torch.zeros(memory.batch_size, 0, dtype=torch.long, device=memory.features.device)
        return DecodingState(images | {"features": memory.features, "mask": memory.mask}, {"words": words})

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`; this one does decode the prefix again."""
        words = torch.cat((state.rows["words"], tokens[:, None]), 1)
        images = state.images
        extra = {name.removeprefix(_EXTRA): value for name, value in images.items() if name.startswith(_EXTRA)}
        logits = self.decode(Memory(images["features"], images["mask"], extra), words)
        return logits[:, -1], replace(state, rows={"words": words})
