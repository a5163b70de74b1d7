"""Training on rewards: sampled captions with a reward above a baseline, self-critical or learned, become likelier.

Rennie et al., "Self-critical Sequence Training for Image Captioning", CVPR 2017; mean of the other samples as baseline:
Luo, "A Better Variant of Self-Critical Sequence Training", 2020; beams in place of samples, with their own mean as
baseline: Cornia et al., "Meshed-Memory Transformer for Image Captioning", CVPR 2020. The reward is CIDEr-D with the end
token as a word, in the references and in their document frequencies too (SacreEOS, Hu et al. 2023: `STANDARD_wInit`),
unless the schedule leaves it out.

Early in such a stage validation by greedy or beam search may fall although the reward of samples rises from the first
steps on: it is the distribution that is trained, and a mode of it that is validated. It recovers as the two meet.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from harness.config.schedule import SelfCritical, Stage
from harness.data.batches import Batch, least_width
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.inference.replay import Replayed
from harness.measure.model_modes import eval_mode
from harness.metrics.cider import cider_rewards
from harness.metrics.ngrams import NARROW_WORDS, DocumentFrequencies, Tokenised, WordNumbers
from harness.training.objectives import without_gradients
from harness.utils.errors import BenchError
from zoo import Captioner, Memory, Visual
from zoo.captioner import DecodingState
from zoo.decoding import Hypotheses, beam_search, greedy, sample
from zoo.layers.attention import cache_fused_linears
from zoo.recurrent import RecurrentCaptioner

LAST_NUMBER = NARROW_WORDS - 2
"""The number that the rarest words outside of the vocabulary share if there are too many to number them all."""
_END, _UNKNOWN = 0, 1
_EXTRA = "extra."


def mean_of_others(rewards: Tensor) -> Tensor:
    """The baseline (B, n) of each of n >= 2 samples an image: the mean reward of the others."""
    return (rewards.sum(1, keepdim=True) - rewards) / (rewards.shape[1] - 1)


def mean_of_all(rewards: Tensor) -> Tensor:
    """The baseline (B, 1) of M2: the mean reward of an image's captions, each one's own included."""
    return rewards.mean(1, keepdim=True)


def self_critical_loss(
    log_probs: Tensor,
    mask: Tensor,
    advantages: Tensor,
    average: Literal["captions", "tokens", "steps"],
    max_len: int = 0,
) -> Tensor:
    """The loss whose gradient is the policy gradient's estimate, negated.

    Args:
        log_probs: (R, T) of the sampled tokens.
        mask: (R, T) bool, true up to and including the end token.
        advantages: (R,) reward less baseline.
        average: over captions, of their summed log-probabilities (ExpansionNet, Luo 2020); over all tokens (the code
            of AoANet and Image Transformer, after Luo's); or over `max_len` steps of each caption (M2's code).
    """
    weighed = -(advantages[:, None] * log_probs * mask)
    if average == "tokens":
        return weighed.sum() / mask.sum()
    return weighed.sum() / (len(log_probs) * (max_len if average == "steps" else 1))


def targets_of(drawn: Hypotheses, bos: int, longest: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sampled captions as one batch of teacher forcing; T is the length of the longest, end token included.

    Returns:
        The tokens (R, T), the input at each (R, T), and a mask (R, T) that is true up to and with the end token.
    """
    tokens = drawn.tokens.flatten(0, 1)[:, :longest]
    inputs = torch.cat((torch.full_like(tokens[:, :1], bos), tokens[:, :-1]), 1)
    return tokens, inputs, torch.arange(tokens.shape[1], device=tokens.device) < drawn.lengths.flatten()[:, None]


def to_cpu(drawn: Hypotheses) -> Hypotheses:
    """Copy captions to the CPU, which waits for a GPU to finish all work before."""
    return replace(drawn, tokens=drawn.tokens.cpu(), lengths=drawn.lengths.cpu())


