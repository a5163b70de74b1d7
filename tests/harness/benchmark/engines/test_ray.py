"""Runs on a Ray cluster: who gets which run, what becomes of lost ones, and what is refused before any work."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from harness.benchmark.engines.interface import Resources
from harness.benchmark.engines.ray_actors import Outbox
from harness.benchmark.engines.ray_crew import RayCrew
from harness.benchmark.engines.runs import OPENER, execute_runs

from harness.benchmark.context import RunContext
from harness.benchmark.engines import ray_crew
from harness.benchmark.engines.ray import RayEngine, _join
from harness.config.execution import ExecutionConfig
from harness.utils.errors import INTERRUPTED, BenchError
from harness.utils.workspace import Workspace
from results import DatasetRecord, Store
from tests.harness.benchmark.engines.fake_ray import GB, FakeRay, RayError
from tests.harness.benchmark.small_runs import make_spec, quiet
from tests.harness.conftest import DrawScenes, bench, bench_or_raise, run_words


class FakeActor:
    """Answers each run by its model's name: "killed" is lost with its node, "broken" raises."""

    def __init__(self, *_: Any) -> None:
        pass

    def ready(self) -> None:
        pass

    def work(self, key: int, content: Any, given: list[Any]) -> str:
        title, spec = content
        outbox = Outbox(given[0])
        outbox.key = key
        outbox.send(("note", f"  said of {title}", ""))
        outbox.flush()
        if spec.model == "killed":
            raise RayError("the node died\nat length")
        if spec.model == "broken":
            raise BenchError("no plug-in")
        if spec.model == "stopped":
            raise KeyboardInterrupt
        return "finished"

    def end(self) -> None:
        pass


class LostActor(FakeActor):
    def ready(self) -> None:
        raise RayError("its process ended")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "bench.sqlite") as opened:
        opened.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": 1}, ()))
        yield opened


@pytest.fixture(autouse=True)
def _actors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_crew, "WorkerActor", FakeActor)


def run(models: str, slots: int, store: Store, folder: Path, ray: FakeRay, said: io.StringIO) -> list[tuple[str, str]]:
    """Execute a run of each model; gives how each ended."""
    specs = [make_spec(f"{model}-s0", model) for model in models.split()]
    store.plan(specs)
    crew = RayCrew(ray, slots, {"num_cpus": 1}, OPENER, None, quiet(said))
    ended = execute_runs(crew, [(spec.model, spec) for spec in specs], Workspace(folder), store, quiet(said))
    return [(spec.model, how) for spec, how in ended]


def actors_of(ray: FakeRay) -> int:
    return sum(isinstance(made, FakeActor) for made in ray.made)


def test_actors_pull_run_after_run_and_are_let_go(store: Store, tmp_path: Path) -> None:
    ray, said = FakeRay(), io.StringIO()
    assert run("a b c d e", 2, store, tmp_path, ray, said) == [(model, "finished") for model in "abcde"]
    assert actors_of(ray) == 2
    assert len(ray.killed) == 3, "both actors, and their mailbox"
    assert said.getvalue() == "".join(f"  {model}: said of {model}\n" for model in "abcde")


def test_no_more_actors_are_started_than_there_are_runs(store: Store, tmp_path: Path) -> None:
    ray = FakeRay()
    run("a b", 64, store, tmp_path, ray, io.StringIO())
    assert actors_of(ray) == 2


def test_ray_repeats_a_run_and_then_its_loss_costs_nothing_else(store: Store, tmp_path: Path) -> None:
    ray, said = FakeRay(), io.StringIO()
    assert dict(run("a killed b", 1, store, tmp_path, ray, said)) == {
        "a": "finished", "killed": "failed", "b": "finished",
    }  # fmt: skip
    assert ray.options[-1] == {"max_restarts": -1, "max_task_retries": 3, "num_cpus": 1}
    assert store.status("killed-s0") == "failed"
    assert "  killed: failed: WorkerDied: its process or node ended 4 times: the node died\n" in said.getvalue()


def test_what_an_actor_raises_is_the_reason_of_its_run(store: Store, tmp_path: Path) -> None:
    said = io.StringIO()
    assert run("broken a", 1, store, tmp_path, FakeRay(), said) == [("broken", "failed"), ("a", "finished")]
    assert "  broken: failed: BenchError: no plug-in\n" in said.getvalue()


