"""The optimisers of a schedule: torch's, Muon, and RAdam as its authors wrote it first."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import AdamW, Optimizer

from harness.config.schedule import Optimiser
from zoo import Captioner

MIN_RHO = 5.0
MOMENTUM = 0.95
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of the quintic Newton-Schulz iteration, chosen by its authors for the steepest slope at zero."""
ITERATIONS = 5
EPS = 1e-7
RMS = 0.2
"""Root mean square of an update over its learning rate: that of AdamW (Liu et al., "Muon is scalable for LLM training",
2025), so that one rate suits the matrices and all other parameters."""


class RAdamLiu(Optimizer):
    """Rectified Adam as in its authors' code (Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond",
    ICLR 2020, without the momentum steps that torch has), which ExpansionNet was trained with.

    While rho_t < 5 only the moments move (the first five steps with beta2 = 0.98), and eps is added to the square root
    of the second moment before its bias is corrected.

    Args:
        parameters: what to train, in at least single precision.
        lr: step size, usually set anew before each step.
        betas: decay of the two moments.
        eps: added to the root of the uncorrected second moment.
    """

    def __init__(
        self,
        parameters: Iterable[Parameter],
        lr: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
    ) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._move(parameter, parameter.grad, group)
        return loss

    def _move(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros(())
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        state["step"] += 1
        first, second = group["betas"]
        mean, square = state["exp_avg"], state["exp_avg_sq"]
        mean.mul_(first).add_(gradient, alpha=1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        scale = step_scale(int(state["step"].item()), first, second)
        if scale is not None:
            parameter.addcdiv_(mean, square.sqrt().add_(group["eps"]), value=-group["lr"] * scale)


def step_scale(step: int, first: float, second: float) -> float | None:
    """Rectification and both bias corrections as one factor of the learning rate; None while nothing may move.

    Args:
        step: counted from 1.
        first: beta1.
        second: beta2.
    """
    decayed = second**step
    limit = 2 / (1 - second) - 1
    rho = limit - 2 * step * decayed / (1 - decayed)
    if rho < MIN_RHO:
        return None
    rectified = (rho - 4) / (limit - 4) * (rho - 2) / rho * limit / (limit - 2)
    return math.sqrt((1 - decayed) * rectified) / (1 - first**step)


class Muon(AdamW):
    """Muon for the hidden layers' matrices, AdamW for everything else: embeddings, output layers, biases, norms.

    Momentum is made orthogonal, matrix by matrix (Jordan et al., "Muon: An optimizer for hidden layers in neural
    networks", 2024). torch has it too; here all matrices of a shape take one step together.

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


def make_optimiser(
    model: Captioner,
    settings: Optimiser,
    also: Iterable[Parameter] = (),
    constant_rates: Mapping[str, float] | None = None,
) -> Optimizer:
    """The optimiser of a stage over what is to be trained of a model, and `also`; its rate is set at every step.

    Args:
        constant_rates: by the name of a parameter, a rate that `set_rate` leaves as it is; not for `muon`.
    """
    constant = {name: model.get_parameter(name) for name in constant_rates or {}}
    apart = set(constant.values())
    trained = [each for each in (*model.parameters(), *also) if each.requires_grad and each not in apart]
    optimiser = _optimiser(model, settings, trained)
    for name, rate in (constant_rates or {}).items():
        optimiser.add_param_group({"params": [constant[name]], "lr": rate, "constant": True})
    return optimiser


def set_rate(optimiser: Optimizer, rate: float) -> None:
    """Set the learning rate of all parameters but those that have one of their own."""
    for group in optimiser.param_groups:
        if not group.get("constant"):
            group["lr"] = rate


def _optimiser(model: Captioner, settings: Optimiser, trained: list[Parameter]) -> Optimizer:
    if settings.name == "radam_liu":
        return RAdamLiu(trained, betas=settings.betas, eps=settings.eps)
    if settings.name == "muon":
        hidden = hidden_matrices(model, model.vocab_size)
        matrices = [parameter for parameter in trained if parameter in hidden]
        others = [parameter for parameter in trained if parameter not in hidden]
        adam: dict[str, Any] = {"betas": settings.betas, "eps": settings.eps, "weight_decay": settings.weight_decay}
        return Muon(matrices, others, **adam)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam}
    kind: Callable[..., Optimizer] = kinds[settings.name]
    # One pass over each parameter: on a CPU a fifth of the time of small models' steps is saved, on a GPU launches.
    fused = {} if settings.name == "radam" else {"fused": True}
    return kind(trained, lr=0.0, betas=settings.betas, eps=settings.eps, weight_decay=settings.weight_decay, **fused)
