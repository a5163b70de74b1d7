"""Checkpoints: identity, replacement, leftovers of a kill, damage."""

import errno
import math
import resource
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from harness.training import checkpoint
from harness.training.checkpoint import (
    CheckpointWriter,
    generator_states,
    load_checkpoint,
    load_weights,
    restore_generators,
    save_checkpoint,
    save_weights,
)
from harness.utils.errors import BenchError
from zoo import ZooError


def _model(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))


def _equal(one: nn.Module, other: nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_was_saved_comes_back_and_all_but_the_last_two_go(tmp_path: Path) -> None:
    first, second, empty = _model(0), _model(1), _model(2)
    (tmp_path / ".DS_Store").touch()
    save_checkpoint(tmp_path, 1, first.state_dict(), {"position": {"step": 1}})
    save_checkpoint(tmp_path, 2, first.state_dict(), {"position": {"step": 2}})
    save_checkpoint(tmp_path, 3, second.state_dict(), {"position": {"step": 3}})
    assert load_checkpoint(tmp_path, empty) == {"position": {"step": 3}}
    assert _equal(empty, second)
    assert _names(tmp_path) == [".DS_Store", "step-000000002", "step-000000003"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(tmp_path: Path, value: float) -> None:
    model = _model(0)
    with torch.no_grad():
        model[1].bias[2] = value  # type: ignore[index,operator]
    save_weights(model, tmp_path / "best.safetensors")
    with pytest.raises(ZooError, match=rf"{tmp_path}/best\.safetensors: .*1\.bias"):
        load_weights(_model(1), tmp_path / "best.safetensors")


def test_an_unfinished_write_is_ignored_and_cleared(tmp_path: Path) -> None:
    saved, read = _model(0), _model(1)
    save_checkpoint(tmp_path, 1, saved.state_dict(), {"number": 1})
    unfinished = tmp_path / ".step-000000002"
    unfinished.mkdir()
    (unfinished / "model.safetensors").write_bytes(b"half")
    assert load_checkpoint(tmp_path, read) == {"number": 1}
    save_checkpoint(tmp_path, 2, saved.state_dict(), {"number": 2})
    assert _names(tmp_path) == ["step-000000001", "step-000000002"]


def test_a_gpu_goes_on_while_its_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved, wanted, read, go_on = _model(0), _model(0), _model(1), threading.Event()
    moments = torch.zeros(3)
    write = checkpoint._save_state
    monkeypatch.setattr(checkpoint, "_save_state", lambda *given: go_on.wait(60) and write(*given))
    with CheckpointWriter(tmp_path, torch.device("cuda")) as writer:
        writer.save(1, saved, {"number": 1, "moments": {"a": [moments]}})
        assert load_checkpoint(tmp_path, read) is None
        with torch.no_grad():  # the next step
            saved[0].weight.add_(1.0)  # type: ignore[operator]
            moments.add_(1.0)
        go_on.set()
        writer.save(2, saved, {"number": 2})
        assert "step-000000001" in _names(tmp_path), "the next one waits for the one before"
    assert load_checkpoint(tmp_path, read) == {"number": 2}
    assert _equal(read, saved)
    shutil.rmtree(tmp_path / "step-000000002")
    found = load_checkpoint(tmp_path, read)
    assert found is not None
    assert found["moments"]["a"][0].tolist() == [0.0, 0.0, 0.0]
    assert _equal(read, wanted)


@pytest.mark.parametrize("again", [True, False], ids=["the next one", "the end"])
def test_what_a_thread_could_not_write_is_said_at_the_next_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    def fill(*_: object) -> None:
        raise OSError(errno.ENOSPC, "no space")

    def train() -> None:
        with CheckpointWriter(tmp_path, torch.device("cuda")) as writer:
            writer.save(1, model, {})
            writer.wait()
            monkeypatch.setattr(torch, "save", fill)
            writer.save(2, model, {})
            if again:
                writer.save(3, model, {})
                pytest.fail("the error of the one before is raised here")

    model = _model(0)
    with pytest.raises(BenchError, match="the disk is full"):
        train()
    assert _names(tmp_path) == ["step-000000001"]


@pytest.mark.parametrize("limit", [100, 700, 1200])
def test_a_full_disk_is_named_and_what_was_saved_before_stays(tmp_path: Path, limit: int) -> None:
    """The system lets no file grow beyond `limit` bytes: weights fail to be written, or the state after them."""
    saved, read = _model(0), _model(1)
    state = {"number": 1, "moments": torch.zeros(100)}
    save_checkpoint(tmp_path, 1, saved.state_dict(), state)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(BenchError, match="cannot be written"):
            save_checkpoint(tmp_path, 2, saved.state_dict(), state)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert _names(tmp_path) == ["step-000000001"]
    found = load_checkpoint(tmp_path, read)
    assert found is not None
    assert found["number"] == 1
    assert _equal(read, saved)


@pytest.mark.parametrize("writer", ["save_file", "torch.save"])
def test_a_disk_full_until_the_file_is_removed_is_called_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writer: str
) -> None:
    def fill(_: object, path: Path) -> None:
        path.write_bytes(b"as far as it went")
        raise RuntimeError("[enforce fail at inline_container.cc:671] . unexpected pos 3825984 vs 3825872")

    def usage(_: Path) -> SimpleNamespace:
        return SimpleNamespace(free=0 if any(path.is_file() for path in tmp_path.rglob(".*")) else 2**30)

    monkeypatch.setattr(f"harness.training.checkpoint.{writer}", fill)
    monkeypatch.setattr("harness.training.checkpoint.shutil.disk_usage", usage)
    with pytest.raises(BenchError, match="cannot be written: the disk is full"):
        save_checkpoint(tmp_path / "checkpoint", 1, _model(0).state_dict(), {"number": 1})


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    save_weights(_model(0), tmp_path / "w.safetensors")
    with pytest.raises(BenchError, match=r"w\.safetensors"):
        load_weights(nn.Linear(3, 4), tmp_path / "w.safetensors")


def test_random_numbers_of_a_gpu_go_on_on_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.zeros(16, dtype=torch.uint8)
    state_of = {torch.device("cuda", 3): drawn}
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: state_of[device])
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: state_of.update({device: state}))
    states = generator_states(torch.device("cuda", 3))
    expected = torch.rand(3)
    restore_generators(states, torch.device("cuda", 0))
    assert state_of[torch.device("cuda", 0)] is drawn
    assert torch.equal(torch.rand(3), expected)
    restore_generators(states, torch.device("cpu"))
    assert torch.equal(torch.rand(3), expected)
    assert generator_states(torch.device("cpu"))["cuda"] == []


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        ("model.safetensors", lambda path: path.write_bytes(path.read_bytes()[:20])),
        ("state.pt", lambda path: path.write_bytes(b"nonsense")),
        ("state.pt", lambda path: torch.save({"call": print}, path)),  # a pickle with code
    ],
)
def test_after_damage_the_checkpoint_before_goes_on(tmp_path: Path, file: str, damage: Callable[[Path], None]) -> None:
    saved, read = _model(0), _model(1)
    save_checkpoint(tmp_path, 1, saved.state_dict(), {"number": 1})
    save_checkpoint(tmp_path, 2, _model(2).state_dict(), {"number": 2})
    damage(tmp_path / "step-000000002" / file)
    with pytest.raises(BenchError, match="step-000000002 is damaged") as caught:
        load_checkpoint(tmp_path, read)
    assert "goes on from step-000000001" in (caught.value.hint or "")
    shutil.rmtree(tmp_path / "step-000000002")  # as the hint says
    assert load_checkpoint(tmp_path, read) == {"number": 1}
    assert _equal(read, saved)


def test_errors_of_a_gpu_are_not_those_of_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def save(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("harness.training.checkpoint.torch.save", save)
    with pytest.raises(torch.OutOfMemoryError):
        save_checkpoint(tmp_path, 1, nn.Linear(2, 2).state_dict(), {})
