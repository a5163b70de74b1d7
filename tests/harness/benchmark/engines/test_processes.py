"""Worker processes: their devices, what they say, and what becomes of the order of one that dies."""

from __future__ import annotations

import concurrent.futures
import io
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
import torch
from harness.benchmark.engines.crew import Failure, Order
from harness.benchmark.engines.entering import device_at, limit_threads
from harness.benchmark.engines.processes import ProcessCrew, _Answer, _Worker
from harness.benchmark.engines.reporting import RemoteReporter, ReporterProxy
from harness.benchmark.engines.runs import OPENER, execute_runs
from rich.console import Console

from harness.benchmark.engines import processes as module
from harness.utils import progress
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import DatasetRecord, Store
from tests.harness.benchmark.small_runs import make_spec, quiet

CPU, GPU = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def shown() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def echo(shown: io.StringIO) -> ReporterProxy:
    echo = ReporterProxy(Reporter(Console(file=shown, width=80)))
    echo.name = "updown"
    return echo


def test_indented_lines_get_the_name_and_titles_stay(echo: ReporterProxy, shown: io.StringIO) -> None:
    here, there = Pipe()
    relay = RemoteReporter(there)
    relay.note("[3/9] updown")
    relay.note("  xe epoch 1: loss [b]1.5[/b]", style="red")
    for _ in range(2):
        echo.show(here.recv())
    assert shown.getvalue() == "[3/9] updown\n  updown: xe epoch 1: loss [b]1.5[/b]\n"


