"""Runs on a Ray cluster: one actor a slot pulls run after run; where its node dies, Ray starts it and its run again.

An actor takes the resources of one run. A run that is repeated goes on from its last checkpoint; the lock of its folder
and the store decide whether there is anything left of it to do.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from harness.runner.context import RunContext
from harness.runner.engines.estimate import memory_bytes
from harness.runner.engines.interface import Resources
from harness.runner.engines.ray_driver import Driver
from harness.runner.worker import Ended, Shared, Worker
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store
from results.db.engine import resolve_url, sqlite_file
from results.errors import install_extra
from results.records import RunSpec
from zoo.errors import first_line

ANSWER_S = 10.0
"""How long the head node of a cluster may take to answer."""
_START = "start one with `ray start --head` and write --on ray:HOST:6379; --on ray alone may use this machine"


class RayEngine:
    """See `harness.runner.engines.interface.Engine`.

    Args:
        address: of a cluster's head node; None: that of RAY_ADDRESS, or a cluster that was started on this machine, or
            else one is started here for the length of the command.
        resources: of each run.
        jobs: at most so many runs at a time; 0: as many as the cluster has room for.
    """

    def __init__(self, address: str | None, resources: Resources, jobs: int) -> None:
        self._address, self._resources, self._jobs = address, resources, jobs
        self._options: dict[str, Any] = {}
        self._slots = 1
        self._ray: Any = None

    def check(self, workspace: Workspace) -> None:
        """Join the cluster.

        Raises:
            BenchError: Ray is not installed, there is no cluster, or its hosts cannot share the results.
        """
        if find_spec("ray") is None:
            raise BenchError("--on ray needs Ray, which is not installed", install_extra("ray"))
        self._ray = _join(self._address)
        hosts = {node["NodeManagerAddress"] for node in self._nodes()}
        if len(hosts) > 1 and sqlite_file(resolve_url(workspace.database)) is not None:
            raise BenchError(
                f"--on ray has {len(hosts)} hosts, and SQLite's log works on one alone: {workspace.database}",
                "name a server for the results: --db postgresql://USER@HOST/NAME",
            )

    def slots(self, specs: Sequence[RunSpec], context: RunContext) -> int:
        """How often the resources of a run fit into the nodes.

        Raises:
            BenchError: no node is large enough; `--device` names one of several GPUs.
        """
        device = context.execution.device
        if device.index is not None:
            raise BenchError(
                f"--on ray and --device {device} contradict each other: Ray chooses the GPU of each run",
                f"write --device {device.type}",
            )
        gpus = self._resources.gpus
        if gpus is None:
            gpus = float(device.type == "cuda")
        if (device.type == "cuda") != (gpus > 0):
            raise BenchError(
                f"--device {device.type} and --gpus-per-run {gpus:g} contradict each other",
                "leave --gpus-per-run out, or name the --device that runs compute on",
            )
        given = self._resources.memory_gb
        memory = memory_bytes(specs, context) if given is None else int(given * 1e9)
        wanted = {"CPU": self._resources.cpus, "GPU": gpus, "memory": float(memory)}
        self._options = {"num_cpus": self._resources.cpus, "num_gpus": gpus, "memory": memory}
        room = sum(_room(node["Resources"], wanted) for node in self._nodes())
        if not room:
            described = f"{wanted['CPU']:g} CPUs, {gpus:g} GPUs, {memory / 1e9:.1f} GB of memory"
            raise BenchError(
                f"no node of the Ray cluster has what a run is to get: {described}",
                "add larger nodes, or ask for less: --cpus-per-run, --gpus-per-run, --memory-per-run",
            )
        models = max(sum(spec.kind != "reference" for spec in specs), 1)
        self._slots = min(room, self._jobs or room, models)
        return self._slots

    def execute(
        self,
        runs: Sequence[tuple[str, RunSpec]],
        shared: Shared,
        store: Store,
        reporter: Reporter,
        here: Worker,  # noqa: ARG002  # this process only waits
    ) -> Iterator[tuple[RunSpec, Ended]]:
        """See `Engine.execute`; a run is repeated `ray_driver.RETRIES` times before it is a failed row."""
        if runs:
            yield from Driver(self._ray, self._options, runs, shared, store, reporter).run(self._slots)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._ray is not None:
            self._ray.shutdown()
            self._ray = None

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]


def _join(address: str | None) -> Any:
    """The module `ray`, connected to a cluster; what its processes print goes to their own logs."""
    import ray

    _check_address(address or os.environ.get("RAY_ADDRESS", ""))
    try:
        ray.init(address, include_dashboard=False, log_to_driver=False, logging_level="ERROR", namespace="captionbench")
    except (ConnectionError, RuntimeError, TimeoutError, ValueError) as error:
        raise BenchError(f"--on ray: the cluster cannot be joined: {first_line(error)}", _START) from error
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
            f"--on ray: no cluster answers at {shortened(address)}: {first_line(error)}", _START
        ) from error


def _room(there: dict[str, float], wanted: dict[str, float]) -> int:
    """How often what is wanted fits into what a node has; nothing of a resource always fits."""
    return int(min(there.get(name, 0.0) / amount for name, amount in wanted.items() if amount))
