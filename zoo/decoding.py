"""Greedy decoding, beam search and sampling, for any model by `Captioner.step`.

They do not change the model's mode: put it into evaluation mode first. They run without gradients, unless `graph=True`
asks that the log-probabilities keep theirs, as self-critical training does. Results have a fixed width of `max_len`,
and those of one image do not depend on the other images of the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import wraps
from typing import ParamSpec

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.captioner import Captioner, Memory
from zoo.ensemble import Ensemble
from zoo.errors import ZooError
from zoo.hypotheses import Hypotheses
from zoo.search_rules import SearchRules

__all__ = ["Ensemble", "Hypotheses", "SearchRules", "beam_search", "greedy", "sample"]

PAD = 0
Arguments = ParamSpec("Arguments")
_NO_RULES = SearchRules()


def _graph_where_asked(search: Callable[Arguments, Hypotheses]) -> Callable[Arguments, Hypotheses]:
    """Run a search without gradients, unless it is called with `graph=True`."""

    @wraps(search)
    def run(*arguments: Arguments.args, **settings: Arguments.kwargs) -> Hypotheses:
        with torch.set_grad_enabled(bool(settings.get("graph", False))):
            return search(*arguments, **settings)

    return run


@torch.no_grad()
def greedy(
    model: Captioner, memory: Memory, *, max_len: int, bos: int, eos: int, banned: Sequence[int] = ()
) -> Hypotheses:
    """The most probable word at every position; W is 1.

    `max_len` counts generated tokens, the end token included; tokens in `banned` are never generated.
    """
    return _roll_out(model, memory, 1, max_len, bos, eos, lambda log_probs: log_probs.argmax(-1), banned=banned)


@_graph_where_asked
def sample(
    model: Captioner,
    memory: Memory,
    *,
    n: int,
    max_len: int,
    bos: int,
    eos: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    banned: Sequence[int] = (),
    graph: bool = False,  # noqa: ARG001  # read by the decorator
) -> Hypotheses:
    """Sample `n` captions per image from softmax(logits / temperature); `log_probs` are of that distribution.

    Tokens in `banned` are never drawn; the log-probabilities of the others are those without the ban.
    """
    if temperature <= 0:
        raise ZooError(f"temperature must be above 0, not {temperature}")

    def draw(log_probs: Tensor) -> Tensor:
        return torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]

    return _roll_out(model, memory, n, max_len, bos, eos, draw, temperature, banned)


@_graph_where_asked
def beam_search(
    model: Captioner,
    memory: Memory,
    *,
    beam_size: int,
    max_len: int,
    bos: int,
    eos: int,
    length_penalty: float = 1.0,
    count_bos: bool = False,
    banned: Sequence[int] = (),
    release_finished: bool = False,
    graph: bool = False,  # noqa: ARG001  # read by the decorator
    rules: SearchRules = _NO_RULES,
) -> Hypotheses:
    """Keep the `beam_size` most probable prefixes of each image.

    Finished hypotheses stay in the beam until `beam_size` better ones displace them; the search of an image ends when
    its whole beam is finished. The search compares sums of log-probabilities, the final ranking `scores`.

    Args:
        max_len: maximum number of generated tokens, the end token included; unfinished hypotheses are returned too.
        length_penalty: exponent of the length in the score; 0 ranks by the plain sum.
        count_bos: count the begin token in that length, as ExpansionNet's authors do.
        banned: tokens that are never generated, such as the unknown word; the other log-probabilities are unchanged.
        release_finished: move finished hypotheses out of the beam, so that it always has `beam_size` unfinished ones,
            until none of these can reach the best `beam_size`; as in ImageCaptioning.pytorch and AoANet.
        graph: keep the graph of the log-probabilities, of every beam that is returned.
        rules: what a prefix forbids of its next token; log-probabilities and scores are those under the rules.
    """
    _check(model, max_len, bos, eos)
    rules.check(model.vocab_size)
    if not 1 <= beam_size <= model.vocab_size:
        raise ZooError(f"beam_size must lie between 1 and the vocabulary's {model.vocab_size}, not {beam_size}")
    batch, device = memory.batch_size, memory.features.device
    forbidden = _forbidden(model, banned, device)
    state = model.start(memory)
    logits, state = model.step(torch.full((batch,), bos, device=device), state)
    sums, last = _log_probs(logits, forbidden).topk(beam_size)  # (B, W) each
    state = state.expand(beam_size)
    path = _Path(sums, [last])
    aside: Hypotheses | None = None
    # The words that continue an image's beams, and the rows of the beams that they continue.
    ahead = last.new_empty(2, batch, beam_size * beam_size)
    words, rows = ahead.view(2, batch, beam_size, beam_size)
    rows.copy_(torch.arange(batch * beam_size, device=device).view(batch, beam_size, 1))

    def ranked(sums: Tensor) -> Hypotheses:
        tokens, log_probs = path.trace(max_len)
        said = _said(tokens, eos)
        lengths = said.sum(-1)
        scores = sums / (lengths + int(count_bos)).to(sums.dtype) ** length_penalty
        found = Hypotheses(tokens * said, log_probs, lengths, scores)
        return (found if aside is None else aside.joined(found)).best(beam_size)

    for _ in range(1, max_len):
        ended = 0
        if release_finished:
            finished = last == eos
            aside = ranked(sums.masked_fill(~finished, -torch.inf))
            sums = sums.masked_fill(finished, -torch.inf)
            # A sum can only fall, and its score is highest for the longest caption.
            if bool((sums.amax(1) / (max_len + int(count_bos)) ** length_penalty <= aside.scores[:, -1]).all()):
                break
        # The words themselves are read, which takes no kernel, and counted here.
        elif (ended := sum(row.count(eos) for row in last.tolist())) == last.numel():
            break
        logits, state = model.step(last.flatten(), state)
        # Only the best W words of a beam can be among the best W.
        log_probs = _log_probs(logits, forbidden)
        if rules != _NO_RULES:
            log_probs = rules.apply(log_probs, path.prefixes(), eos)
        gains = _best(log_probs.view(batch, beam_size, -1), words)
        if ended:
            finished = (last == eos)[..., None]
            # A finished beam has one continuation, which adds nothing: the end token once more.
            itself = torch.where(torch.arange(beam_size, device=device) == 0, 0.0, -torch.inf)
            gains = torch.where(finished, itself, gains)
            words.masked_fill_(finished, eos)
        sums, choice = (sums[..., None] + gains).flatten(1).topk(beam_size)
        last, origin = ahead.gather(2, choice.expand(2, -1, -1))
        state = state.reorder(origin.flatten())
        path.go_on(last, gains.flatten(1), choice)

    return ranked(sums)


@dataclass(frozen=True, slots=True)
class _Path:
    """How the beams of B images came about: whole prefixes are put together once, not moved at every word.

    Attributes:
        first: (B, W), log-probabilities of the first words.
        words: (B, W) of every position.
        gains, choices: of every position but the first, log-probabilities (B, W * W) of the continuations of all
            beams, W of each, and which of them were taken (B, W).
    """

    first: Tensor
    words: list[Tensor]
    gains: list[Tensor] = field(default_factory=list)
    choices: list[Tensor] = field(default_factory=list)

    def go_on(self, words: Tensor, gains: Tensor, choice: Tensor) -> None:
        """Add a position."""
        self.words.append(words)
        self.gains.append(gains)
        self.choices.append(choice)

    def prefixes(self) -> list[Tensor]:
        """The tokens (B * W) of every position of the prefixes, the first position first."""
        return list(self.trace(len(self.words))[0].flatten(0, 1).unbind(-1))

    def trace(self, max_len: int) -> tuple[Tensor, Tensor]:
        """Tokens and log-probabilities (B, W, max_len) of the prefixes, then zeros."""
        width = self.first.shape[1]
        beam = torch.arange(width, device=self.first.device).expand(self.first.shape)[..., None]
        log_probs = self.first[..., None]
        if self.gains:
            choices = torch.stack(self.choices, -1)
            beam = torch.cat((_ancestors(choices // width), beam), -1)
            log_probs = torch.cat((log_probs, torch.stack(self.gains, -1).gather(1, choices)), -1)
        words, log_probs = torch.stack(self.words, -1).gather(1, beam), log_probs.gather(1, beam)
        missing = (0, max_len - beam.shape[-1])
        return (F.pad(words, missing), F.pad(log_probs, missing)) if missing[1] else (words, log_probs)


def _ancestors(parents: Tensor) -> Tensor:
    """Which beam each last one was at every position but the last, from the parents (B, W, T - 1) of each position.

    Ancestors 2 n positions back are the ancestors n positions back of those, so that a few products of permutations do
    for all positions what took one kernel a position.
    """
    positions, back = parents.shape[-1], 1
    while back < positions:
        nearer = parents[..., :-back].gather(1, parents[..., back:])
        parents, back = torch.cat((nearer, parents[..., -back:]), -1), 2 * back
    return parents


def _roll_out(
    model: Captioner,
    memory: Memory,
    width: int,
    max_len: int,
    bos: int,
    eos: int,
    choose: Callable[[Tensor], Tensor],
    temperature: float = 1.0,
    banned: Sequence[int] = (),
) -> Hypotheses:
    """Generate `width` captions per image, each word chosen from log-probabilities (B * W, V) alone."""
    _check(model, max_len, bos, eos)
    rows, device = memory.batch_size * width, memory.features.device
    forbidden = _forbidden(model, banned, device)
    state = model.start(memory).expand(width)
    last = torch.full((rows,), bos, device=device)
    finished = torch.zeros(rows, dtype=torch.bool, device=device)
    tokens, gains = [], []
    for _ in range(max_len):
        logits, state = model.step(last, state)
        log_probs = _log_probs(logits / temperature, forbidden)
        last = choose(log_probs)
        gains.append(log_probs.gather(1, last[:, None])[:, 0].masked_fill(finished, 0.0))
        last = last.masked_fill(finished, PAD)
        tokens.append(last)
        finished = finished | (last == eos)
        if bool(finished.all()):
            break
    missing = (0, max_len - len(tokens))
    all_tokens = F.pad(torch.stack(tokens, 1), missing, value=PAD).view(-1, width, max_len)
    all_gains = F.pad(torch.stack(gains, 1), missing).view(-1, width, max_len)
    lengths = _said(all_tokens, eos).sum(-1)
    return Hypotheses(all_tokens, all_gains, lengths, all_gains.sum(-1) / lengths)


def _log_probs(logits: Tensor, forbidden: Tensor | None) -> Tensor:
    """Log-probabilities in at least float32, whatever the model's precision; minus infinity at forbidden tokens."""
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    return log_probs if forbidden is None else log_probs.index_fill_(-1, forbidden, -torch.inf)


