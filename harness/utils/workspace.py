"""The workspace: the folder of a benchmark's outputs and caches, shared by successive runs and safe to delete."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from harness.utils.errors import BenchError
from harness.utils.files import require_utf8
from results.errors import without_passwords

if TYPE_CHECKING:
    from results.store.store import Store

DEFAULT = Path("workspace")


@dataclass(frozen=True, slots=True)
class Workspace:
    """The folders and files of a workspace; results may be in another database (`db`)."""

    root: Path
    db: str | None = None

    @property
    def database(self) -> str:
        """The results: a SQLite file, or a SQLAlchemy URL."""
        return self.db or str(self.root / "bench.sqlite")

    def options(self) -> list[str]:
        """The options that name its results to a command; passwords of a URL are left out."""
        options = [] if self.root == DEFAULT else ["--workspace", os.path.normpath(self.root)]
        if self.db is not None and self.db != os.environ.get("BENCH_DB"):
            options += ["--db", without_passwords(self.db)]
        return options

    def open_results(self) -> Store:
        """The results, read-only; BenchError where the workspace has none yet."""
        from results.store.store import Store

        if self.db is None and not Path(self.database).is_file():
            raise BenchError(
                f"no results in the workspace {self.root}: {self.database} does not exist",
                "make some with: bench run --models all; or name a workspace with --workspace DIR",
            )
        return Store(self.database, read_only=True)

    @property
    def cache(self) -> Path:
        """The cache: generated data, features, verification results."""
        return self.root / "cache"

    @property
    def report(self) -> Path:
        """The folder of the HTML report."""
        return self.root / "report"

    @property
    def logs(self) -> Path:
        """The folder of experiment trackers."""
        return self.root / "logs"

    @property
    def stages(self) -> Path:
        """The best weights of finished stages of training, for runs that begin alike."""
        return self.root / "stages"

    def run_folder(self, key: str) -> Path:
        """The folder of one run: weights, vocabulary and log."""
        return self.root / "runs" / key

    def check_name(self) -> None:
        """BenchError where the results could not name the workspace's files."""
        require_utf8(self.root, "the workspace", "choose another with --workspace DIR")

    def create(self) -> None:
        """Create the root folder; BenchError if it cannot be created or written, or its name cannot be stored."""
        self.check_name()
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise BenchError(
                f"the workspace {self.root} cannot be created: {error.strerror}", "choose another with --workspace DIR"
            ) from error
        if not os.access(self.root, os.W_OK):
            raise BenchError(f"the workspace {self.root} is not writable", "choose another with --workspace DIR")


def user_cache() -> Path:
    """The user's cache, safe to delete, perhaps not there: `$XDG_CACHE_HOME/captionbench`, or the platform's folder."""
    from platformdirs import user_cache_path

    return user_cache_path("captionbench", appauthor=False)


@contextmanager
def locked(path: Path, on_wait: Callable[[], None]) -> Iterator[None]:
    """Hold a lock on `path`, which ends with its holder; when another process has it, call `on_wait` once and wait."""
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
    except FileNotFoundError:  # its holder has deleted the folder just now
        return False
    except Timeout:
        return True
