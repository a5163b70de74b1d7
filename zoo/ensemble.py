"""Ensembles: several captioners decoded as one, by the mean of their probabilities at every word."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.errors import ZooError


class Ensemble(Captioner):
    """A captioner whose logits are log(mean of the members' probabilities).

    Members share a vocabulary and, unless they have no visual input, one `VisualSpec`.
    """

    def __init__(self, members: Sequence[Captioner]) -> None:
        super().__init__()
        seen = {member.visual for member in members if member.visual.kind != "none"}
        if not members or len(seen) > 1 or len({member.vocab_size for member in members}) > 1:
            raise ZooError("the members of an ensemble must share one vocabulary and one kind of visual input")
        self.members = nn.ModuleList(members)
        self.visual = next(iter(seen), VisualSpec("none", 0))
        self.vocab_size = members[0].vocab_size
        self.max_len = min(member.max_len for member in members)

    def encode(self, visual: Visual) -> Memory:
        """The members' memories side by side in `extra`; features and mask are the first member's."""
        memories = [member.encode(visual) for member in self._members()]
        extra: dict[str, Tensor] = {}
        for index, memory in enumerate(memories):
            parts = {"features": memory.features, "mask": memory.mask}
            extra.update({f"{index}/own/{name}": part for name, part in parts.items()})
            extra.update({f"{index}/extra/{name}": part for name, part in memory.extra.items()})
        return Memory(memories[0].features, memories[0].mask, extra)

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        """See `Captioner.decode`."""
        return _log_mean([member.decode(part, tokens) for member, part in self._split(memory)])

    def start(self, memory: Memory) -> DecodingState:
        """See `Captioner.start`."""
        return _join([member.start(part) for member, part in self._split(memory)])

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        """See `Captioner.step`."""
        logits, states = [], []
        for index, member in enumerate(self._members()):
            parts = (state.images, state.rows, state.shared, state.repeated)
            own = DecodingState(*(_part(part, str(index)) for part in parts))
            member_logits, member_state = member.step(tokens, own)
            logits.append(member_logits)
            states.append(member_state)
        return _log_mean(logits), _join(states)

    def _members(self) -> list[Captioner]:
        return list(self.members)  # type: ignore[arg-type]  # ModuleList is not generic

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
        side_by_side([state.images for state in states]),
        side_by_side([state.rows for state in states]),
        side_by_side([state.shared for state in states]),
        side_by_side([state.repeated for state in states]),
    )


def _log_mean(logits: list[Tensor]) -> Tensor:
    log_probs = torch.stack([member.log_softmax(-1) for member in logits])
    return log_probs.logsumexp(0) - math.log(len(logits))
