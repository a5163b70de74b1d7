"""The engine that `--on` names."""

from __future__ import annotations

from harness.benchmark.engines.interface import CrewEngine, Engine, Resources
from harness.utils.errors import BenchError
from harness.utils.files import shortened

HERE = "here"


def check_engine(on: str, resources: dict[str, float | None], devices: int) -> None:
    """Refuse an `--on` that is unknown, and what it does not take; imports nothing heavy.

    Args:
        resources: what was given, by option; None where it was not.
        devices: that train one model together.

    Raises:
        BenchError: naming the option.
    """
    name, _, address = on.partition(":")
    if name not in {HERE, "ray", "slurm"} or (address and name != "ray") or on.endswith(":"):
        raise BenchError(f"--on {shortened(on)!r} is unknown", "choose here, ray, ray:HOST:PORT or slurm")
    if address.startswith("ray://"):
        raise BenchError(
            f"--on {shortened(on)}: this is an address of Ray's client, whose driver is outside of the cluster",
            "run the command on a node of the cluster: --on ray:HOST:6379, or ray job submit -- bench run --on ray",
        )
    given = [option for option, value in resources.items() if value is not None]
    if name == HERE and given:
        raise BenchError(f"{given[0]} is for runs on a cluster", "add --on ray or --on slurm, or leave it out")
    if name == "slurm" and devices > 1:
        raise BenchError(
            f"--on slurm and --devices {devices} contradict each other: each job has one process",
            f"leave out one of the two; `bench plan --slurm FILE --devices {devices}` writes a job of so many",
        )
    if name == "ray" and "--hours-per-run" in given:
        raise BenchError("--hours-per-run is for Slurm; Ray limits no time", "leave it out, or write --on slurm")


def check_tuning_engine(on: str, resources: dict[str, float | None]) -> None:
    """The same for `bench tune`, whose trials are no jobs of Slurm."""
    check_engine(on, resources, 1)
    if on == "slurm":
        raise BenchError(
            "--on slurm is for bench run", "tune here, with --jobs, or on a Ray cluster: --on ray:HOST:PORT"
        )


def choose_engine(on: str, resources: Resources, jobs: int) -> Engine:
    """The engine of a checked `--on`; `jobs` limits runs at a time, 0 is as many as there is room for."""
    name, _, address = on.partition(":")
    if name == "ray":
        from harness.benchmark.engines.ray import RayEngine

        return RayEngine(address or None, resources, jobs)
    if name == "slurm":
        from harness.benchmark.engines.slurm import SlurmEngine

        return SlurmEngine(resources, jobs)
    from harness.benchmark.engines.local import LocalEngine

    return LocalEngine()


def choose_crew_engine(on: str, resources: Resources, jobs: int) -> CrewEngine | None:
    """The engine of a checked `--on` of `bench tune`; None where processes of this machine do the work."""
    name, _, address = on.partition(":")
    if name != "ray":
        return None
    from harness.benchmark.engines.ray import RayEngine

    return RayEngine(address or None, resources, jobs)
