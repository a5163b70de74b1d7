"""One run after another: each ends as a row, be it finished, re-used, failed with the reason, or skipped."""

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark import execute as module
from harness.benchmark import run_reporter
from harness.benchmark import services as services_module
from harness.benchmark.context import RunContext
from harness.benchmark.execute import LOCK, LOG_TAIL_LINES, execute_planned, execute_run, mark_interrupted
from harness.benchmark.run import RunTools
from harness.benchmark.run_reporter import RunReporter
from harness.config.run import EnsembleRun, RunBase, TrainedRun
from harness.data.hub import WeightsMissing
from harness.utils.errors import INTERRUPTED, BenchError
from harness.utils.processes import close_at_end
from harness.utils.workspace import Workspace, locked
from results import Outcome, Quantity, SplitResult
from results.metrics import metric_names
from results.records import EpochRecord
from tests.harness.benchmark.small_runs import FixedServices, make_spec, run_config

EPOCH = EpochRecord(0, "xe", "cross_entropy", 0, 1, 0.1, 2.0, 0.5, 1.0, 8.0)
MEASURED = {metric: Quantity(0.5) for metric in metric_names() if metric != "SPICE"}


def outcome(**scores: Quantity) -> Outcome:
    """A finished run's, with all metrics but SPICE unless `scores` say otherwise."""
    return Outcome((SplitResult("test", {1: "a dog"}, {"overall": MEASURED | scores}, {}),), {}, {})


class Fake:
    """Planned runs a and b that are executed by a function, with the store and the text that it leaves."""

    def __init__(self, workspace: Workspace, context: RunContext, monkeypatch: pytest.MonkeyPatch) -> None:
        self.workspace, self.said = workspace, io.StringIO()
        self.services = FixedServices(workspace, context, self.said)
        self.store, self.executed = self.services.store, list[str]()
        self.result: Outcome | BaseException = outcome()
        self.store.plan([make_spec("a", context=context), make_spec("b", "updown", context)])

        def train_run(_: TrainedRun, __: RunContext, tools: RunTools) -> Outcome:
            key = tools.folder.name
            assert self.store.status(key) == "running"
            self.executed.append(key)
            tools.on_epoch(EPOCH)
            if isinstance(self.result, BaseException):
                raise self.result
            return self.result

        monkeypatch.setattr(module, "train_run", train_run)
        monkeypatch.setattr(module, "_refuse_other_key", lambda *_: None)  # keys are letters here

    def execute(self, key: str, *, rerun: bool = False) -> str:
        return execute_run(key, self.workspace, rerun)

    def row(self, key: str, *columns: str) -> tuple[Any, ...]:
        with self.store.reading() as connection:
            query = f"select {', '.join(columns)} from runs where key = '{key}'"  # noqa: S608
            return tuple(connection.exec_driver_sql(query).one())


@pytest.fixture
def fake(tmp_path: Path, small: RunContext, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fake]:
    made = Fake(Workspace(tmp_path / "workspace"), small, monkeypatch)
    with made.services:
        yield made


def test_a_run_is_executed_once_and_then_used_again(fake: Fake) -> None:
    assert [fake.execute("a"), fake.execute("a")] == ["finished", "reused"]
    assert (fake.executed, fake.store.status("a")) == (["a"], "finished")


def test_a_worker_needs_the_key_and_the_workspace(
    fake: Fake, small: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services_module, "_OPENED", {})
    monkeypatch.setattr(services_module, "Services", lambda workspace, _: FixedServices(workspace, small, fake.said))
    with close_at_end():
        for key in ("a", "b"):
            assert fake.execute(key) == "finished"
            assert "done in" in (fake.workspace.run_folder(key) / "log.txt").read_text(encoding="utf-8")
    assert fake.said.getvalue() == "", "what it says is in the folder of its run"


def test_a_run_that_another_process_executes_is_busy(fake: Fake) -> None:
    fake.workspace.run_folder("a").mkdir(parents=True)
    with ThreadPoolExecutor(1) as pool:
        with locked(fake.workspace.run_folder("a") / LOCK, lambda: None):
            assert execute_run("a", fake.workspace, wait=False) == "busy"
            ended = pool.submit(execute_planned, None, fake.services)
            while fake.store.status("b") != "finished":
                time.sleep(0.01)
            assert fake.executed == ["b"], "it comes last"
            fake.store.finish("a", outcome())
        assert ended.result(timeout=10)["b"] == "finished"
    assert fake.executed == ["b"]


