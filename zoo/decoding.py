"""Greedy decoding, beam search and sampling, for any model by `Captioner.step`.

They do not change the model's mode: put it into evaluation mode first. They run without gradients, unless `graph=True`
asks that the log-probabilities keep theirs, as self-critical training does. Results have a fixed width of `max_len`,
and those of one image do not depend on the other images of the batch. A search ends when all captions have; with
`to_the_end=True` it makes all `max_len` words, finds the same, and asks nothing of the device, so that a GPU can replay
it as one graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.errors import ZooError

PAD = 0
_TRIGRAM = 3


@dataclass(frozen=True, slots=True)
class SearchRules:
    """What a prefix forbids, or makes less probable, as its next token.

    Both are options of Luo's ImageCaptioning.pytorch and of the code that builds on it.

    Attributes:
        bad_endings: tokens after which a caption cannot end, such as articles.
        trigram_penalty: taken off the log-probability of a token once for every earlier place of the caption with the
            trigram that it would make; in their code 2 ln 2. A large one forbids.
    """

    bad_endings: tuple[int, ...] = ()
    trigram_penalty: float = 0.0

    def check(self, vocab_size: int) -> None:
        """ZooError for tokens outside the vocabulary, and for a penalty below 0."""
        if not all(0 <= token < vocab_size for token in self.bad_endings):
            raise ZooError(f"bad_endings {list(self.bad_endings)} must be entries of the vocabulary of {vocab_size}")
        if not 0 <= self.trigram_penalty < torch.inf:
            raise ZooError(f"trigram_penalty must be 0 or more, not {self.trigram_penalty:g}")

    def apply(self, log_probs: Tensor, prefixes: Sequence[Tensor], eos: int) -> Tensor:
        """Log-probabilities (R, V) of the next token under the rules.

        Args:
            prefixes: the tokens (R) of every position so far, the latest last.
        """
        if self.bad_endings:
            log_probs = log_probs.clone() if log_probs.requires_grad else log_probs
            bad = torch.stack([prefixes[-1] == word for word in self.bad_endings]).any(0)
            log_probs[:, eos] = log_probs[:, eos].masked_fill(bad, -torch.inf)
        if self.trigram_penalty and len(prefixes) >= _TRIGRAM:
            first, second, third = torch.stack(tuple(prefixes), 1).unfold(1, _TRIGRAM, 1).unbind(-1)  # (R, T - 2) each
            again = (first == prefixes[-2][:, None]) & (second == prefixes[-1][:, None])
            log_probs = log_probs.scatter_add(1, third, again.to(log_probs.dtype) * -self.trigram_penalty)
        return log_probs


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """W captions for each of B images.

    tokens: (B, W, max_len) long, without the begin token, end token kept, then zeros; log_probs: (B, W, max_len) of
    each token, then zeros; lengths: (B, W), end token counted; scores: (B, W), sum of log-probabilities over
    length ** length_penalty. Best first, except for samples, which stay as drawn.
    """

    tokens: Tensor
    log_probs: Tensor
    lengths: Tensor
    scores: Tensor

    def joined(self, others: Hypotheses) -> Hypotheses:
        """These and `others`, image by image."""
        pairs = ((getattr(self, part.name), getattr(others, part.name)) for part in fields(Hypotheses))
        return Hypotheses(*(torch.cat(pair, 1) for pair in pairs))

    def best(self, width: int) -> Hypotheses:
        """The `width` best of each image, best first; the earlier on a tie."""
        scores, order = self.scores.sort(dim=1, descending=True, stable=True)
        order = order[:, :width]
        return Hypotheses(
            self.tokens.gather(1, order[..., None].expand(-1, -1, self.tokens.shape[2])),
            self.log_probs.gather(1, order[..., None].expand(-1, -1, self.tokens.shape[2])),
            self.lengths.gather(1, order),
            scores[:, :width],
        )


_NO_RULES = SearchRules()


@torch.no_grad()
def greedy(
    model: Captioner, memory: Memory, *, max_len: int, bos: int, eos: int, to_the_end: bool = False
) -> Hypotheses:
    """The most probable word at every position; W is 1. `max_len` counts generated tokens, the end token included."""
    return _roll_out(model, memory, 1, max_len, bos, eos, to_the_end, lambda log_probs: log_probs.argmax(-1))


def sample(
    model: Captioner,
    memory: Memory,
    *,
    n: int,
    max_len: int,
    bos: int,
    eos: int,
    graph: bool = False,
    to_the_end: bool = False,
) -> Hypotheses:
    """Sample `n` captions per image from softmax(logits); `log_probs` are of that distribution."""

    def draw(log_probs: Tensor) -> Tensor:
        return torch.multinomial(log_probs.exp(), 1)[:, 0]

    with torch.set_grad_enabled(graph):
        return _roll_out(model, memory, n, max_len, bos, eos, to_the_end, draw)


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
    graph: bool = False,
    rules: SearchRules = _NO_RULES,
    to_the_end: bool = False,
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
    if not all(0 <= token < model.vocab_size for token in banned):
        raise ZooError(f"banned {list(banned)} must be entries of the vocabulary of {model.vocab_size}")
    with torch.set_grad_enabled(graph):
        batch, device = memory.batch_size, memory.features.device
        state = model.start(memory)
        logits, state = model.step(torch.full((batch,), bos, device=device), state)
        sums, last = _log_probs(logits, banned).topk(beam_size)  # (B, W) each
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
            ended = int(to_the_end and not release_finished)
            if release_finished:
                finished = last == eos
                aside = ranked(sums.masked_fill(~finished, -torch.inf))
                sums = sums.masked_fill(finished, -torch.inf)
                # A sum can only fall, and its score is highest for the longest caption, by a negative power the next.
                length = max_len if length_penalty >= 0 else len(path.words) + 1
                reached = sums.amax(1) / (length + int(count_bos)) ** length_penalty
                if not to_the_end and bool((reached <= aside.scores[:, -1]).all()):
                    break
            # The words themselves are read, which takes no kernel, and counted here.
            elif not to_the_end and (ended := sum(row.count(eos) for row in last.tolist())) == last.numel():
                break
            logits, state = model.step(last.flatten(), state)
            # Only the best W words of a beam can be among the best W.
            log_probs = _log_probs(logits, banned)
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
            path.words.append(last)
            path.gains.append(gains.flatten(1))
            path.choices.append(choice)

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
    to_the_end: bool,
    choose: Callable[[Tensor], Tensor],
) -> Hypotheses:
    """Generate `width` captions per image, each word chosen from log-probabilities (B * W, V) alone."""
    _check(model, max_len, bos, eos)
    rows, device = memory.batch_size * width, memory.features.device
    state = model.start(memory).expand(width)
    last = torch.full((rows,), bos, device=device)
    finished = torch.zeros(rows, dtype=torch.bool, device=device)
    tokens, gains = [], []
    for _ in range(max_len):
        logits, state = model.step(last, state)
        log_probs = _log_probs(logits, ())
        last = choose(log_probs)
        gains.append(log_probs.gather(1, last[:, None])[:, 0].masked_fill(finished, 0.0))
        last = last.masked_fill(finished, PAD)
        tokens.append(last)
        finished = finished | (last == eos)
        if not to_the_end and bool(finished.all()):
            break
    missing = (0, max_len - len(tokens))
    all_tokens = F.pad(torch.stack(tokens, 1), missing, value=PAD).view(-1, width, max_len)
    all_gains = F.pad(torch.stack(gains, 1), missing).view(-1, width, max_len)
    lengths = _said(all_tokens, eos).sum(-1)
    return Hypotheses(all_tokens, all_gains, lengths, all_gains.sum(-1) / lengths)


def _log_probs(logits: Tensor, banned: Sequence[int]) -> Tensor:
    """Log-probabilities in at least float32, whatever the model's precision; minus infinity at banned tokens."""
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    if banned and log_probs.requires_grad:  # the softmax's gradient needs them as they are
        log_probs = log_probs.clone()
    for token in banned:  # as a tensor they would be copied to the device
        log_probs[:, token] = -torch.inf
    return log_probs


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


