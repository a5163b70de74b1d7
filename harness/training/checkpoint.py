"""Checkpoints, written atomically: a temporary folder is renamed when it is complete. The last two are kept.

A training on a GPU copies them to the CPU and continues while they are written.

Weights are safetensors; optimiser, random generators and state are tensors and plain values that are read with
`weights_only=True`, so that no checkpoint can run code.
"""

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from harness.utils.atomic import replacing
from harness.utils.errors import BenchError, of_the_device
from results.files import check_regular
from zoo.errors import first_line, first_sentence
from zoo.safety import refuse_not_finite

PREFIX = "step-"
MODEL, STATE = "model.safetensors", "state.pt"
WEIGHTS = "best.safetensors"  # of the best epoch, in the folder of a run
KEPT = 2  # checkpoints: the last one, and the one before for the case that the last one is damaged on the disk
MIN_FREE_BYTES = 2**20  # bytes; a disk with less is full, whatever a library's exception says


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's weights to one safetensors file, atomically; BenchError if that fails."""
    _save_tensors(model.state_dict(), path)


def _save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    on_cpu = {name: value.detach().contiguous().cpu() for name, value in tensors.items()}
    with _write_errors(path), replacing(path) as temporary, _write_errors(path):
        save_file(on_cpu, temporary)


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights into `model`.

    Raises:
        BenchError: the file is missing, damaged or of another model.
        ZooError: it holds NaN or infinity.
    """
    try:
        check_regular(path)
        tensors = load_file(path)
        model.load_state_dict(tensors)
    except (OSError, SafetensorError, RuntimeError) as error:
        if of_the_device(error):
            raise
        raise BenchError(
            f"cannot read the weights {path}: {first_line(error)}",
            f"delete {path.parent} and run the same command again: this model is then trained anew",
        ) from error
    refuse_not_finite(tensors, f"the weights {path}")


def is_whole(weights: Path) -> bool:
    """Whether a file of weights exists and is complete, by the sizes in its header."""
    try:
        check_regular(weights)
        with safe_open(weights, "pt"):
            return True
    except (OSError, SafetensorError):
        return False


def save_checkpoint(folder: Path, number: int, weights: Mapping[str, Tensor], state: dict[str, Any]) -> None:
    """Write checkpoint `number` under `folder`, then remove all but it and the one before.

    Raises:
        BenchError: it cannot be written; earlier checkpoints are kept.
    """
    with _new_checkpoint(folder, number) as unfinished:
        _save_tensors(weights, unfinished / MODEL)
        _save_state(unfinished, state)


class CheckpointWriter:
    """Writes the checkpoints of a training under a folder; a context manager that ends when all are written.

    Args:
        device: that the training runs on. From a GPU, tensors are copied and a thread writes them; on a CPU they are
            written at once, because a copy would double the memory.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        self._folder = folder
        self._thread = ThreadPoolExecutor(1, "checkpoint-writer") if device.type == "cuda" else None
        self._written: Future[None] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._thread is not None:
            self._thread.shutdown()
        if kind is None:
            self.wait()

    def save(self, number: int, model: nn.Module, state: dict[str, Any]) -> None:
        """See `save_checkpoint`; the previous checkpoint is complete when this returns.

        Raises:
            BenchError: the previous checkpoint could not be written, or this one, if it is not written by a thread.
        """
        self.wait()
        weights = dict(model.state_dict())
        if self._thread is None:
            save_checkpoint(self._folder, number, weights, state)
        else:
            copied = tree_map_only(Tensor, lambda value: value.detach().to("cpu", copy=True), (weights, state))
            self._written = self._thread.submit(save_checkpoint, self._folder, number, *copied)

    def wait(self) -> None:
        """Wait until the last checkpoint is written; BenchError if that failed."""
        written = self._written
        self._written = None
        if written is not None:
            written.result()


