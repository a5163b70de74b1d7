"""A Ray cluster: one task a call, with the resources of a run; where its node dies, Ray repeats it on another.

A run that is repeated goes on from its last checkpoint; the lock of its folder and the store decide whether there is
anything left of it to do. Nothing heavy is imported here, so that a worker of Ray has the driver's environment before
torch reads it.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError, Future
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, TypeVar

from harness.executors import LOST_WORKER, CallError, Executor, Resources, refuse_sqlite
from harness.utils.errors import BenchError, ProcessLostError
from harness.utils.files import shortened
from harness.utils.workspace import Workspace
from results.errors import install_extra
from zoo.errors import first_line

if TYPE_CHECKING:
    import torch

ANSWER_S = 10.0
T = TypeVar("T")
RETRIES = 3
_FORWARDED = ("AWS_", "BENCH_", "GOOGLE_", "HF_", "MLFLOW_", "OMP_", "PG", "WANDB_", "XDG_CACHE_HOME")
_START = "start one with `ray start --head` and write --executor ray:HOST:6379; without an address it may be here"


class RayExecutor(Executor):
    """See `harness.executors.Executor`.

    Args:
        address: of a cluster's head node; None: that of RAY_ADDRESS, or a cluster that was started on this machine, or
            else one is started here for the length of the command.
        jobs: at most so many runs at a time; 0: as many as the cluster has room for.
    """

    elsewhere = True

    def __init__(self, address: str | None, resources: Resources, jobs: int) -> None:
        self._address = address
        self._resources = resources
        self._jobs = jobs
        self._count = 1
        self._options: dict[str, Any] = {}
        self._ray: Any = None
        self._waiting: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self._running: dict[Future[Any], Any] = {}
        self._shared: tuple[Any, Any] = (None, None)
        self._lock = RLock()
        self._cancelled = False

    def check(self, workspace: Workspace) -> None:
        """Join the cluster; BenchError where there is none, or its hosts cannot share the results."""
        if find_spec("ray") is None:
            raise BenchError("--executor ray needs Ray, which is not installed", install_extra("ray"))
        self._ray = _join(self._address)
        hosts = {node["NodeManagerAddress"] for node in self._nodes()}
        if len(hosts) > 1:
            refuse_sqlite(f"--executor ray has {len(hosts)} hosts", workspace)

    def slots(self, items: int, device: torch.device, devices: int, memory: Callable[[], int]) -> int:
        """How often the resources of an item fit into the nodes, each on one node with all of its devices."""
        if device.index is not None:
            raise BenchError(
                f"--executor ray and --device {device} contradict each other: Ray chooses the GPU of each run",
                f"write --device {device.type}",
            )
        gpus = self._resources.gpus
        if gpus is None:
            gpus = float(devices * (device.type == "cuda"))
        if (device.type == "cuda") != (gpus > 0):
            raise BenchError(
                f"--device {device.type} and --gpus-per-run {gpus:g} contradict each other",
                "leave --gpus-per-run out, or name the --device that runs compute on",
            )
        if devices > 1 and gpus not in {0.0, float(devices)}:
            raise BenchError(
                f"--devices {devices} and --gpus-per-run {gpus:g} contradict each other",
                "leave --gpus-per-run out: each device of a run is one GPU",
            )
        memory_gb = self._resources.memory_gb
        resources = {
            "CPU": self._resources.cpus,
            "GPU": gpus,
            "memory": memory() if memory_gb is None else memory_gb * 1e9,
        }
        self._options = {"num_cpus": resources["CPU"], "num_gpus": gpus, "memory": int(resources["memory"])}
        needed = {name: amount for name, amount in resources.items() if amount}  # nothing of a resource always fits
        nodes = [node["Resources"] for node in self._nodes()]
        fitting = sum(int(min(has.get(name, 0.0) / amount for name, amount in needed.items())) for has in nodes)
        if not fitting:
            described = f"{resources['CPU']:g} CPUs, {gpus:g} GPUs, {resources['memory'] / 1e9:.1f} GB of memory"
            raise BenchError(
                f"no node of the Ray cluster has what a run is to get: {described}",
                "add larger nodes, or ask for less: --cpus-per-run, --gpus-per-run, --memory-per-run",
            )
        self._count = min(fitting, self._jobs or fitting, max(items, 1))
        return self._count

    def submit(self, function: Callable[..., T], /, *args: Any) -> Future[T]:
        """See `Executor.submit`; a call is repeated `RETRIES` times before it has failed."""
        future = Future[T]()
        with self._lock:
            self._waiting.append((future, function, args))
            self._start_waiting()
        return future

    def cancel(self) -> None:
        """See `Executor.cancel`."""
        with self._lock:
            self._cancelled = True
            for future, *_ in self._waiting:
                future.cancel()
            self._waiting.clear()
            for reference in self._running.values():
                self._ray.cancel(reference, force=True)

    def _start_waiting(self) -> None:
        """Give the cluster as many of the waiting calls as it has slots for."""
        variables = {name: value for name, value in os.environ.items() if name.startswith(_FORWARDED)}
        threads = max(int(self._resources.cpus), 1)
        task = self._ray.remote(_answer).options(max_retries=RETRIES, **self._options)
        while self._waiting and len(self._running) < self._count:
            future, function, args = self._waiting.popleft()
            future.set_running_or_notify_cancel()
            reference = task.remote(str(Path.cwd()), variables, threads, [self._share(function)], args)
            self._running[future] = reference
            reference.future().add_done_callback(partial(self._end, future))

    def _share(self, function: Callable[..., Any]) -> Any:
        """The cluster's reference of a function, which is sent once for all of its calls: it may be a large object."""
        if self._shared[0] is not function:
            self._shared = function, self._ray.put(pickle.dumps(function))
        return self._shared[1]

    def _end(self, future: Future[Any], done: Future[Any]) -> None:
        """In a thread of Ray: pass on how a call ended, and start another one."""
        with self._lock:
            self._running.pop(future, None)
        error = done.exception()
        if error is None:
            future.set_result(done.result())
        elif self._cancelled:
            future.set_exception(CancelledError())
        elif isinstance(error, self._ray.exceptions.RayTaskError):
            future.set_exception(CallError.of(error.cause))
        else:
            reason = f"its process or node ended {1 + RETRIES} times: {first_line(error)}"
            future.set_exception(CallError(LOST_WORKER, reason))
        with self._lock:
            self._start_waiting()

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._ray is not None:
            self._ray.shutdown()
            self._ray = None

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]


