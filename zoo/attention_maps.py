"""Attention maps: the cross-attention weights of each word, and the self-attention weights of the encoder.

They are recorded while the model runs; its computation does not change.
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
    """The weights with which each position attends to the image; None where the model has no cross-attention.

    They are the mean over all heads of all decoder layers (for M2 also over the encoder's levels, for the Image
    Transformer over its parallel memories): how the image contributes to a word, not why the word was chosen. Class
    tokens, words, and the grid of "regions+grid" are left out, and each row is normalised again.

    Args:
        tokens: (B * n, T), the begin token first: row t belongs to the word that follows token t.
        head: return this head only, counted from 1 through the decoder layers, the first layer's heads first.

    Returns:
        (B * n, T, L), at least float32: rows sum to one over the valid visual tokens and are 0 at padding; they are 0
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
    layers = [torch.cat([_by_row(weights, rows) for weights in calls], 2) for calls in recorder.weights.values()]
    layers = [layer[..., : mask.shape[1]] for layer in layers]  # words may follow the visual tokens
    if head is None:
        weights = torch.stack([layer.mean(1) for layer in layers]).mean(0)
    else:
        heads = torch.cat(layers, 1)
        if not 1 <= head <= heads.shape[1]:
            raise ZooError(
                f"there is no head {head}: this model has {heads.shape[1]}, of {len(layers)} attention modules",
                f"choose one from 1 to {heads.shape[1]}",
            )
        weights = heads[:, head - 1]
    weights = weights.masked_fill(~mask.repeat_interleave(rows // mask.shape[0], 0)[:, None], 0.0)
    weights = weights[..., model.n_prefix_tokens :]
    if visual.features is not None:  # a grid, or the nodes of a graph, come after the regions
        weights = weights[..., : visual.features.shape[1]]
    if visual.mask is not None:
        padding = ~visual.mask.repeat_interleave(rows // mask.shape[0], 0)[:, None]
        weights = weights.masked_fill(padding, 0.0)
    return _normalise_rows(weights)


@torch.no_grad()
def region_attention_weights(model: Captioner, visual: Visual) -> Tensor | None:
    """The weights of the encoder's attention among visual tokens; None where it has none.

    They are the mean over all heads of all encoder layers. Of each branch of the Image Transformer, only regions of
    its relation count. Tokens without a location are left out, as in `attention_weights`, and each row is normalised
    again.

    Returns:
        (B, L, L), at least float32: row i has the weights with which token i attends to all tokens. Rows sum to one
        over the valid tokens; rows and columns of padding are 0.
    """
    modules = model.region_attention_modules()
    if not modules:
        return None
    with _evaluating(model), _Recorder(modules) as recorder:
        memory = model.encode(visual)
    first = model.n_prefix_tokens
    length = memory.mask.shape[1] - first if visual.features is None else visual.features.shape[1]
    layers = []
    for module, [weights] in recorder.weights.items():
        if isinstance(module, SpatialGraphAttention):
            graph = recorder.inputs[module][2] if len(recorder.inputs[module]) > 2 else None
            weights = module.mask_by_relation(weights, graph).sum(3)
        layers.append(weights[:, :, first : first + length, first : first + length].mean(1))
    mean = torch.stack(layers).mean(0)
    mask = memory.mask[:, first : first + length] if visual.mask is None else visual.mask
    return _normalise_rows(mean * (mask[:, :, None] & mask[:, None]))


def _normalise_rows(weights: Tensor) -> Tensor:
    """Divide each row by its sum; rows of zeros stay zero."""
    return weights / weights.sum(-1, keepdim=True).clamp(min=torch.finfo(weights.dtype).tiny)


@contextmanager
def _evaluating(model: Captioner) -> Iterator[None]:
    """Evaluation mode within the context, then the model's mode before it."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


class _Recorder(TorchFunctionMode):
    """Records the probabilities of every softmax in some modules, and the modules' inputs.

    Attributes:
        weights: the probabilities by module, one tensor per call: (B, H, T, M, L), (B, H, T, L) or (B, T, L).
        inputs: the arguments of each module's last call.
    """

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.weights: dict[nn.Module, list[Tensor]] = {module: [] for module in modules}
        self.inputs: dict[nn.Module, tuple[Any, ...]] = {}
        self._current: nn.Module | None = None

    def __enter__(self) -> _Recorder:
        self._hooks = []
        for module in self.weights:
            self._hooks.append(module.register_forward_pre_hook(self._enter))
            self._hooks.append(module.register_forward_hook(self._leave))
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
        if self._current is not None:
            if func is F.scaled_dot_product_attention:
                self.weights[self._current].append(full_precision(probabilities(*args, **kwargs)))
            elif func in _SOFTMAXES:
                self.weights[self._current].append(full_precision(result))
        return result

    def _enter(self, module: nn.Module, inputs: tuple[Any, ...]) -> None:
        self._current = module
        self.inputs[module] = inputs

    def _leave(self, _module: nn.Module, _inputs: object, _output: object) -> None:
        self._current = None


def probabilities(query: Tensor, key: Tensor, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ARG001
    """The attention probabilities (..., T, L) of `F.scaled_dot_product_attention` with the same arguments.

    They are its output for an identity matrix as values.
    """
    identity = torch.eye(key.shape[-2], dtype=key.dtype, device=key.device).expand(*key.shape[:-1], -1)
    return F.scaled_dot_product_attention(query, key, identity, *args, **kwargs)


def _by_row(weights: Tensor, rows: int) -> Tensor:
    """Probabilities with one row per caption, (B * n, H, T, L), from one row per image; memories are averaged."""
    if weights.dim() == 5:
        weights = weights.mean(3)
    if weights.dim() == 3:
        weights = weights[:, None]
    batch, heads, _, length = weights.shape
    captions = weights.view(batch, heads, rows // batch, -1, length)
    return captions.transpose(1, 2).flatten(0, 1)