def test_progress_is_told_as_if_the_work_were_done_here(
    echo: ReporterProxy, shown: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PLAIN_INTERVAL_S", 0.0)
    here, there = Pipe()
    with RemoteReporter(there).task("  captioning test", 10, done=2) as task:
        task.advance(3, "2 left out")
    while here.poll():
        echo.show(here.recv())
    assert shown.getvalue().startswith("  updown: captioning test: 5/10 2 left out (about ")


def test_an_echo_of_something_else_is_refused(echo: ReporterProxy) -> None:
    with pytest.raises(ValueError, match="'sing'"):
        echo.show(("sing", 1))


def test_gpus_are_taken_in_turn_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    taken = [device_at(GPU, place) for place in range(3)]
    assert taken == [torch.device("cuda", index) for index in (0, 1, 0)]
    assert device_at(torch.device("cuda", 1), 0) == torch.device("cuda", 1)
    assert device_at(CPU, 1) == CPU


def test_threads_are_shared_for_a_while() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with limit_threads(3):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


class FakeProcess:
    """A worker as a thread: it answers each run by its model's name, and "killed" and "broken" are its end."""

    started: list[int] = []  # noqa: RUF012  # emptied by the fixture
    exitcode: int | None = 0

    def __init__(self, target: str, theirs: Connection, place: int, *_: object) -> None:
        assert target == "harness.benchmark.engines.processes:serve"
        self.started.append(place)
        self._channel = Connection(os.dup(theirs.fileno()))  # its own end, as a process has
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout: float) -> None:
        self._thread.join(timeout)

    def kill(self) -> None:
        pass

    def _work(self) -> None:
        with self._channel:
            while order := self._channel.recv():
                title, spec = order.content
                self._channel.send(("note", f"  said of {title}", ""))
                if spec.model == "killed":
                    self.exitcode = -9
                    return
                if spec.model == "broken":
                    self._channel.send(Failure("BenchError", "no plug-in"))
                    return
                self._channel.send(_Answer("skipped" if spec.model == "away" else "finished"))


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Workers without processes; gives the places at which they were started."""
    FakeProcess.started = []
    monkeypatch.setattr(module, "make_worker", FakeProcess)
    return FakeProcess.started


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "bench.sqlite") as opened:
        opened.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": 1}, ()))
        yield opened


def run(models: str, jobs: int, store: Store, folder: Path, reporter: Reporter | None = None) -> list[tuple[str, str]]:
    """Execute a run of each model; gives how each ended."""
    specs = [make_spec(f"{model}-s0", model) for model in models.split()]
    store.plan(specs)
    reporter = reporter or quiet()
    crew = ProcessCrew(jobs, OPENER, None, reporter)
    ended = execute_runs(crew, [(spec.model, spec) for spec in specs], Workspace(folder), store, reporter)
    return [(spec.model, how) for spec, how in ended]


def test_every_run_ends_once_whichever_worker_has_it(processes: list[int], store: Store, tmp_path: Path) -> None:
    found = run("a b away c d", 2, store, tmp_path)
    assert sorted(found) == [
        ("a", "finished"), ("away", "skipped"), ("b", "finished"), ("c", "finished"), ("d", "finished"),
    ]  # fmt: skip
    assert processes == [0, 1]


def test_no_more_workers_are_started_than_there_are_runs(processes: list[int], store: Store, tmp_path: Path) -> None:
    assert len(run("a b", 8, store, tmp_path)) == 2
    assert processes == [0, 1]


def test_a_worker_that_is_killed_costs_its_run_alone(
    processes: list[int], store: Store, tmp_path: Path, shown: io.StringIO
) -> None:
    assert dict(run("a killed b c", 1, store, tmp_path, quiet(shown))) == {
        "a": "finished", "killed": "failed", "b": "finished", "c": "finished",
    }  # fmt: skip
    assert processes == [0, 0], "another worker takes its place"
    assert store.status("killed-s0") == "failed"
    assert "killed: failed: WorkerDied: its process was ended by SIGKILL; perhaps the machine ran out of memory" in (
        shown.getvalue()
    )


def test_a_worker_that_cannot_work_gives_its_reason(
    processes: list[int], store: Store, tmp_path: Path, shown: io.StringIO
) -> None:
    assert run("broken", 1, store, tmp_path, quiet(shown)) == [("broken", "failed")]
    assert processes == [0]
    assert "  broken: said of broken" in shown.getvalue()
    assert "  broken: failed: BenchError: no plug-in" in shown.getvalue()


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (-15, "its process was ended by SIGTERM"),
        (3, "its process ended with exit code 3"),
        (-9, "its process was ended by SIGKILL; perhaps the machine ran out of memory: try fewer --jobs"),
    ],
)
def test_the_end_of_a_process_is_told(processes: list[int], code: int, reason: str) -> None:
    worker = _Worker(4, 1, "", b"", quiet())
    worker.shutdown()
    worker.process.join(5)
    worker.process.exitcode = code  # type: ignore[misc]  # a FakeProcess
    assert processes == [4]
    assert worker.receive() == Failure("WorkerDied", reason)


def test_a_worker_is_named_by_its_run(processes: list[int], store: Store, tmp_path: Path, shown: io.StringIO) -> None:
    specs = [make_spec("0", "blind"), make_spec("2", "blind", seed=2)]
    store.plan(specs)
    crew = ProcessCrew(1, OPENER, None, quiet(shown))
    list(execute_runs(crew, [("[1/1]", spec) for spec in specs], Workspace(tmp_path), store, quiet(shown)))
    assert processes == [0]
    assert shown.getvalue() == "  blind: said of [1/1]\n  blind seed 2: said of [1/1]\n"


def test_what_keeps_a_worker_from_starting_is_sent() -> None:
    here, there = Pipe()
    module.serve(there, 0, 1, OPENER, pickle.dumps(None))
    failure = here.recv()
    assert (failure.error_class, "context" in failure.reason) == ("AttributeError", True)


FORK = multiprocessing.get_context("fork")


def answer(order: tuple[int, Path]) -> int:
    """The tenfold; the third order is the death of its process, and later ones wait until a file says that it is known.

    An event of multiprocessing would wait for those of its waiters that have been killed.
    """
    number, death_seen = order
    if number == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    while number > 3 and not death_seen.exists():
        time.sleep(0.005)
    return 10 * number


@contextmanager
def open_answering(shared: str, place: int, reporter: Reporter) -> Iterator[Callable[[tuple[int, Path]], int]]:
    assert (shared, place in {0, 1}) == ("shared", True)
    reporter.note("  opened")
    yield answer


def test_a_death_costs_one_order_where_the_library_loses_the_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ten orders, two processes, one of which is killed by its third order."""
    numbers, futures, death_seen = range(1, 11), [], tmp_path / "seen"
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=FORK) as pool:
        for number in numbers:
            with suppress(BrokenProcessPool):  # where its end is noticed before
                futures.append(pool.submit(answer, (number, death_seen)))
        answered = [future.result() for future in futures if not isinstance(future.exception(), BrokenProcessPool)]
    assert set(answered) <= {10, 20}, "eight are lost"

    monkeypatch.setattr(multiprocessing, "get_context", lambda _: FORK)  # the imports of a new process take seconds
    crew, found = ProcessCrew(2, f"{__name__}:open_answering", "shared", quiet()), {}
    for order, ended in crew.perform([Order(str(number), (number, death_seen)) for number in numbers]):
        found[order.content[0]] = ended
        if isinstance(ended, Failure):
            death_seen.touch()
    assert found.pop(3) == Failure(
        "WorkerDied", "its process was ended by SIGKILL; perhaps the machine ran out of memory: try fewer --jobs"
    )
    assert found == {number: 10 * number for number in numbers if number != 3}
    assert crew.at_work == []


def test_orders_may_be_added_while_others_are_done(processes: list[int]) -> None:
    orders = [Order("a", ("a", make_spec("a-s0", "a")))]
    done = []
    for order, _ in ProcessCrew(4, OPENER, None, quiet()).perform(orders):
        done.append(order.name)
        if order.name == "a":
            orders += [Order(name, (name, make_spec(f"{name}-s0", name))) for name in "bc"]
    assert sorted(done) == ["a", "b", "c"]
    assert processes == [0, 1]
