"""Features by a crew: an order a chunk, whose failure is the failure of the extraction."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from harness.benchmark.engines.crew import Crew, Failure, Order
from harness.utils.errors import BenchError


def in_parts(crew: Crew, parts: Sequence[int]) -> Generator[tuple[int, Any], None, None]:
    """Have a crew compute parts, by their numbers; yields each as it is done.

    Raises:
        BenchError: a part failed; those that were yielded before are kept by whoever took them.
    """
    orders = [Order(f"features, part {part + 1}", part) for part in parts]
    with closing(crew.perform(orders)) as computed:
        for order, found in computed:
            if isinstance(found, Failure):
                raise BenchError(
                    f"{order.name} cannot be extracted: {found}",
                    "the same command goes on with the parts that are left; --on here extracts in one process",
                )
            yield order.content, found
