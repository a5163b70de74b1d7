"""Attention maps: the cross-attention weights of each word of a caption, and the encoder's between places of the image.

The model's computation is unchanged; the weights are recorded beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from zoo.captioner import Captioner, Visual
from zoo.errors import ZooError
from zoo.layers.spatial_graph import SpatialGraphAttention
from zoo.precision import full_precision

_SOFTMAXES = (F.softmax, Tensor.softmax, torch.softmax)


def attends(model: Captioner) -> bool:
    """Whether the model attends to several locations of an image for each word."""
    return model.visual.kind not in {"none", "pooled"} and bool(model.cross_attention_modules())


@torch.no_grad()
def attention_weights(model: Captioner, visual: Visual, tokens: Tensor, head: int | None = None) -> Tensor | None:
    """The weights with which each position attends to the image; None where the model does not attend.

    They are the mean over all heads of all decoder layers (for M2 over the encoder's levels too, for Image Transformer
    over its parallel memories): how the image contributes to a word, not why the word was chosen. Visual tokens without
    a location, such as class tokens, words, and a grid beside regions are left out, and each row is normalised again.

    Args:
        tokens: (B * n, T), the begin token first: row t belongs to the word that follows token t.
        head: one head alone, counted from 1 through the decoder layers, the first layer's heads first.

    Returns:
        (B * n, T, L) in float32 at least: rows sum to one over the valid visual tokens, and are 0 at padding, or
        everywhere if no token is valid.

    Raises:
        ZooError: there is no such head.
    """
    if not attends(model):
        return None
    with _evaluating(model):
        memory = model.encode(visual)
        with _Recorder(model.cross_attention_modules()) as recorder:
            model.decode(memory, tokens)
    rows = tokens.shape[0]
    mask = memory.mask
    layers = [torch.cat([_by_row(part, rows) for part in parts], 2) for parts in recorder.seen.values()]
    layers = [layer[..., : mask.shape[1]] for layer in layers]  # no token may follow the image's
    if head is None:
        weights = torch.stack([layer.mean(1) for layer in layers]).mean(0)
    else:
        heads = torch.cat(layers, 1)
        if not 1 <= head <= heads.shape[1]:
            raise ZooError(
                f"there is no head {head}: this model has {heads.shape[1]}, of {len(layers)} layers or places",
                f"choose one from 1 to {heads.shape[1]}",
            )
        weights = heads[:, head - 1]
    weights = weights.masked_fill(~mask.repeat_interleave(rows // mask.shape[0], 0)[:, None], 0.0)
    weights = weights[..., model.n_prefix_tokens :]
    if visual.features is not None:  # a grid beside regions, and a graph's nodes, come after them
        weights = weights[..., : visual.features.shape[1]]
    if visual.mask is not None:
        padding = ~visual.mask.repeat_interleave(rows // mask.shape[0], 0)[:, None]
        weights = weights.masked_fill(padding, 0.0)
    return _shares(weights)


@torch.no_grad()
def region_attention_weights(model: Captioner, visual: Visual) -> Tensor | None:
    """The weights with which the encoder relates each place of the image to the others; None where it relates none.

    They are the mean over all heads of all encoder layers; along the Image Transformer's graph, of each branch those
    of its relation. What has no location is left out, as in `attention_weights`, and each row is normalised again.

    Returns:
        (B, L, L) in float32 at least: row i says how much place i takes from each; rows sum to one over the valid
        places, and are 0 at padding, as rows of padding are.
    """
    modules = model.region_attention_modules()
    if not modules:
        return None
    with _evaluating(model), _Recorder(modules) as recorder:
        memory = model.encode(visual)
    first = model.n_prefix_tokens
    length = memory.mask.shape[1] - first if visual.features is None else visual.features.shape[1]
    layers = []
    for module, [weights] in recorder.seen.items():
        if isinstance(module, SpatialGraphAttention):
            graph = recorder.inputs[module][2] if len(recorder.inputs[module]) > 2 else None
            weights = module.along(weights, graph).sum(3)
        layers.append(weights[:, :, first : first + length, first : first + length].mean(1))
    mean = torch.stack(layers).mean(0)
    mask = memory.mask[:, first : first + length] if visual.mask is None else visual.mask
    return _shares(mean * (mask[:, :, None] & mask[:, None]))


def _shares(weights: Tensor) -> Tensor:
    """Rows that sum to one; rows of zeros stay so."""
    return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


@contextmanager
def _evaluating(model: Captioner) -> Iterator[None]:
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class _Recorder(TorchFunctionMode):
    """Records the probabilities (B, H, T, M, L), (B, H, T, L) or (B, T, L) of every softmax within some modules."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.seen: dict[nn.Module, list[Tensor]] = {module: [] for module in modules}
        self.inputs: dict[nn.Module, tuple[Any, ...]] = {}
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

    def _enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._inside = module
        self.inputs[module] = inputs

    def _leave(self, _module: nn.Module, _inputs: object, _output: object) -> None:
        self._inside = None


def probabilities(query: Tensor, key: Tensor, value: Tensor, *others: Any, **options: Any) -> Tensor:  # noqa: ARG001
    """The probabilities (..., T, L) by which `F.scaled_dot_product_attention` with the same arguments weighs values.

    They are its output for the identity matrix as values.
    """
    identity = torch.eye(key.shape[-2], dtype=key.dtype, device=key.device).expand(*key.shape[:-1], -1)
    return F.scaled_dot_product_attention(query, key, identity, *others, **options)


def _by_row(part: Tensor, rows: int) -> Tensor:
    """Probabilities of all heads, with an image's captions side by side, as (B * n, H, T, L); memories are averaged."""
    if part.dim() == 5:
        part = part.mean(3)
    if part.dim() == 3:
        part = part[:, None]
    batch, heads, _, length = part.shape
    captions = part.view(batch, heads, rows // batch, -1, length)
    return captions.transpose(1, 2).flatten(0, 1)
