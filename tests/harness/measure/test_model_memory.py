"""Models that no memory holds are refused before one of their weights is made."""

from __future__ import annotations

import pytest
import torch

from harness.measure import model_memory
from harness.measure.memory import counted_parameters, create_within_memory, require_memory
from harness.utils.errors import BenchError
from tests.harness.conftest import bench
from zoo import model_card

SIZES = {"vocab_size": 9, "visual_dim": 4}


@pytest.mark.parametrize("name", ["transformer_base", "updown"])
def test_weights_have_to_fit(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    arguments = {**SIZES, **model_card(name).tiny}
    state = torch.get_rng_state()
    parameters = counted_parameters(name, **arguments)
    assert torch.equal(torch.get_rng_state(), state), "the weights of a seed stay what they are"
    monkeypatch.setattr(model_memory, "free_memory", lambda _: 4 * parameters)
    built = create_within_memory(name, **arguments)
    assert sum(each.numel() for each in built.parameters()) == parameters
    monkeypatch.setattr(model_memory, "free_memory", lambda _: 4 * parameters - 1)
    with pytest.raises(BenchError, match=f"{name} would have {parameters:,} parameters"):
        create_within_memory(name, **arguments)


def test_training_takes_four_times_as_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "free_memory", lambda _: 1599)
    require_memory("a", 100, torch.device("cpu"))
    with pytest.raises(BenchError, match="gradients"):
        require_memory("a", 100, torch.device("cpu"), model_memory.TRAINED)


def test_machines_that_tell_no_memory_refuse_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_memory, "free_memory", lambda _: None)
    require_memory("a", 10**15, torch.device("cpu"))


@pytest.mark.parametrize(("words", "code"), [("plan --preset smoke", 2), ("flops --preset smoke", 1)])
def test_commands_say_so_before_anything_is_built(words: str, code: int) -> None:
    result = bench(*words.split(), "--models", "transformer_base", "--set", "size.d_model=65536")
    assert "parameters, whose weights take" in f"{result.exception} {result.output}"
    assert result.exit_code == code or isinstance(result.exception, BenchError)
