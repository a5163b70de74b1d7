"""Greedy, beam and sampled decoding, written once against `Captioner.step`.

All of them run without gradients and leave the model's mode alone: put it in evaluation mode first. Results have a
fixed width of `max_len`, and those of one image do not depend on the images beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.captioner import Captioner, Memory
from zoo.ensemble import Ensemble
from zoo.errors import ZooError

__all__ = ["Ensemble", "Hypotheses", "beam_search", "greedy", "sample"]

PAD = 0


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


@torch.no_grad()
def greedy(model: Captioner, memory: Memory, *, max_len: int, bos: int, eos: int) -> Hypotheses:
    """The most probable word at every position; W is 1. `max_len` counts generated tokens, the end token included."""
    return _roll_out(model, memory, 1, max_len, bos, eos, lambda log_probs: log_probs.argmax(-1))


@torch.no_grad()
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
) -> Hypotheses:
    """Draw `n` captions an image from softmax(logits / temperature); `log_probs` are of that distribution."""
    if temperature <= 0:
        raise ZooError(f"temperature must be above 0, not {temperature}")

    def draw(log_probs: Tensor) -> Tensor:
        return torch.multinomial(log_probs.exp(), 1, generator=generator)[:, 0]

    return _roll_out(model, memory, n, max_len, bos, eos, draw, temperature)


@torch.no_grad()
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
) -> Hypotheses:
    """Keep the `beam_size` most probable prefixes of each image.

    Finished hypotheses keep their place until `beam_size` better ones displace them; the search of an image ends when
    all that it keeps are finished. The search compares sums of log-probabilities, the final order `scores`.

    Args:
        max_len: generated tokens at most, the end token included; what is unfinished then is returned as it stands.
        length_penalty: exponent of the length in the score; 0 ranks by the plain sum.
        count_bos: count the begin token in that length, as ExpansionNet's authors do.
    """
    _check(model, max_len, bos, eos)
    if not 1 <= beam_size <= model.vocab_size:
        raise ZooError(f"beam_size must lie between 1 and the vocabulary's {model.vocab_size}, not {beam_size}")
    batch, device = memory.batch_size, memory.features.device
    state = model.start(memory)
    logits, state = model.step(torch.full((batch,), bos, device=device), state)
    sums, last = _log_probs(logits).topk(beam_size)  # (B, W) each
    state = state.expand(beam_size)
    tokens = torch.full((batch, beam_size, max_len), PAD, device=device)
    log_probs = sums.new_zeros(batch, beam_size, max_len)
    tokens[..., 0], log_probs[..., 0] = last, sums
    finished = last == eos
    first_row = torch.arange(0, batch * beam_size, beam_size, device=device)[:, None]
    is_first = torch.arange(beam_size, device=device) == 0

    for position in range(1, max_len):
        if bool(finished.all()):
            break
        logits, state = model.step(last.flatten(), state)
        gains, words = _log_probs(logits).topk(beam_size)  # only the best W words of a beam can be among the best W
        gains, words = gains.view(batch, beam_size, -1), words.view(batch, beam_size, -1)
        # A finished beam has one continuation: itself.
        done = finished[..., None]
        gains = torch.where(done, torch.where(is_first, 0.0, -torch.inf), gains)
        words = words.masked_fill(done, PAD)
        sums, choice = (sums[..., None] + gains).flatten(1).topk(beam_size)
        parent = choice // beam_size
        state = state.reorder((first_row + parent).flatten())
        tokens = tokens.gather(1, parent[..., None].expand_as(tokens))
        log_probs = log_probs.gather(1, parent[..., None].expand_as(log_probs))
        last = words.flatten(1).gather(1, choice)
        tokens[..., position], log_probs[..., position] = last, gains.flatten(1).gather(1, choice)
        finished = finished.gather(1, parent) | (last == eos)

    lengths = _lengths(tokens, eos)
    scores = sums / (lengths + int(count_bos)).to(sums.dtype) ** length_penalty
    scores, order = scores.sort(dim=1, descending=True, stable=True)
    return Hypotheses(
        tokens.gather(1, order[..., None].expand_as(tokens)),
        log_probs.gather(1, order[..., None].expand_as(log_probs)),
        lengths.gather(1, order),
        scores,
    )


def _roll_out(
    model: Captioner,
    memory: Memory,
    width: int,
    max_len: int,
    bos: int,
    eos: int,
    choose: Callable[[Tensor], Tensor],
    temperature: float = 1.0,
) -> Hypotheses:
    """Grow `width` captions an image, each word chosen from log-probabilities (B * W, V) alone."""
    _check(model, max_len, bos, eos)
    rows, device = memory.batch_size * width, memory.features.device
    state = model.start(memory).expand(width)
    last = torch.full((rows,), bos, device=device)
    finished = torch.zeros(rows, dtype=torch.bool, device=device)
    tokens, gains = [], []
    for _ in range(max_len):
        logits, state = model.step(last, state)
        log_probs = _log_probs(logits / temperature)
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
    lengths = _lengths(all_tokens, eos)
    return Hypotheses(all_tokens, all_gains, lengths, all_gains.sum(-1) / lengths)


def _log_probs(logits: Tensor) -> Tensor:
    """Log-probabilities in at least float32, whatever the model computes in."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)


def _lengths(tokens: Tensor, eos: int) -> Tensor:
    """Tokens up to and including the end token; all of them where there is none."""
    ends = tokens == eos
    return torch.where(ends.any(-1), ends.int().argmax(-1) + 1, tokens.shape[-1])


def _check(model: Captioner, max_len: int, bos: int, eos: int) -> None:
    if not 1 <= max_len <= model.max_len:
        raise ZooError(f"max_len must lie between 1 and the model's {model.max_len}, not {max_len}")
    if not (0 <= bos < model.vocab_size and 0 <= eos < model.vocab_size):
        raise ZooError(f"bos {bos} and eos {eos} must be entries of the vocabulary of {model.vocab_size}")
