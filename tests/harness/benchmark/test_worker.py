"""One run after another: each ends as a row, be it finished, re-used, failed with the reason, or skipped."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.benchmark import worker as module
from harness.benchmark.engines.crew import take
from harness.benchmark.engines.runs import ordered
from harness.benchmark.pretrained import WeightsMissing
from harness.benchmark.worker import LOCK, LOG_TAIL_LINES, Shared, Worker
from harness.config.execution import ExecutionConfig
from harness.data.dataset import Sample
from harness.metrics.contract import METRICS
from harness.metrics.signature import EvaluationSettings
from harness.utils.errors import INTERRUPTED, BenchError
from harness.utils.workspace import Workspace, locked
from results import DatasetRecord, Outcome, Quantity, SplitResult, Store
from results.records import EpochRecord
from results.runs.fetch import failures
from results.runs.views import Failure
from tests.harness.benchmark.small_runs import make_spec, quiet

EPOCH = EpochRecord(0, "xe", "cross_entropy", 0, 1, 0.1, 2.0, 0.5, 1.0, 8.0)
MEASURED = {metric: Quantity(0.5) for metric in METRICS if metric != "SPICE"}


def outcome(**scores: Quantity) -> Outcome:
    """A finished run's, with all metrics but SPICE unless `scores` say otherwise."""
    result = SplitResult("test", {1: "a dog"}, {"overall": MEASURED | scores}, {})
    return Outcome((result,), {}, {})


