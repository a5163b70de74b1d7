"""Optimisers: the authors' RAdam against their own trajectory, Muon against torch's, and the choice by name."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import Parameter

from harness.config.schedule import LearningRate, Optimiser
from harness.training.optimisers import (
    COEFFICIENTS,
    RMS,
    Muon,
    RAdamLiu,
    hidden_matrices,
    make_optimiser,
    orthogonalised,
)
from zoo import create_model, list_models, model_card

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"


@pytest.fixture(scope="module")
def theirs() -> dict[str, np.ndarray]:
    with np.load(FIXTURES / "radam.npz") as file:
        return dict(file)


@pytest.mark.parametrize(
    ("dtype", "suffix", "tolerance"), [(torch.float64, "f64", 1e-10), (torch.float32, "f32", 1e-6)]
)
def test_the_authors_radam_takes_their_steps(
    theirs: dict[str, np.ndarray], dtype: torch.dtype, suffix: str, tolerance: float
) -> None:
    parameters = {name: Parameter(torch.tensor(theirs[f"in/{name}0"], dtype=dtype)) for name in "pq"}
    optimiser = RAdamLiu(
        parameters.values(),
        betas=(theirs["cfg/beta1"].item(), theirs["cfg/beta2"].item()),
        eps=theirs["cfg/eps"].item(),
    )
    for step, rate in enumerate(theirs["in/lr_used"]):
        for name, parameter in parameters.items():
            parameter.grad = torch.tensor(theirs[f"in/grad_{name}"][step], dtype=dtype)
        for group in optimiser.param_groups:
            group["lr"] = float(rate)
        optimiser.step()
        for name, parameter in parameters.items():
            expected = torch.tensor(theirs[f"out/{name}_{suffix}"][step], dtype=dtype)
            torch.testing.assert_close(parameter.data, expected, atol=tolerance, rtol=tolerance)
    assert not np.allclose(theirs[f"out/p_{suffix}"][0], theirs[f"out/p_{suffix}"][-1])


def test_its_learning_rates_were_those_of_the_hyperbolic_warm_up(theirs: dict[str, np.ndarray]) -> None:
    rate = LearningRate(
        peak=theirs["cfg/lr"].item(),
        warmup_steps=theirs["cfg/warmup"].item(),
        warmup="hyperbolic",
        annealing="step",
        factor=theirs["cfg/anneal_coeff"].item(),
        every_epochs=theirs["cfg/anneal_every_epoch"].item(),
        minimum=theirs["cfg/min_lr"].item(),
    )
    found = [rate.at(step, theirs["cfg/num_batches"].item(), 16) for step in range(16)]
    assert found == pytest.approx(theirs["in/lr_used"].tolist(), rel=1e-12)


def test_all_parameters_at_once_take_the_steps_of_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a GPU does, whose kernels are as many for all as for one."""
    alone, together = _parameters(), _parameters()
    _train(RAdamLiu(alone), alone, steps=8)
    monkeypatch.setattr(Parameter, "is_cuda", True, raising=False)
    _train(RAdamLiu(together), together, steps=8)
    assert all(map(torch.equal, alone, together))
    assert not torch.equal(alone[0], _parameters()[0])


def test_its_state_survives_saving(tmp_path: Path) -> None:
    def advance(optimiser: RAdamLiu, parameter: Parameter, steps: range) -> None:
        for step in steps:
            parameter.grad = torch.full((3,), float(step + 1))
            optimiser.step()

    whole, part = Parameter(torch.zeros(3)), Parameter(torch.zeros(3))
    advance(RAdamLiu([whole], lr=0.1), whole, range(9))
    first = RAdamLiu([part], lr=0.1)
    advance(first, part, range(4))
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second = RAdamLiu([part])
    second.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    advance(second, part, range(4, 9))
    assert torch.equal(whole, part)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
        ("muon", Muon),
        ("radam", torch.optim.RAdam),
        ("radam_liu", RAdamLiu),
    ],
)
def test_optimisers_by_name_take_what_is_to_be_trained(name: str, kind: type[torch.optim.Optimizer]) -> None:
    model = create_model("blind", vocab_size=9, visual_dim=8, **model_card("blind").tiny)
    trained, *frozen = model.parameters()
    for parameter in frozen:
        parameter.requires_grad_(False)
    settings = Optimiser.model_validate({"name": name, "betas": (0.8, 0.9), "eps": 1e-7})
    objective = Parameter(torch.ones(2))
    made = make_optimiser(model, settings, also=[objective])
    assert type(made) is kind
    parameters = [parameter for group in made.param_groups for parameter in group["params"]]
    assert {id(parameter) for parameter in parameters} == {id(trained), id(objective)}
    assert all((group["betas"], group["eps"]) == ((0.8, 0.9), 1e-7) for group in made.param_groups)


def test_the_authors_radam_refuses_weight_decay() -> None:
    with pytest.raises(ValueError, match="no weight decay"):
        Optimiser(name="radam_liu", weight_decay=0.1)


SHAPES = ((6, 4), (4, 6), (6, 4), (1, 5), (8, 8))


def _parameters() -> list[Parameter]:
    torch.manual_seed(1)
    return [Parameter(torch.randn(shape)) for shape in SHAPES]


def _train(optimiser: torch.optim.Optimizer, parameters: list[Parameter], steps: int = 4) -> None:
    torch.manual_seed(2)
    for _ in range(steps):
        for parameter in parameters:
            parameter.grad = torch.randn(parameter.shape)
        for group in optimiser.param_groups:
            group["lr"] = 0.05
        optimiser.step()


