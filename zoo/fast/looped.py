"""Products with one matrix at every position of a loop, whose gradient is one product after the loop.

Autograd computes the gradient of a matrix at each position and adds it to that of the others: two kernels a position
and matrix, each over the whole matrix. Here the factors are kept until all positions are worked through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.fast.switch import custom_backward

T = TypeVar("T")
Factors = list[tuple[Tensor, Tensor]]


class SharedMatrix:
    """x W^T + b for the same W (O, K), or for each of N matrices (N, O, K), at every position."""

    def __init__(self, weight: Tensor, bias: Tensor | None = None) -> None:
        self.weight, self.bias = weight, bias
        self.factors: Factors = []
        self.end: Tensor | None = None

    def defer(self) -> SharedMatrix:
        """Itself, with the gradients of W and b computed once."""
        if self.weight.requires_grad:
            self.end = Collect.apply(self.weight, self.bias, self.factors, _of_matrix)
        return self

    def __call__(self, x: Tensor, added: Tensor | None = None) -> Tensor:
        """x (..., K), for N matrices (N, T, K), to (..., O); `added` takes the place of the bias."""
        added = self.bias if added is None else added
        if self.end is None:
            return _multiply(x, self.weight, added)
        if added is self.bias and added is not None:
            added = added.detach()
        product: Tensor = _Multiply.apply(x, added, self.weight.detach(), self.end, self.factors)
        return product


def _multiply(x: Tensor, weight: Tensor, added: Tensor | None) -> Tensor:
    if weight.dim() == 2:
        return F.linear(x, weight, added) if added is None or added.dim() == 1 else torch.addmm(added, x, weight.t())
    turned = weight.transpose(1, 2)
    return torch.bmm(x, turned) if added is None else torch.baddbmm(added, x, turned)


class _Multiply(torch.autograd.Function):
    """The product of one position."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, added: Tensor | None, weight: Tensor, end: Tensor, factors: Factors) -> Tensor:  # noqa: ARG004
        """See `SharedMatrix`; `end` makes the node of the weight's gradient come after this one."""
        ctx.save_for_backward(x, weight)
        ctx.factors = factors
        return _multiply(x, weight, added)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The gradients of `x` and `added`, which has the shape of the result where it needs one."""
        x, weight = ctx.saved_tensors
        ctx.factors.append((x.detach(), gradient))
        needed, needed_too, *_ = ctx.needs_input_grad
        return gradient @ weight if needed else None, gradient if needed_too else None, None, None, None


class Collect(torch.autograd.Function):
    """The node of the gradients of weight and bias, which all positions lead to."""

    @staticmethod
    def forward(
        ctx: Any,
        weight: Tensor,
        bias: Tensor | None,
        factors: Factors,
        gradients: Callable[[Tensor, Tensor, bool], tuple[Tensor, Tensor | None]],
    ) -> Tensor:
        """An empty tensor for the positions; `gradients` are of all factors, and of the bias if there is one."""
        ctx.set_materialize_grads(False)
        ctx.factors, ctx.gradients, ctx.biased = factors, gradients, bias is not None
        return weight.new_empty(0)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, _: Tensor | None) -> tuple[Tensor | None, Tensor | None, None, None]:
        """The gradients of weight and bias, if any position had one."""
        if not ctx.factors:
            return None, None, None, None
        first, second = (
            parts[0] if len(parts) == 1 else torch.cat(parts, -2) for parts in zip(*ctx.factors, strict=True)
        )
        ctx.factors.clear()
        return *ctx.gradients(first, second, ctx.biased), None, None


def _of_matrix(inputs: Tensor, gradients: Tensor, biased: bool) -> tuple[Tensor, Tensor | None]:
    return gradients.transpose(-1, -2) @ inputs, gradients.sum(0) if biased else None


class Looped(nn.Module):
    """A module that multiplies by the same matrices at every position of a loop."""

    _shared: dict[str, Any] | None = None

    def shared(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, which is asked once within `loop`."""
        if self._shared is None:
            return make()
        if name not in self._shared:
            self._shared[name] = make()
        found: T = self._shared[name]
        return found

    def matrix(self, name: str, make: Callable[[], SharedMatrix]) -> SharedMatrix:
        """A product with the matrix that `make` gives, within `loop` with one gradient."""
        return make() if self._shared is None else self.shared(name, lambda: make().defer())


class LoopedLinear(nn.Linear, Looped):
    """`nn.Linear`, in a loop with one gradient of its weights."""

    def forward(self, x: Tensor) -> Tensor:
        """(..., K) to (..., O)."""
        return self.matrix("weight", lambda: SharedMatrix(self.weight, self.bias))(x)


def autocasts(like: Tensor) -> bool:
    """Whether autocast is on for the device of `like`."""
    device = like.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def no_autocast(like: Tensor) -> AbstractContextManager[None]:
    """No autocast, which would round products to half precision, on the device of `like`."""
    return torch.autocast(like.device.type, enabled=False) if autocasts(like) else nullcontext()


def product_type(like: Tensor) -> torch.dtype:
    """The type in which products of tensors as `like` are computed: autocast's, where it is on."""
    return torch.get_autocast_dtype(like.device.type) if autocasts(like) else like.dtype


def full_precision(x: Tensor) -> Tensor:
    """In at least float32; whole numbers and masks as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32)) if x.is_floating_point() else x


@contextmanager
def loop(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Defer the gradients of all `Looped` modules until the end of a loop; see `custom_backward`."""
    looped = [module for module in modules if isinstance(module, Looped)] if custom_backward() else []
    try:
        for module in looped:
            module._shared = {}
        yield
    finally:
        for module in looped:
            module._shared = None
