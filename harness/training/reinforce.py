"""REINFORCE with a learned baseline: one caption is sampled, and made likelier as far as it earns more than expected.

Williams, "Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning", 1992. For
captions, with a baseline that is linear in the decoder's state: Ranzato et al., "Sequence Level Training with Recurrent
Neural Networks", ICLR 2016 (MIXER), and after it Delbrouck and Dupont, arXiv:1810.06245.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from torch import Tensor, nn

from harness.config.schedule import Stage
from harness.data.batches import Batch
from harness.data.vocabulary import Vocabulary
from harness.training.objectives import without_gradients
from harness.training.self_critical import CaptionRewards, at_hand, targets_of
from harness.utils.errors import BenchError
from zoo import Captioner, Memory
from zoo.decoding import Hypotheses, sample


@runtime_checkable
class HasStates(Protocol):
    """A captioner whose decoder is recurrent, and shows the states h_t, `d_model` wide, that words follow from."""

    d_model: int

    def decode_with_states(self, memory: Memory, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """`Captioner.decode`, and the states (B * n, T, d_model)."""
        ...


def require_states(model: Captioner, stage: Stage) -> HasStates:
    """The model, if its decoder has the states that a stage with this objective needs; BenchError where it has none."""
    if isinstance(model, HasStates):
        return model
    raise BenchError(
        f"stage {stage.name!r} learns a baseline on a recurrent decoder's states, and this model has none",
        "choose a recurrent model, such as cgru or updown, or a schedule with the objective self_critical",
    )


class ReinforceLoss(nn.Module):
    """The objective of a `reinforce` stage, for models with `HasStates`; learns b_t = w h_t + b beside the model.

    The loss is -(r - b_t) log p(y_t), summed over each caption and averaged over captions, where r is the reward of the
    whole caption, plus the squared error of b_t as a prediction of r, averaged over each caption. No gradient passes
    from one to the other: b_t is a number to the first, h_t one to the second. Captions are drawn with dropout
    off, so that a stage with dropout is off-policy; `cgru-paper` has none.

    Args:
        stage: its `reinforce` settings are used.
    """

    def __init__(self, stage: Stage, vocabulary: Vocabulary, rewards: CaptionRewards, width: int) -> None:
        super().__init__()
        self._max_len, self._vocabulary, self._rewards = stage.reinforce.max_len, vocabulary, rewards
        self.baseline = nn.Linear(width, 1)
        nn.init.zeros_(self.baseline.weight)
        nn.init.zeros_(self.baseline.bias)

    def forward(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:  # noqa: ARG002
        assert isinstance(model, HasStates)
        drawn = self._explore(model, batch)
        told = at_hand(drawn)
        tokens, inputs, said = targets_of(drawn, self._vocabulary.bos, int(told.lengths.max()))
        logits, states = model.decode_with_states(model.encode(batch.visual), inputs)
        log_probs = logits.float().log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
        expected = self.baseline(states.detach())[..., 0].float()
        rewards = self._rewards(batch.image_ids, told).to(expected, non_blocking=True)
        policy = -((rewards - expected.detach()) * log_probs * said).sum(1)
        error = ((rewards - expected).square() * said).sum(1) / said.sum(1)
        loss: Tensor = (policy + error).mean()
        return loss

    def weight(self, batch: Batch) -> float:
        """Images, of each of which one caption is drawn."""
        return float(len(batch.image_ids))

    @without_gradients()
    def _explore(self, model: Captioner, batch: Batch) -> Hypotheses:
        was_training = model.training
        model.eval()
        bos, eos = self._vocabulary.bos, self._vocabulary.eos
        try:  # where memory runs out, the batch is begun again, with the dropout that it had
            return sample(model, model.encode(batch.visual), n=1, max_len=self._max_len, bos=bos, eos=eos)
        finally:
            model.train(was_training)