@pytest.mark.parametrize(
    ("error", "status", "error_class", "reason"),
    [
        (BenchError("no such weights", "fetch them"), "failed", "BenchError", "no such weights (fetch them)"),
        (ZeroDivisionError(), "failed", "ZeroDivisionError", "ZeroDivisionError"),
        (WeightsMissing("not here", "fetch x"), "skipped", None, "not here (fetch x)"),
    ],
)
def test_an_error_is_a_row_and_the_next_run_goes_on(
    fake: Fake, error: Exception, status: str, error_class: str | None, reason: str
) -> None:
    fake.result = error
    assert fake.execute("a") == status
    assert fake.row("a", "status", "error_class", "reason") == (status, error_class, reason)
    fake.result = outcome()
    assert [fake.execute("b"), fake.execute("a")] == ["finished", "finished"], "what failed is tried again"


def test_an_interrupt_is_stored_and_passed_on(fake: Fake) -> None:
    fake.result = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fake.execute("a")
    assert fake.row("a", "status", "reason") == ("running", INTERRUPTED)
    fake.result = outcome()
    assert fake.execute("a") == "finished"


def test_a_long_traceback_is_kept_from_its_end(fake: Fake) -> None:
    fake.result = RuntimeError("\n".join(f"line {number}" for number in range(100)))
    fake.execute("a")
    [tail] = fake.row("a", "log_tail")
    assert (len(tail.splitlines()), tail.splitlines()[-1]) == (LOG_TAIL_LINES, "line 99")


def test_a_rerun_begins_without_the_old_checkpoints(fake: Fake) -> None:
    folder = fake.workspace.run_folder("a")
    fake.execute("a")
    (folder / "checkpoint" / "step-000000001").mkdir(parents=True)
    (folder / "best.safetensors").touch()
    fake.execute("a")
    assert (folder / "checkpoint").is_dir(), "a finished run is left alone"
    assert fake.execute("a", rerun=True) == "finished"
    assert fake.executed == ["a", "a"]
    assert not (folder / "checkpoint").exists()
    assert (folder / "best.safetensors").is_file(), "until training has better ones"