class CaptionRewards:
    """CIDEr-D of sampled captions against the training captions of their images.

    References are split into words by the vocabulary's preparation; subwords of samples are joined to words. The end
    token is one more word at the end of each. A sampled word that is not in the vocabulary or in no reference matches
    nothing.

    Args:
        samples: the training images; document frequencies are taken over them.
        with_end: whether the end token counts as a word, in captions, references and their document frequencies.
        documents: what document frequencies count, images or single captions.
    """

    def __init__(
        self,
        samples: Sequence[Sample],
        vocabulary: Vocabulary,
        with_end: bool = True,
        documents: Literal["images", "captions"] = "images",
    ) -> None:
        self._vocabulary = vocabulary
        self._with_end = with_end
        # COCO has 566,000 captions: as lists of words, or of numbers, they would take a gigabyte.
        word_numbers = WordNumbers()
        tokens = array("I")
        bounds = array("q", [0])
        for caption in chain.from_iterable(image.captions for image in samples):
            tokens.extend(map(word_numbers.__getitem__, " ".join(vocabulary.tokenize(caption)).split()))
            if with_end:
                tokens.append(0)
            bounds.append(len(tokens))
        numbers = self._rank(word_numbers, np.bincount(np.array(tokens), minlength=len(word_numbers) + 1))
        self._numbers = dict(zip(word_numbers, numbers[1:].tolist(), strict=True))
        self._tokens = numbers[np.array(tokens)]
        self._bounds = np.array(bounds)
        first = np.cumsum([0, *(len(image.captions) for image in samples)])
        self._captions = {image.image_id: range(*first[index : index + 2]) for index, image in enumerate(samples)}
        references = Tokenised(self._tokens.astype(np.uint64) + np.uint64(1), self._bounds[1:])
        document_starts = first if documents == "images" else np.arange(len(self._bounds))
        self._frequencies = DocumentFrequencies.of_captions(references, document_starts)

    def _rank(self, words: Iterable[str], counts: NDArray[np.int64]) -> NDArray[np.uint16]:
        """Renumber words, which are counted from 1: those of the vocabulary first, and among them frequent ones.

        Number 0, the end token, stays.
        """
        vocabulary_words = set(self._vocabulary.words)
        unknown = np.array([False, *(word not in vocabulary_words for word in words)])
        order = np.lexsort((-counts[1:], unknown[1:])) + 1
        numbers = np.full(len(counts), _END, np.uint16)
        numbers[order] = np.minimum(np.arange(len(order)) + _UNKNOWN + 1, LAST_NUMBER)
        return numbers

    def _references(self, image_id: int) -> list[list[int]]:
        bounds = self._bounds
        return [self._tokens[bounds[index] : bounds[index + 1]].tolist() for index in self._captions[image_id]]

    def __call__(self, image_ids: Iterable[int], hypotheses: Hypotheses) -> Tensor:
        """Rewards (B, W) in double precision, on the CPU."""
        tokens = hypotheses.tokens.tolist()
        lengths = hypotheses.lengths.tolist()
        samples = [
            [self._read(row[:length]) for row, length in zip(*image, strict=True)]
            for image in zip(tokens, lengths, strict=True)
        ]
        rewards = cider_rewards([self._references(image_id) for image_id in image_ids], samples, self._frequencies)
        return torch.from_numpy(np.ascontiguousarray(rewards))

    def _read(self, tokens: Sequence[int]) -> list[int]:
        """Numbers of a sampled caption's words, except those of white space only."""
        words = (word for word in self._vocabulary.words_of(tokens) if word is None or word.strip())
        numbers = [_UNKNOWN if word is None else self._numbers.get(word, _UNKNOWN) for word in words]
        return [*numbers, _END] if self._with_end and self._vocabulary.eos in tokens else numbers


