"""Workspaces with made-up results, for commands that judge and compare them."""

import random
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from results import DatasetRecord, EpochRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult, Store

IMAGES = range(1, 61)
ENVIRONMENT = {
    "packages": {"torch": "2.15.0", "numpy": "2.4.6"},
    "os": "Debian",
    "machine": "x86_64",
    "cpu": "EPYC",
    "threads": 1,
    "device": {"type": "cpu"},
}
SIGNATURE = {"data": "scenes#6aa2", "nrefs": "5", "beam": "3", "v": "0.1.0"}
Fill = Callable[..., Path]


@pytest.fixture
def fill(tmp_path: Path) -> Fill:
    """`fill("old", {"updown": 0.0})` makes a workspace; models score so many points more than usual.

    `seeds` are trained of each, `seconds` is how long training took, `beam` the search's width, `cpu` where it was,
    `failed` models that end with an error, `spice` a score without those of single images, `influences` whether BLEU-4
    has those of images.
    """

    def filling(
        name: str,
        models: Mapping[str, float],
        *,
        seeds: int = 1,
        seconds: float = 10.0,
        beam: str = "3",
        cpu: str = "EPYC",
        failed: tuple[str, ...] = (),
        spice: float | None = None,
        influences: bool = False,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        images = tuple(ImageRecord(i, f"{i}.png", "test", (f"a ball {i}", "one ball")) for i in IMAGES)
        with Store(folder / "bench.sqlite") as store:
            store.record_dataset(DatasetRecord("scenes", "f" * 16, "/pictures", {"test": len(IMAGES)}, images))
            for (model, points), seed in product(models.items(), range(seeds)):
                cell = planned(model, seed, beam)
                store.plan([cell])
                if model in failed:
                    store.fail(cell.key, "RuntimeError", "out of luck", "Traceback")
                    continue
                store.record_epoch(
                    cell.key, EpochRecord(0, "xe", "xe", 0, 30, 0.1, 2.5 - points / 100, None, 9.0, 30.0)
                )
                store.finish(cell.key, outcome(points, seed, seconds, cpu, spice, influences))
        return folder

    return filling


def contents(folder: Path) -> dict[Path, tuple[int, bytes]]:
    """Every file's time of change and bytes, without those that SQLite has beside an open database."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.name.endswith(("-wal", "-shm"))]
    return {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in files}


def planned(model: str, seed: int, beam: str) -> RunSpec:
    """A run of this seed."""
    record = {"arguments": {"d_model": 32}}
    signature = SIGNATURE | {"beam": beam}
    return RunSpec(
        key=f"{model}-s{seed}",
        model=model,
        role="model",
        seed=seed,
        track="controlled",
        dataset="f" * 16,
        record=record,
        signature=signature,
        code_version="0.1.0",
    )


def outcome(points: float, seed: int, seconds: float, cpu: str, spice: float | None, influences: bool) -> Outcome:
    """Captions that say how good they are, and their scores, by some 4 points other with every seed."""
    generator = random.Random(3 + seed)
    by_image = {
        i: generator.uniform(0.5, 1.5) + (points + generator.uniform(-1, 1) * bool(points)) / 100 for i in IMAGES
    }
    captions = dict.fromkeys(IMAGES, f"a ball {points:+.1f}")
    mean = sum(by_image.values()) / len(by_image)
    scores: dict[str, Any] = {
        "CIDEr-D": Quantity(mean),
        "BLEU-4": Quantity(0.25 + points / 100),
        "SPICE": Quantity(None, "no Java found") if spice is None else Quantity(spice),
    }
    bleu = {i: by_image[i] / 4 for i in IMAGES}
    weighed = {i: scores["BLEU-4"].value + bleu[i] - mean / 4 for i in IMAGES}
    result = SplitResult(
        "test",
        captions,
        {"overall": scores},
        {"CIDEr-D": by_image, "BLEU-4": bleu},
        influences={"BLEU-4": weighed} if influences else {},
    )
    costs = {
        "parameters": Quantity(1e6),
        "train_seconds": Quantity(seconds, unit="s"),
        "latency_noisy": Quantity(1.0),
        "energy": Quantity(None, "no meter"),
    }
    return Outcome((result,), costs, ENVIRONMENT | {"cpu": cpu})
