"""Optimisers: the authors' RAdam against their own trajectory, Muon against torch's, and the choice by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import Parameter

from harness.config.schedule import LearningRate, Optimiser
from harness.training.optimisers import RMS, Muon, RAdamLiu, hidden_matrices, make_optimiser, orthogonalised
from zoo import create_model, model_card

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


def test_authors_radam_waits_five_steps_and_skips_no_gradient() -> None:
    moved, still = Parameter(torch.ones(2)), Parameter(torch.ones(2))
    optimiser = RAdamLiu([moved, still], lr=0.1)
    for step in range(7):
        moved.grad = torch.ones(2)
        optimiser.step()
        assert bool((moved == 1).all()) == (step < 5)
    assert bool((still == 1).all())


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


def test_matrices_take_the_steps_of_torch() -> None:
    """torch's computes in half precision, also on a CPU."""
    ours, theirs, before = _parameters(), _parameters(), _parameters()
    _train(Muon(ours, [], weight_decay=0.1), ours)
    _train(torch.optim.Muon(theirs, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"), theirs)
    for mine, other, start in zip(ours, theirs, before, strict=True):
        moved = (other - start).norm().item()
        assert moved > 0.02
        assert (mine - other).norm().item() < 0.03 * moved


def test_the_others_take_the_steps_of_adamw() -> None:
    ours, theirs, matrix = _parameters(), _parameters(), Parameter(torch.ones(3, 3))
    _train(Muon([matrix], ours, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1), ours)
    _train(torch.optim.AdamW(theirs, betas=(0.8, 0.9), eps=1e-7, weight_decay=0.1, fused=True), theirs)
    assert all(torch.equal(mine, other) for mine, other in zip(ours, theirs, strict=True))
    assert torch.equal(matrix, torch.ones(3, 3))  # it had no gradient


def test_an_update_has_singular_values_of_about_one() -> None:
    torch.manual_seed(3)
    values = torch.linalg.svdvals(orthogonalised(torch.randn(3, 12, 7)))
    assert values.min() > 0.5
    assert values.max() < 1.3
    assert not orthogonalised(torch.zeros(1, 3, 3)).any()


def test_an_update_is_as_large_as_that_of_adamw() -> None:
    matrix = Parameter(torch.zeros(32, 64))
    optimiser = Muon([matrix], [], lr=0.5)
    torch.manual_seed(4)
    matrix.grad = torch.randn(32, 64)
    optimiser.step()
    assert matrix.square().mean().sqrt().item() == pytest.approx(0.5 * RMS, rel=0.3)


def test_gradients_are_there_after_a_step() -> None:
    matrix = Parameter(torch.ones(2, 2))
    matrix.grad = torch.ones(2, 2)
    Muon([matrix], [], lr=0.1).step()
    assert torch.equal(matrix.grad, torch.ones(2, 2))


def test_words_and_vectors_are_no_hidden_matrices() -> None:
    model = nn.Sequential(nn.Embedding(11, 4), nn.Linear(4, 8), nn.LSTM(8, 8), nn.LayerNorm(8), nn.Linear(8, 11))
    found = {name for name, value in model.named_parameters() if value in hidden_matrices(model, 11)}
    assert found == {"1.weight", "2.weight_ih_l0", "2.weight_hh_l0"}
