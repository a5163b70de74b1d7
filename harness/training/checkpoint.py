"""Checkpoints that are whole or absent: a folder is written beside and renamed, the last good one is kept until then.

Weights are safetensors; optimiser, random generators and position are tensors and plain values that are read with
`weights_only=True`, so that no checkpoint can run code.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import nn

from harness.atomic import replacing
from harness.errors import BenchError

PREFIX = "step-"


def save_weights(model: nn.Module, path: Path) -> None:
    """Write the model's weights to one safetensors file, atomically."""
    tensors = {name: value.detach().contiguous().cpu() for name, value in model.state_dict().items()}
    with replacing(path) as temporary:
        save_file(tensors, temporary)


def load_weights(model: nn.Module, path: Path) -> None:
    """Read weights into `model`; BenchError when the file is missing, damaged or of another model."""
    try:
        model.load_state_dict(load_file(path))
    except (OSError, SafetensorError, RuntimeError) as error:
        raise BenchError(
            f"cannot read the weights {path}: {str(error).splitlines()[0]}",
            f"delete {path.parent} and run the same command again: this model is then trained anew",
        ) from error


def save_checkpoint(folder: Path, number: int, model: nn.Module, state: dict[str, Any]) -> None:
    """Write checkpoint `number` under `folder`, then remove the older ones."""
    folder.mkdir(parents=True, exist_ok=True)
    unfinished = folder / f".{PREFIX}{number:09d}"
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    save_weights(model, unfinished / "model.safetensors")
    with replacing(unfinished / "state.pt") as temporary:
        torch.save(state, temporary)
    target = folder / f"{PREFIX}{number:09d}"
    shutil.rmtree(target, ignore_errors=True)
    unfinished.rename(target)
    _sync_folder(folder)
    for other in folder.iterdir():
        if other != target:
            shutil.rmtree(other)


def load_checkpoint(folder: Path, model: nn.Module) -> dict[str, Any] | None:
    """Read the newest whole checkpoint into `model` and return its state; None where there is none yet."""
    found = sorted(folder.glob(f"{PREFIX}*")) if folder.is_dir() else []
    if not found:
        return None
    newest = found[-1]
    load_weights(model, newest / "model.safetensors")
    try:
        state: dict[str, Any] = torch.load(newest / "state.pt", map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises whatever the damaged bytes lead it to
        raise BenchError(
            f"the checkpoint {newest} is damaged: {str(error).splitlines()[0] if str(error) else type(error).__name__}",
            f"delete {newest} and run the same command again: this model is then trained anew",
        ) from error
    return state


def _sync_folder(folder: Path) -> None:
    """Make a rename inside `folder` survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
