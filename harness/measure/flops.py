"""Count multiply-accumulates of captioners, by part, and of backbones.

One multiply-accumulate (MAC) is one of fvcore's "flops"; as in fvcore, normalisation layers add five per element, and
element-wise work is not counted but listed by operator, with an estimate of its share. The count depends only on the
architecture, the visual input's shape, the caption's length and the beam width: one image, evaluation mode (except
`training`), and captions of full length.

fvcore counts operators in a trace. The handlers here are for operators that it does not count, or only for some shapes;
like fvcore's own, they get the graph values of inputs and outputs. Every element of a matrix product costs one MAC per
element of the contracted dimension. Attention is counted densely, including causal or masked parts.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harness.measure.environment import package_version
from harness.measure.model_modes import eval_mode, preserve_state
from harness.utils.atomic import write_text
from harness.utils.errors import BenchError
from harness.utils.hashing import digest
from harness.utils.json_io import read_json
from harness.utils.precision import never_compiled
from results.records import Quantity
from zoo.captioner import Captioner, DecodingState, Memory, Visual
from zoo.models.end_to_end import grid_tokens

Handler = Callable[[Sequence[Any], Sequence[Any]], int]


def _shape(value: Any) -> list[int]:
    if not value.isCompleteTensor():
        raise ValueError(f"no shape was traced for {value.debugName()}")
    shape: list[int] = value.type().sizes()
    return shape


def _list_shapes(value: Any) -> list[list[int]]:
    return [_shape(item) for item in value.node().inputs()]


def product_of(left: int) -> Handler:
    """A matrix product whose left factor is input `left` and contracts its last dimension (matmul, addmm, mv ...)."""

    def handler(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
        return math.prod(_shape(outputs[0])) * _shape(inputs[left])[-1]

    return handler


def addbmm(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Batched products (b, n, k) x (b, k, m) summed over b."""
    batch, _, contracted = _shape(inputs[1])
    return math.prod(_shape(outputs[0])) * batch * contracted


