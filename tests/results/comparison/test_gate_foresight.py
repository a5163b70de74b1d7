"""What fall a new baseline could see, by the seeds that it holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from results.comparison.baseline import FORMAT, Baseline, BaselineRun, PerImage, Platform, SplitResults
from results.comparison.gate import Settings, foresee, unseen
from results.statistics.power import detectable

HERE = Platform(torch="2", numpy="2", os="Debian", machine="x", cpu="EPYC", threads="1", device="cpu", training="1")
MEANS = (0.95, 1.0, 1.05)  # a deviation of 5 points
DEVIATION = 5.0


def runs(model: str, means: tuple[float, ...], **changes: Any) -> list[BaselineRun]:
    """Seeds with these means, whose 101 images deviate from them all alike."""
    found = []
    for seed, mean in enumerate(means):
        by_image = PerImage.pack(dict(enumerate((mean + np.linspace(-0.5, 0.5, 101)).tolist())))
        results = SplitResults(scores={"CIDEr-D": mean}, by_image={"CIDEr-D": by_image}, captions="0" * 64)
        fields: dict[str, Any] = {"role": "model", "losses": ((0, 0, 1.0),)} | changes
        found.append(
            BaselineRun(
                model=model,
                seed=seed,
                signature={},
                code="1",
                platform=HERE,
                splits={"test": results},
                costs={},
                **fields,
            )
        )
    return found


def baseline(*of_runs: list[BaselineRun]) -> Baseline:
    return Baseline(format=FORMAT, runs=tuple(run for each in of_runs for run in each))


def test_enough_seeds_are_the_fewest_that_see_the_tolerance() -> None:
    [row] = foresee(baseline(runs("updown", MEANS)), Settings(tolerance={"CIDEr-D": 6.0}))
    assert row.enough is not None
    sees = [detectable(seeds, 101, DEVIATION, 0.0) for seeds in (row.enough - 1, row.enough)]
    assert sees[0] > 6.0 >= sees[1]
    what, hint = unseen([row]) or ("", "")
    assert "a fall of 6 CIDEr-D points could go unseen in 1 of 1 tests" in what
    assert f"bench run --seeds {row.enough}" in hint


def test_one_seed_promises_nothing() -> None:
    rows = foresee(baseline(runs("updown", (1.0,)), runs("blind", MEANS)), Settings(tolerance={"CIDEr-D": 90.0}))
    assert [(row.model, row.detectable is None, row.blind) for row in rows] == [
        ("updown", True, True),
        ("blind", False, False),
    ]
    assert unseen(rows) == (
        "a fall of 90 CIDEr-D points could go unseen in 1 of 2 tests of trained models",
        "make the runs with several seeds: bench run --seeds 5",
    )