class Fake:
    """A worker whose runs are executed by a function, with the store and the text that it leaves."""

    def __init__(self, store: Store, workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
        self.store, self.workspace, self.said = store, workspace, io.StringIO()
        self.executed: list[str] = []
        self.warmed: list[list[str]] = []
        self.result: Outcome | BaseException = outcome()

        def execute(spec: Any, *_: object, on_epoch: Callable[[EpochRecord], None], **__: object) -> Outcome:
            assert store.status(spec.key) == "running"
            self.executed.append(spec.key)
            on_epoch(EPOCH)
            if isinstance(self.result, BaseException):
                raise self.result
            return self.result

        monkeypatch.setattr(module, "execute", execute)
        monkeypatch.setattr(module, "describe_environment", lambda device: {"device": str(device)})

    def make(self, *, rerun: bool = False, spice: bool = False) -> Worker:
        samples = (Sample(1, "1.png", "test", ("a dog", "the dog")),)
        context: Any = SimpleNamespace(
            execution=SimpleNamespace(device=torch.device("cpu"), config=ExecutionConfig()),
            data=SimpleNamespace(evaluated={"test": samples}),
            inputs=SimpleNamespace(vocabulary=SimpleNamespace(words=("red",))),
        )
        evaluator: Any = SimpleNamespace(warm_up=self.warmed.append)
        shared = Shared(context, self.workspace, EvaluationSettings(spice=spice), rerun)
        return Worker(shared, self.store, evaluator, quiet(self.said))

    def failure(self) -> Failure:
        [found] = [found for found in failures(self.store) if found.status != "planned"]
        return found


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    workspace = Workspace(tmp_path)
    with Store(workspace.database) as store:
        store.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": 1}, ()))
        store.plan([make_spec("a"), make_spec("b", "updown")])
        yield Fake(store, workspace, monkeypatch)


def test_a_run_is_executed_and_stored(fake: Fake) -> None:
    assert fake.make().work(make_spec("a"), "[1/1] blind") == "finished"
    assert fake.store.status("a") == "finished"
    assert fake.said.getvalue().startswith("[1/1] blind\n  done in ")


def test_a_finished_run_is_used_again(fake: Fake) -> None:
    worker = fake.make()
    assert not worker.is_done(make_spec("a"))
    worker.work(make_spec("a"), "first")
    assert worker.is_done(make_spec("a"))
    assert worker.work(make_spec("a"), "second") == "reused"
    assert fake.executed == ["a"]
    assert fake.said.getvalue().endswith("second: re-used, finished before\n")


def test_what_scores_captions_is_warmed_up_once_with_all_words(fake: Fake) -> None:
    worker = fake.make()
    for key in ("a", "b"):
        worker.work(make_spec(key), key)
    assert fake.warmed == [["red", "a dog", "the dog"]]


def test_an_error_is_a_failed_row_and_the_next_run_goes_on(fake: Fake) -> None:
    worker = fake.make()
    fake.result = BenchError("no such weights", "fetch them")
    assert worker.work(make_spec("a"), "[1/2] blind") == "failed"
    found = fake.failure()
    assert (found.status, found.error_class) == ("failed", "BenchError")
    assert found.reason == "no such weights (fetch them)"
    assert (found.log_tail or "").splitlines()[-1].endswith("no such weights")
    assert fake.said.getvalue().endswith("  failed: BenchError: no such weights (fetch them)\n")
    fake.result = outcome()
    assert worker.work(make_spec("b"), "[2/2] updown") == "finished"
    assert worker.work(make_spec("a"), "again") == "finished", "a failed run is tried again"


def test_an_interrupt_is_stored_and_passed_on(fake: Fake) -> None:
    fake.result = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fake.make().work(make_spec("a"), "blind")
    found = fake.failure()
    assert (found.status, found.state, found.reason) == ("running", "interrupted", INTERRUPTED)
    fake.result = outcome()
    assert fake.make().work(make_spec("a"), "again") == "finished"


def test_an_error_without_a_message_is_named_by_its_class(fake: Fake) -> None:
    fake.result = ZeroDivisionError()
    fake.make().work(make_spec("a"), "blind")
    assert fake.failure().reason == "ZeroDivisionError"


def test_a_long_traceback_is_kept_from_its_end(fake: Fake) -> None:
    fake.result = RuntimeError("\n".join(f"line {number}" for number in range(100)))
    fake.make().work(make_spec("a"), "blind")
    tail = (fake.failure().log_tail or "").splitlines()
    assert len(tail) == LOG_TAIL_LINES
    assert tail[-1] == "line 99"


def test_a_run_whose_weights_are_not_here_is_skipped(fake: Fake) -> None:
    fake.result = WeightsMissing("the weights are not on this machine", "bench prefetch model x")
    assert fake.make().work(make_spec("a"), "blind") == "skipped"
    found = fake.failure()
    assert (found.status, found.error_class) == ("skipped", None)
    assert found.reason == "the weights are not on this machine (bench prefetch model x)"


def test_a_rerun_begins_without_the_old_checkpoints(fake: Fake) -> None:
    folder = fake.workspace.run_folder("a")
    fake.make().work(make_spec("a"), "blind")
    (folder / "checkpoint" / "step-000000001").mkdir(parents=True)
    (folder / "best.safetensors").touch()
    fake.make().work(make_spec("a"), "blind")
    assert (folder / "checkpoint").is_dir(), "a finished run is left alone"
    worker = fake.make(rerun=True)
    assert not worker.is_done(make_spec("a"))
    assert worker.work(make_spec("a"), "blind") == "finished"
    assert fake.executed == ["a", "a"]
    assert not (folder / "checkpoint").exists()
    assert (folder / "best.safetensors").is_file(), "until training has better ones"


def test_a_metric_that_cannot_be_added_is_tried_once(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.result = outcome(METEOR=Quantity(None, "it hung"))
    worker = fake.make()
    asked: list[tuple[str, dict[str, set[str]]]] = []

    def add(spec: Any, missing: dict[str, set[str]], *_: object) -> dict[str, str | None]:
        asked.append((spec.key, missing))
        return {"METEOR": "no Java here"}

    monkeypatch.setattr(module, "add_missing_scores", add)
    for key in ("a", "b"):
        worker.work(make_spec(key), key)
    for key in ("a", "b"):
        assert worker.work(make_spec(key), f"again {key}") == "reused"
    assert asked == [("a", {"test": {"METEOR"}})], "what failed for one run would fail for the next"
    assert fake.said.getvalue().endswith(
        "again a: re-used, finished before; METEOR: no Java here\nagain b: re-used, finished before\n"
    )


def test_a_metric_that_can_be_added_is_added_to_every_run(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    without = fake.make()
    for key in ("a", "b"):
        without.work(make_spec(key), key)
        without.work(make_spec(key), key)
    asked: list[dict[str, set[str]]] = []

    def add(_: object, missing: dict[str, set[str]], *__: object) -> dict[str, str | None]:
        asked.append(missing)
        return {"SPICE": None}

    monkeypatch.setattr(module, "add_missing_scores", add)
    worker = fake.make(spice=True)
    for key in ("a", "b"):
        worker.work(make_spec(key), key)
    assert asked == [{"test": {"SPICE"}}] * 2, "SPICE is missing only where it is asked for"
    assert fake.said.getvalue().endswith("b: re-used, finished before; SPICE: scored now\n")
    assert len(fake.executed) == 2


def test_what_another_process_executes_is_taken_last(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    waiting = ordered([(key, make_spec(key)) for key in ("a", "b", "c")], workspace)
    lock = workspace.run_folder("a") / LOCK
    lock.parent.mkdir(parents=True)
    with locked(lock, lambda: None):
        assert [take(waiting).content[0] for _ in range(3)] == ["b", "c", "a"]
    assert waiting == []
