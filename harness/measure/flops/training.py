"""Multiply-accumulates of a training step, forward and backward, counted on the dispatched kernels.

A trace has no backward pass, so this uses torch's own counter: products of matrices, convolutions and attention,
without norms (which fvcore counts with five operations per element).
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from harness.measure.flops.tracing import PartCount
from harness.measure.model_modes import preserve_state
from zoo.captioner import Captioner, Visual


def count_dispatched() -> FlopCounterMode:
    """Torch's counter as a context, extended by products that it omits; it counts two flops a multiply-accumulate."""
    of_vectors = {torch.ops.aten.mv: _matrix_vector, torch.ops.aten.addmv: _added_matrix_vector}
    return FlopCounterMode(display=False, custom_mapping=of_vectors)


def count_training_step(model: Captioner, visual: Visual, tokens: Tensor) -> PartCount:
    """Count teacher forcing in training mode, and the gradients of all trainable parameters.

    Dropout is on, which rules out some shortcuts of evaluation. Attention is counted as products of matrices on every
    device, since fused kernels differ between devices and compute some products twice. The loss and the optimiser are
    element-wise and not counted; neither is the gradient of the input.

    Args:
        model: left as it was found: gradients, training flags, buffers, random generators.
        visual: one image on the model's device.
        tokens: (1, T), the input of the decoder.
    """
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    with torch.enable_grad(), preserve_state(model), sdpa_kernel(SDPBackend.MATH), count_dispatched() as counter:
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
