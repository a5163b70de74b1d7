"""Training speed by stage, and the time to reach a validation score, from a run's epochs."""

from __future__ import annotations

from collections.abc import Iterable

from results.records import EpochRecord


def stage_speeds(epochs: Iterable[EpochRecord]) -> dict[str, float]:
    """Images a second over all epochs of each stage, by the stage's name, in the order of training."""
    images: dict[str, float] = {}
    seconds: dict[str, float] = {}
    for epoch in epochs:
        images[epoch.stage_name] = images.get(epoch.stage_name, 0.0) + epoch.images_per_second * epoch.seconds
        seconds[epoch.stage_name] = seconds.get(epoch.stage_name, 0.0) + epoch.seconds
    return {name: images[name] / spent for name, spent in seconds.items() if spent > 0}


def seconds_to(epochs: Iterable[EpochRecord], cider: float) -> float | None:
    """Seconds of training until validation first reached this CIDEr-D (a fraction); None where it never did.

    Validation itself is not counted. Epochs without validation are skipped.
    """
    passed = 0.0
    for epoch in epochs:
        passed += epoch.seconds
        if epoch.val_cider is not None and epoch.val_cider >= cider:
            return passed
    return None
