"""Muon: momentum that is made orthogonal, matrix by matrix.

Jordan et al., "Muon: An optimizer for hidden layers in neural networks", 2024. torch has it too; here all matrices of a
shape take one step together, and one optimiser has the other parameters as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import AdamW

MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz iteration, chosen by its authors for the steepest slope at zero."""
ITERATIONS = 5
EPS = 1e-7
RMS = 0.2
"""Root mean square of an update over its learning rate: that of AdamW (Liu et al., "Muon is scalable for LLM training",
2025), so that one rate suits the matrices and all other parameters."""


class Muon(AdamW):
    """Muon for the hidden layers' matrices, AdamW for everything else: embeddings, output layers, biases, norms.

    Matrices of one shape are worked through at once. A parameter without a gradient stays as it is.

    Args:
        matrices: parameters (rows, columns) of hidden layers.
        others: all other parameters.
        lr: step size of both, usually set anew before each step.
        betas: of AdamW's moments.
        eps: of AdamW.
        weight_decay: decoupled, of both.
    """

    def __init__(
        self,
        matrices: Iterable[Parameter],
        others: Iterable[Parameter],
        *,
        lr: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        weight_decay: float = 0.0,
    ) -> None:
        groups = [{"params": list(matrices), "orthogonal": True}, {"params": list(others), "orthogonal": False}]
        super().__init__(groups, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        loss = closure() if closure is not None else None
        held: list[tuple[Parameter, Tensor]] = []
        for group in self.param_groups:
            if group["orthogonal"]:
                given = [(parameter, parameter.grad) for parameter in group["params"] if parameter.grad is not None]
                self._move(given, group)
                held += given
        for parameter, _ in held:  # AdamW passes over what has no gradient
            parameter.grad = None
        super().step()
        for parameter, gradient in held:
            parameter.grad = gradient
        return loss

    def _move(self, given: list[tuple[Parameter, Tensor]], group: dict[str, Any]) -> None:
        by_shape: dict[torch.Size, list[tuple[Parameter, Tensor]]] = defaultdict(list)
        for parameter, gradient in given:
            by_shape[parameter.shape].append((parameter, gradient))
        for (rows, columns), alike in by_shape.items():
            parameters: list[Tensor] = [parameter for parameter, _ in alike]
            gradients = [gradient for _, gradient in alike]
            momenta = [self._momentum(parameter) for parameter, _ in alike]
            torch._foreach_lerp_(momenta, gradients, 1 - MOMENTUM)
            nesterov = torch._foreach_lerp(gradients, momenta, MOMENTUM)
            updates = orthogonalised(torch.stack(nesterov))
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            scale = -group["lr"] * RMS * max(rows, columns) ** 0.5
            torch._foreach_add_(parameters, list(updates.unbind()), alpha=scale)

    def _momentum(self, parameter: Parameter) -> Tensor:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())  # AdamW asks every state for it when one is loaded
            state["momentum"] = torch.zeros_like(parameter)
        momentum: Tensor = state["momentum"]
        return momentum


def hidden_matrices(model: nn.Module, vocab_size: int) -> set[Parameter]:
    """The matrices that Muon is for: of linear and recurrent layers, but those that words go in or come out by."""
    embeddings = {module.weight for module in model.modules() if isinstance(module, nn.Embedding)}
    return {
        parameter
        for parameter in model.parameters()
        if parameter.ndim == 2 and parameter not in embeddings and vocab_size not in parameter.shape
    }


def orthogonalised(matrices: Tensor) -> Tensor:
    """Matrices (n, rows, columns) with their singular vectors, and singular values of about 1.

    In half precision on a GPU, as its authors compute it; in that of the matrices on a CPU, where half is no faster.
    """
    found = matrices.bfloat16() if matrices.is_cuda else matrices
    tall = found.shape[-2] > found.shape[-1]
    if tall:
        found = found.mT
    found = found / found.norm(dim=(-2, -1), keepdim=True).clamp_min(EPS)
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        gram = found @ found.mT
        found = torch.baddbmm(found, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), found, beta=a)
    return (found.mT if tall else found).to(matrices.dtype)
