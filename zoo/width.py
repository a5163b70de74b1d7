"""The width at which a model has a number of parameters, found on the meta device: no memory, no random draws."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from zoo.captioner import HasBackbone
from zoo.card import ModelCard
from zoo.errors import ZooError
from zoo.registry import create_model, default_arguments, model_card

TOLERANCE = 0.02
_IN_PROPORTION = ("d_ff", "d_embedding", "d_word", "d_attention")
"""Widths that follow `d_model`, in a model that has them; without a value they are `d_model` itself."""
_MULTIPLE = 8
"""Of the widths above, and of `d_model` where a finer step is not needed: what matrix units compute without padding."""
_WIDEST = 2**16

_counted: dict[str, tuple[ModelCard, int]] = {}
"""Parameters of models that were counted, with their cards: a plug-in may give a name to another model."""


@dataclass(frozen=True, slots=True)
class _Counted:
    """Widths, and the parameters of the model that has them."""

    widths: Mapping[str, int]
    parameters: int


@dataclass(frozen=True, slots=True)
class _Search:
    """The model whose width is searched: everything about it but its widths is fixed."""

    name: str
    target: int
    vocab_size: int
    visual_dim: int
    arguments: Mapping[str, Any]
    widths: Mapping[str, int]

    def at(self, width: int, **others: int) -> _Counted:
        """The model at a `d_model`, with its other widths in proportion but for those given."""
        factor = width / self.widths["d_model"]
        multiples = {name: max(round(own * factor / _MULTIPLE), 1) for name, own in self.widths.items()}
        widths = {name: count * _MULTIPLE for name, count in multiples.items()} | {"d_model": width} | others
        given = {**self.arguments, **widths}
        return _Counted(
            widths, count_parameters(self.name, vocab_size=self.vocab_size, visual_dim=self.visual_dim, **given)
        )

    def error(self, counted: _Counted) -> float:
        """Distance from the target, as a share of it."""
        return abs(counted.parameters - self.target) / self.target

    def nearest(self, step: int) -> _Counted:
        """The nearest with a `d_model` that is a multiple of `step`; what is left goes to `d_ff` where there is one."""
        low, high = 0, max(self.widths["d_model"] // step, 1)
        while (above := self.at(high * step)).parameters < self.target and high * step < _WIDEST:
            low, high = high, 2 * high
        below = self.at(low * step) if low else above
        while high - low > 1:
            middle = (low + high) // 2
            counted = self.at(middle * step)
            if counted.parameters < self.target:
                low, below = middle, counted
            else:
                high, above = middle, counted
        best = min(above, below if low else above, key=self.error)
        return best if "d_ff" not in best.widths else self.filled(best, "d_ff")

    def filled(self, counted: _Counted, name: str) -> _Counted:
        """With the width `name`, in which the count is linear, that comes nearest."""
        width = counted.widths["d_model"]
        own = counted.widths.get(name, width)
        slope = self.at(width, **{name: own + _MULTIPLE}).parameters - counted.parameters
        steps = round((self.target - counted.parameters) / slope) if slope else 0
        return min(counted, self.at(width, **{name: max(own + steps * _MULTIPLE, _MULTIPLE)}), key=self.error)


class _Undrawn(TorchFunctionMode):
    """Leaves normal random numbers out: on the meta device torch imports its compiler for them, for seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function of torch, or give back what it would have filled."""
        named = kwargs or {}
        if func in {nn.init.normal_, Tensor.normal_}:
            return args[0] if args else named["tensor"]
        return func(*args, **named)


def count_parameters(name: str, *, vocab_size: int, visual_dim: int, **arguments: Any) -> int:
    """The number of a model's parameters, tied ones once; of one with a backbone, those of the captioner behind it."""
    name, own = _captioner(name)
    key, card = repr((name, vocab_size, visual_dim, sorted({**own, **arguments}.items()))), model_card(name)
    if key not in _counted or _counted[key][0] is not card:
        with torch.device("meta"), _Undrawn():
            model = create_model(name, vocab_size=vocab_size, visual_dim=visual_dim, **{**own, **arguments})
        captioner = model.body if isinstance(model, HasBackbone) else model
        _counted[key] = card, sum(parameter.numel() for parameter in captioner.parameters())
    return _counted[key][1]


def match_width(name: str, parameters: int, *, vocab_size: int, visual_dim: int, **arguments: Any) -> dict[str, int]:
    """The widths that bring a model nearest to `parameters`: `d_model`, and the widths in proportion that it has.

    Layers, heads and lengths stay as they are. `d_model` is a multiple of heads that share it, and of 8 where that
    comes within `TOLERANCE`; other widths keep their proportions to it, but `d_ff` then takes up what is left to the
    target, and where no `d_model` comes within the tolerance, the width of words or of attention does.

    Args:
        parameters: the target; see `count_parameters`.
        arguments: further ones, whose widths serve for their proportions alone.

    Raises:
        ZooError: unknown name, a model without `d_model`, or none within the tolerance.
    """
    inner, on_card = _captioner(name)
    own = default_arguments(inner) | on_card
    own |= {key: value for key, value in arguments.items() if key in own}
    widths = {key: own[key] for key in ("d_model", *_IN_PROPORTION) if own.get(key)}
    if "d_model" not in widths:
        raise ZooError(
            f"{name} has no argument d_model, so that it cannot be widened to {parameters:,} parameters",
            "leave it out of --models, or choose a preset without parameters",
        )
    search = _Search(name, parameters, vocab_size, visual_dim, arguments, widths)
    tried = []
    n_heads = own.get("n_heads") or 1
    # Steps of `d_model`, from coarse to fine; even, since tables of sines and halved embeddings need it.
    for step in sorted({math.lcm(n_heads, _MULTIPLE), math.lcm(n_heads, 2), 2}, reverse=True):
        with suppress(ZooError):  # heads that share the width need more than an even one
            tried.append(search.nearest(step))
            if search.error(tried[-1]) <= TOLERANCE:
                return dict(tried[-1].widths)
    tried += [search.filled(each, name) for each in tried for name in _IN_PROPORTION if name in own]
    best = min(tried, key=search.error)
    if search.error(best) <= TOLERANCE:
        return dict(best.widths)
    raise ZooError(
        f"{name} cannot have {parameters:,} parameters within {TOLERANCE:.0%}: the nearest is {best.parameters:,} "
        f"(d_model {best.widths['d_model']})",
        "choose another target with --set parameters=N, or leave the model out of --models",
    )


def _captioner(name: str) -> tuple[str, dict[str, Any]]:
    """The registered model that words come from, and what the card sets of it: behind a backbone, the body.

    The run's backbone makes the features that other models see too; its parameters are not counted as theirs either.
    """
    card = model_card(name)
    if not (card.has_backbone and "body" in card.arguments):
        return name, {}
    body = str(card.arguments["body"])
    known = default_arguments(body)
    return body, {key: value for key, value in card.arguments.items() if key in known}
