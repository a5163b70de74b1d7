"""Finished runs of forty images, whose scores a test states."""

from collections.abc import Iterable
from typing import Any

from results import EpochRecord, Quantity, SplitResult, Store
from tests.results.conftest import Make

IMAGES = range(40)


def level(mean: float, wobble: float = 0.02) -> dict[int, float]:
    """Scores of the images about a mean; each image's own level is in all of them."""
    return {image: mean + image / 100 + wobble * (-1) ** image for image in IMAGES}


def finish(
    store: Store,
    model: str,
    seed: int,
    by_image: dict[int, float],
    *,
    rouge: dict[int, float] | None = None,
    epochs: Iterable[EpochRecord] = (),
    bounds: tuple[float | None, float | None] = (None, None),
    held_out: float | None = None,
    outcome: dict[str, Any] | None = None,
    **changes: Any,
) -> None:
    """A finished run with these scores of single images, and their mean between bounds, if there are any.

    `outcome` are fields of its outcome, `changes` of its spec.
    """
    low, high = bounds
    mean = Quantity(sum(by_image.values()) / len(by_image), low=low, high=high) if by_image else None
    overall, per_image = {"CIDEr-D": mean or Quantity(None, "not scored")}, {"CIDEr-D": by_image} if by_image else {}
    if rouge:
        overall["ROUGE-L"], per_image["ROUGE-L"] = Quantity(sum(rouge.values()) / len(rouge)), rouge
    less = {} if held_out is None else {"CIDEr-D": Quantity(held_out), "METEOR": Quantity(None, "no Java")}
    captions = dict.fromkeys(by_image, "a ball")
    result = SplitResult("test", captions, {"overall": overall}, per_image, held_out=less)
    spec = Make.spec(model, seed, **changes)
    store.plan([spec])
    for epoch in epochs:
        store.record_epoch(spec.key, epoch)
    store.finish(spec.key, Make.outcome(splits=(result,), **outcome or {}))