def test_a_requeued_job_goes_on_with_the_runs_that_it_had_begun_anew(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    fake.result = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        fake.execute("a", rerun=True)  # the job is pre-empted
    checkpoints = [fake.workspace.run_folder(key) / "checkpoint" for key in "ab"]
    for checkpoint in checkpoints:
        (checkpoint / "step-000000001").mkdir(parents=True)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    fake.result = outcome()
    assert [fake.execute(key, rerun=True) for key in "ab"] == ["finished", "finished"]
    assert [checkpoint.is_dir() for checkpoint in checkpoints] == [True, False], "b had not begun"
    assert fake.execute("a", rerun=True) == "finished"
    assert not checkpoints[0].exists(), "it ended meanwhile"


def test_a_finished_run_that_cannot_be_scored_again_stops_no_other(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fake.execute("a") == "finished"
    monkeypatch.setattr(module, "missing_metrics", lambda *_: 1 / 0)
    assert (fake.execute("a"), fake.store.status("a")) == ("reused", "finished")
    assert "not scored again: division by zero" in fake.said.getvalue()


def test_a_metric_that_cannot_be_added_is_tried_once(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.result = outcome(METEOR=Quantity(None, "it hung"))
    asked: list[tuple[str, dict[str, set[str]]]] = []

    def add(spec: Any, missing: dict[str, set[str]], *_: object, **__: object) -> dict[str, str | None]:
        asked.append((spec.key, missing))
        return {"METEOR": "no Java here"}

    monkeypatch.setattr(module, "add_missing_scores", add)
    for key in ("a", "b"):
        fake.execute(key)
    assert [fake.execute("a"), fake.execute("b")] == ["reused", "reused"]
    assert asked == [("a", {"test": {"METEOR"}})], "what failed for one run would fail for the next"


def test_runs_of_a_row_without_configuration_fail_with_what_to_do(fake: Fake) -> None:
    fake.store.plan([make_spec("c", dataset=fake.services.fixed.signature["data"])])
    with pytest.raises(BenchError, match="run c"):
        fake.execute("c")
    assert execute_planned(["c", "a"], fake.services) == {"c": "failed", "a": "finished"}
    fake.store.finish("c", outcome())
    assert execute_planned(["c"], fake.services) == {"c": "reused"}
    with pytest.raises(BenchError, match="unknown"):
        execute_planned(["unknown"], fake.services)


def test_planned_runs_are_worked_off_until_none_is_left(fake: Fake) -> None:
    fake.result = ValueError("no")
    assert execute_planned(None, fake.services) == {"a": "failed", "b": "failed"}
    assert execute_planned(None, fake.services) == {}, "what failed is planned anew by bench run alone"
    fake.result = outcome()
    assert execute_planned(["b"], fake.services) == {"b": "finished"}


def test_an_ensemble_is_executed_after_members_that_another_process_left(
    fake: Fake, small: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config(small)
    common = {name: value for name, value in dict(config).items() if name in RunBase.model_fields}
    ensemble = EnsembleRun(**{**common, "model": "ensemble:a+b", "members": ("a", "b")})
    plain = make_spec("c", context=small)
    fake.store.plan([replace(plain, kind="ensemble", config=ensemble.model_dump(mode="json"))])
    order: list[str] = []
    execute = module.execute_run

    def execute_run(key: str, workspace: Workspace, *, wait: bool) -> str:
        if key == "a" and not wait:
            return "busy"  # its process ends without finishing it
        order.append(key)
        return "finished" if key == "c" else execute(key, workspace, wait=wait)

    monkeypatch.setattr(module, "execute_run", execute_run)
    assert execute_planned(None, fake.services) == {"b": "finished", "a": "finished", "c": "finished"}
    assert order == ["b", "a", "c"]


def test_an_interrupted_worker_leaves_its_reason(fake: Fake, small: RunContext) -> None:
    names = ("running", "waited_for", "planned", "ended")
    fake.store.plan([make_spec(name, name, small) for name in names])
    for name in names[:2]:
        fake.store.begin(name, {})
    fake.store.fail("ended", "ValueError", "no", "")
    fake.workspace.run_folder("waited_for").mkdir(parents=True)
    with locked(fake.workspace.run_folder("waited_for") / LOCK, lambda: None):  # another command executes it
        mark_interrupted(names, fake.services, 0.0)
    assert [fake.row(name, "status", "reason") for name in names] == [
        ("running", INTERRUPTED),
        ("running", None),
        ("planned", None),
        ("failed", "no"),
    ]


def test_a_run_reports_to_the_store_what_it_is_at(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(run_reporter.time, "monotonic", lambda: now)
    fake.store.begin("a", {})
    reporter = RunReporter(fake.services.reporter, fake.store, "a")

    def said() -> dict[str, Any]:
        progress = fake.store.progress(["a"])["a"]
        assert progress.status == "running"
        return progress.said or {}

    reporter.watch(stage="xe", epoch=1, epochs=4, loss=2.5)
    now = 1.0
    reporter.watch(validated=0.5)
    assert said()["cider"] is None, "written every two seconds"
    now = 5.0
    with reporter.task("xe epoch 2/4", 8) as task:
        task.reach(2)
    assert said().items() >= {"stage": "xe", "loss": 2.5, "cider": 0.5, "doing": "xe 25 %"}.items()
    now = 10.0
    reporter.watch(stage="captioning")
    assert said().items() >= {"doing": "captioning", "epoch": None, "loss": None, "cider": None}.items()
    for number in range(run_reporter.KEPT_LINES + 5):
        reporter.log(f"line {number}")
    reporter.note("careful", style="yellow")
    assert said()["reported"] == run_reporter.KEPT_LINES + 6
    assert said()["lines"][-2:] == [[f"line {run_reporter.KEPT_LINES + 4}", "", True], ["careful", "yellow", False]]