def _answer(folder: str, variables: Mapping[str, str], threads: int, shared: list[Any], args: tuple[Any, ...]) -> Any:
    """In a worker of Ray: the result of a call; what it opened stays open for the next one.

    `folder` is the driver's, in which relative paths were meant; `shared` holds the reference of the pickled function.
    """
    import ray

    os.environ.update(variables)
    try:
        os.chdir(folder)
    except OSError as error:
        raise BenchError(
            f"a node of the cluster has no folder {folder}: {error.strerror}",
            "run in a folder that all nodes share, with code, data and workspace under the same paths",
        ) from error
    import torch

    torch.set_num_threads(threads)
    try:
        return _unpickled(ray.get(shared[0]))(*args)
    except ProcessLostError:  # of a training on several devices; this process can train no more
        os._exit(1)  # Ray starts another in its place, which makes the call again


@lru_cache(maxsize=1)
def _unpickled(pickled: bytes) -> Callable[..., Any]:
    function: Callable[..., Any] = pickle.loads(pickled)  # noqa: S301  # the driver made it
    return function


def _join(address: str | None) -> Any:
    """The module `ray`, connected to a cluster; what its processes print goes to their own logs."""
    # Under `uv run` Ray would send this folder to every node, and start workers in it by `uv run`, which makes an
    # environment for each; every node has captionbench installed (docs/cluster.md).
    os.environ.setdefault("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    import ray

    _check_address(address or os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR", namespace="captionbench")
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise BenchError(f"--executor ray: the cluster cannot be joined: {first_line(error)}", _START) from error
    return ray


def _check_address(address: str) -> None:
    """BenchError where nobody listens at HOST:PORT: Ray itself would ask for minutes."""
    host, _, port = address.rpartition(":")
    if not host:  # a word such as "auto", which is looked for on this machine
        return
    try:
        socket.create_connection((host, int(port)), timeout=ANSWER_S).close()
    except (OSError, OverflowError, ValueError) as error:
        raise BenchError(
            f"--executor ray: no cluster answers at {shortened(address)}: {first_line(error)}", _START
        ) from error
