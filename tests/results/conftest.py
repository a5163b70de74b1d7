"""Small made-up stores, each test's on SQLite and on a real PostgreSQL server."""

import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import URL, create_engine, make_url
from sqlalchemy.pool import NullPool

from results import (
    AttentionRecord,
    DatasetRecord,
    EpochRecord,
    ImageRecord,
    Outcome,
    Quantity,
    RunSpec,
    SplitResult,
    Store,
)

SIGNATURE = {"nrefs": "5", "split": "scenes-test", "beam": "3"}


class Make:
    """Records with sensible contents; keywords change fields."""

    @staticmethod
    def dataset(fingerprint: str = "f" * 16, **changes: Any) -> DatasetRecord:
        """Three test images, the last of another domain."""
        fields: dict[str, Any] = {
            "name": "scenes",
            "fingerprint": fingerprint,
            "root": "/pictures",
            "split_sizes": {"train": 90, "test": 3},
            "images": (
                ImageRecord(1, "test/1.png", "test", ("a red ball", "one ball"), "in-domain"),
                ImageRecord(2, "test/2.png", "test", ("a blue cube",), "in-domain"),
                ImageRecord(30, "test/30.png", "test", ("<b>two</b> cones",), "out-domain"),
            ),
            "skipped": {"train/9.png": "truncated"},
        }
        return DatasetRecord(**(fields | changes))

    @staticmethod
    def spec(model: str = "blind", seed: int = 1, **changes: Any) -> RunSpec:
        """A planned run on `dataset`'s data; its key is made of the model, the seed and `variant`."""
        variant = changes.pop("variant", "")
        fields: dict[str, Any] = {
            "key": f"{model}-{seed}{variant}",
            "model": model,
            "role": "model",
            "seed": seed,
            "track": "controlled",
            "dataset": "f" * 16,
            "record": {"seed": seed, "arguments": {"seed": seed, "epochs": 3}},
            "signature": dict(SIGNATURE),
            "code_version": "0.1.0",
        }
        return RunSpec(**(fields | changes))

    @staticmethod
    def outcome(cider: float | None = 0.5, attention: tuple[AttentionRecord, ...] = (), **changes: Any) -> Outcome:
        """Results on the test split whose per-image CIDEr-D is `cider` times 1, 2 and 3."""
        score = Quantity(None, "no Java found") if cider is None else Quantity(cider)
        result = SplitResult(
            split="test",
            captions={1: "a ball", 2: "a cube", 30: "cones"},
            scores={
                "overall": {"CIDEr-D": score, "BLEU-4": Quantity(0.25)},
                "in-domain": {"CIDEr-D": score},
                "out-domain": {"CIDEr-D": Quantity(None, "one image only")},
            },
            per_image={} if cider is None else {"CIDEr-D": {1: cider, 2: 2 * cider, 30: 3 * cider}},
            attention=attention,
        )
        fields: dict[str, Any] = {
            "splits": (result,),
            "costs": {"parameters": Quantity(1000.0, unit="1"), "energy": Quantity(None, "no meter", "J")},
            "environment": {"torch": "2.x", "device": "cpu"},
            "checkpoint": "runs/blind/best.safetensors",
            "operators": {"counted": {"linear": 12}, "uncounted": ["aten::sort"]},
        }
        return Outcome(**(fields | changes))

    @staticmethod
    def run(store: Store, outcome: Outcome | None = None, *spec: Any, **changes: Any) -> str:
        """Plan a run, see `spec`, and finish it; gives its key."""
        planned = Make.spec(*spec, **changes)
        store.plan([planned])
        store.finish(planned.key, outcome or Make.outcome())
        return planned.key

    @staticmethod
    def attention(image_id: int = 1, **changes: Any) -> AttentionRecord:
        """Two words that look at a grid of 1 x 3; numbers that half precision keeps."""
        weights = ((0.5, 0.25, 0.25), (0.0, 1.0, 0.0))
        fields: dict[str, Any] = {"words": ("a", "ball"), "weights": weights, "grid": (1, 3)}
        return AttentionRecord(image_id, **(fields | changes))

    @staticmethod
    def epoch(epoch: int, **changes: Any) -> EpochRecord:
        """An epoch of the first stage."""
        fields: dict[str, Any] = {
            "stage": 0,
            "stage_name": "cross-entropy",
            "objective": "xe",
            "epoch": epoch,
            "step": 10 * epoch,
            "learning_rate": 1e-3,
            "train_loss": 3.0 / epoch,
            "val_cider": None,
            "seconds": 1.5,
            "images_per_second": 60.0,
        }
        return EpochRecord(**(fields | changes))


