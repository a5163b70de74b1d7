"""The optimisers of a schedule: torch's, Muon, and RAdam as its authors wrote it first."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import AdamW, Optimizer

from harness.config.schedule import Optimiser
from harness.utils.precision import never_compiled
from zoo import Captioner

MIN_RHO = 5.0
MOMENTUM = 0.95
COEFFICIENTS = ((8.0934, -23.6204, 17.4462), (3.6366, -2.7219, 0.5365), (2.6613, -1.9772, 0.4526))
"""Of three quintic steps that bring singular values from 0.01 to 1 within 0.28 of 1, the least that three can (Amsel et
al., "The Polar Express", 2025, Algorithm 1). Five steps of Muon's authors leave 0.3; after two, losses are higher."""
EPS = 1e-7
RMS = 0.2
"""Root mean square of an update over its learning rate: that of AdamW (Liu et al., "Muon is scalable for LLM training",
2025), so that one rate suits the matrices and all other parameters."""

never_compiled(Optimizer.add_param_group, Optimizer.zero_grad, Optimizer.state_dict, Optimizer.load_state_dict)


class RAdamLiu(Optimizer):
    """Rectified Adam as in its authors' code (Liu et al., "On the Variance of the Adaptive Learning Rate and Beyond",
    ICLR 2020, without the momentum steps that torch has), which ExpansionNet was trained with.

    While rho_t < 5 only the moments move (the first five steps with beta2 = 0.98), and eps is added to the square root
    of the second moment before its bias is corrected.
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
    def step(self) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            by_step: dict[int, list[Parameter]] = defaultdict(list)  # parameters with as many steps move together
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter]
                    if not state:
                        state["step"] = torch.zeros(())
                        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                    state["step"] += 1
                    by_step[int(state["step"].item())].append(parameter)
            for step, members in by_step.items():
                if members[0].is_cuda:
                    self._move(step, members, group)
                else:  # one by one, which takes less memory; on a CPU launches cost nothing
                    for member in members:
                        self._move(step, [member], group)

    def _move(self, step: int, parameters: Sequence[Parameter], group: dict[str, Any]) -> None:
        first, second = group["betas"]
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        means = [self.state[parameter]["exp_avg"] for parameter in parameters]
        squares = [self.state[parameter]["exp_avg_sq"] for parameter in parameters]
        torch._foreach_mul_(means, first)
        torch._foreach_add_(means, gradients, alpha=1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - second)
        if (scale := step_scale(step, first, second)) is not None:
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, group["eps"])
            torch._foreach_addcdiv_(list(parameters), means, roots, -group["lr"] * scale)


def step_scale(step: int, first: float, second: float) -> float | None:
    """Rectification and both bias corrections as one factor of the learning rate; None while parameters stay.

    Args:
        step: counted from 1.
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
    """Muon for the matrices of hidden layers, AdamW for all else: embeddings, output layers, tables, biases, norms.

    Momentum is made orthogonal, matrix by matrix (Jordan et al., "Muon: An optimizer for hidden layers in neural
    networks", 2024). torch has it too; here all matrices of a shape, wide or tall, take one step together.

    A parameter without a gradient stays as it is.

    Args:
        matrices: parameters (rows, columns) of hidden layers, each with the number of matrices that its rows hold, as
            the gates of an LSTM are four.
        lr: step size of both, usually set anew before each step.
    """

    def __init__(
        self,
        matrices: Mapping[Parameter, int],
        remaining: Iterable[Parameter],
        *,
        lr: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
        weight_decay: float = 0.0,
    ) -> None:
        groups: list[dict[str, Any]] = [
            {"params": list(matrices), "parts": list(matrices.values())},
            {"params": list(remaining)},
        ]
        super().__init__(groups, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, fused=True)
        self._momenta: dict[torch.Size, Tensor] = {}

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        """Move every parameter that has a gradient."""
        for group in self.param_groups:
            if "parts" in group:
                self._move(group)
            else:
                self._adam(group)

    def _adam(self, group: dict[str, Any]) -> None:
        """Do what AdamW's own step does; that one imports torch's compiler, which takes seconds."""
        parameters, gradients, means, squares, steps = (list[Tensor]() for _ in range(5))
        self._init_group(group, parameters, gradients, means, squares, [], steps)  # type: ignore[no-untyped-call]
        if parameters:
            beta1, beta2 = group["betas"]
            settings = {name: group[name] for name in ("lr", "weight_decay", "eps")}
            torch._foreach_add_(steps, 1)
            torch._fused_adamw_(
                parameters, gradients, means, squares, [], steps,
                beta1=beta1, beta2=beta2, amsgrad=False, maximize=False, **settings,
            )  # fmt: skip

    def _move(self, group: dict[str, Any]) -> None:
        by_shape: dict[tuple[int, int], list[tuple[Parameter, Tensor, int, bool]]] = defaultdict(list)
        for parameter, parts in zip(group["params"], group["parts"], strict=True):
            if parameter.grad is not None:
                rows = len(parameter) // parts
                columns = parameter.shape[1]
                shape = (min(rows, columns), max(rows, columns))
                by_shape[shape].append((parameter, parameter.grad, rows, rows > columns))
        for (_, columns), members in by_shape.items():
            matrices: list[Tensor] = []
            matrix_gradients: list[Tensor] = []
            for parameter, gradient, rows, tall in members:
                matrices.extend(_wide(parameter, rows, tall))
                matrix_gradients.extend(_wide(gradient, rows, tall))
            gradients = torch.stack(matrix_gradients)
            momenta = self._stacked([parameter for parameter, *_ in members], gradients)
            updates = orthogonalised(gradients.lerp_(momenta.lerp_(gradients, 1 - MOMENTUM), MOMENTUM))
            updates.mul_(-group["lr"] * RMS * columns**0.5)
            if group["weight_decay"]:
                updates.add_(torch.stack(matrices), alpha=-group["lr"] * group["weight_decay"])
            torch._foreach_add_(matrices, list(updates.unbind()))

    def _stacked(self, parameters: list[Parameter], gradients: Tensor) -> Tensor:
        """The momenta of the parameters as one stack of the shape of `gradients`; parameters' states are views of it.

        It is stacked anew if parameters differ from the last step's, or if their states were loaded.
        """
        shape = gradients.shape[1:]
        states = [self.state[parameter] for parameter in parameters]
        stack = self._momenta.get(shape)
        are_views = all("momentum" in state and state["momentum"]._base is stack for state in states)
        if stack is None or len(stack) != len(gradients) or not are_views:
            counts = [parameter.numel() // shape.numel() for parameter in parameters]
            momenta = []
            for parameter, state, count in zip(parameters, states, counts, strict=True):
                momenta.append(state["momentum"] if "momentum" in state else parameter.new_zeros(count, *shape))
            stack = torch.cat(momenta)
            self._momenta[shape] = stack
            for state, view in zip(states, torch.split(stack, counts), strict=True):
                state["momentum"] = view
                state["step"] = torch.zeros(())  # AdamW asks every state for it when one is loaded
        return stack


def _wide(matrix: Tensor, rows: int, tall: bool) -> Sequence[Tensor]:
    """Split a matrix into matrices of `rows` rows each, transposed if `tall`."""
    parts = (matrix,) if len(matrix) == rows else torch.split(matrix, rows)
    return [part.mT for part in parts] if tall else parts


def hidden_matrices(model: nn.Module) -> dict[Parameter, int]:
    """The matrices that Muon optimises, each with the number of matrices that its rows hold.

    They are the weights of linear and recurrent layers, except embeddings of words and the output layer, which is named
    `vocabulary`. Other parameters of two dimensions, such as the memory of an attention, are tables. The attribute
    `matrices_in` of a module names the layers that compute several projections at once; a layer named `qkv`, as in timm
    and transformers, computes three. GPT-2's count as one matrix.
    """
    matrices: dict[Parameter, int] = {}
    for name, module in model.named_modules():
        for weight, parts in _matrices(module):
            matrices[weight] = 3 if _last(name) == "qkv" else parts
    for module in model.modules():
        for name, parts in getattr(module, "matrices_in", {}).items():
            for layer in module.get_submodule(name).modules():
                if isinstance(layer, nn.Linear):
                    matrices[layer.get_parameter("weight")] = parts
    for name, module in model.named_modules():
        if isinstance(module, nn.Embedding) or _last(name) == "vocabulary":
            for weight in module.parameters(recurse=False):
                matrices.pop(weight, None)
    return matrices


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _matrices(module: nn.Module) -> Iterator[tuple[Parameter, int]]:
    """The matrices that a module itself multiplies by, with the number of their parts."""
    if isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D":  # GPT-2's linear layer in transformers
        yield module.get_parameter("weight"), 1
    elif isinstance(module, nn.RNNBase | nn.RNNCellBase):
        gates = 1
        if isinstance(module, nn.LSTM | nn.LSTMCell):
            gates = 4
        elif isinstance(module, nn.GRU | nn.GRUCell):
            gates = 3
        for parameter in module.parameters(recurse=False):
            if parameter.ndim == 2:
                yield parameter, gates
    elif isinstance(module, nn.MultiheadAttention) and module.in_proj_weight is not None:
        yield module.in_proj_weight, 3


def orthogonalised(matrices: Tensor) -> Tensor:
    """Wide matrices (n, rows, columns) with their singular vectors, and singular values of about 1.

    They are first divided by the root of their Gram matrix's norm, which is nearer to the largest singular value than
    their own norm, so that fewer steps do. In half precision on a GPU, as its authors compute it; in that of the
    matrices on a CPU, where half is no faster.
    """
    result = matrices.bfloat16() if matrices.is_cuda else matrices
    gram = torch.bmm(result, result.mT)
    norm = gram.norm(dim=(-2, -1), keepdim=True).clamp_min(EPS**2)
    gram.div_(norm)
    for step, (a, b, c) in enumerate(COEFFICIENTS):
        if step:
            gram = torch.bmm(result, result.mT)
        factor = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        result = torch.bmm(factor if step else factor.mul_(norm.rsqrt()), result)
    return result.to(matrices.dtype)


def make_optimiser(
    model: Captioner,
    settings: Optimiser,
    also: Iterable[Parameter] = (),
    constant_rates: Mapping[str, float] | None = None,
) -> Optimizer:
    """The optimiser of a stage; its learning rate is set at every step by `set_rate`.

    Args:
        also: parameters to train besides the model's.
        constant_rates: by the name of a parameter, a rate that `set_rate` does not change; not for `muon`.
    """
    constant = {name: model.get_parameter(name) for name in constant_rates or {}}
    separate = set(constant.values())
    trained = [
        parameter for parameter in (*model.parameters(), *also) if parameter.requires_grad and parameter not in separate
    ]
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
        hidden = hidden_matrices(model)
        matrices = {parameter: hidden[parameter] for parameter in trained if parameter in hidden}
        remaining = [parameter for parameter in trained if parameter not in hidden]
        adam: dict[str, Any] = {"betas": settings.betas, "eps": settings.eps, "weight_decay": settings.weight_decay}
        return Muon(matrices, remaining, **adam)
    kinds = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "radam": torch.optim.RAdam}
    kind: Callable[..., Optimizer] = kinds[settings.name]
    # Fused steps take a fifth less time for small models on a CPU, and fewer kernel launches on a GPU.
    fused = {} if settings.name == "radam" else {"fused": True}
    return kind(trained, lr=0.0, betas=settings.betas, eps=settings.eps, weight_decay=settings.weight_decay, **fused)