def save_first_checkpoint(folder: Path, weights: Path, state: dict[str, Any]) -> None:
    """Write the first checkpoint of a training, with the weights of another one; BenchError as `save_checkpoint`."""
    with _new_checkpoint(folder, 1) as unfinished:
        shutil.copyfile(weights, unfinished / MODEL)
        _save_state(unfinished, state)


def read_position(checkpoint: Path) -> dict[str, Any] | None:
    """The state of training at a checkpoint; None if the checkpoint is damaged."""
    try:
        position: dict[str, Any] = torch.load(checkpoint / STATE, map_location="cpu", weights_only=True)["position"]
    except Exception:  # damaged bytes make torch raise any type of error
        return None
    return position if is_whole(checkpoint / MODEL) else None


def _save_state(folder: Path, state: dict[str, Any]) -> None:
    with replacing(folder / STATE) as temporary, _write_errors(folder):
        torch.save(state, temporary)


@contextmanager
def _new_checkpoint(folder: Path, number: int) -> Iterator[Path]:
    """A temporary folder, which becomes a checkpoint at the end of the block; older checkpoints are then removed."""
    unfinished = folder / f".{PREFIX}{number:09d}"
    with _write_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        try:
            yield unfinished
            target = folder / f"{PREFIX}{number:09d}"
            shutil.rmtree(target, ignore_errors=True)
            unfinished.rename(target)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        _sync_folder(folder)
    newest = sorted(folder.glob(f"{PREFIX}*"))[-KEPT:]
    for path in folder.glob(f"*{PREFIX}*"):  # another program may have left files of its own here
        if path not in newest:
            shutil.rmtree(path, ignore_errors=True)


def last_checkpoint(folder: Path) -> Path | None:
    """The newest complete checkpoint; None if there is none."""
    return max(folder.glob(f"{PREFIX}*"), default=None)


def load_checkpoint(folder: Path, model: nn.Module) -> dict[str, Any] | None:
    """Read the newest complete checkpoint into `model` and return its state; None if there is none.

    Raises:
        BenchError: it is damaged; the hint names the one before.
    """
    newest = last_checkpoint(folder)
    if newest is None:
        return None
    earlier = max((path for path in folder.glob(f"{PREFIX}*") if path != newest), default=None)
    next_step = f"training goes on from {earlier.name}" if earlier else "this model is then trained anew"
    hint = f"delete {newest} and run the same command again: {next_step}"
    try:
        load_weights(model, newest / MODEL)
        state: dict[str, Any] = torch.load(newest / STATE, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged bytes make torch raise any type of error
        raise BenchError(f"the checkpoint {newest} is damaged: {first_sentence(error)}", hint) from error
    return state


def generator_states(device: torch.device) -> dict[str, Any]:
    """The states of the random generators that training on a device uses: the CPU's, and that of its GPU.

    Other GPUs are left out, because training may be resumed on another GPU or with fewer.
    """
    on_gpu = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
    return {"cpu": torch.get_rng_state(), "cuda": on_gpu}


def restore_generators(states: dict[str, Any], device: torch.device) -> None:
    """Set the random generators of a device to `generator_states`."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and states["cuda"]:
        torch.cuda.set_rng_state(states["cuda"][0], device)


@contextmanager
def _write_errors(path: Path) -> Iterator[None]:
    """Raise write errors as a BenchError with the reason; each library has its own error for a full disk.

    Use it inside of a block that removes unfinished files, because afterwards the disk is no longer full.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        if of_the_device(error):
            raise
        is_full = isinstance(error, OSError) and error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
        is_full = is_full or shutil.disk_usage(path if path.is_dir() else path.parent).free < MIN_FREE_BYTES
        if is_full:
            raise BenchError(
                f"{path} cannot be written: the disk is full", "free some space; the same command then continues"
            ) from error
        raise BenchError(
            f"{path} cannot be written: {first_line(error)}", "check the folder and its permissions"
        ) from error


def _sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
