"""What `--on` and the options of a run's share of a cluster name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from harness.benchmark.engines.choose import check_engine

if TYPE_CHECKING:
    from harness.benchmark.engines.interface import Engine


def chosen_engine(
    on: str,
    jobs: int,
    devices: int,
    cpus: float | None,
    gpus: float | None,
    memory_gb: float | None,
    hours: float | None,
) -> Callable[[], Engine]:
    """Makes the engine of `--on`; only then is anything heavy imported.

    Raises:
        BenchError: at once, where it is unknown or the options contradict each other.
    """
    given = {
        "--cpus-per-run": cpus,
        "--gpus-per-run": gpus,
        "--memory-per-run": memory_gb,
        "--hours-per-run": hours,
    }
    check_engine(on, given, devices)

    def make() -> Engine:
        from harness.benchmark.engines.choose import choose_engine
        from harness.benchmark.engines.interface import Resources

        usual = Resources()
        resources = Resources(cpus or devices * usual.cpus, gpus, memory_gb, hours or usual.hours)
        return choose_engine(on, resources, jobs)

    return make
