"""A store of one million captions: what the leaderboard query, the report and data frames cost.

    pytest benchmarks/test_store.py -n 0 -s

50 models of 4 seeds on 5,000 images, captions of 10 words, five references an image, per-image CIDEr-D and BLEU-4, 20
epochs each. The report runs in a process of its own, whose peak memory is printed. Filling takes about a minute.
"""

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import results
from results import DatasetRecord, EpochRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult, Store

IMAGES, MODELS, SEEDS = 5_000, 50, 4
WORDS = [
    "a",
    "man",
    "woman",
    "dog",
    "cat",
    "riding",
    "standing",
    "on",
    "in",
    "the",
    "street",
    "with",
    "red",
    "blue",
    "ball",
    "near",
    "table",
    "two",
    "people",
    "beach",
]

MEASURE = """
import resource, sys, time
from pathlib import Path
from reports.html.report import write_report
from results import Store
from results.runs import reading
from results.runs.leaderboard import leaderboard

with Store(sys.argv[1], read_only=True) as store:
    started = time.perf_counter()
    rows = len(leaderboard(store)[0].rows)
    query = time.perf_counter() - started
    started = time.perf_counter()
    write_report(store, Path(sys.argv[2]))
    report = time.perf_counter() - started
print(rows, query, report, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


@pytest.fixture(scope="module")
def million(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store's file."""
    chance = random.Random(0)

    def sentence() -> str:
        return " ".join(chance.choices(WORDS, k=10))

    file = tmp_path_factory.mktemp("store") / "bench.sqlite"
    started = time.perf_counter()
    said = [sentence() for _ in range(20_000)]
    images = tuple(
        ImageRecord(number, f"test/{number:012d}.jpg", "test", tuple(sentence() for _ in range(5)))
        for number in range(IMAGES)
    )
    signature = {"data": "coco#1f3a09bc", "nrefs": "5", "beam": "3", "track": "controlled"}
    with Store(file) as store:
        store.record_dataset(DatasetRecord("coco", "f" * 16, "/pictures", {"test": IMAGES}, images))
        for number in range(MODELS * SEEDS):
            model, seed = divmod(number, SEEDS)
            cell = RunSpec(f"{number}", f"model_{model}", "model", seed, "controlled", "f" * 16, {}, signature)
            per_image = {
                metric: {image: max(0.0, chance.gauss(0.9 + model / 250, 0.5)) for image in range(IMAGES)}
                for metric in ("CIDEr-D", "BLEU-4")
            }
            scores = {metric: Quantity(sum(values.values()) / IMAGES) for metric, values in per_image.items()}
            captions = {image: chance.choice(said) for image in range(IMAGES)}
            store.plan([cell])
            for epoch in range(1, 21):
                store.record_epoch(
                    cell.key, EpochRecord(0, "xe", "xe", epoch, epoch, 1e-3, 4 / epoch, 0.5, 10.0, 100.0)
                )
            result = SplitResult("test", captions, {"overall": scores}, per_image)
            store.finish(cell.key, Outcome((result,), {"parameters": Quantity(3e7)}, {}))
    print(f"\nfilled in {time.perf_counter() - started:.0f} s, {file.stat().st_size / 1e6:.0f} MB")
    return file


def test_a_million_captions(million: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(million), str(tmp_path / "report")],
        capture_output=True,
        text=True,
        check=True,
    )
    rows, query, report, peak = map(float, done.stdout.split())
    print(f"leaderboard query {query:.2f} s, report {report:.2f} s, peak {peak:.0f} MB")
    assert rows == MODELS
    assert query < 2
    assert report < 10
    assert peak < 1000


def test_frames_of_a_million_captions(million: Path) -> None:
    with results.open(million) as opened:
        for name, limit in (("leaderboard", 3), ("image_scores", 4), ("captions", 20), ("epochs", 1)):
            started = time.perf_counter()
            rows = len(getattr(opened, name)())
            seconds = time.perf_counter() - started
            print(f"{name}: {rows:,} rows in {seconds:.2f} s")
            assert seconds < limit
