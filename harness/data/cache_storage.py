"""Folders of the cache in the remote storage: fetched where this machine lacks them, kept once they are whole."""

from __future__ import annotations

from pathlib import Path

from harness.data.features import META
from harness.utils.storage import Storage


def is_cached(folder: Path, storage: Storage | None) -> bool:
    """Whether a folder of features or regions is whole, after it was fetched where the storage has it."""
    if storage is not None and not (folder / META).is_file():
        storage.fetch(folder, _name(folder))
    return (folder / META).is_file()


def keep_cache(folder: Path, storage: Storage | None) -> None:
    """Upload a whole folder, if there is a storage."""
    if storage is not None:
        storage.push(folder, _name(folder))


def _name(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"
