"""The optimisers of a schedule: torch's, Muon, and RAdam as its authors wrote it first."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from harness.config.schedule import Optimiser
from harness.training.muon import Muon, hidden_matrices
from zoo import Captioner

MIN_RHO = 5.0


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
