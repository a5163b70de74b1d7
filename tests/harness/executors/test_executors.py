"""Where calls are made: each item has one answer or failure, and a death costs one item."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from harness.executors import (
    LOST_WORKER,
    CallError,
    Executor,
    Resources,
    check_executor,
    local,
    slurm,
    spread_over,
)
from harness.executors.local import LocalExecutor, limit_threads
from harness.executors.slurm import SlurmExecutor, _Job, is_shared
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from tests.harness.conftest import DrawScenes, bench_ok, bench_or_raise, run_counts, run_words
from tests.harness.data.counting_backbone import content, extracted, noise_pictures

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def tenfold(number: int, death_seen: Path | None = None) -> int:
    """Ten times a number; 3 is the death of its process, and later ones wait until a file says that it is known."""
    if number < 0:
        raise ValueError("negative")
    if death_seen is not None:
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        while number > 3 and not death_seen.exists():
            time.sleep(0.005)
    return 10 * number


def results(executor: Executor, numbers: Sequence[Any], *args: Any, on: Callable[[Any], None] = lambda _: None) -> Any:
    """What an executor gives for each number, a result or its failure; `on` is called at the end of each."""
    with executor.batch():
        futures = {number: executor.submit(tenfold, number, *args) for number in numbers}
        for future in futures.values():
            future.add_done_callback(lambda future: on(future.exception() or future.result()))
    return {number: future.exception(timeout=60) or future.result() for number, future in futures.items()}


def failure(error: CallError) -> tuple[str, str]:
    return error.error_class, error.reason


@pytest.fixture
def pool(forked_workers: None) -> Iterator[LocalExecutor]:  # noqa: ARG001
    """Two workers."""
    executor = LocalExecutor(2)
    assert executor.slots(10, CPU, 1, lambda: 0) == 2
    yield executor
    executor.close()


def test_one_process_answers_in_order_and_fails_alone() -> None:
    executor, order = LocalExecutor(1), list[Any]()
    executor.slots(3, CPU, 1, lambda: 0)
    found = results(executor, [2, -1, 1], on=order.append)
    assert (found[2], found[1], failure(found[-1])) == (20, 10, ("ValueError", "negative"))
    assert (order[0], order[2]) == (20, 10)


def test_a_death_costs_one_call(pool: LocalExecutor, tmp_path: Path) -> None:
    seen = tmp_path / "seen"

    def note(result: object) -> None:
        if isinstance(result, CallError) and result.error_class == LOST_WORKER:
            seen.touch()

    found = results(pool, [*range(1, 11), -1], seen, on=note)
    assert failure(found.pop(-1)) == ("ValueError", "negative")
    lost = found.pop(3)
    assert (lost.error_class, "SIGKILL" in lost.reason) == (LOST_WORKER, True)
    assert found == {number: 10 * number for number in range(1, 11) if number != 3}
    assert results(pool, [5]) == {5: 50}, "another worker has taken its place"


def test_a_worker_makes_one_call_after_another_and_calls_may_follow(pool: LocalExecutor) -> None:
    first = {pool.submit(os.getpid).result(timeout=60) for _ in range(6)}
    assert len(first) <= 2
    assert os.getpid() not in first


def test_a_worker_that_died_between_two_calls_costs_none(pool: LocalExecutor) -> None:
    assert results(pool, [1, 2]) == {1: 10, 2: 20}
    for worker in pool._workers:
        worker.process.kill()
        worker.process.join()
    assert results(pool, [1, 2, 4]) == {1: 10, 2: 20, 4: 40}


def test_what_cannot_be_sent_fails_and_leaves_the_worker(pool: LocalExecutor) -> None:
    for _ in range(3):
        assert isinstance(pool.submit(tenfold, lambda: None).exception(timeout=60), CallError)
    assert results(pool, [1, 2]) == {1: 10, 2: 20}


def sleep(begun: Path) -> None:
    """Say that it has begun, and sleep for long."""
    (begun / f"{os.getpid()}").touch()
    time.sleep(60)


def test_what_has_not_begun_is_cancelled_and_workers_end(pool: LocalExecutor, tmp_path: Path) -> None:
    futures = [pool.submit(sleep, tmp_path) for _ in range(4)]
    while len(list(tmp_path.iterdir())) < 2:
        time.sleep(0.005)
    started = time.monotonic()
    pool.cancel()
    assert [future.cancelled() for future in futures] == [False, False, True, True]
    assert all(isinstance(future.exception(timeout=10), CancelledError) for future in futures[:2])
    assert time.monotonic() - started < 10
    assert not any(worker.process.is_alive() for worker in pool._workers)


def test_ctrl_c_while_workers_end_ends_them_all(pool: LocalExecutor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert results(pool, [1, 2]) == {1: 10, 2: 20}
    processes = [worker.process for worker in pool._workers]
    monkeypatch.setattr(local._Worker, "end", lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        pool.close()
    assert not any(process.is_alive() for process in processes)
    monkeypatch.undo()


def test_gpus_are_taken_in_turn_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert [local._gpu(GPU, place) for place in range(3)] == ["0", "1", "0"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,7")
    assert [local._gpu(GPU, place) for place in range(3)] == ["5", "7", "5"]
    assert local._gpu(torch.device("cuda", 1), 0) is None
    assert local._gpu(CPU, 1) is None


def test_threads_are_shared_for_a_while() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        with limit_threads(3):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 4
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("on", "given", "devices", "tuning", "named"),
    [
        ("elsewhere", {}, 1, False, "--executor 'elsewhere'"),
        ("slurm:host", {}, 1, False, "--executor 'slurm:host'"),
        ("ray:", {}, 1, False, "--executor 'ray:'"),
        ("ray:ray://host:1", {}, 1, False, "--executor"),
        ("here", {"--gpus-per-run": 1.0}, 1, False, "--gpus-per-run"),
        ("slurm", {}, 2, False, "--devices 2"),
        ("slurm", {}, 1, True, "--executor slurm"),
        ("ray", {"--hours-per-run": 1.0}, 1, False, "--hours-per-run"),
    ],
)
def test_what_an_executor_does_not_take_is_refused(
    on: str, given: dict[str, float | None], devices: int, tuning: bool, named: str
) -> None:
    with pytest.raises(BenchError, match=re.escape(named)):
        check_executor(on, given, devices, tuning=tuning)


def test_features_are_spread_chunk_by_chunk_with_the_same_bytes(pool: LocalExecutor, tmp_path: Path) -> None:
    dataset = noise_pictures(tmp_path / "pictures")
    extracted(dataset, tmp_path / "here")
    assert spread_over(pool, CPU, 0) is None
    pool.elsewhere = True
    picture = tmp_path / "pictures" / "9.png"  # in the second of three chunks
    whole = picture.read_bytes()
    picture.write_bytes(b"")
    with pytest.raises(BenchError, match=r"9\.png"):
        extracted(dataset, tmp_path / "there", spread=spread_over(pool, CPU, 0))
    picture.write_bytes(whole)
    extracted(dataset, tmp_path / "there", spread=spread_over(pool, CPU, 0))
    assert content(tmp_path / "there") == content(tmp_path / "here")


# Slurm.


@pytest.fixture
def submitit(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name in (slurm.CLUSTER, slurm.SHARED):
        monkeypatch.delenv(name, raising=False)
    return pytest.importorskip("submitit", reason="uv sync --inexact --extra slurm")


def test_the_script_asks_for_what_a_run_is_to_get(submitit: Any) -> None:
    executor = SlurmExecutor(Resources(cpus=4, hours=1.5), jobs=8)
    assert executor.slots(30, GPU, 1, lambda: 2_300_000_000) == 8
    submitit.AutoExecutor(folder="logs", cluster="debug").update_parameters(**executor.parameters)
    names = {"name": "job_name", "timeout_min": "time", "mem_gb": "mem"}
    asked = {names.get(name, name.removeprefix("slurm_")): value for name, value in executor.parameters.items()}
    script = submitit.slurm.slurm._make_sbatch_string(
        command="", folder="logs", **asked | {"mem": f"{asked['mem']}GB"}, map_count=30, stderr_to_stdout=True
    )
    found = dict(re.findall(r"^#SBATCH --([a-z-]+)=(.*)$", script, re.MULTILINE))
    assert (found["array"], found["time"], found["mem"]) == ("0-29%8", "90", "3GB")
    assert (found["cpus-per-task"], found["gpus-per-node"], found["signal"]) == ("4", "1", "USR2@120")
    for resources, device in ((Resources(gpus=0.5), GPU), (Resources(cpus=1.5), CPU), (Resources(gpus=1.0), CPU)):
        with pytest.raises(BenchError, match="-per-run"):
            SlurmExecutor(resources, 0).slots(1, device, 1, lambda: 0)


@pytest.mark.usefixtures("submitit")
def test_needs_are_looked_for_before_any_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    executor, place = SlurmExecutor(Resources(), 0), Workspace(tmp_path)
    monkeypatch.setattr(slurm.shutil, "which", lambda _: None)
    with pytest.raises(BenchError, match="sbatch"):
        executor.check(place)
    monkeypatch.setattr(slurm.shutil, "which", lambda _: "/usr/bin/sbatch")
    monkeypatch.setattr(slurm, "is_shared", lambda _: False)
    with pytest.raises(BenchError, match="the workspace"):
        executor.check(place)
    monkeypatch.setenv(slurm.SHARED, "1")
    with pytest.raises(BenchError, match="SQLite"):
        executor.check(place)
    executor.check(Workspace(tmp_path, "postgresql://host/name"))
    monkeypatch.setattr(slurm, "find_spec", lambda _: None)
    with pytest.raises(BenchError, match="submitit") as refused:
        executor.check(place)
    assert "--extra slurm" in str(refused.value.hint)
    monkeypatch.undo()
    monkeypatch.setenv(slurm.CLUSTER, "elsewhere")
    with pytest.raises(BenchError, match="BENCH_SLURM_CLUSTER=elsewhere"):
        SlurmExecutor(Resources(), 0).check(place)


@pytest.mark.parametrize(("folder", "shared"), [("/home/a/w", True), ("/var/w", False), ("/tmp/w", False)])
def test_the_kind_of_the_nearest_mount_says_whether_nodes_share_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, folder: str, shared: bool
) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda / ext4 rw 0 0\nserver:/home /home nfs4 rw 0 0\nnone /tmp tmpfs rw 0 0\n")
    monkeypatch.setattr(slurm, "MOUNTS", mounts)
    assert is_shared(Path(folder)) is shared
    monkeypatch.setattr(slurm, "MOUNTS", tmp_path / "none")
    assert is_shared(Path(folder))


class LostJob:
    """A job that Slurm ended, or one that another command submitted and that goes on."""

    def __init__(self, folder: str, job_id: str) -> None:
        self.job_id, self.state = job_id, "RUNNING"
        self.paths = SimpleNamespace(folder=folder, stderr=Path(folder) / "err")

    def done(self) -> bool:
        return True

    def exception(self) -> Exception | None:
        return RuntimeError("out of memory\nand more") if self.job_id == "lost" else None

    def result(self) -> str:
        return "finished"


def test_jobs_of_an_earlier_command_are_waited_for(
    submitit: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(submitit.AutoExecutor, "job_class", LostJob, raising=False)
    monkeypatch.setenv(slurm.CLUSTER, "local")
    executor = SlurmExecutor(Resources(), 0)
    executor.check(Workspace(tmp_path))
    executor.slots(2, CPU, 1, lambda: 0)
    (tmp_path / "slurm").mkdir()
    for item, job in (("a", "alive"), ("b", "lost")):
        text = f'{{"cluster": "local", "job": "{job}", "folder": "{tmp_path}", "anew": false}}'
        (tmp_path / "slurm" / f"{item}.json").write_text(text)
    found = results(executor, ["a", "b"])
    assert (found["a"], found["b"].error_class, "out of memory" in found["b"].reason) == ("finished", LOST_WORKER, True)


def test_a_job_that_slurm_does_not_take_is_one_error(
    submitit: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(*_: object) -> None:
        raise submitit.core.utils.FailedJobError("sbatch: error: Invalid account\nand more")

    monkeypatch.setattr(submitit.AutoExecutor, "submit", refuse)
    monkeypatch.setenv(slurm.CLUSTER, "local")
    executor = SlurmExecutor(Resources(), 0)
    executor.check(Workspace(tmp_path))
    executor.slots(1, CPU, 1, lambda: 0)
    with pytest.raises(BenchError, match="Invalid account"):
        results(executor, ["a"])


@pytest.mark.usefixtures("submitit")
def test_a_warned_job_is_put_back_as_the_same_run() -> None:
    job = _Job(tenfold, Path("folder"), 1)
    again = job.checkpoint("a-s0")
    assert (again.function, again.args) == (job, ("a-s0",))


@pytest.mark.usefixtures("submitit")
def test_the_command_ends_with_its_rows(
    monkeypatch: pytest.MonkeyPatch, draw_scenes: DrawScenes, tmp_path: Path
) -> None:
    """submitit's executor of this process stands for Slurm."""
    check = SlurmExecutor.check

    def rehearse(self: SlurmExecutor, workspace: Workspace) -> None:
        self._cluster = "local"
        check(self, workspace)
        self._cluster = "debug"

    monkeypatch.setattr(SlurmExecutor, "check", rehearse)
    words = run_words(draw_scenes(train=24, val=4, test=6), tmp_path, "majority,human", {})
    words += ["--backbone", "filterbank"]
    counts = run_counts(bench_ok(*words, "--executor", "slurm").stdout)
    assert counts.items() >= {"finished": 2, "re-used": 0, "failed": 0}.items()
    assert run_counts(bench_or_raise(*words)[1]).items() >= {"finished": 0, "re-used": 2}.items()


