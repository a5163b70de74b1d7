"""Check that references and candidates have the same image ids."""

from __future__ import annotations

from collections.abc import Iterable

from harness.utils.errors import BenchError

_SHOWN = 10


def require_same_images(references: Iterable[int], candidates: Iterable[int]) -> None:
    """Check that both hold the same image ids.

    Raises:
        BenchError: some are missing or extra; names the first ten of each and counts all.
    """
    wanted, given = set(references), set(candidates)
    problems = [
        *_describe(wanted - given, "with references but no caption"),
        *_describe(given - wanted, "with a caption but no references"),
    ]
    if problems:
        raise BenchError(
            f"captions and references are of different images: {'; '.join(problems)}",
            hint="give exactly one caption for every image of the split that is scored",
        )


def _describe(ids: set[int], what: str) -> list[str]:
    if not ids:
        return []
    shown = ", ".join(map(str, sorted(ids)[:_SHOWN]))
    return [f"{len(ids)} image{'s' if len(ids) > 1 else ''} {what} ({shown}{', ...' if len(ids) > _SHOWN else ''})"]