def _forbidden(model: Captioner, banned: Sequence[int], device: torch.device) -> Tensor | None:
    """The banned tokens as a tensor; None if there are none."""
    if not banned:
        return None
    if not all(0 <= token < model.vocab_size for token in banned):
        raise ZooError(f"banned {list(banned)} must be entries of the vocabulary of {model.vocab_size}")
    return torch.tensor(sorted(set(banned)), device=device)


def _best(log_probs: Tensor, words: Tensor) -> Tensor:
    """The W largest of each beam's log-probabilities (B, W, V), in order; their words are written to `words`."""
    width = words.shape[-1]
    if torch.is_grad_enabled():
        gains, found = log_probs.topk(width)
        words.copy_(found)
        return gains
    gains = log_probs.new_empty(words.shape)
    torch.topk(log_probs, width, out=(gains, words))
    return gains


def _said(tokens: Tensor, eos: int) -> Tensor:
    """1 at tokens (..., T) up to and including the first end token, then 0."""
    return F.pad((tokens[..., :-1] != eos).cumprod(-1), (1, 0), value=1)


def _check(model: Captioner, max_len: int, bos: int, eos: int) -> None:
    if not 1 <= max_len <= model.max_len:
        raise ZooError(f"max_len must lie between 1 and the model's {model.max_len}, not {max_len}")
    if not (0 <= bos < model.vocab_size and 0 <= eos < model.vocab_size):
        raise ZooError(f"bos {bos} and eos {eos} must be entries of the vocabulary of {model.vocab_size}")
