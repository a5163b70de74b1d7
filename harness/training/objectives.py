"""Training objectives: the losses that stages minimise."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.data.vocabulary import PAD
from zoo import Captioner, Memory


class Objective(Protocol):
    """The loss of a batch: a mean over what `weight` counts, so that a batch can be split into micro-batches."""

    def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
        """The loss, a scalar with a graph.

        Args:
            batch: on the model's device.
            epoch: of the stage, from 0.
        """

    def weight(self, batch: Batch) -> float:
        """The number of items (words, images) that the loss is a mean over."""


@dataclass(frozen=True, slots=True)
class CrossEntropy:
    """The mean cross-entropy over all words of a batch, with teacher forcing or scheduled sampling."""

    stage: Stage
    pad: int = PAD

    def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
        inputs = batch.tokens[:, :-1]
        sampling = self.stage.scheduled_sampling
        memory = self.memory(model, batch)
        if sampling is not None:
            probability = sampling.probability(epoch)
            if probability:
                memory = model.encode(batch.visual) if memory is None else memory
                inputs = scheduled_sampling_inputs(model, memory, inputs, probability)
        logits = model(batch.visual, inputs) if memory is None else model.decode(memory, inputs)
        return cross_entropy(logits, batch.tokens, self.stage.label_smoothing, self.pad)

    def memory(self, model: Captioner, batch: Batch) -> Memory | None:  # noqa: ARG002  # of other objectives
        """The memory that captions are decoded from, one row a caption; None to encode images in the model's pass."""
        return None

    def weight(self, batch: Batch) -> float:
        """The number of words to predict."""
        return float((batch.tokens[:, 1:] != self.pad).sum())


def cross_entropy(logits: Tensor, tokens: Tensor, label_smoothing: float = 0.0, pad: int = PAD) -> Tensor:
    """Mean cross-entropy over all words of a batch, padding left out.

    Args:
        logits: (R, T, V), position t predicting token t + 1.
        tokens: (R, T + 1), begin token first, right-padded.
        label_smoothing: share of the target spread evenly over the vocabulary (Szegedy et al. 2016).
    """
    return F.cross_entropy(
        logits.flatten(0, 1).float(), tokens[:, 1:].flatten(), ignore_index=pad, label_smoothing=label_smoothing
    )


@contextmanager
def without_gradients() -> Iterator[None]:
    """Passes of a model without gradients, whose results it is then trained on.

    Autocast caches the converted weights. Older releases of torch reuse them in the pass with gradients, although they
    were made without a graph that leads to the weights (pytorch/pytorch#158232).
    """
    with torch.no_grad():
        yield
    torch.clear_autocast_cache()


@without_gradients()
def scheduled_sampling_inputs(model: Captioner, memory: Memory, inputs: Tensor, probability: float) -> Tensor:
    """The inputs of scheduled sampling (Bengio et al. 2015): true words, and words that the model draws in their place.

    The model steps along the mixed caption, so that a drawn word follows from those drawn before it. No gradient passes
    through the choice; decoding the result with teacher forcing therefore gives the loss that stepping would give, but
    for the mask of dropout. It draws from torch's own generator, which checkpoints hold.

    Args:
        inputs: (B * n, T), begin token first.
    """
    rows, length = inputs.shape
    state = model.start(memory).expand(rows // memory.batch_size)
    replaced = torch.rand(rows, length, device=inputs.device) < probability
    mixed = inputs.clone()
    for position in range(1, length):
        logits, state = model.step(mixed[:, position - 1], state)
        drawn = torch.multinomial(logits.float().softmax(-1), 1)[:, 0]
        mixed[:, position] = torch.where(replaced[:, position], drawn, inputs[:, position])
    return mixed
