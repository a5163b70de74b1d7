"""The environment of a measurement: versions, machine and device, without names of people, hosts or folders."""

import importlib.metadata
import locale
import os
import platform
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import torch

import harness
from harness.config.execution import usable_cores
from harness.measure.energy import NvmlError, nvml_device
from harness.utils.files import first_match

_PACKAGES = ("torch", "timm", "numpy", "transformers", "fvcore", "pillow", "pycocoevalcap", "safetensors", "sqlalchemy")


def describe_environment(device: torch.device | str) -> dict[str, Any]:
    """Versions, operating system, processor, memory, device and code version, JSON-able; None where unknown."""
    return {
        "captionbench": harness.__version__,
        "commit": code_commit(Path(harness.__file__).resolve().parent.parent),
        "python": platform.python_version(),
        "packages": {name: package_version(name) for name in _PACKAGES},
        "os": _operating_system(),
        "kernel": f"{platform.system()} {platform.release()}",
        "machine": platform.machine(),
        "cpu": first_match(Path("/proc/cpuinfo"), r"^model name\s*:\s*(.+)$") or platform.processor() or None,
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "ram_gib": _ram_gib(),
        "locale": locale.setlocale(locale.LC_CTYPE),
        "device": _device(torch.device(device)),
        "state": describe_state(torch.device(device)),
    }


def code_commit(root: Path) -> str | None:
    """The git commit checked out at `root`, with "-dirty" where tracked files differ; None if it is not a checkout."""
    if not (root / ".git").exists():
        return None
    try:
        commit = _git(root, "rev-parse", "HEAD")
        changes = _git(root, "status", "--porcelain", "--untracked-files=no")
    except (OSError, subprocess.SubprocessError):
        return None
    return f"{commit}-dirty" if changes else commit


def _git(root: Path, *arguments: str) -> str:
    command = ["git", "--no-optional-locks", "-C", str(root), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()


@cache  # reading the metadata of 25 packages takes longer than scoring a tiny model
def package_version(package: str) -> str | None:
    """The installed version of a package; None if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _operating_system() -> str:
    try:
        return platform.freedesktop_os_release()["PRETTY_NAME"]
    except (OSError, KeyError):
        return platform.system()


def _ram_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 2)
    except (AttributeError, ValueError, OSError):
        return None


def _device(device: torch.device) -> dict[str, Any]:
    if device.type != "cuda":
        return {"type": device.type}
    properties = torch.cuda.get_device_properties(device)
    return {
        "type": "cuda",
        "name": properties.name,
        "memory_gib": round(properties.total_memory / 2**30, 2),
        "cuda": torch.version.cuda,
        "driver": first_match(Path("/proc/driver/nvidia/version"), r"Kernel Module.*?\s(\d+\.\d+(?:\.\d+)*)"),
    }


def describe_state(device: torch.device) -> dict[str, Any]:
    """The current state of the machine: CPU load, and clocks, temperature and other processes of a GPU."""
    state: dict[str, Any] = {"load_average": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None}
    try:
        with nvml_device(device) as nvml:
            return state | nvml.state()
    except NvmlError:
        return state
