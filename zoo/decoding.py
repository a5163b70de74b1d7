"""Greedy decoding, beam search and sampling, for any model by `Captioner.step`.

They do not change the model's mode: put it into evaluation mode first. They run without gradients; with
`gradients=True`, which self-critical training needs, the log-probabilities keep theirs. Results have a fixed width of
`max_len`, and those of one image do not depend on the other images of the batch. A search stops when all captions have
ended. With `early_stop=False` it always takes `max_len` steps: the result is the same, and since nothing is read back
from the device, a GPU can replay the search as one CUDA graph.
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
        trigram_penalty: subtracted from the log-probability of a token once for each earlier occurrence of the trigram
            that it would complete; 2 ln 2 in their code. A large value forbids repeated trigrams.
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
            repeated = (first == prefixes[-2][:, None]) & (second == prefixes[-1][:, None])
            log_probs = log_probs.scatter_add(1, third, repeated.to(log_probs.dtype) * -self.trigram_penalty)
        return log_probs


@dataclass(frozen=True, slots=True)
class Hypotheses:
    """W captions for each of B images, best first; samples are in the order drawn.

    Attributes:
        tokens: (B, W, max_len) long, without the begin token, with the end token, then zeros.
        log_probs: (B, W, max_len), of each token, then zeros.
        lengths: (B, W), the end token counted.
        scores: (B, W), sum of log-probabilities over length ** length_penalty.
    """

    tokens: Tensor
    log_probs: Tensor
    lengths: Tensor
    scores: Tensor

    def joined(self, more: Hypotheses) -> Hypotheses:
        """These hypotheses, then `more` of the same images."""
        return Hypotheses(
            torch.cat((self.tokens, more.tokens), 1),
            torch.cat((self.log_probs, more.log_probs), 1),
            torch.cat((self.lengths, more.lengths), 1),
            torch.cat((self.scores, more.scores), 1),
        )

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
    model: Captioner, memory: Memory, *, max_len: int, bos: int, eos: int, early_stop: bool = True
) -> Hypotheses:
    """The most probable word at every position; W is 1. `max_len` counts generated tokens, the end token included."""
    return _roll_out(model, memory, 1, max_len, bos, eos, early_stop, lambda log_probs: log_probs.argmax(-1))


def sample(
    model: Captioner,
    memory: Memory,
    *,
    n: int,
    max_len: int,
    bos: int,
    eos: int,
    gradients: bool = False,
    early_stop: bool = True,
) -> Hypotheses:
    """Sample `n` captions per image from softmax(logits); `log_probs` are of that distribution."""

    def draw(log_probs: Tensor) -> Tensor:
        return torch.multinomial(log_probs.exp(), 1)[:, 0]

    with torch.set_grad_enabled(gradients):
        return _roll_out(model, memory, n, max_len, bos, eos, early_stop, draw)


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
    gradients: bool = False,
    rules: SearchRules = _NO_RULES,
    early_stop: bool = True,
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
        gradients: keep gradients of the log-probabilities of all hypotheses returned.
        rules: what a prefix forbids of its next token; log-probabilities and scores are those under the rules.
        early_stop: see the module's docstring.
    """
    _check_limits(model, max_len, bos, eos)
    _check_beam(model, beam_size, banned, rules)
    with torch.set_grad_enabled(gradients):
        batch = memory.batch_size
        device = memory.features.device
        state = model.start(memory)
        logits, state = model.step(torch.full((batch,), bos, device=device), state)
        sums, last = _log_probs(logits, banned).topk(beam_size)  # (B, W) each
        state = state.expand(beam_size)
        path = _Path(sums, [last])
        released: Hypotheses | None = None
        # The W best next words of every beam, (B, W, W), and the row (B * W) of the beam that each of them continues.
        candidates = last.new_empty(2, batch, beam_size * beam_size)
        words, rows = candidates.view(2, batch, beam_size, beam_size)
        rows.copy_(torch.arange(batch * beam_size, device=device).view(batch, beam_size, 1))

        def rank_hypotheses(sums: Tensor) -> Hypotheses:
            """The best of the beam, whose log-probabilities have these sums (B, W), and of those released before."""
            tokens, log_probs = path.trace(max_len)
            before_end = _mask_to_end(tokens, eos)
            lengths = before_end.sum(-1)
            scores = sums / (lengths + int(count_bos)).to(sums.dtype) ** length_penalty
            hypotheses = Hypotheses(tokens * before_end, log_probs, lengths, scores)
            if released is not None:
                hypotheses = released.joined(hypotheses)
            return hypotheses.best(beam_size)

        for _ in range(1, max_len):
            hold_finished = False  # whether the beam may hold finished hypotheses
            if release_finished:
                finished = last == eos
                released = rank_hypotheses(sums.masked_fill(~finished, -torch.inf))
                sums = sums.masked_fill(finished, -torch.inf)
                # A sum can only fall, and its score is highest for the longest caption, by a negative power the next.
                length = max_len if length_penalty >= 0 else len(path.words) + 1
                upper_bounds = sums.amax(1) / (length + int(count_bos)) ** length_penalty
                if early_stop and bool((upper_bounds <= released.scores[:, -1]).all()):
                    break
            elif early_stop:
                # Counting in Python reads the words once and launches no kernel.
                n_finished = sum(row.count(eos) for row in last.tolist())
                if n_finished == last.numel():
                    break
                hold_finished = n_finished > 0
            else:
                hold_finished = True
            logits, state = model.step(last.flatten(), state)
            log_probs = _log_probs(logits, banned)
            if rules != _NO_RULES:
                log_probs = rules.apply(log_probs, path.prefixes(), eos)
            # Only the best W words of a beam can be among the best W of the image.
            gains = _best_words(log_probs.view(batch, beam_size, -1), words)
            if hold_finished:
                finished = (last == eos)[..., None]
                # A finished hypothesis has one continuation, the end token again, which adds nothing to its sum.
                only_first = torch.where(torch.arange(beam_size, device=device) == 0, 0.0, -torch.inf)
                gains = torch.where(finished, only_first, gains)
                words.masked_fill_(finished, eos)
            sums, choice = (sums[..., None] + gains).flatten(1).topk(beam_size)
            last, origin = candidates.gather(2, choice.expand(2, -1, -1))
            state = state.reorder(origin.flatten())
            path.words.append(last)
            path.gains.append(gains.flatten(1))
            path.choices.append(choice)

        return rank_hypotheses(sums)


