"""The memory of this machine that is free."""

from collections.abc import Iterator
from pathlib import Path

from harness.utils.files import first_match


def free_host_memory(root: Path = Path("/")) -> int | None:
    """Bytes that Linux and its control groups leave a process; None elsewhere."""
    kilobytes = first_number(root / "proc/meminfo", r"^MemAvailable:\s+(\d+) kB$")
    return None if kilobytes is None else min(kilobytes * 1024, *_left_by_groups(root))


def _left_by_groups(root: Path) -> Iterator[int]:
    """What each control group of this process, and each that holds it, leaves of its limit; as in a Slurm job."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    for line in lines:
        hierarchy, controllers, group_path = line.split(":", 2)
        # Limit, use and what of it is given up on demand, of a control group of version 2 and 1.
        if hierarchy == "0":
            base = root / "sys/fs/cgroup"
            limit = "memory.max"
            used = "memory.current"
            spare = "inactive_file"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
            spare = "total_inactive_file"
            limit = "memory.limit_in_bytes"
            used = "memory.usage_in_bytes"
        else:
            continue
        group = base / group_path.lstrip("/")
        for folder in (group, *group.parents):
            most, now = (first_number(folder / name, r"^(\d+)$") for name in (limit, used))
            if most is not None and now is not None:
                yield max(most - now + (first_number(folder / "memory.stat", rf"^{spare} (\d+)$") or 0), 0)
            if folder == base:
                break
    yield 2**63  # no limit


def first_number(file: Path, pattern: str) -> int | None:
    """The number that the pattern's group matches first; None where the file cannot be read, or has none."""
    number = first_match(file, pattern)
    return None if number is None else int(number)