@pytest.fixture
def ray_executor() -> Iterator[Executor]:
    """A cluster that is started on this machine."""
    if find_spec("ray") is None:  # it is imported after what the executor sets in the environment
        pytest.skip("uv sync --inexact --extra ray")
    from harness.executors.ray import RayExecutor

    executor = RayExecutor(None, Resources(), 2)
    executor.check(Workspace(Path("nowhere")))
    yield executor
    executor.close()


def test_a_cluster_of_ray_answers_and_repeats_what_died(ray_executor: Executor, tmp_path: Path) -> None:
    assert ray_executor.slots(4, CPU, 1, lambda: 1_000_000) in {1, 2}
    found = results(ray_executor, [1, 2, -1, 3], tmp_path / "seen")
    assert (found[1], found[2], found[-1]) == (10, 20, found[-1])
    assert failure(found[-1]) == ("ValueError", "negative")
    assert found[3].error_class == LOST_WORKER
    with pytest.raises(BenchError, match="--device"):
        ray_executor.slots(1, torch.device("cuda", 1), 1, lambda: 0)
    for device, memory in ((GPU, 0), (CPU, 10**18)):  # no node has either
        with pytest.raises(BenchError, match="no node"):
            ray_executor.slots(1, device, 1, lambda memory=memory: memory)  # type: ignore[misc]