@dataclass(frozen=True, slots=True)
class _Path:
    """The choices made at every position of a beam search, from which `trace` builds the hypotheses.

    Prefixes are not moved when beams are reordered: `trace` follows the choices back from the last position.

    Attributes:
        first: (B, W), log-probabilities of the first words.
        words: (B, W) of every position, in the beams' order at that position.
        gains: log-probabilities (B, W * W) of the W best continuations of each beam, at every position but the first.
        choices: which of these continuations the beam kept, (B, W).
    """

    first: Tensor
    words: list[Tensor]
    gains: list[Tensor] = field(default_factory=list)
    choices: list[Tensor] = field(default_factory=list)

    def prefixes(self) -> list[Tensor]:
        """The tokens (B * W) of the present prefixes, one tensor per position."""
        return list(self.trace(len(self.words))[0].flatten(0, 1).unbind(-1))

    def trace(self, max_len: int) -> tuple[Tensor, Tensor]:
        """Tokens and log-probabilities of the present prefixes, padded with zeros to (B, W, max_len)."""
        width = self.first.shape[1]
        beam = torch.arange(width, device=self.first.device).expand(self.first.shape)[..., None]
        log_probs = self.first[..., None]
        if self.gains:
            choices = torch.stack(self.choices, -1)
            beam = torch.cat((_ancestors(choices // width), beam), -1)
            log_probs = torch.cat((log_probs, torch.stack(self.gains, -1).gather(1, choices)), -1)
        words = torch.stack(self.words, -1).gather(1, beam)
        log_probs = log_probs.gather(1, beam)
        missing = max_len - beam.shape[-1]
        if missing:
            words = F.pad(words, (0, missing))
            log_probs = F.pad(log_probs, (0, missing))
        return words, log_probs


def _ancestors(parents: Tensor) -> Tensor:
    """The index that each final beam's prefix had in the beam at every earlier position, (B, W, T - 1).

    `parents` (B, W, T - 1) leads back by one position. The index 2 n positions back is the index n positions back of
    the index n positions back, so log2(T) gathers replace one gather per position.
    """
    ancestors = parents
    distance = 1
    while distance < parents.shape[-1]:
        farther = ancestors[..., :-distance].gather(1, ancestors[..., distance:])
        ancestors = torch.cat((farther, ancestors[..., -distance:]), -1)
        distance *= 2
    return ancestors


def _roll_out(
    model: Captioner,
    memory: Memory,
    width: int,
    max_len: int,
    bos: int,
    eos: int,
    early_stop: bool,
    choose: Callable[[Tensor], Tensor],
) -> Hypotheses:
    """Generate `width` captions per image; `choose` picks words (B * W,) from log-probabilities (B * W, V)."""
    _check_limits(model, max_len, bos, eos)
    rows = memory.batch_size * width
    device = memory.features.device
    state = model.start(memory).expand(width)
    last = torch.full((rows,), bos, device=device)
    finished = torch.zeros(rows, dtype=torch.bool, device=device)
    tokens = []
    gains = []
    for _ in range(max_len):
        logits, state = model.step(last, state)
        log_probs = _log_probs(logits, ())
        last = choose(log_probs)
        gains.append(log_probs.gather(1, last[:, None])[:, 0].masked_fill(finished, 0.0))
        last = last.masked_fill(finished, PAD)
        tokens.append(last)
        finished = finished | (last == eos)
        if early_stop and bool(finished.all()):
            break
    missing = (0, max_len - len(tokens))
    all_tokens = F.pad(torch.stack(tokens, 1), missing, value=PAD).view(-1, width, max_len)
    all_gains = F.pad(torch.stack(gains, 1), missing).view(-1, width, max_len)
    lengths = _mask_to_end(all_tokens, eos).sum(-1)
    return Hypotheses(all_tokens, all_gains, lengths, all_gains.sum(-1) / lengths)


def _log_probs(logits: Tensor, banned: Sequence[int]) -> Tensor:
    """Log-probabilities in at least float32, whatever the model's precision; minus infinity at banned tokens."""
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)
    if banned and log_probs.requires_grad:  # the softmax's gradient needs them as they are
        log_probs = log_probs.clone()
    for token in banned:  # as a tensor they would be copied to the device
        log_probs[:, token] = -torch.inf
    return log_probs


def _best_words(log_probs: Tensor, words: Tensor) -> Tensor:
    """The W largest of each beam's log-probabilities (B, W, V), largest first; their words are written to `words`."""
    width = words.shape[-1]
    if torch.is_grad_enabled():
        gains, best_words = log_probs.topk(width)
        words.copy_(best_words)
        return gains
    gains = log_probs.new_empty(words.shape)
    torch.topk(log_probs, width, out=(gains, words))
    return gains


def _mask_to_end(tokens: Tensor, eos: int) -> Tensor:
    """1 at tokens (..., T) up to and including the first end token, then 0."""
    return F.pad((tokens[..., :-1] != eos).cumprod(-1), (1, 0), value=1)


def _check_limits(model: Captioner, max_len: int, bos: int, eos: int) -> None:
    """ZooError where the model cannot generate `max_len` tokens, or has no such begin or end token."""
    if not 1 <= max_len <= model.max_len:
        raise ZooError(f"max_len must lie between 1 and the model's {model.max_len}, not {max_len}")
    if not (0 <= bos < model.vocab_size and 0 <= eos < model.vocab_size):
        raise ZooError(f"bos {bos} and eos {eos} must be entries of the vocabulary of {model.vocab_size}")


def _check_beam(model: Captioner, beam_size: int, banned: Sequence[int], rules: SearchRules) -> None:
    """ZooError where beam search cannot run with these options."""
    rules.check(model.vocab_size)
    if not 1 <= beam_size <= model.vocab_size:
        raise ZooError(f"beam_size must lie between 1 and the vocabulary's {model.vocab_size}, not {beam_size}")
    if not all(0 <= token < model.vocab_size for token in banned):
        raise ZooError(f"banned {list(banned)} must be entries of the vocabulary of {model.vocab_size}")


class Ensemble(Captioner):
    """A captioner whose logits are log(mean of the members' probabilities).

    Members share a vocabulary and, unless they have no visual input, one `VisualSpec`; only some may read a graph.
    """

    def __init__(self, members: Sequence[Captioner]) -> None:
        super().__init__()
        visual_specs = {replace(member.visual, graph="none") for member in members if member.visual.kind != "none"}
        graphs = {member.visual.graph for member in members} - {"none"}
        vocab_sizes = {member.vocab_size for member in members}
        if not members or len(visual_specs) > 1 or len(graphs) > 1 or len(vocab_sizes) > 1:
            raise ZooError("the members of an ensemble must share one vocabulary and one kind of visual input")
        self.members = nn.ModuleList(members)
        self.visual = replace(next(iter(visual_specs), VisualSpec("none", 0)), graph=next(iter(graphs), "none"))
        self.vocab_size = members[0].vocab_size
        self.max_len = min(member.max_len for member in members)

    def encode(self, visual: Visual) -> Memory:
        """The members' memories side by side in `extra`; features and mask are the first member's."""
        memories = [member.encode(visual) for member in self._members()]
        extra: dict[str, Tensor] = {}
        for index, memory in enumerate(memories):
            extra |= {f"{index}/memory/features": memory.features, f"{index}/memory/mask": memory.mask}
            extra |= {f"{index}/extra/{name}": tensor for name, tensor in memory.extra.items()}
        return Memory(memories[0].features, memories[0].mask, extra)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        return self._log_mean([member.decode(member_memory, tokens) for member, member_memory in self._split(memory)])

    def start(self, memory: Memory) -> DecodingState:
        return _join_states([member.start(member_memory) for member, member_memory in self._split(memory)])

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        logits = []
        states = []
        for index, member in enumerate(self._members()):
            member_logits, member_state = member.step(tokens, _state_of_member(state, index))
            logits.append(member_logits)
            states.append(member_state)
        return self._log_mean(logits), _join_states(states)

    def _members(self) -> list[Captioner]:
        return list(self.members)  # type: ignore[arg-type]  # ModuleList is not generic

    def _log_mean(self, logits: list[Tensor]) -> Tensor:
        log_weight = math.log(1 / len(logits))
        return torch.stack([member.log_softmax(-1) + log_weight for member in logits]).logsumexp(0)

    def _split(self, memory: Memory) -> list[tuple[Captioner, Memory]]:
        """Every member with the memory that its own `encode` returned."""
        pairs = []
        for index, member in enumerate(self._members()):
            tensors = _with_prefix(memory.extra, f"{index}/memory/")
            extra = _with_prefix(memory.extra, f"{index}/extra/")
            pairs.append((member, Memory(tensors["features"], tensors["mask"], extra)))
        return pairs


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, by their names without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def _join_states(states: list[DecodingState]) -> DecodingState:
    """One state for all members: every tensor's name begins with its member's index."""
    joined = DecodingState({}, {}, {}, {})
    for index, state in enumerate(states):
        for part in fields(DecodingState):
            tensors = getattr(joined, part.name)
            for name, tensor in getattr(state, part.name).items():
                tensors[f"{index}/{name}"] = tensor
    return joined


def _state_of_member(state: DecodingState, index: int) -> DecodingState:
    """The state of one member, from that of `_join_states`."""
    prefix = f"{index}/"
    return DecodingState(
        images=_with_prefix(state.images, prefix),
        rows=_with_prefix(state.rows, prefix),
        shared=_with_prefix(state.shared, prefix),
        repeated=_with_prefix(state.repeated, prefix),
    )
