"""Made-up stores that claims are judged by."""

import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from results import DatasetRecord, EpochRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult, Store

IMAGES = range(1, 41)
FLAT, RISING = (0.5, 0.8, 0.8, 0.8), (0.1, 0.3, 0.5, 0.9)


class Trained(NamedTuple):
    """Runs of a model, whose CIDEr-D is some 100 points and `points` more; `stages` are of its schedule."""

    model: str
    points: float
    seeds: int = 3
    curve: tuple[float, ...] = FLAT
    stages: tuple[str, ...] = ("xe",)
    beam: str = "3"
    seconds: float | None = None
    batch_size: int = 24


def store_of(file: Path, trained: Iterable[Trained]) -> Path:
    """A database of these runs; seeds of a model differ by some tenths of a point."""
    images = tuple(ImageRecord(i, f"{i}.png", "test", (f"a ball {i}",)) for i in IMAGES)
    with Store(file) as store:
        store.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": len(IMAGES)}, images))
        for each in trained:
            for seed in range(each.seeds):
                spec = _planned(each, seed)
                store.plan([spec])
                for epoch, score in enumerate(each.curve):
                    store.record_epoch(
                        spec.key, EpochRecord(len(each.stages) - 1, "xe", "xe", epoch, 30, 0.1, 2.5, score, 9.0, 30.0)
                    )
                store.finish(spec.key, _outcome(each, seed))
    return file


def _planned(each: Trained, seed: int) -> RunSpec:
    stages = [{"name": name, "epochs": len(each.curve), "batch_size": each.batch_size} for name in each.stages]
    schedule = {"name": "two", "stages": stages}
    config: dict[str, Any] = {"preset": {"name": "quick", "schedule": schedule}}
    signature = {"data": "scenes#1", "beam": each.beam, "schedule": f"two#{len(stages)}", "rev": "1", "v": "0.1.0"}
    signature |= {"reward": "cider"} if len(stages) > 1 else {}
    key = f"{each.model}-{'-'.join(each.stages)}-b{each.beam}-s{seed}"
    return RunSpec(key, each.model, "model", seed, "controlled", "f" * 16, config, signature, "0.1.0")


def _outcome(each: Trained, seed: int) -> Outcome:
    generator = random.Random(f"{each.model} {seed}")
    by_image = {i: 0.5 + i / len(IMAGES) + (each.points + generator.uniform(-1, 1)) / 100 for i in IMAGES}
    scores = {"overall": {"CIDEr-D": Quantity(sum(by_image.values()) / len(by_image)), "ROUGE-L": Quantity(0.5)}}
    result = SplitResult("test", dict.fromkeys(IMAGES, "a ball"), scores, {"CIDEr-D": by_image})
    costs = {}
    if each.seconds is not None:
        costs["train_seconds"] = Quantity(each.seconds * (1 + 0.01 * seed), unit="s")
        costs["train_gmac"] = Quantity(10 * each.seconds, unit="GMAC")
    return Outcome((result,), costs, {"device": "cpu"})
