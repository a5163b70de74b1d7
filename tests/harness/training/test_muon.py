"""Muon: torch's steps for matrices, AdamW's for the rest, and exact resume."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import Parameter

from harness.config.schedule import Optimiser
from harness.training.muon import RMS, Muon, hidden_matrices, orthogonalised
from tests.harness.training.tiny_training import Killed, fit_tiny, tiny_schedule, weights_of

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


def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path) -> None:
    schedule = tiny_schedule(optimiser=Optimiser(name="muon", weight_decay=0.1))
    expected, _ = fit_tiny(tmp_path / "undisturbed", schedule=schedule)
    with pytest.raises(Killed):
        fit_tiny(tmp_path / "killed", schedule=schedule, kill_at=(1, 1))
    model, _ = fit_tiny(tmp_path / "killed", schedule=schedule)
    for name, value in weights_of(expected).items():
        assert torch.equal(value, model.state_dict()[name]), name
