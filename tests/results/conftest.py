"""Small made-up stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from results import Cell, DatasetRecord, EpochRecord, ImageRecord, Outcome, Quantity, SplitResult, Store

SIGNATURE = {"nrefs": "5", "split": "scenes-test", "beam": "3"}


class Make:
    """Records with sensible contents; keywords change fields."""

    @staticmethod
    def dataset(fingerprint: str = "f" * 16, **changes: Any) -> DatasetRecord:
        """Three test images, the last of another domain."""
        fields: dict[str, Any] = {
            "name": "scenes",
            "fingerprint": fingerprint,
            "root": "/pictures",
            "split_sizes": {"train": 90, "test": 3},
            "images": (
                ImageRecord(1, "test/1.png", "test", ("a red ball", "one ball"), "in-domain"),
                ImageRecord(2, "test/2.png", "test", ("a blue cube",), "in-domain"),
                ImageRecord(30, "test/30.png", "test", ("<b>two</b> cones",), "out-domain"),
            ),
            "skipped": {"train/9.png": "truncated"},
        }
        return DatasetRecord(**(fields | changes))

    @staticmethod
    def cell(model: str = "blind", seed: int = 1, **changes: Any) -> Cell:
        """A cell on `dataset`'s data; its key is made of the model, the seed and `variant`."""
        variant = changes.pop("variant", "")
        fields: dict[str, Any] = {
            "key": f"{model}-{seed}{variant}",
            "model": model,
            "role": "model",
            "seed": seed,
            "track": "controlled",
            "dataset": "f" * 16,
            "config": {"seed": seed, "training": {"seed": seed, "epochs": 3}},
            "signature": dict(SIGNATURE),
            "code_version": "0.1.0",
        }
        return Cell(**(fields | changes))

    @staticmethod
    def outcome(cider: float | None = 0.5, **changes: Any) -> Outcome:
        """Results on the test split whose per-image CIDEr-D is `cider` times 1, 2 and 3."""
        score = Quantity(None, "no Java found") if cider is None else Quantity(cider)
        result = SplitResult(
            split="test",
            captions={1: "a ball", 2: "a cube", 30: "cones"},
            scores={
                "overall": {"CIDEr-D": score, "BLEU-4": Quantity(0.25)},
                "in-domain": {"CIDEr-D": score},
                "out-domain": {"CIDEr-D": Quantity(None, "one image only")},
            },
            per_image={} if cider is None else {"CIDEr-D": {1: cider, 2: 2 * cider, 30: 3 * cider}},
        )
        fields: dict[str, Any] = {
            "splits": (result,),
            "costs": {"parameters": Quantity(1000.0, unit="1"), "energy": Quantity(None, "no meter", "J")},
            "environment": {"torch": "2.x", "device": "cpu"},
            "checkpoint": "runs/blind/best.safetensors",
            "operators": {"counted": {"linear": 12}, "uncounted": ["aten::sort"]},
        }
        return Outcome(**(fields | changes))

    @staticmethod
    def epoch(epoch: int, **changes: Any) -> EpochRecord:
        """An epoch of the first stage."""
        fields: dict[str, Any] = {
            "stage": 0,
            "stage_name": "cross-entropy",
            "objective": "xe",
            "epoch": epoch,
            "step": 10 * epoch,
            "learning_rate": 1e-3,
            "train_loss": 3.0 / epoch,
            "val_cider": None,
            "seconds": 1.5,
            "images_per_second": 60.0,
        }
        return EpochRecord(**(fields | changes))


@pytest.fixture
def make() -> type[Make]:
    """The records' factory."""
    return Make


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store that knows one data set."""
    with Store(tmp_path / "bench.sqlite") as opened:
        opened.record_dataset(Make.dataset())
        yield opened


@pytest.fixture
def add(store: Store) -> Callable[..., str]:
    """Plan and finish one cell: `add(model, seed, cider, **cell fields)` gives its key."""

    def adding(model: str, seed: int = 1, cider: float | None = 0.5, **changes: Any) -> str:
        cell = Make.cell(model, seed, **changes)
        store.plan([cell])
        store.finish(cell.key, Make.outcome(cider))
        return cell.key

    return adding
