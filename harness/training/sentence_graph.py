"""The objective of stages that learn to say captions from their scene graphs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.data.vocabulary import PAD
from harness.training.objectives import cross_entropy, scheduled_sampling_inputs
from harness.utils.errors import BenchError
from zoo import Captioner, Memory, Visual


@runtime_checkable
class HasSentenceGraphs(Protocol):
    """A captioner that may have an auto-encoder of sentence graphs, whose words are entries of its vocabulary.

    `sentences` holds it; None where the model was built without.
    """

    sentences: nn.Module | None

    def encode_sentences(
        self, visual: Visual, objects: Tensor, attributes: Tensor, relations: Tensor, *, dictionary: bool = False
    ) -> Memory:
        """Encode the scene graphs of n sentences of each image (B * n, ...), for `Captioner.decode`.

        Args:
            visual: B images; what of them is read beside the graphs is the model's own.
            objects: (B * n, N), attributes: (B * n, N, a) of each object, -1 where padded.
            relations: (B * n, M, 3), places of subject and object, and the word; -1 where padded.
            dictionary: encode through the model's dictionary.
        """
        ...


@dataclass(frozen=True, slots=True)
class SentenceGraphLoss:
    """The mean cross-entropy over all words of a batch, told from the scene graphs of its captions.

    For models with `require_sentences`; `stage.dictionary` says whether the graphs pass through the dictionary.
    """

    stage: Stage
    pad: int = PAD

    def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
        """See `cross_entropy`; while the model does not train, no input is drawn and no label smoothed."""
        graphs, inputs = batch.sentences, batch.tokens[:, :-1]
        if graphs is None:
            raise ValueError("the batch has no graphs")
        memory = require_sentences(model, self.stage).encode_sentences(
            batch.visual, graphs.objects, graphs.attributes, graphs.relations, dictionary=self.stage.dictionary
        )
        sampling = self.stage.scheduled_sampling if model.training else None
        # The state has a row a graph: each caption has one of its own.
        if sampling is not None and (probability := sampling.probability(epoch)):
            inputs = scheduled_sampling_inputs(model, memory, inputs, probability)
        smoothing = self.stage.label_smoothing if model.training else 0.0
        return cross_entropy(model.decode(memory, inputs), batch.tokens, smoothing, self.pad)

    def weight(self, batch: Batch) -> float:
        """Words to predict."""
        return float((batch.tokens[:, 1:] != self.pad).sum())


def has_sentences(model: Captioner) -> bool:
    """Whether the model has a part for sentence graphs."""
    return isinstance(model, HasSentenceGraphs) and model.sentences is not None


def require_sentences(model: Captioner, stage: Stage) -> HasSentenceGraphs:
    """The model, if it has a part for sentence graphs; BenchError if it has none."""
    if isinstance(model, HasSentenceGraphs) and model.sentences is not None:
        return model
    raise BenchError(
        f"stage {stage.name!r} learns from sentence graphs, and this model has no part for them",
        "choose the model sgae/sentences, or another schedule",
    )
