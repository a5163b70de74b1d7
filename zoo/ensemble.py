"""Ensembles: several captioners decoded as one, by a mean of their probabilities at every word."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec
from zoo.errors import ZooError


class Ensemble(Captioner):
    """A captioner whose logits are log(weighted mean of the members' probabilities).

    Members share a vocabulary and, unless they have no visual input, one `VisualSpec`; only some may read a graph.

    Args:
        members: the captioners.
        weights: of each, above 0; they are scaled to a sum of 1. All equal by default.
    """

    def __init__(self, members: Sequence[Captioner], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        own = [1.0] * len(members) if weights is None else list(weights)
        if len(own) != len(members) or not all(math.isfinite(weight) and weight > 0 for weight in own):
            raise ZooError(f"an ensemble of {len(members)} needs as many weights above 0, not {own}")
        seen = {replace(member.visual, graph="none") for member in members if member.visual.kind != "none"}
        graphs = {member.visual.graph for member in members} - {"none"}
        if not members or len(seen) > 1 or len(graphs) > 1 or len({member.vocab_size for member in members}) > 1:
            raise ZooError("the members of an ensemble must share one vocabulary and one kind of visual input")
        self.members = nn.ModuleList(members)
        self.weights = [weight / math.fsum(own) for weight in own]
        self.visual = replace(next(iter(seen), VisualSpec("none", 0)), graph=next(iter(graphs), "none"))
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
        return self._log_mean([member.decode(part, tokens) for member, part in self._split(memory)])

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
        return self._log_mean(logits), _join(states)

    def _members(self) -> list[Captioner]:
        return list(self.members)  # type: ignore[arg-type]  # ModuleList is not generic

    def _log_mean(self, logits: list[Tensor]) -> Tensor:
        weighed = zip(logits, self.weights, strict=True)
        return torch.stack([member.log_softmax(-1) + math.log(weight) for member, weight in weighed]).logsumexp(0)

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
