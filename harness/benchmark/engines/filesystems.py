"""Whether a folder lies on a disk that other machines see."""

from __future__ import annotations

from pathlib import Path

_OF_ONE_MACHINE = {"btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "tmpfs", "xfs", "zfs"}
MOUNTS = Path("/proc/mounts")


def is_shared(folder: Path) -> bool:
    """False where the folder's file system is of a kind that one machine has; True for others, and where none is known.

    Args:
        folder: it need not exist yet.
    """
    try:
        lines = MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return True
    mounted = {Path(words[1].replace("\\040", " ")): words[2] for line in lines if len(words := line.split()) > 2}
    place = folder.resolve()
    kind = next((mounted[above] for above in (place, *place.parents) if above in mounted), "")
    return kind not in _OF_ONE_MACHINE