def test_runs_fail_where_no_actor_can_be_started(monkeypatch: pytest.MonkeyPatch, store: Store, tmp_path: Path) -> None:
    monkeypatch.setattr(ray_crew, "WorkerActor", LostActor)
    assert run("a b", 2, store, tmp_path, FakeRay(), io.StringIO()) == [("a", "failed"), ("b", "failed")]


def test_ctrl_c_kills_the_actors_and_is_stored(store: Store, tmp_path: Path) -> None:
    ray = FakeRay()
    store.plan([make_spec("stopped-s0", "stopped")])
    store.begin("stopped-s0", {})
    with pytest.raises(KeyboardInterrupt):
        run("stopped", 1, store, tmp_path, ray, io.StringIO())
    assert len(ray.killed) == 2
    with store.reading() as connection:
        [[status, reason]] = connection.exec_driver_sql("select status, reason from cells").all()
    assert (status, reason) == ("running", INTERRUPTED)


def engine_on(monkeypatch: pytest.MonkeyPatch, ray: FakeRay, resources: Resources, jobs: int = 0) -> RayEngine:
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    engine = RayEngine(None, resources, jobs)
    engine.check(Workspace(Path()))
    return engine


@pytest.mark.parametrize(
    ("resources", "jobs", "slots"),
    [
        (Resources(memory_gb=1), 0, 5),
        (Resources(memory_gb=1), 3, 3),
        (Resources(cpus=0.5, memory_gb=1), 0, 10),
        (Resources(memory_gb=5), 0, 1),
        (Resources(cpus=2, memory_gb=1), 0, 2),
    ],
)
def test_slots_are_how_often_a_run_fits_into_the_nodes(
    monkeypatch: pytest.MonkeyPatch, small: RunContext, resources: Resources, jobs: int, slots: int
) -> None:
    ray = FakeRay({"CPU": 2.0, "memory": 4 * GB}, {"CPU": 3.0, "memory": 6 * GB}, {"CPU": 2.0, "memory": 0.5 * GB})
    engine = engine_on(monkeypatch, ray, resources, jobs)
    assert engine.slots([make_spec(str(number)) for number in range(30)], small) == slots
    engine.close()
    assert ray.joined == [None, "left"]


def test_memory_of_a_run_is_estimated_from_the_largest_model(
    monkeypatch: pytest.MonkeyPatch, small: RunContext
) -> None:
    engine = engine_on(monkeypatch, FakeRay({"CPU": 1.0, "memory": 64 * GB}), Resources())
    sizes = [{"d_model": 16}, {"d_model": 512}]
    asked = []
    for arguments in sizes:
        engine.slots([make_spec("s", "show_tell", config={"arguments": arguments})], small)
        asked.append(engine._options["memory"])
    assert 1e9 < asked[0] < asked[1] < 2e9


def test_fractions_of_gpus_are_asked_for(monkeypatch: pytest.MonkeyPatch, small: RunContext) -> None:
    ray = FakeRay({"CPU": 8.0, "GPU": 2.0, "memory": 64 * GB})
    on_gpu = replace(small, execution=replace(small.execution, device=torch.device("cuda")))
    specs = [make_spec(str(number)) for number in range(30)]
    assert engine_on(monkeypatch, ray, Resources(gpus=0.5)).slots(specs, on_gpu) == 4
    assert engine_on(monkeypatch, ray, Resources()).slots(specs, on_gpu) == 2
    for resources, context in ((Resources(gpus=0.5), small), (Resources(gpus=0.0), on_gpu)):
        with pytest.raises(BenchError, match="--gpus-per-run"):
            engine_on(monkeypatch, ray, resources).slots(specs, context)
    second = replace(small, execution=replace(small.execution, device=torch.device("cuda", 1)))
    with pytest.raises(BenchError, match="--device cuda:1"):
        engine_on(monkeypatch, ray, Resources()).slots(specs, second)