class WholePrefixes(Captioner):
    """A captioner whose step is a pass of another's `decode` over all words so far, as some released code samples.

    Every step draws the dropout masks of all positions anew, at all sites that teacher forcing has, which the steps of
    some models leave out. It takes about half as many passes of the decoder as a caption has words. In evaluation mode
    its words are those of `model`.

    Args:
        model: shares its weights and its mode; it is not registered as a part.
    """

    def __init__(self, model: Captioner) -> None:
        super().__init__()
        self._decoded = (model,)  # in a tuple, since a part would follow `train` and `eval`, and be counted twice
        self.visual = model.visual
        self.vocab_size = model.vocab_size
        self.max_len = model.max_len

    def encode(self, visual: Visual) -> Memory:
        return self._decoded[0].encode(visual)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        return self._decoded[0].decode(memory, tokens)

    def start(self, memory: Memory) -> DecodingState:
        """The memory, and no words yet."""
        images = {_EXTRA + name: value for name, value in memory.extra.items()}
        words = torch.zeros(memory.batch_size, 0, dtype=torch.long, device=memory.features.device)
        return DecodingState(images | {"features": memory.features, "mask": memory.mask}, {"words": words})

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`; the prefix is decoded again."""
        words = torch.cat((state.rows["words"], tokens[:, None]), 1)
        images = state.images
        extra = {name.removeprefix(_EXTRA): value for name, value in images.items() if name.startswith(_EXTRA)}
        logits = self.decode(Memory(images["features"], images["mask"], extra), words)
        return logits[:, -1], replace(state, rows={"words": words})


@dataclass(slots=True)
class SelfCriticalLoss:
    """The objective of a self-critical stage.

    Captions are drawn without a graph, and one teacher-forced pass over them is differentiated, which costs least; or
    the pass that draws them is differentiated itself (`SelfCritical.gradient`), so that both have the same dropout.
    """

    stage: Stage
    vocabulary: Vocabulary
    rewards: CaptionRewards
    widths: Sequence[int] = ()
    """Lengths, each with its own CUDA graph: captions are padded to the least that is long enough for the second pass,
    and drawn by a graph, too."""
    note: Callable[[str], None] = lambda _: None
    """Called with the reason where captions are not drawn by a graph."""
    _replayed: Replayed | None = field(default=None, init=False)

    @property
    def settings(self) -> SelfCritical:
        """The stage's settings of this objective."""
        return self.stage.self_critical

    def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:  # noqa: ARG002
        """Draw captions, compute their rewards, and weight their log-probabilities by the advantages."""
        second_pass = self.settings.gradient == "second-pass"
        if second_pass:
            drawn, greedy_captions = self._search(model, batch)
            assert drawn is not None
        else:
            drawn = self._draw(model, model.encode(batch.visual), gradients=True)
            _, greedy_captions = self._search(model, batch)
        drawn_on_cpu = to_cpu(drawn)
        greedy_on_cpu = None if greedy_captions is None else to_cpu(greedy_captions)
        longest = least_width(int(drawn_on_cpu.lengths.max()), self.widths if second_pass else ())
        tokens, inputs, mask = targets_of(drawn, self.vocabulary.bos, longest)
        if second_pass:
            log_probs = model(batch.visual, inputs).float().log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
        else:
            log_probs = drawn.log_probs.flatten(0, 1)[:, : tokens.shape[1]]
        # The CPU computes rewards while a GPU still works on the pass that was started above.
        rewards = self.rewards(batch.image_ids, drawn_on_cpu)
        advantages = (rewards - self._baseline(batch, rewards, greedy_on_cpu)).flatten()
        advantages = advantages.to(log_probs, non_blocking=True)
        return self_critical_loss(log_probs, mask, advantages, self.settings.average, self.settings.max_len)

    def weight(self, batch: Batch) -> float:
        """The number of images, by which parts of a batch are averaged, also where the loss is a mean over tokens."""
        return float(len(batch.image_ids))

    def _baseline(self, batch: Batch, rewards: Tensor, greedy_captions: Hypotheses | None) -> Tensor:
        """The rewards that count as zero advantage: those of greedy captions, or means over an image's samples."""
        if greedy_captions is not None:
            return self.rewards(batch.image_ids, greedy_captions)
        return mean_of_all(rewards) if self.settings.baseline == "mean" else mean_of_others(rewards)

    def _draw(self, model: Captioner, memory: Memory, *, gradients: bool = False) -> Hypotheses:
        """Draw the captions of each image in the model's present mode; beams are ranked by their summed log-probs."""
        settings = self.settings
        limits = self._search_limits(gradients)
        decoder = WholePrefixes(model) if settings.gradient == "prefixes" else model
        with cache_fused_linears():
            if settings.captions == "sampled":
                return sample(decoder, memory, n=settings.samples, gradients=gradients, **limits)
            return beam_search(
                decoder, memory, beam_size=settings.samples, length_penalty=0.0, gradients=gradients, **limits
            )

    def _search_limits(self, gradients: bool = False) -> dict[str, Any]:
        """The arguments of every search: begin and end tokens, and the longest caption."""
        return {
            "max_len": self.settings.max_len,
            "bos": self.vocabulary.bos,
            "eos": self.vocabulary.eos,
            "early_stop": gradients or not self.widths,
        }

    @without_gradients()
    def _search(self, model: Captioner, batch: Batch) -> tuple[Hypotheses | None, Hypotheses | None]:
        """Captions that need no gradient: those drawn for a second pass, and greedy ones for the baseline."""
        if self.widths and self._replayed is None:
            self._replayed = Replayed(partial(self._run_searches, model), self.note)
        was_training = model.training
        try:
            captions = list((self._replayed or partial(self._run_searches, model))(batch.visual))
        finally:  # also if memory runs out, because the batch is then repeated
            model.train(was_training)
        drawn = captions.pop(0) if self.settings.gradient == "second-pass" else None
        greedy_captions = captions.pop(0) if self.settings.baseline == "greedy" else None
        return drawn, greedy_captions

    def _run_searches(self, model: Captioner, visual: Visual) -> tuple[Hypotheses, ...]:
        """The searches of `_search`, in a form that a CUDA graph can replay: only the captions that settings need."""
        settings = self.settings
        captions = []
        memory = None
        if settings.gradient == "second-pass":
            model.train(settings.sampling_dropout)
            memory = model.encode(visual)
            captions.append(self._draw(model, memory))
        if settings.baseline == "greedy":
            if memory is None or settings.sampling_dropout:
                model.eval()
                memory = model.encode(visual)
            captions.append(greedy(model, memory, **self._search_limits()))
        return tuple(captions)


def require_states(model: Captioner, stage: Stage) -> RecurrentCaptioner:
    """The model, if its decoder has the states that a stage with this objective needs; BenchError if it has none."""
    if isinstance(model, RecurrentCaptioner):
        return model
    raise BenchError(
        f"stage {stage.name!r} learns a baseline on a recurrent decoder's states, and this model has none",
        "choose a recurrent model, such as cgru or updown, or a schedule with the objective self_critical",
    )


class ReinforceLoss(nn.Module):
    """The objective of a `reinforce` stage, for recurrent models; learns b_t = w h_t + b beside the model.

    REINFORCE with a learned baseline: one caption is sampled, and becomes likelier if its reward is above the baseline.
    Williams, "Simple Statistical Gradient-Following Algorithms for Connectionist Reinforcement Learning", 1992. For
    captions, with a baseline that is linear in the decoder's state: Ranzato et al., "Sequence Level Training with
    Recurrent Neural Networks", ICLR 2016 (MIXER), and after it Delbrouck and Dupont, arXiv:1810.06245.

    The loss is -(r - b_t) log p(y_t), summed over each caption and averaged over captions, where r is the reward of the
    whole caption, plus the squared error of b_t as a prediction of r, averaged over each caption. No gradient passes
    from one to the other: b_t is a number to the first, h_t one to the second. Captions are drawn with dropout
    off, so that a stage with dropout, such as that of `cgru-paper`, is off-policy.
    """

    def __init__(self, stage: Stage, vocabulary: Vocabulary, rewards: CaptionRewards, width: int) -> None:
        super().__init__()
        self._max_len = stage.reinforce.max_len
        self._vocabulary = vocabulary
        self._rewards = rewards
        self.baseline = nn.Linear(width, 1)
        nn.init.zeros_(self.baseline.weight)
        nn.init.zeros_(self.baseline.bias)

    def forward(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:  # noqa: ARG002
        assert isinstance(model, RecurrentCaptioner)
        drawn = self._explore(model, batch)
        drawn_on_cpu = to_cpu(drawn)
        tokens, inputs, mask = targets_of(drawn, self._vocabulary.bos, int(drawn_on_cpu.lengths.max()))
        logits, states = model.decode_with_states(model.encode(batch.visual), inputs)
        log_probs = logits.float().log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
        expected = self.baseline(states.detach())[..., 0].float()
        rewards = self._rewards(batch.image_ids, drawn_on_cpu).to(expected, non_blocking=True)
        policy = -((rewards - expected.detach()) * log_probs * mask).sum(1)
        error = ((rewards - expected).square() * mask).sum(1) / mask.sum(1)
        loss: Tensor = (policy + error).mean()
        return loss

    def weight(self, batch: Batch) -> float:
        """The number of images; one caption is drawn for each."""
        return float(len(batch.image_ids))

    @without_gradients()
    def _explore(self, model: Captioner, batch: Batch) -> Hypotheses:
        bos = self._vocabulary.bos
        eos = self._vocabulary.eos
        with eval_mode(model):  # also restores dropout if memory runs out and the batch is repeated
            return sample(model, model.encode(batch.visual), n=1, max_len=self._max_len, bos=bos, eos=eos)
