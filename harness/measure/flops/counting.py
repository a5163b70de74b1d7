"""Multiply-accumulates of a captioner by part, and their names as stored costs.

One multiply-accumulate (MAC) is one of fvcore's "flops"; as in fvcore, normalisation layers add five per element,
and element-wise work is not counted but listed by operator, with an estimate of its share. The count depends only on
the architecture, the visual input's shape, the caption's length and the beam width: one image, evaluation mode (except
`training`), no early end of a caption.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harness.measure.flops.tracing import PartCount, trace, unfused
from harness.measure.model_modes import eval_mode, preserve_state
from harness.utils.errors import BenchError
from harness.utils.precision import never_compiled
from results.records import Quantity
from zoo.captioner import Captioner, DecodingState, Memory, Visual

PARTS = ("encoder", "start", "step", "greedy", "beam", "teacher_forced", "training")
COSTS = tuple(f"gmac_{part}" for part in PARTS)
"""Names of the stored costs, in GMAC."""


@dataclass(frozen=True, slots=True)
class FlopCounts:
    """Cost of one image.

    Attributes:
        parameters: elements of all distinct parameters, frozen ones included.
        encoder: `encode`, once an image.
        start: `start`, once an image (cross-attention keys and values, for instance).
        step: one `step` of one row, at position `step_position` of a caption, the first being 1.
        greedy: a whole caption: encoder, start, and `caption_length` steps of one row.
        beam: the same with `beam_size` rows after the first step; equal to `greedy` at width 1.
        teacher_forced: one pass of encoder and decoder over `caption_length` tokens, without shortcuts of steps.
        training: the same in training mode, forward and backward, as `count_training_step` counts it.
    """

    parameters: int
    caption_length: int
    beam_size: int
    step_position: int
    encoder: PartCount
    start: PartCount
    step: PartCount
    greedy: PartCount
    beam: PartCount
    teacher_forced: PartCount
    training: PartCount

    @property
    def uncounted(self) -> dict[str, int]:
        """Operators of a whole beam-searched caption that are not counted, by occurrences, most frequent first."""
        return self.beam.uncounted

    def quantities(self) -> dict[str, Quantity]:
        """The counts as costs by name: `parameters`, and those of `COSTS`."""
        parts = zip(COSTS, self._parts().values(), strict=True)
        return {
            "parameters": Quantity(float(self.parameters)),
            **{name: Quantity(part.macs / 1e9, unit="GMAC") for name, part in parts},
        }

    def operators(self) -> dict[str, Any]:
        """By part: MACs by operator, and operators not counted with their estimated operations; JSON-able."""
        return {name: asdict(part) for name, part in self._parts().items()}

    def _parts(self) -> dict[str, PartCount]:
        return {part: getattr(self, part) for part in PARTS}


def count_flops(
    model: Captioner,
    visual: Visual,
    *,
    caption_length: int = 20,
    beam_size: int = 1,
    step_position: int | None = None,
) -> FlopCounts:
    """Count parameters and multiply-accumulates of captioning one image.

    Args:
        model: left as it was found, training flags included.
        visual: one image (batch 1) of the shape to count for; moved to the model's device and precision.
        caption_length: tokens generated, the end token included; as many are fed, the begin token included.
        beam_size: rows decoded after the first step in `beam`.
        step_position: of the one step that is counted by itself, from 1; the last of the caption unless given.

    Raises:
        BenchError: the caption or the position is longer than the model allows, or the batch is not one image.
    """
    position = caption_length if step_position is None else step_position
    _check_length(model, caption_length, "a caption of", "--caption-length")
    _check_length(model, position, "a step at position", "--position")
    with _counting(model, visual) as seen:
        memory = model.encode(seen)
        greedy = _trace_caption(model, seen, caption_length, 1)
        traced = {
            "encoder": trace(model, model.encode, seen),
            "start": trace(model, model.start, memory),
            "step": _trace_step(model, memory, position),
            "greedy": greedy,
            "beam": _trace_caption(model, seen, caption_length, beam_size) if beam_size > 1 else greedy,
            "teacher_forced": trace(model, lambda fed: model(fed, _tokens(model, caption_length)), seen),
        }
    return FlopCounts(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        caption_length=caption_length,
        beam_size=beam_size,
        step_position=position,
        training=count_training_step(model, seen, _tokens(model, caption_length)),
        **traced,
    )


def count_encoder(model: Captioner, visual: Visual) -> PartCount:
    """`encode` of one image."""
    with _counting(model, visual) as seen:
        return trace(model, model.encode, seen)


def count_caption(model: Captioner, visual: Visual, length: int, beam_size: int = 1) -> PartCount:
    """A whole caption of one image, from the encoder on; no beam ends early."""
    with _counting(model, visual) as seen:
        return _trace_caption(model, seen, length, beam_size)


def _trace_step(model: Captioner, memory: Memory, position: int) -> PartCount:
    state, token = model.start(memory), _tokens(model, 1)[0]
    for _ in range(position - 1):
        _, state = model.step(token, state)
    return trace(model, lambda last: model.step(token, last), state)


def _trace_caption(model: Captioner, visual: Visual, length: int, beam_size: int) -> PartCount:
    return trace(model, lambda traced: _caption(model, traced, length, beam_size), visual)


@contextmanager
def _counting(model: Captioner, visual: Visual) -> Iterator[Visual]:
    """Evaluation mode without gradients and fused paths, after a warm-up pass that fills the model's caches."""
    weight = next(model.parameters())
    seen = visual.to(weight.device, weight.dtype)
    with torch.no_grad(), eval_mode(model), unfused():
        model.encode(seen)
        yield seen


