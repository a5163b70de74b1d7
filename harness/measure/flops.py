"""Multiply-accumulates of a captioner, counted by fvcore on traces of the code that really runs.

One multiply-accumulate (MAC) is one of fvcore's "flops"; as fvcore counts them, normalisation layers add five an
element, and element-wise work is not counted but listed by operator in `uncounted`. The count depends on the
architecture, the visual input's shape, the caption's length and the beam's width alone: one image, evaluation mode, no
early end of a caption.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from harness.errors import BenchError
from harness.measure.evaluating import evaluating
from harness.measure.flop_handlers import HANDLERS, MOVES
from results.records import Quantity
from zoo.captioner import Captioner, DecodingState, Memory, Visual

with warnings.catch_warnings():
    # The package scripts an unrelated loss when it is imported, which recent torch calls deprecated.
    warnings.simplefilter("ignore", FutureWarning)
    from fvcore.nn import FlopCountAnalysis


@dataclass(frozen=True, slots=True)
class PartCount:
    """One traced part: its multiply-accumulates, the same by operator, and the operators not counted (occurrences)."""

    macs: int
    by_operator: dict[str, int]
    uncounted: dict[str, int]


@dataclass(frozen=True, slots=True)
class FlopCounts:
    """What one image costs.

    Attributes:
        parameters: elements of all distinct parameters, frozen ones included.
        encoder: `encode`, once an image.
        start: `start`, once an image (cross-attention keys and values, for instance).
        step: one `step` of one row, at the last position of a caption of `caption_length` tokens.
        greedy: a whole caption: encoder, start, and `caption_length` steps of one row.
        beam: the same with `beam_size` rows after the first step; equal to `greedy` at width 1.
        teacher_forced: one pass of encoder and decoder over `caption_length` tokens, as in training.
    """

    parameters: int
    caption_length: int
    beam_size: int
    encoder: PartCount
    start: PartCount
    step: PartCount
    greedy: PartCount
    beam: PartCount
    teacher_forced: PartCount

    @property
    def uncounted(self) -> dict[str, int]:
        """Operators of a whole beam-searched caption that are not counted, by occurrences, most frequent first."""
        return self.beam.uncounted

    def quantities(self) -> dict[str, Quantity]:
        """The counts as costs by name: `parameters` and, in GMAC, `gmac_encoder`, `gmac_step`, `gmac_beam` ..."""
        parts = {f"gmac_{name}": part.macs / 1e9 for name, part in self._parts().items()}
        return {
            "parameters": Quantity(float(self.parameters)),
            **{name: Quantity(value, unit="GMAC") for name, value in parts.items()},
        }

    def operators(self) -> dict[str, Any]:
        """By part: MACs by operator and operators not counted; JSON-able."""
        return {name: asdict(part) for name, part in self._parts().items()}

    def _parts(self) -> dict[str, PartCount]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if isinstance(value, PartCount)}


def count_flops(model: Captioner, visual: Visual, *, caption_length: int = 20, beam_size: int = 1) -> FlopCounts:
    """Count parameters and multiply-accumulates of captioning one image.

    Args:
        model: left as it was found, training flags included.
        visual: one image (batch 1) of the shape to count for; moved to the model's device and precision.
        caption_length: tokens generated, the end token included; as many are fed, the begin token included.
        beam_size: rows decoded after the first step in `beam`.

    Raises:
        BenchError: the caption is longer than the model allows, or the batch is not one image.
    """
    if visual.batch_size != 1:
        raise BenchError(f"multiply-accumulates are counted for one image, not for a batch of {visual.batch_size}")
    if not 1 <= caption_length <= model.max_len:
        raise BenchError(
            f"a caption of {caption_length} tokens is outside the model's 1 to {model.max_len}",
            hint=f"try --caption-length {model.max_len}",
        )
    weight = next(model.parameters())
    visual = visual.to(weight.device, weight.dtype)
    # Token 1 at every position: what a token is changes no count.
    tokens = torch.ones(1, caption_length, dtype=torch.long, device=weight.device)

    def caption(width: int) -> PartCount:
        return _trace(model, lambda seen: _caption(model, seen, tokens, width), visual)

    with torch.no_grad(), evaluating(model), _unfused():
        memory = model.encode(visual)
        state = model.start(memory)
        for position in range(caption_length - 1):
            _, state = model.step(tokens[:, position], state)
        greedy = caption(1)
        return FlopCounts(
            parameters=sum(parameter.numel() for parameter in model.parameters()),
            caption_length=caption_length,
            beam_size=beam_size,
            encoder=_trace(model, model.encode, visual),
            start=_trace(model, model.start, memory),
            step=_trace(model, lambda last: model.step(tokens[:, -1], last), state),
            greedy=greedy,
            beam=caption(beam_size) if beam_size > 1 else greedy,
            teacher_forced=_trace(model, lambda seen: model(seen, tokens), visual),
        )


def _caption(model: Captioner, visual: Visual, tokens: Tensor, width: int) -> tuple[list[Tensor], DecodingState]:
    """Decode as a beam search does, without choosing: the first step has one row an image, the others `width`."""
    state = model.start(model.encode(visual))
    every_logits = []
    for position in range(tokens.shape[1]):
        if position == 1 and width > 1:
            state = state.expand(width)
        logits, state = model.step(tokens[:, position].expand(1 if position == 0 else width), state)
        every_logits.append(logits)
    return every_logits, state


class _Traced(nn.Module):
    """What fvcore traces: a module with the model inside it (for its parameters), fed with tensors alone."""

    def __init__(self, model: Captioner, call: Callable[[Any], object], argument: Visual | Memory | DecodingState):
        super().__init__()
        self.model = model
        self._call = call
        self._argument = argument

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_tensors(self._call(_rebuild(self._argument, tensors))))


def _trace(model: Captioner, call: Callable[[Any], object], argument: Visual | Memory | DecodingState) -> PartCount:
    """Count `call(argument)`; every tensor that it gives is an output of the trace, so that nothing is pruned."""
    traced = _Traced(model, call, argument)
    traced.training = False
    analysis = FlopCountAnalysis(traced, tuple(_tensors(argument)))
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    analysis.set_op_handle(**HANDLERS, **dict.fromkeys(MOVES))
    by_operator = {name: int(macs) for name, macs in analysis.by_operator().most_common() if macs}
    uncounted = {name.removeprefix("aten::"): count for name, count in analysis.unsupported_ops().most_common()}
    return PartCount(sum(by_operator.values()), by_operator, uncounted)


def _tensors(value: object) -> Iterator[Tensor]:
    """Every tensor inside dataclasses, mappings and sequences, in a fixed order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (Visual, Memory, DecodingState)):
        for part in fields(value):
            yield from _tensors(getattr(value, part.name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors(item)
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _tensors(item)


def _rebuild(template: Visual | Memory | DecodingState, tensors: tuple[Tensor, ...]) -> Visual | Memory | DecodingState:
    """The template with its tensors, in the order of `_tensors`, replaced by traced ones."""
    remaining = iter(tensors)
    parts: dict[str, Any] = {}
    for part in fields(template):
        value = getattr(template, part.name)
        if isinstance(value, dict):
            parts[part.name] = {name: next(remaining) for name in value}
        elif value is not None:
            parts[part.name] = next(remaining)
    return replace(template, **parts)


@contextmanager
def _unfused() -> Iterator[None]:
    """Without the fused transformer paths, which would hide a layer's operators from a trace."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)
