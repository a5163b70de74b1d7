"""Whether claims name metrics, splits and fields that there are: of others, no run will ever say anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from results.comparison.claim_types import Claim
from results.errors import StoreError
from results.published.scores import METRICS
from results.runs.finished_runs import finished_runs
from results.store.store import Store

_SPLITS: Final = ("val", "test", "nocaps")


def check_names(store: Store, claims: Sequence[Claim], fields: Collection[str]) -> None:
    """Check the names of all claims; what a stored run has is there, too.

    Args:
        fields: of the signature, those that any run may have.

    Raises:
        StoreError: a claim names a metric, split or field that there is not.
    """
    with store.reading() as connection:
        runs = list(finished_runs(connection))
    scores = [(split, of["overall"]) for run in runs for split, of in run.scores.items()]
    known = {
        "metric": dict.fromkeys((*METRICS, *(metric for _, overall in scores for metric in overall))),
        "split": dict.fromkeys((*_SPLITS, *(split for split, _ in scores))),
        "field of the signature": dict.fromkeys((*fields, *(name for run in runs for name in run.conditions))),
    }
    for number, claim in enumerate(claims, 1):
        for what, name in _named(claim):
            if name not in known[what]:
                raise StoreError(
                    f"claim {number}: there is no {what} {name[:60]!r}", f"choose of: {', '.join(known[what])}"
                )


def _named(claim: Claim) -> Iterator[tuple[str, str]]:
    yield "metric", claim.metric
    yield "split", claim.split
    for sides in claim.sides():
        for side in (sides.runs, sides.than):
            yield from (("field of the signature", name) for name in side.signature)
    yield from (("field of the signature", name) for name in claim.varies)