def tensordot(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Any contraction of two tensors: |a| |b| = |out| K^2 gives the contracted size K."""
    output = math.prod(_shape(outputs[0]))
    factors = math.prod(_shape(inputs[0])) * math.prod(_shape(inputs[1]))
    return output * math.isqrt(factors // output) if output else 0


def attention(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """Fused attention, queries (..., T, d), keys (..., S, d), values (..., S, e): T S (d + e) a head."""
    *leading, queries, value_dim = _shape(outputs[0])
    keys, key_dim = _shape(inputs[1])[-2:]
    return math.prod(leading) * queries * keys * (key_dim + value_dim)


def recurrent(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:  # noqa: ARG001 (fvcore's signature)
    """Fused LSTM, GRU and RNN, padded or packed: every row of the input meets every weight matrix once."""
    weights = next(value for value in reversed(inputs) if str(value.type()) == "List[Tensor]")
    rows = math.prod(_shape(inputs[0])[:-1])
    return rows * sum(math.prod(shape) for shape in _list_shapes(weights) if len(shape) == 2)


def recurrent_cell(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:  # noqa: ARG001 (fvcore's signature)
    """One step of an LSTM, GRU or RNN cell: inputs are x, the state, the input weights and the state's weights."""
    return math.prod(_shape(inputs[0])[:-1]) * sum(math.prod(_shape(weights)) for weights in inputs[2:4])


def einsum(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:  # noqa: ARG001 (fvcore's signature)
    """Einstein summation: the products into which torch decomposes it, by torch's own counter."""
    operands = [torch.empty(shape, device="meta") for shape in _list_shapes(inputs[1])]
    with FlopCounterMode(display=False) as counter:
        torch.einsum(inputs[0].toIValue(), *operands)
    return int(counter.get_total_flops()) // 2


def convolution(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """A convolution with named padding ("valid", "same"): the number of outputs times the size of a filter."""
    return math.prod(_shape(outputs[0])) * math.prod(_shape(inputs[1])[1:])


def roi_align(inputs: Sequence[Any], outputs: Sequence[Any]) -> int:
    """RoIAlign of maps (B, C, H, W): four multiply-accumulates per sample, for bilinear interpolation.

    If the number of samples per bin depends on the box (a ratio of -1), the maximum is counted, that of a box as large
    as the map: one per cell.
    """
    *_, height, width = _shape(inputs[0])
    bins_high, bins_wide = _shape(outputs[0])[-2:]
    ratio = inputs[5].toIValue()
    samples = ratio * ratio if ratio > 0 else math.ceil(height / bins_high) * math.ceil(width / bins_wide)
    return 4 * samples * math.prod(_shape(outputs[0]))


_OF_ATEN: dict[str, Handler] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot", "vdot", "inner"), product_of(0)),
    **dict.fromkeys(("addmm", "addmm_", "addmv", "baddbmm", "baddbmm_"), product_of(1)),
    "addbmm": addbmm,
    "tensordot": tensordot,
    "einsum": einsum,
    "scaled_dot_product_attention": attention,
    "_convolution_mode": convolution,
    **dict.fromkeys(("lstm", "gru", "rnn_tanh", "rnn_relu"), recurrent),
    **dict.fromkeys(("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"), recurrent_cell),
}
HANDLERS = {f"aten::{name}": handler for name, handler in _OF_ATEN.items()} | {"torchvision::roi_align": roi_align}

_MOVED = (
    "mT",
    "alias",
    "clone",
    "embedding",
    "index_copy",
    "index_put",
    "index_select",
    "lift_fresh",
    "movedim",
    "numpy_T",
)
_SHAPED = ("broadcast_tensors", "expand_as", "pad", "repeat", "repeat_interleave", "unflatten", "view_as")
_CUT = ("unfold", "unsafe_chunk", "unsafe_split")
_FILLED = ("eye", "fill_", "index_fill", "masked_fill_", "new_ones", "ones_like", "scatter", "tril", "triu", "zero_")
_COMPARED = ("all", "any", "le", "lt", "ne", "where")
_COMBINED = ("__or__", "bitwise_and", "bitwise_or", "logical_and", "logical_not", "logical_or")
MOVES = tuple(f"aten::{name}" for names in (_MOVED, _SHAPED, _CUT, _FILLED, _COMPARED, _COMBINED) for name in names)
"""Operators that only move data, or create and compare integers and masks; like those that fvcore ignores."""

PASSES: dict[str, int] = {
    **dict.fromkeys(("abs", "neg", "ceil", "cos", "sin", "exp", "log", "pow", "sqrt", "rsqrt", "square"), 1),
    **dict.fromkeys(("add", "add_", "sub", "sub_", "rsub", "mul", "mul_", "div", "div_", "addcmul", "addcdiv"), 1),
    **dict.fromkeys(("clamp", "clamp_", "clamp_min", "max", "maximum", "min", "minimum"), 1),
    **dict.fromkeys(("relu", "relu_", "leaky_relu", "celu", "celu_", "gelu", "glu"), 1),
    **dict.fromkeys(("sigmoid", "sigmoid_", "silu", "tanh", "tanh_"), 1),
    **dict.fromkeys(("cumsum", "mean", "prod", "sum", "scatter_add", "scatter_reduce", "avg_pool2d", "max_pool2d"), 1),
    "lerp": 3,
    **dict.fromkeys(("std", "std_mean"), 3),  # mean, deviations, their squares' mean
    "softmax": 5,  # maximum, difference, exponential, sum, quotient: as many as fvcore counts for a norm
    "log_softmax": 5,
    "upsample_bicubic2d": 16,
}
"""Element-wise operators and reductions, which are not counted as MACs, and their number of passes over elements.

Their work is estimated as one operation per element and pass, of the larger of input and output. An addition, an
exponential and a comparison count the same.
"""

_TIMES, _OPERATIONS = "times ", "operations "


@dataclass(frozen=True, slots=True)
class PartCount:
    """One part of a model's work.

    Attributes:
        by_operator: multiply-accumulates by operator, most first.
        uncounted: occurrences of operators that are not counted.
        element_wise: estimated operations of those among them that are in `PASSES`.
    """

    macs: int
    by_operator: dict[str, int]
    uncounted: dict[str, int]
    element_wise: dict[str, int]

    @property
    def uncounted_share(self) -> float:
        """The estimated share of the work, in [0, 1], that is not counted as multiply-accumulates."""
        left_out = sum(self.element_wise.values())
        return left_out / (left_out + self.macs) if left_out else 0.0


def trace(inside: nn.Module, call: Callable[[Any], object], argument: Visual | Memory | DecodingState) -> PartCount:
    """Count `call(argument)`, where the module `inside` has the parameters."""
    with warnings.catch_warnings():
        # fvcore scripts an unrelated loss on import, which recent torch warns is deprecated.
        warnings.simplefilter("ignore", FutureWarning)
        from fvcore.nn import FlopCountAnalysis  # here: not all that imports this module counts

    traced = _Traced(inside, call, argument)
    traced.training = False
    analysis = FlopCountAnalysis(traced, tuple(_tensors(argument)))
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    element_wise = {f"aten::{name}": _element_wise_handler(name, passes) for name, passes in PASSES.items()}
    analysis.set_op_handle(**HANDLERS, **element_wise, **dict.fromkeys(MOVES))
    counted = {name: int(number) for name, number in analysis.by_operator().most_common() if number}
    times, operations = (
        {name.removeprefix(kind): number for name, number in counted.items() if name.startswith(kind)}
        for kind in (_TIMES, _OPERATIONS)
    )
    macs = {name: number for name, number in counted.items() if not name.startswith((_TIMES, _OPERATIONS))}
    unknown = {name.removeprefix("aten::"): count for name, count in analysis.unsupported_ops().items()}
    uncounted = dict(sorted({**times, **unknown}.items(), key=lambda entry: -entry[1]))
    return PartCount(sum(macs.values()), macs, uncounted, operations)


@contextmanager
def unfused() -> Iterator[None]:
    """Disable torch's fused transformer paths, which would hide a layer's operators from a trace."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


class _Traced(nn.Module):
    """The module that fvcore traces, with the model as a submodule, and tensors as its only inputs and outputs.

    All tensors of the result are outputs of the trace, so that nothing is pruned.
    """

    def __init__(self, inside: nn.Module, call: Callable[[Any], object], argument: Visual | Memory | DecodingState):
        super().__init__()
        self.inside = inside
        self._call = call
        self._argument = argument

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        return tuple(_tensors(self._call(_rebuild(self._argument, tensors))))


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


def _element_wise_handler(name: str, passes: int) -> Callable[[Sequence[Any], Sequence[Any]], Counter[str]]:
    """A handler that counts occurrences and estimated operations of an operator, under names with these prefixes."""

    def handler(inputs: Sequence[Any], outputs: Sequence[Any]) -> Counter[str]:
        elements = max(_elements(inputs[0]), _elements(outputs[0]))
        return Counter({f"{_TIMES}{name}": 1, f"{_OPERATIONS}{name}": passes * elements})

    return handler


def _elements(value: Any) -> int:
    return math.prod(value.type().sizes()) if value.isCompleteTensor() else 0


PARTS = ("encoder", "start", "step", "greedy", "beam", "teacher_forced", "training")
COSTS = tuple(f"gmac_{part}" for part in PARTS)


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

    def quantities(self) -> dict[str, Quantity]:
        """The counts as costs by name: `parameters`, and those of `COSTS`."""
        parts = {f"gmac_{name}": Quantity(part.macs / 1e9, unit="GMAC") for name, part in self._parts().items()}
        return {"parameters": Quantity(float(self.parameters)), **parts}

    def operators(self) -> dict[str, Any]:
        """By part: MACs by operator, and operators not counted with their estimated operations; JSON-able."""
        return {name: asdict(part) for name, part in self._parts().items()}

    def _parts(self) -> dict[str, PartCount]:
        return {part: getattr(self, part) for part in PARTS}


def count_flops(
    model: Captioner, visual: Visual, caption_length: int = 20, beam_size: int = 1, step_position: int | None = None
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
    with _counting(model, visual) as moved:
        parts = _CaptionParts(model, moved)
        step = parts.step(position)
        greedy = parts.caption(caption_length)
        beam = parts.caption(caption_length, beam_size)
        teacher_forced = trace(model, lambda fed: model(fed, _tokens(model, caption_length)), moved)
    return FlopCounts(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        caption_length=caption_length,
        beam_size=beam_size,
        step_position=position,
        encoder=parts.encoder,
        start=parts.start,
        step=step,
        greedy=greedy,
        beam=beam,
        teacher_forced=teacher_forced,
        training=count_training_step(model, moved, _tokens(model, caption_length)),
    )


def count_encoder(model: Captioner, visual: Visual) -> PartCount:
    """Count `encode` of one image."""
    with _counting(model, visual) as moved:
        return trace(model, model.encode, moved)


def count_caption(model: Captioner, visual: Visual, length: int, beam_size: int = 1) -> PartCount:
    """Count a caption of full length for one image, including the encoder."""
    with _counting(model, visual) as moved:
        return _CaptionParts(model, moved).caption(length, beam_size)


class _CaptionParts:
    """Counts captions of one image as sums of their parts: the encoder, the start, and a step for each position.

    For long captions, only a few steps are traced. From the second position on, a step's count is usually a polynomial
    of at most second degree in its position: attention to earlier words is linear, dynamic expansion quadratic. Three
    steps determine the polynomial, and the last step checks it; if it does not fit, all steps are traced.
    """

    def __init__(self, model: Captioner, visual: Visual) -> None:
        memory = model.encode(visual)
        self.encoder = trace(model, model.encode, visual)
        self.start = trace(model, model.start, memory)
        self._model = model
        self._token = _tokens(model, 1)[0]
        self._states = [model.start(memory)]  # before each position
        self._steps: dict[tuple[int, int], PartCount] = {}

    def caption(self, length: int, width: int = 1) -> PartCount:
        """A beam search of full length: the first step has one row, the others `width`."""
        later = range(2, length + 1)
        first_three = [self.step(position, width) for position in later[:3]]
        if length > 5:
            steps = [_extrapolate(first_three, position - 2) for position in later]
            if steps[-1] == self.step(length, width):
                return _add([self.encoder, self.start, self.step(1), *steps])
        return _add([self.encoder, self.start, self.step(1), *(self.step(position, width) for position in later)])

    def step(self, position: int, width: int = 1) -> PartCount:
        """The step at a position, counted from 1, with `width` rows."""
        while len(self._states) < position:
            self._states.append(self._model.step(self._token, self._states[-1])[1])
        if (position, width) not in self._steps:
            state = self._states[position - 1]
            tokens = self._token.expand(width)
            self._steps[position, width] = trace(
                self._model, lambda last: self._model.step(tokens, last), state.expand(width) if width > 1 else state
            )
        return self._steps[position, width]


def _add(parts: Sequence[PartCount], times: Sequence[int] | None = None) -> PartCount:
    """The sum of all parts, each multiplied by its factor in `times`; operators with most MACs first."""

    def total(kind: str) -> dict[str, int]:
        sums: Counter[str] = Counter()
        for part, factor in zip(parts, times or [1] * len(parts), strict=True):
            for name, count in getattr(part, kind).items():
                sums[name] += factor * count
        return {name: count for name, count in sums.most_common() if count}

    by_operator = total("by_operator")
    return PartCount(sum(by_operator.values()), by_operator, total("uncounted"), total("element_wise"))


def _extrapolate(steps: Sequence[PartCount], ahead: int) -> PartCount:
    """The quadratic polynomial through three consecutive steps, `ahead` positions after the first of them."""
    quadratic = (ahead - 1) * (ahead - 2) // 2, -ahead * (ahead - 2), ahead * (ahead - 1) // 2
    return _add(steps, quadratic)


@contextmanager
def _counting(model: Captioner, visual: Visual) -> Iterator[Visual]:
    """Evaluation mode without gradients and fused paths, after a pass that fills the model's caches.

    Yields the image on the model's device, in its type.
    """
    weight = next(model.parameters())
    moved = visual.to(weight.device, weight.dtype)
    with torch.no_grad(), eval_mode(model), unfused():
        model.encode(moved)
        yield moved


def _tokens(model: Captioner, length: int) -> Tensor:
    """Token 1 at every position, (1, T), since counts do not depend on the tokens."""
    return torch.ones(1, length, dtype=torch.long, device=next(model.parameters()).device)


def _check_length(model: Captioner, length: int, subject: str, option: str) -> None:
    longest = model.max_len
    if not 1 <= length <= longest:
        raise BenchError(f"{subject} {length} tokens is outside the model's 1 to {longest}", f"try {option} {longest}")


def count_dispatched() -> FlopCounterMode:
    """Torch's counter, extended by products that it omits; it counts two flops per multiply-accumulate."""
    return FlopCounterMode(
        display=False, custom_mapping=dict.fromkeys((torch.ops.aten.mv, torch.ops.aten.addmv), _matrix_vector)
    )


def count_training_step(model: Captioner, visual: Visual, tokens: Tensor) -> PartCount:
    """Count teacher forcing in training mode, and the gradients of all trainable parameters.

    A trace has no backward pass, so torch's own counter counts the dispatched kernels: matrix products, convolutions
    and attention, without norms (which fvcore counts with five operations per element). Dropout is on, which rules out
    some shortcuts of evaluation. Attention is counted as matrix products on every device, since fused kernels differ
    between devices and compute some products twice. The loss, the optimiser and the gradient of the input are not
    counted.

    Args:
        model: its gradients, training flags, buffers and random generators are restored.
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


def _matrix_vector(*shapes: list[int], **_: object) -> int:
    """Flops of aten.mv and aten.addmv, which additive attention uses; the sum is not counted."""
    rows, columns = shapes[-2]
    return 2 * rows * columns


Counts = TypeVar("Counts", FlopCounts, PartCount)
_PACKAGES = ("torch", "fvcore", "timm", "transformers")


class CountCache:
    """Counts cached in a folder, for other seeds of a model and later runs.

    A file is named by a digest of everything that a count depends on: `made_by` of the caller, the model's modules and
    parameters, the shapes of the image, the caption's length, the beam width, the device, and versions of packages.
    Failures are not cached, and unreadable files are replaced.

    Args:
        made_by: what the model was created from.
    """

    def __init__(self, folder: Path, made_by: Mapping[str, Any]) -> None:
        self._folder = folder
        self._made_by = dict(made_by)

    def flops(self, model: Captioner, visual: Visual, *, caption_length: int, beam_size: int) -> FlopCounts:
        """As `count_flops`."""
        return self._cached(FlopCounts, count_flops, model, visual, caption_length, beam_size)

    def caption(self, model: Captioner, visual: Visual, length: int, beam_size: int) -> PartCount:
        """As `count_caption`."""
        return self._cached(PartCount, count_caption, model, visual, length, beam_size)

    def _cached(
        self,
        kind: type[Counts],
        count: Callable[..., Counts],
        model: Captioner,
        visual: Visual,
        length: int,
        beams: int,
    ) -> Counts:
        key = {
            "what": "flops" if kind is FlopCounts else "caption",
            "length": length,
            "beam_size": beams,
            "image": {name: [list(part.shape), str(part.dtype)] for name, part in visual.parts().items()},
            "modules": repr(model),
            "parameters": [
                [name, list(value.shape), str(value.dtype), str(value.device.type), value.requires_grad]
                for name, value in model.named_parameters()
            ],
            "made_by": self._made_by,
            "packages": {name: package_version(name) for name in _PACKAGES},
        }
        path = self._folder / f"{digest(key, 32)}.json"
        adapter = TypeAdapter(kind)
        try:
            return adapter.validate_python(read_json(path))
        except (BenchError, ValidationError):
            counts = count(model, visual, length, beams)
        write_text(path, adapter.dump_json(counts).decode())
        return counts


NO_VISION = "the network has no separate vision module"
NOT_TRAINED = "counted only for models that are trained here"


@dataclass(frozen=True, slots=True)
class GenerationCounts:
    """Multiply-accumulates for one image of a network with its own `generate`.

    `generate` cannot be traced, so torch's own counter counts matrix products, convolutions and attention. fvcore,
    which counts the zoo's models, also counts five operations per element of a norm.

    Attributes:
        vision: the vision module, once; None if the network has no separate one.
        prefill: everything else up to the first token: projection, prompt, and a text encoder if there is one.
        step: one token of one row, by default the last of a caption of `max_len` tokens.
        greedy: a whole caption with one beam.
        beam: a whole caption with the network's own beam search.
    """

    vision: int | None
    prefill: int
    step: int
    greedy: int
    beam: int

    def quantities(self) -> dict[str, Quantity]:
        """The costs `gmac_encoder`, `gmac_start`, `gmac_step`, `gmac_greedy` and `gmac_beam`; no passes of training."""
        encoder = Quantity(None, NO_VISION, "GMAC") if self.vision is None else _gmac(self.vision)
        parts = {"start": self.prefill, "step": self.step, "greedy": self.greedy, "beam": self.beam}
        counted = {f"gmac_{part}": _gmac(macs) for part, macs in parts.items()}
        untrained = dict.fromkeys(("gmac_teacher_forced", "gmac_training"), Quantity(None, NOT_TRAINED, "GMAC"))
        return {"gmac_encoder": encoder, **counted, **untrained}


def _gmac(macs: int) -> Quantity:
    return Quantity(macs / 1e9, unit="GMAC")


def count_generation(
    vision: nn.Module | None,
    generate: Callable[[int, int], None],
    *,
    beam_size: int,
    max_len: int,
    step_position: int | None = None,
) -> GenerationCounts:
    """Count captioning of one image.

    Args:
        vision: the network's vision module; None if there is none.
        generate: captions the image with exactly this number of tokens, and a beam size.
        step_position: position of the counted step, from 2 on, since the prefill computes the first token.
    """

    @cache
    def macs(length: int, width: int) -> tuple[int, int]:
        return _count(vision, lambda: generate(length, width))

    first, vision_macs = macs(1, 1)
    last = max(step_position or max_len, 2)
    step = macs(last, 1)[0] - macs(last - 1, 1)[0]
    greedy = macs(max_len, 1)[0]
    beam = macs(max_len, beam_size)[0]
    return GenerationCounts(None if vision is None else vision_macs, first - vision_macs, step, greedy, beam)


def _count(vision: nn.Module | None, work: Callable[[], None]) -> tuple[int, int]:
    """Multiply-accumulates of the work, and of the vision module within it.

    Attention is counted as matrix products: not every release of torch counts every fused kernel.
    """
    totals_before: list[int] = []
    vision_flops: list[int] = []
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter, ExitStack() as hooks:
        if vision is not None:
            now = counter.get_total_flops
            hooks.callback(vision.register_forward_pre_hook(lambda *_: totals_before.append(now())).remove)
            hooks.callback(
                vision.register_forward_hook(lambda *_: vision_flops.append(now() - totals_before.pop())).remove
            )
        work()
    return counter.get_total_flops() // 2, sum(vision_flops) // 2


@dataclass(frozen=True, slots=True)
class BackboneCount:
    """Cost of one image through a backbone to its last features, `tokens` x `channels`.

    It is not part of other counts when features are cached.
    """

    name: str
    image_size: int
    parameters: int
    tokens: int
    channels: int
    count: PartCount


def count_backbone(name: str, image_size: int | None = None) -> BackboneCount:
    """Count a timm model without its head, for square images of this side or its own; needs no weights.

    BenchError where timm has no such model, or it does not accept images of this size.
    """
    import timm  # which takes seconds

    if not timm.is_model(name):
        raise BenchError(f"unknown backbone {name!r}", "choose one of timm.list_models()")
    defaults: Any = timm.get_pretrained_cfg(name)
    side = image_size or int(defaults.input_size[-1])
    options: dict[str, Any] = {"img_size": side} if defaults.fixed_input_size else {}
    with torch.device("meta"):  # random weights of 195 million parameters would take longer than the count
        model = timm.create_model(name, pretrained=False, num_classes=0, **options)
    model.to_empty(device="cpu").eval().requires_grad_(False)
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.zero_()
    pixels = torch.zeros(1, 3, side, side)
    try:
        with torch.no_grad(), unfused():
            tokens = grid_tokens(model, pixels)
            count = trace(model, lambda visual: grid_tokens(model, visual.pixels), Visual(pixels=pixels))
    except (AssertionError, RuntimeError) as error:
        raise BenchError(
            f"backbone {name} does not accept images of {side} x {side}: {error}", "leave out --image-size"
        ) from error
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return BackboneCount(name, side, parameters, tokens.shape[1], tokens.shape[2], count)