@pytest.fixture
def make() -> type[Make]:
    """The records' factory."""
    return Make


@pytest.fixture(scope="session")
def postgres() -> Iterator[URL]:
    """A PostgreSQL server of this test process: `BENCH_TEST_POSTGRES` names one, otherwise one is started.

    Tests skip where no server is installed, unless `BENCH_TEST_POSTGRES` is "required".
    """
    given = os.environ.get("BENCH_TEST_POSTGRES", "")
    if given not in {"", "required"}:
        yield make_url(given)
        return
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    if not programs:
        message = "no PostgreSQL server in /usr/lib/postgresql; Debian's package is postgresql"
        pytest.fail(message) if given else pytest.skip(message)
    with started_server(programs[-1]) as folder:
        yield URL.create("postgresql+psycopg", username="bench", database="postgres", query={"host": str(folder)})


@contextmanager
def started_server(programs: Path) -> Iterator[Path]:
    """Run a new server, which ends with this process; gives the folder of its socket. It refuses to run as root."""
    folder = Path(tempfile.mkdtemp(prefix="bench-postgres-"))
    user = ["--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.geteuid() == 0 else []
    if user:
        shutil.chown(folder, "postgres", "postgres")
    data = folder / "data"
    make = [programs / "initdb", "--username=bench", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"]
    subprocess.run(["setpriv", *user, *make, data], cwd=folder, check=True, capture_output=True)
    settings = {"listen_addresses": "", "unix_socket_directories": folder, "fsync": "off", "max_connections": 100}
    options = [f"--{name}={value}" for name, value in settings.items()]
    command = ["setpriv", *user, "--pdeathsig=QUIT", programs / "postgres", "-D", data, *options]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        ready = [programs / "pg_isready", "--quiet", f"--host={folder}"]
        for _ in range(600):
            if subprocess.run(ready, check=False).returncode == 0:
                break
            assert server.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)
        yield folder
    finally:
        server.send_signal(signal.SIGQUIT)
        server.wait(timeout=120)
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres_database(postgres: URL) -> Iterator[URL]:
    """A database of this test process alone."""
    name = f"bench_test_{uuid.uuid4().hex}"
    server = create_engine(postgres, isolation_level="AUTOCOMMIT", poolclass=NullPool)
    with server.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    yield postgres.set(database=name)
    with server.connect() as connection:
        connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def postgres_url(postgres_database: URL) -> str:
    """An empty PostgreSQL database."""
    engine = create_engine(postgres_database, poolclass=NullPool)
    with engine.begin() as connection:
        connection.exec_driver_sql("SET lock_timeout = 5000")  # a store that a test left open fails the next one
        connection.exec_driver_sql("DROP SCHEMA public CASCADE")
        connection.exec_driver_sql("CREATE SCHEMA public")
    return postgres_database.render_as_string(hide_password=False)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a store may be made: a SQLite file, then a PostgreSQL database."""
    if request.param == "sqlite":
        return str(tmp_path / "bench.sqlite")
    return str(request.getfixturevalue("postgres_url"))


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    """An empty store that knows one data set."""
    with Store(url) as opened:
        opened.record_dataset(Make.dataset())
        yield opened


@pytest.fixture
def add(store: Store) -> Callable[..., str]:
    """Plan and finish one run: `add(model, seed, cider, **fields of the spec)` gives its key."""

    def adding(model: str, seed: int = 1, cider: float | None = 0.5, **changes: Any) -> str:
        return Make.run(store, Make.outcome(cider), model, seed, **changes)

    return adding
