"""Where a benchmark keeps what it makes: one folder, safe to delete, shared by runs that follow each other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.utils.errors import BenchError

DEFAULT = Path("workspace")


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders and files of a workspace; its results may be in a database elsewhere (`db`: a file or a URL)."""

    root: Path
    db: str | None = None

    @property
    def database(self) -> str:
        """The results: a SQLite file, or a SQLAlchemy URL."""
        return self.db or str(self.root / "bench.sqlite")

    @property
    def cache(self) -> Path:
        """What can be made again: generated data, features, verification results."""
        return self.root / "cache"

    @property
    def report(self) -> Path:
        """The generated HTML."""
        return self.root / "report"

    def run_folder(self, key: str) -> Path:
        """Weights, vocabulary and log of one run."""
        return self.root / "runs" / key

    def create(self) -> None:
        """Make the root folder; BenchError when it cannot be made or written."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BenchError(
                f"cannot make the workspace {self.root}: {error.strerror}", "choose another with --workspace DIR"
            ) from error
        if not os.access(self.root, os.W_OK):
            raise BenchError(f"the workspace {self.root} is not writable", "choose another with --workspace DIR")


def user_cache() -> Path:
    """The folder of what any run of this user may use again, safe to delete; it need not exist.

    `$XDG_CACHE_HOME/captionbench`, by default the platform's: on Linux `~/.cache/captionbench`.
    """
    from platformdirs import user_cache_path

    return user_cache_path("captionbench", appauthor=False)


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold an exclusive lock on `path`; when another process has it, call `on_wait` once and wait.

    The system lets go of the lock when its holder dies, so a killed run never leaves one behind.
    """
    from filelock import FileLock, Timeout

    lock = FileLock(path)
    try:
        held = lock.acquire(blocking=False)
    except Timeout:
        on_wait()
        held = lock.acquire()
    with held:
        yield


def is_locked(path: Path) -> bool:
    """Whether another process holds the lock on `path` at this moment."""
    from filelock import FileLock, Timeout

    if not path.exists():
        return False
    try:
        with FileLock(path).acquire(blocking=False):
            return False
    except Timeout:
        return True