class Ensemble(Captioner):
    """A captioner whose logits are log(mean of the members' probabilities).

    Members share a vocabulary and, unless they have no visual input, one `VisualSpec`; only some may read a graph.
    """

    def __init__(self, members: Sequence[Captioner]) -> None:
        super().__init__()
        seen = {replace(member.visual, graph="none") for member in members if member.visual.kind != "none"}
        graphs = {member.visual.graph for member in members} - {"none"}
        if not members or len(seen) > 1 or len(graphs) > 1 or len({member.vocab_size for member in members}) > 1:
            raise ZooError("the members of an ensemble must share one vocabulary and one kind of visual input")
        self.members = nn.ModuleList(members)
        self.visual = replace(next(iter(seen), VisualSpec("none", 0)), graph=next(iter(graphs), "none"))
        self.vocab_size = members[0].vocab_size
        self.max_len = min(member.max_len for member in members)

    def encode(self, visual: Visual) -> Memory:
        """The members' memories side by side in `extra`; features and mask are the first member's."""
        memories = [member.encode(visual) for member in self._members()]
        extra: dict[str, Tensor] = {}
        for index, memory in enumerate(memories):
            extra |= {f"{index}/own/features": memory.features, f"{index}/own/mask": memory.mask}
            extra |= {f"{index}/extra/{name}": part for name, part in memory.extra.items()}
        return Memory(memories[0].features, memories[0].mask, extra)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        return self._log_mean([member.decode(part, tokens) for member, part in self._split(memory)])

    def start(self, memory: Memory) -> DecodingState:
        return _join([member.start(part) for member, part in self._split(memory)])

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        logits, states = [], []
        for index, member in enumerate(self._members()):
            own = DecodingState(*(_part(getattr(state, part.name), str(index)) for part in fields(state)))
            member_logits, member_state = member.step(tokens, own)
            logits.append(member_logits)
            states.append(member_state)
        return self._log_mean(logits), _join(states)

    def _members(self) -> list[Captioner]:
        return list(self.members)  # type: ignore[arg-type]  # ModuleList is not generic

    def _log_mean(self, logits: list[Tensor]) -> Tensor:
        share = math.log(1 / len(logits))
        return torch.stack([member.log_softmax(-1) + share for member in logits]).logsumexp(0)

    def _split(self, memory: Memory) -> list[tuple[Captioner, Memory]]:
        pairs = []
        for index, member in enumerate(self._members()):
            own, extra = (_part(memory.extra, f"{index}/{kind}") for kind in ("own", "extra"))
            pairs.append((member, Memory(**own, extra=extra)))
        return pairs


def _part(tensors: dict[str, Tensor], whose: str) -> dict[str, Tensor]:
    prefix = f"{whose}/"
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _join(states: list[DecodingState]) -> DecodingState:
    def side_by_side(parts: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        return {f"{index}/{name}": part for index, named in enumerate(parts) for name, part in named.items()}

    return DecodingState(
        *(side_by_side([getattr(state, part.name) for state in states]) for part in fields(DecodingState))
    )
