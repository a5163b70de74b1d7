"""Attention maps: the cross-attention weights of each word of a caption, recorded while it is decoded.

The model's computation is unchanged; the weights are recorded beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from zoo.captioner import Captioner, Visual
from zoo.layers.looped import full_precision

_SOFTMAXES = (F.softmax, Tensor.softmax, torch.softmax)


def attends(model: Captioner) -> bool:
    """Whether the model attends to several locations of an image for each word."""
    return model.visual.kind not in {"none", "pooled"} and bool(model.cross_attention_modules())


@torch.no_grad()
def attention_weights(model: Captioner, visual: Visual, tokens: Tensor) -> Tensor | None:
    """The weights with which each position attends to the image; None where the model does not attend.

    They are the mean over all heads of all decoder layers (for M2 over the encoder's levels too, for Image Transformer
    over its parallel memories): how the image contributes to a word, not why the word was chosen. Visual tokens without
    a location, such as class tokens, words, and a grid beside regions are left out, and each row is normalised again.

    Args:
        tokens: (B * n, T), the begin token first: row t belongs to the word that follows token t.

    Returns:
        (B * n, T, L) in float32 at least: rows sum to one over the valid visual tokens, and are 0 at padding, or
        everywhere if no token is valid.
    """
    if not attends(model):
        return None
    was_training = model.training
    model.eval()
    try:
        memory = model.encode(visual)
        with _Recorder(model.cross_attention_modules()) as recorder:
            model.decode(memory, tokens)
    finally:
        model.train(was_training)
    rows = tokens.shape[0]
    mask = memory.mask
    layers = [torch.cat([_by_row(part, rows) for part in parts], 1) for parts in recorder.seen.values()]
    weights = torch.stack([layer[..., : mask.shape[1]] for layer in layers]).mean(0)  # no token may follow the image's
    weights = weights.masked_fill(~mask.repeat_interleave(rows // mask.shape[0], 0)[:, None], 0.0)
    weights = weights[..., model.n_prefix_tokens :]
    if visual.features is not None:  # a grid beside regions, and a graph's nodes, come after them
        weights = weights[..., : visual.features.shape[1]]
    if visual.mask is not None:
        padding = ~visual.mask.repeat_interleave(rows // mask.shape[0], 0)[:, None]
        weights = weights.masked_fill(padding, 0.0)
    return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


class _Recorder(TorchFunctionMode):
    """Records the probabilities (B, H, T, M, L), (B, H, T, L) or (B, T, L) of every softmax within some modules."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.seen: dict[nn.Module, list[Tensor]] = {module: [] for module in modules}
        self._inside: nn.Module | None = None

    def __enter__(self) -> _Recorder:
        self._hooks = [
            hook
            for module in self.seen
            for hook in (module.register_forward_pre_hook(self._enter), module.register_forward_hook(self._leave))
        ]
        super().__enter__()  # type: ignore[no-untyped-call]
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        for hook in self._hooks:
            hook.remove()

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        if self._inside is not None:
            if func is F.scaled_dot_product_attention:
                self.seen[self._inside].append(full_precision(probabilities(*args, **kwargs)))
            elif func in _SOFTMAXES:
                self.seen[self._inside].append(full_precision(result))
        return result

    def _enter(self, module: nn.Module, _inputs: object) -> None:
        self._inside = module

    def _leave(self, _module: nn.Module, _inputs: object, _output: object) -> None:
        self._inside = None


def probabilities(query: Tensor, key: Tensor, value: Tensor, *others: Any, **options: Any) -> Tensor:  # noqa: ARG001
    """The probabilities (..., T, L) by which `F.scaled_dot_product_attention` with the same arguments weighs values.

    They are its output for the identity matrix as values.
    """
    identity = torch.eye(key.shape[-2], dtype=key.dtype, device=key.device).expand(*key.shape[:-1], -1)
    return F.scaled_dot_product_attention(query, key, identity, *others, **options)


def _by_row(part: Tensor, rows: int) -> Tensor:
    """Probabilities of all heads and memories, with an image's captions side by side, as (B * n, T, L)."""
    if part.dim() == 5:
        part = part.mean(3)
    if part.dim() == 4:
        part = part.mean(1)
    return part.reshape(rows, -1, part.shape[-1])
