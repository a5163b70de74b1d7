"""Find the width at which a model has a given number of parameters, on the meta device and so without memory."""

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
"""Widths that are scaled with `d_model` where a model has them; their default is `d_model`."""
_MULTIPLE = 8
"""The widths above are multiples of it, and `d_model` where possible: matrix units compute these without padding."""
_WIDEST = 2**16

_counted: dict[str, tuple[ModelCard, int]] = {}
"""Cards and parameter counts of counted models. A cached count is valid for its card only: names can be reused."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """Widths, and the number of parameters of the model with these widths."""

    widths: Mapping[str, int]
    parameters: int


@dataclass(frozen=True, slots=True)
class _Search:
    """A search for the widths of one model; everything else about it is fixed.

    Attributes:
        target: number of parameters.
        arguments: of the model, besides widths.
        widths: `d_model` and the widths of `_IN_PROPORTION`, whose ratios the search keeps.
    """

    name: str
    target: int
    vocab_size: int
    visual_dim: int
    arguments: Mapping[str, Any]
    widths: Mapping[str, int]

    def candidate(self, d_model: int, **fixed_widths: int) -> _Candidate:
        """The model with a `d_model` and `fixed_widths`; its other widths are scaled with `d_model`."""
        factor = d_model / self.widths["d_model"]
        widths = {name: max(round(width * factor / _MULTIPLE), 1) * _MULTIPLE for name, width in self.widths.items()}
        widths |= {"d_model": d_model} | fixed_widths
        arguments = {**self.arguments, **widths}
        parameters = count_parameters(self.name, vocab_size=self.vocab_size, visual_dim=self.visual_dim, **arguments)
        return _Candidate(widths, parameters)

    def error(self, candidate: _Candidate) -> float:
        """Distance from the target, as a share of it."""
        return abs(candidate.parameters - self.target) / self.target

    def nearest(self, step: int) -> _Candidate:
        """The candidate nearest to the target whose `d_model` is a multiple of `step`, after adjusting its `d_ff`."""
        low = 0
        high = max(self.widths["d_model"] // step, 1)
        above = self.candidate(high * step)
        while above.parameters < self.target and high * step < _WIDEST:
            low = high
            high = 2 * high
            above = self.candidate(high * step)
        below = self.candidate(low * step) if low else above
        while high - low > 1:
            middle = (low + high) // 2
            candidate = self.candidate(middle * step)
            if candidate.parameters < self.target:
                low = middle
                below = candidate
            else:
                high = middle
                above = candidate
        best = min(above, below if low else above, key=self.error)
        return self.adjusted(best, "d_ff") if "d_ff" in best.widths else best

    def adjusted(self, candidate: _Candidate, name: str) -> _Candidate:
        """The candidate nearest to the target if only the width `name` changes; parameters are linear in it."""
        d_model = candidate.widths["d_model"]
        width = candidate.widths.get(name, d_model)
        slope = self.candidate(d_model, **{name: width + _MULTIPLE}).parameters - candidate.parameters
        steps = round((self.target - candidate.parameters) / slope) if slope else 0
        changed = self.candidate(d_model, **{name: max(width + steps * _MULTIPLE, _MULTIPLE)})
        return min(candidate, changed, key=self.error)


class _SkipNormalInit(TorchFunctionMode):
    """Skips normal initialisation: for it, torch imports its compiler on the meta device, which takes seconds."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run a function of torch; return the tensor unchanged if it would fill it with normal random numbers."""
        kwargs = kwargs or {}
        if func in {nn.init.normal_, Tensor.normal_}:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def count_parameters(name: str, *, vocab_size: int, visual_dim: int, **arguments: Any) -> int:
    """The number of a model's parameters, tied ones once; of a model with a backbone, without the backbone's."""
    name, of_card = _captioner(name)
    arguments = {**of_card, **arguments}
    key = repr((name, vocab_size, visual_dim, sorted(arguments.items())))
    card = model_card(name)
    if key not in _counted or _counted[key][0] is not card:
        with torch.device("meta"), _SkipNormalInit():
            model = create_model(name, vocab_size=vocab_size, visual_dim=visual_dim, **arguments)
        captioner = model.body if isinstance(model, HasBackbone) else model
        _counted[key] = card, sum(parameter.numel() for parameter in captioner.parameters())
    return _counted[key][1]


def match_width(name: str, parameters: int, *, vocab_size: int, visual_dim: int, **arguments: Any) -> dict[str, int]:
    """`d_model`, and the other widths of a model, with which it has nearly `parameters` parameters.

    Layers, heads and lengths do not change. `d_model` is a multiple of the number of heads where they share it, and of
    8 if that comes within `TOLERANCE`. Other widths keep their ratio to it, except that `d_ff` is adjusted to come
    nearer to the target; where no `d_model` comes within the tolerance, the width of words or of attention is, too.

    Args:
        parameters: the target; see `count_parameters`.
        arguments: further arguments of the model; widths among them only set the ratios.

    Raises:
        ZooError: unknown name, a model without `d_model`, or no widths within the tolerance.
    """
    captioner, of_card = _captioner(name)
    defaults = default_arguments(captioner) | of_card
    defaults |= {key: value for key, value in arguments.items() if key in defaults}
    widths = {key: defaults[key] for key in ("d_model", *_IN_PROPORTION) if defaults.get(key)}
    if "d_model" not in widths:
        raise ZooError(
            f"{name} has no argument d_model, so its width cannot be matched to {parameters:,} parameters",
            "leave it out of --models, or choose a preset without parameters",
        )
    search = _Search(name, parameters, vocab_size, visual_dim, arguments, widths)
    candidates = []
    n_heads = defaults.get("n_heads") or 1
    # Steps of `d_model`, from coarse to fine; even, since tables of sines and halved embeddings need it.
    for step in sorted({math.lcm(n_heads, _MULTIPLE), math.lcm(n_heads, 2), 2}, reverse=True):
        with suppress(ZooError):  # a step of 2 fails where d_model must be a multiple of n_heads
            candidates.append(search.nearest(step))
            if search.error(candidates[-1]) <= TOLERANCE:
                return dict(candidates[-1].widths)
    adjustable = [width for width in _IN_PROPORTION if width in defaults]
    candidates += [search.adjusted(candidate, width) for candidate in candidates for width in adjustable]
    best = min(candidates, key=search.error)
    if search.error(best) <= TOLERANCE:
        return dict(best.widths)
    raise ZooError(
        f"{name} cannot have {parameters:,} parameters within {TOLERANCE:.0%}: the nearest is {best.parameters:,} "
        f"(d_model {best.widths['d_model']})",
        "choose another target with --set parameters=N, or leave the model out of --models",
    )


def _captioner(name: str) -> tuple[str, dict[str, Any]]:
    """The model itself, or the body of a model with a backbone, and the arguments that the model's card sets for it.

    Backbone parameters are not counted, since those of the run's backbone, for models on features, are not either.
    """
    card = model_card(name)
    if not (card.has_backbone and "body" in card.arguments):
        return name, {}
    body = str(card.arguments["body"])
    accepted = default_arguments(body)
    return body, {key: value for key, value in card.arguments.items() if key in accepted}
