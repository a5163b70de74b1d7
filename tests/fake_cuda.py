"""A GPU of shapes and types alone, for machines without one: torch's fake tensors, with a backward pass.

It is there for what only tensors of "cuda" do, and no test on the processor or on torch's device "meta" can say:

- how many kernels a step and a search start under CUDA's autocast (`benchmarks/test_launches.py`);
- that optimisers move all parameters of a GPU with few kernels (`tests/harness/training/test_devices.py`).

It has no numbers: what the host reads is answered with no, or with a three.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.autograd.function import BackwardCFunction
from torch.utils._python_dispatch import TorchDispatchMode

from zoo import Visual

ANSWER = 3
M = TypeVar("M", bound=nn.Module)
# The first backward pass starts a thread for each device, after which torch refuses gradients in copies of the process:
# it comes before there is a fake one.
torch.zeros((), requires_grad=True).backward()
_FREE = {
    *("_reshape_alias", "_unsafe_view", "alias", "detach", "lift_fresh", "_local_scalar_dense", "prim::device"),
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"),
    *("is_same_size", "promote_types", "scalar_tensor"),
    *("profiler::_record_function_enter_new", "profiler::_record_function_exit"),
}
"""They start no kernel, though they are not marked as views."""


class Watch(TorchDispatchMode):
    """Counts the kernels that run within, and the numbers that the host reads of a GPU."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = self.reads = 0

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is torch.ops.prim.device.default:  # asked so often that the short way is worth it
            return args[0].fake_device
        kwargs, name = kwargs or {}, func._schema.name.removeprefix("aten::")
        here = bool(args) and isinstance(args[0], Tensor) and not args[0].is_cuda
        self.kernels += not (here or func.is_view or name in _FREE)
        if name == "_local_scalar_dense":
            self.reads += args[0].is_cuda
            return False if args[0].dtype == torch.bool else ANSWER
        return func(*args, **kwargs)


@contextmanager
def fake_cuda() -> Iterator[None]:
    """Within, tensors are fake, those of "cuda" have a GPU's autocast, and gradients are those of `backward`."""

    def as_list(tensor: Tensor) -> Any:
        answer = tensor[(0,) * tensor.dim()].item()  # one read, whatever its size
        for size in reversed(tensor.shape):
            answer = [answer] * size
        return answer

    def attend(  # fake tensors know the plain form alone, where a GPU has one kernel
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        **_: object,
    ) -> Tensor:
        parts, mask = [query, key, value], attn_mask
        if mask is not None and mask.dtype == torch.bool:
            mask = torch.zeros_like(mask, dtype=query.dtype).masked_fill_(~mask, -torch.inf)
        if torch.is_autocast_enabled("cuda"):
            half = torch.get_autocast_dtype("cuda")
            parts, mask = [part.to(half) for part in parts], None if mask is None else mask.to(half)
        elif mask is not None:
            assert mask.dtype == query.dtype, "a mask in another precision"
        if mask is not None:
            mask = mask.expand(*query.shape[:-1], key.shape[-2])
        learning = torch.is_grad_enabled() and any(part.requires_grad for part in (*parts, mask) if part is not None)
        found: Tensor = torch.ops.aten._scaled_dot_product_efficient_attention(
            *parts, mask, learning, dropout_p, is_causal, scale=scale
        )[0]
        return found

    with (
        patch("torch.nn.functional.scaled_dot_product_attention", attend),
        patch("torch.cuda.amp.common.amp_definitely_not_available", lambda: False),
        patch("torch.utils._foreach_utils._foreach_supported_types", [Tensor, FakeTensor]),
        patch("torch.cuda.is_bf16_supported", lambda *_, **__: True),
        patch.object(FakeTensor, "tolist", as_list),
        patch.object(Tensor, "backward", backward),
        FakeTensorMode(allow_non_fake_inputs=False),
    ):
        yield


def fake(tensor: Tensor, device: str = "cuda") -> Tensor:
    """A fake tensor of the same shape and type, within `fake_cuda`."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=device)


def on_fake_cuda(model: M) -> M:
    """The model itself, with fake weights and buffers."""
    for module in model.modules():
        for name, weight in module._parameters.items():
            if weight is not None:
                module._parameters[name] = nn.Parameter(fake(weight), weight.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = fake(buffer)
    return model


def fake_visual(visual: Visual, device: str = "cuda") -> Visual:
    """Fake visual input of the same shapes."""
    parts = {part.name: getattr(visual, part.name) for part in fields(visual)}
    return Visual(**{name: fake(part, device) for name, part in parts.items() if part is not None})


def backward(loss: Tensor) -> None:
    """The backward pass of torch, in Python: torch's own asks a driver for the GPU's streams."""
    start: Any = loss.grad_fn
    waiting, seen, stack = defaultdict[Any, int](int), {start}, [start]
    while stack:
        for node, _ in stack.pop().next_functions:
            if node is not None:
                waiting[node] += 1
                if node not in seen:
                    seen.add(node)
                    stack.append(node)
    found, ready = {start: {0: torch.ones_like(loss)}}, [start]
    with torch.no_grad():
        while ready:
            node = ready.pop()
            held, wanted = found.pop(node, {}), node._input_metadata
            gradients = [held.get(index) for index in range(len(wanted))]
            edges = node.next_functions
            if hasattr(node, "variable"):  # of a leaf
                weight, (gradient,) = node.variable, gradients
                if gradient is not None:
                    weight.grad = gradient if weight.grad is None else weight.grad + gradient
                continue
            if isinstance(node, BackwardCFunction):
                gradients = [
                    torch.empty(to.shape, dtype=to.dtype, device=to.device) if gradient is None else gradient
                    for gradient, to in zip(gradients, wanted, strict=True)
                ]
                given = node.apply(*gradients)
                given = given if isinstance(given, tuple) else (given,)
                given = [each for each, needed in zip(given, node.needs_input_grad, strict=True) if needed]
                edges = [edge for edge in edges if edge[0] is not None]
            elif all(gradient is None for gradient in gradients):
                given = [None] * len(edges)
            else:
                given = node(*gradients)
                given = given if isinstance(given, tuple) else (given,)
            for gradient, (to, index) in zip(given, edges, strict=True):
                if to is None:
                    continue
                if gradient is not None:
                    meta, held = to._input_metadata[index], found.setdefault(to, {})
                    assert gradient.device == meta.device, f"{node} gives a gradient on {gradient.device}"
                    gradient = gradient.to(meta.dtype).sum_to_size(meta.shape)
                    held[index] = held[index] + gradient if index in held else gradient
                waiting[to] -= 1
                if not waiting[to]:
                    ready.append(to)