def test_matrices_take_the_steps_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the exact polar factor in place of either approximation."""

    def exact(matrices: torch.Tensor, *_: object) -> torch.Tensor:
        left, _, right = torch.linalg.svd(matrices, full_matrices=False)
        return left @ right

    monkeypatch.setattr("harness.training.optimisers.orthogonalised", exact)
    monkeypatch.setattr("torch.optim._muon._zeropower_via_newtonschulz", exact)
    ours, theirs = _parameters(), _parameters()
    _train(Muon(dict.fromkeys(ours, 1), [], weight_decay=0.1), ours)
    _train(torch.optim.Muon(theirs, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"), theirs)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_the_others_take_the_steps_of_adamw() -> None:
    ours, theirs, matrix = _parameters(), _parameters(), Parameter(torch.ones(3, 3))
    _train(Muon({matrix: 1}, ours, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1), ours)
    _train(torch.optim.AdamW(theirs, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, fused=True), theirs)
    assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs, strict=True))
    assert torch.equal(matrix, torch.ones(3, 3))  # it had no gradient


def test_rows_in_parts_take_the_steps_of_single_matrices() -> None:
    """Gates of a layer, tall (6 rows of 4 each) and wide (2 of 6), as if each were a parameter."""
    torch.manual_seed(5)
    stacked = [Parameter(torch.randn(18, 4)), Parameter(torch.randn(8, 6))]
    apart = [Parameter(part.clone()) for part in (*stacked[0].chunk(3), *stacked[1].chunk(4))]
    one, other = Muon({stacked[0]: 3, stacked[1]: 4}, [], lr=0.1), Muon(dict.fromkeys(apart, 1), [], lr=0.1)
    for _ in range(3):
        for whole, parts in ((stacked[0], apart[:3]), (stacked[1], apart[3:])):
            whole.grad = torch.randn(whole.shape)
            for part, gradient in zip(parts, whole.grad.chunk(len(parts)), strict=True):
                part.grad = gradient
        one.step()
        other.step()
    torch.testing.assert_close(stacked[0], torch.cat(apart[:3]))
    torch.testing.assert_close(stacked[1], torch.cat(apart[3:]))


def test_an_update_keeps_the_singular_vectors() -> None:
    torch.manual_seed(3)
    matrices = torch.randn(3, 7, 12, dtype=torch.float64)
    left, values, right = torch.linalg.svd(matrices, full_matrices=False)
    values = _steps(values / values.pow(4).sum(-1, keepdim=True).pow(0.25))
    torch.testing.assert_close(orthogonalised(matrices), left * values[:, None] @ right, atol=1e-10, rtol=0)
    assert not orthogonalised(torch.zeros(1, 3, 3)).any()


def test_singular_values_from_a_hundredth_come_near_one() -> None:
    assert (_steps(torch.linspace(0.01, 1, 10_000)) - 1).abs().max() < 0.28


def _steps(values: torch.Tensor) -> torch.Tensor:
    for a, b, c in COEFFICIENTS:
        values = a * values + b * values**3 + c * values**5
    return values


def test_an_update_is_as_large_as_that_of_adamw() -> None:
    matrix = Parameter(torch.zeros(32, 64))
    optimiser = Muon({matrix: 1}, [], lr=0.5)
    torch.manual_seed(4)
    matrix.grad = torch.randn(32, 64)
    optimiser.step()
    assert matrix.square().mean().sqrt().item() == pytest.approx(0.5 * RMS, rel=0.3)


def test_words_tables_and_vectors_are_no_hidden_matrices() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.table = nn.Embedding(11, 4), Parameter(torch.ones(4, 4))
            self.lstm, self.gru, self.norm = nn.LSTM(4, 8), nn.GRUCell(8, 8), nn.LayerNorm(8)
            self.attention, self.gates = nn.MultiheadAttention(8, 2), nn.Linear(8, 16)
            self.matrices_in = {"gates": 2}
            self.vocabulary = nn.Linear(16, 11)

    model = Model()
    names = {parameter: name for name, parameter in model.named_parameters()}
    assert {names[parameter]: parts for parameter, parts in hidden_matrices(model).items()} == {
        "lstm.weight_ih_l0": 4,
        "lstm.weight_hh_l0": 4,
        "gru.weight_ih": 3,
        "gru.weight_hh": 3,
        "attention.in_proj_weight": 3,
        "attention.out_proj.weight": 1,
        "gates.weight": 2,
    }


GROUPS = json.loads((FIXTURES / "muon_groups.json").read_text(encoding="utf-8"))
"""Of architectures, what of rank 2 or more is no hidden matrix, and layers of several parts."""


@pytest.mark.parametrize("name", sorted(list_models()))
def test_every_parameter_of_a_model_has_its_group(name: str) -> None:
    with torch.device("meta"):
        model = create_model(name, vocab_size=23, visual_dim=32, **model_card(name).tiny)
    found = hidden_matrices(model)
    assert all(parameter.ndim == 2 and len(parameter) % parts == 0 for parameter, parts in found.items())
    names = {parameter: each for each, parameter in model.named_parameters()}
    tables = sorted(each for parameter, each in names.items() if parameter.ndim > 1 and parameter not in found)
    parts = {names[parameter]: parts for parameter, parts in found.items() if parts > 1}
    if name in GROUPS:
        assert {"tables": tables, "parts": parts} == GROUPS[name]
