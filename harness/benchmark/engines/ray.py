"""Runs on a Ray cluster: one actor a slot pulls run after run; where its node dies, Ray starts it and its run again.

An actor takes the resources of one run. A run that is repeated goes on from its last checkpoint; the lock of its folder
and the store decide whether there is anything left of it to do.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Generator, Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import torch

from harness.benchmark.context import RunContext
from harness.benchmark.engines.estimate import BASE_BYTES, memory_bytes
from harness.benchmark.engines.interface import Resources
from harness.benchmark.engines.parts import in_parts
from harness.benchmark.engines.ray_crew import RayCrew
from harness.benchmark.engines.runs import OPENER, execute_runs
from harness.benchmark.worker import Ended, Shared, Worker
from harness.data.chunks import Spread
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results import Store
from results.errors import install_extra
from results.records import RunSpec
from results.store.engine import resolve_url, sqlite_file
from zoo.errors import first_line

ANSWER_S = 10.0
"""How long the head node of a cluster may take to answer."""
_START = "start one with `ray start --head` and write --on ray:HOST:6379; --on ray alone may use this machine"


class RayEngine:
    """See `Engine` and `CrewEngine` in `harness.benchmark.engines.interface`.

    Args:
        address: of a cluster's head node; None: that of RAY_ADDRESS, or a cluster that was started on this machine, or
            else one is started here for the length of the command.
        resources: of each run.
        jobs: at most so many runs at a time; 0: as many as the cluster has room for.
    """

    finds_devices = True

    def __init__(self, address: str | None, resources: Resources, jobs: int) -> None:
        self._address, self._resources, self._jobs = address, resources, jobs
        self._options: dict[str, Any] = {}
        self._ray: Any = None

    def join(self) -> None:
        """Join the cluster.

        Raises:
            BenchError: Ray is not installed, or there is no cluster.
        """
        if find_spec("ray") is None:
            raise BenchError("--on ray needs Ray, which is not installed", install_extra("ray"))
        self._ray = _join(self._address)

    def check(self, workspace: Workspace) -> None:
        """Join the cluster; BenchError also where its hosts cannot share the results."""
        self.join()
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
        execution = context.execution
        devices = execution.config.devices
        room = self._room_for(execution.device, devices * memory_bytes(specs, context), devices)
        models = max(sum(spec.kind != "reference" for spec in specs), 1)
        return min(room, self._jobs or room, models)

    def _room_for(self, device: torch.device, memory: int, devices: int = 1) -> int:
        """How many workers with this much memory fit into the nodes; keeps what each of them asks for.

        All that a worker asks for is on one node, and so are the devices that train a run together.
        """
        if device.index is not None:
            raise BenchError(
                f"--on ray and --device {device} contradict each other: Ray chooses the GPU of each run",
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
        if self._resources.memory_gb is not None:
            memory = int(self._resources.memory_gb * 1e9)
        wanted = {"CPU": self._resources.cpus, "GPU": gpus, "memory": float(memory)}
        self._options = {"num_cpus": self._resources.cpus, "num_gpus": gpus, "memory": memory}
        room = sum(_room(node["Resources"], wanted) for node in self._nodes())
        if not room:
            described = f"{wanted['CPU']:g} CPUs, {gpus:g} GPUs, {memory / 1e9:.1f} GB of memory"
            raise BenchError(
                f"no node of the Ray cluster has what a run is to get: {described}",
                "add larger nodes, or ask for less: --cpus-per-run, --gpus-per-run, --memory-per-run",
            )
        return room

    def execute(
        self,
        runs: Sequence[tuple[str, RunSpec]],
        shared: Shared,
        store: Store,
        reporter: Reporter,
        here: Worker,  # noqa: ARG002  # this process only waits
    ) -> Iterator[tuple[RunSpec, Ended]]:
        """See `Engine.execute`; a run is repeated `ray_crew.RETRIES` times before it is a failed row."""
        if runs:
            crew = RayCrew(self._ray, shared.context.execution.config.jobs, self._options, OPENER, shared, reporter)
            yield from execute_runs(crew, runs, shared.workspace, store, reporter)

    def extraction(self, device: torch.device, reporter: Reporter) -> Spread:
        """Features by actors with the resources of a run; their bytes come through Ray, whatever disks are shared."""

        def spread(opener: str, shared: Any, parts: Sequence[int]) -> Generator[tuple[int, Any], None, None]:
            return in_parts(self.crew(opener, shared, device, self._jobs, reporter), parts)

        return spread

    def crew(self, opener: str, shared: Any, device: torch.device, jobs: int, reporter: Reporter) -> RayCrew:
        """Actors with the resources of a run, `jobs` of them at most."""
        room = self._room_for(device, BASE_BYTES)
        return RayCrew(self._ray, min(room, jobs or room), self._options, opener, shared, reporter)

    def close(self) -> None:
        """Leave the cluster; one that was started here ends."""
        if self._ray is not None:
            self._ray.shutdown()
            self._ray = None

    def _nodes(self) -> list[dict[str, Any]]:
        return [node for node in self._ray.nodes() if node["Alive"]]


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