def _tokens(model: Captioner, length: int) -> Tensor:
    """Token 1 at every position, (1, T): the count does not depend on the tokens."""
    return torch.ones(1, length, dtype=torch.long, device=next(model.parameters()).device)


def _check_length(model: Captioner, length: int, what: str, option: str) -> None:
    if not 1 <= length <= model.max_len:
        raise BenchError(
            f"{what} {length} tokens is outside the model's 1 to {model.max_len}", hint=f"try {option} {model.max_len}"
        )


def _caption(model: Captioner, visual: Visual, length: int, width: int) -> tuple[list[Tensor], DecodingState]:
    """Decode as a beam search does, without choosing: the first step has one row an image, the others `width`."""
    state = model.start(model.encode(visual))
    token = _tokens(model, 1)[0]
    every_logits = []
    for position in range(length):
        if position == 1 and width > 1:
            state = state.expand(width)
        logits, state = model.step(token.expand(1 if position == 0 else width), state)
        every_logits.append(logits)
    return every_logits, state


def count_dispatched() -> FlopCounterMode:
    """Torch's counter as a context, extended by products that it omits; it counts two flops a multiply-accumulate."""
    of_vectors = {torch.ops.aten.mv: _matrix_vector, torch.ops.aten.addmv: _added_matrix_vector}
    return FlopCounterMode(display=False, custom_mapping=of_vectors)


def count_training_step(model: Captioner, visual: Visual, tokens: Tensor) -> PartCount:
    """Count teacher forcing in training mode, and the gradients of all trainable parameters.

    A trace has no backward pass, so torch's own counter counts the dispatched kernels: products of matrices,
    convolutions and attention, without norms (which fvcore counts with five operations per element). Dropout is on,
    which rules out some shortcuts of evaluation. Attention is counted as products of matrices on every device, since
    fused kernels differ between devices and compute some products twice. The loss and the optimiser are element-wise
    and not counted; neither is the gradient of the input.

    Args:
        model: left as it was found: gradients, training flags, buffers, random generators.
        tokens: (1, T), the input of the decoder.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.enable_grad(), preserve_state(model), sdpa_kernel(SDPBackend.MATH), count_dispatched() as counter:
        never_compiled(type(counter.mode).__torch_dispatch__)
        model.train()
        logits = model(visual, tokens)
        if parameters:
            torch.autograd.grad(logits.sum(), parameters, allow_unused=True)
    flops = sorted(counter.get_flop_counts()["Global"].items(), key=lambda entry: -entry[1])
    by_operator = {str(operator).removeprefix("aten."): count // 2 for operator, count in flops if count}
    return PartCount(sum(by_operator.values()), by_operator, {}, {})


def _matrix_vector(matrix: list[int], vector: list[int], **_: object) -> int:  # noqa: ARG001 (the counter's signature)
    """Flops of aten.mv, which attention scored by one vector needs."""
    return 2 * matrix[0] * matrix[1]


def _added_matrix_vector(added: list[int], matrix: list[int], vector: list[int], **shapes: object) -> int:  # noqa: ARG001
    """Flops of aten.addmv, where the sum is not counted."""
    return _matrix_vector(matrix, vector, **shapes)