def test_devices_of_a_run_are_on_one_node(monkeypatch: pytest.MonkeyPatch, small: RunContext) -> None:
    ray = FakeRay({"CPU": 8.0, "GPU": 4.0, "memory": 64 * GB}, {"CPU": 8.0, "GPU": 3.0, "memory": 64 * GB})
    execution = replace(small.execution, device=torch.device("cuda"), config=ExecutionConfig(devices=2))
    on_gpus, specs = replace(small, execution=execution), [make_spec(str(number)) for number in range(30)]
    engine = engine_on(monkeypatch, ray, Resources(cpus=2))
    assert engine.slots(specs, on_gpus) == 3, "the third GPU of a node has no partner"
    assert engine._options["num_gpus"] == 2
    with pytest.raises(BenchError, match=r"--devices 2 and --gpus-per-run 0\.5 contradict"):
        engine_on(monkeypatch, ray, Resources(gpus=0.5)).slots(specs, on_gpus)


def test_a_run_that_fits_into_no_node_is_refused(monkeypatch: pytest.MonkeyPatch, small: RunContext) -> None:
    engine = engine_on(monkeypatch, FakeRay(), Resources(cpus=3))
    with pytest.raises(BenchError, match="no node of the Ray cluster") as refused:
        engine.slots([make_spec("a")], small)
    assert "--cpus-per-run" in str(refused.value.hint)


def test_sqlite_is_refused_on_several_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay({}, {}, hosts=2))  # type: ignore[arg-type]
    engine = RayEngine(None, Resources(), 0)
    with pytest.raises(BenchError, match="2 hosts") as refused:
        engine.check(Workspace(Path("w")))
    assert "--db postgresql://" in str(refused.value.hint)
    engine.check(Workspace(Path("w"), "postgresql://host/name"))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--on mars", "--on 'mars' is unknown"),
        ("--on slurm:host", "--on 'slurm:host' is unknown"),
        ("--on ray:", "--on 'ray:' is unknown"),
        ("--on ray:ray://head:10001", "Ray's client"),
        ("--gpus-per-run 0.5", "--gpus-per-run is for runs on a cluster"),
        ("--on ray --hours-per-run 2", "--hours-per-run is for Slurm"),
        ("--on slurm --devices 2", "--on slurm and --devices 2 contradict each other"),
        ("--on ray:127.0.0.1:1", "no cluster answers at 127.0.0.1:1"),
    ],
)
def test_options_that_do_not_fit_together_are_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: str, said: str
) -> None:
    monkeypatch.setitem(sys.modules, "ray", FakeRay())  # type: ignore[arg-type]
    error = bench("run", "--models", "human", "--workspace", tmp_path, "--device", "cpu", *words.split()).exception
    assert isinstance(error, BenchError)
    assert said in str(error)
    assert error.hint


def test_one_of_several_processes_is_no_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    error = bench("run", "--models", "human", "--workspace", tmp_path / "new", "--on", "ray").exception
    assert isinstance(error, BenchError)
    assert "started together" in str(error)
    assert not (tmp_path / "new").exists()


def test_without_ray_one_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.benchmark.engines.ray.find_spec", lambda _: None)
    with pytest.raises(BenchError, match="not installed") as refused:
        RayEngine(None, Resources(), 0).check(Workspace(Path("w")))
    assert refused.value.hint == "uv sync --inexact --extra ray"


def test_the_command_ends_with_its_rows_as_without_a_cluster(
    monkeypatch: pytest.MonkeyPatch, draw_scenes: DrawScenes, tmp_path: Path
) -> None:
    monkeypatch.undo()
    ray = FakeRay()
    monkeypatch.setitem(sys.modules, "ray", ray)  # type: ignore[arg-type]
    words = run_words(draw_scenes(train=24, val=4, test=6), tmp_path, "majority,human", {})
    words += ["--backbone", "filterbank"]
    code, said = bench_or_raise(*words, "--on", "ray")
    assert code == 0, said
    assert "2 finished, 0 re-used, 0 failed" in said
    assert ray.joined == [None, "left"]
    assert bench_or_raise(*words)[1].count("re-used, finished before") == 2


def test_workers_have_the_interpreter_of_their_node_also_under_uv_run(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    name = "RAY_ENABLE_UV_RUN_RUNTIME_ENV"
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv(name, "")  # so that it is taken back
    monkeypatch.delenv(name)
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=lambda *_, **__: seen.append(os.environ[name])))
    _join(None)
    assert seen == ["0"]
