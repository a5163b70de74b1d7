"""A report of 20 models, 3 seeds and 5,000 images: its size, what writing it costs, and how fast it opens.

    pytest benchmarks/test_report.py -n 0 -s

Synthesised captions in a vocabulary of 4,000 words whose frequencies fall as in English, five references an image and
no pictures. Writing is measured in processor time, which other programs of the machine do not lengthen; opening in
headless Chromium, where there is one, less what an empty page takes.
"""

import random
import shutil
import subprocess
import sys
import time
from itertools import accumulate
from pathlib import Path

import pytest

from results import DatasetRecord, EpochRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult, Store

IMAGES, MODELS, SEEDS, WORDS = 5_000, 20, 3, 4_000
FINGERPRINT = "coco#1f3a09bc"
SIGNATURE = {"data": FINGERPRINT, "nrefs": "5", "beam": "3", "feat": "swin#9c1e", "track": "controlled"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PAGES = ("index.html", "gallery.html", "curves.html", "trade-offs.html", "costs.html")

MEASURE = """
import resource, sys, time
from pathlib import Path
from reports.html.report import write_report
from results import Store

started = time.process_time()
with Store(sys.argv[1], read_only=True) as store:
    write_report(store, Path(sys.argv[2]))
print(time.process_time() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, "torch" in sys.modules)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store's file."""
    chance = random.Random(0)
    words = ["".join(chance.choices("abcdefghiklmnoprstuvw", k=chance.randint(2, 8))) for _ in range(WORDS)]
    weights = list(accumulate(1 / rank for rank in range(1, WORDS + 1)))

    def sentence() -> str:
        return " ".join(chance.choices(words, cum_weights=weights, k=10))

    file = tmp_path_factory.mktemp("store") / "bench.sqlite"
    images = tuple(
        ImageRecord(number, f"val2014/COCO_val2014_{number:012d}.jpg", "test", tuple(sentence() for _ in range(5)))
        for number in range(IMAGES)
    )
    with Store(file) as store:
        store.record_dataset(DatasetRecord("coco", FINGERPRINT, "/pictures", {"test": IMAGES}, images))
        for number in range(MODELS * SEEDS):
            model, seed = divmod(number, SEEDS)
            record = {"card": {"family": f"family_{model % 6}", "paper": "A paper", "year": 2020, "source": "none"}}
            cell = RunSpec(
                f"m{model}-s{seed}", f"model_{model}", "model", seed, "controlled", FINGERPRINT, record, SIGNATURE
            )
            scores = {image: max(0.0, chance.gauss(0.9 + model / 50, 0.5)) for image in range(IMAGES)}
            mean = sum(scores.values()) / IMAGES
            overall = {"CIDEr-D": Quantity(mean, low=mean - 0.02, high=mean + 0.02), "BLEU-4": Quantity(mean / 3)}
            captions = {image: sentence() for image in range(IMAGES)}
            store.plan([cell])
            for epoch in range(1, 31):
                store.record_epoch(
                    cell.key, EpochRecord(0, "xe", "xe", epoch, epoch, 1e-3, 4 / epoch, mean, 10.0, 100.0)
                )
            costs = {
                "parameters": Quantity(3e7 + 1e6 * model),
                "gmac_beam": Quantity(1 + model * 0.3, unit="GMAC"),
                "latency_median": Quantity(0.01 + model / 1000, unit="s"),
                "train_seconds": Quantity(3_600.0 * (1 + model) + seed, unit="s"),
            }
            result = SplitResult("test", captions, {"overall": overall}, {"CIDEr-D": scores})
            store.finish(cell.key, Outcome((result,), costs, {"device": "cpu"}))
    return file


def opening(page: str) -> float:
    """Seconds that Chromium takes to start and lay a page out."""
    command = [
        str(CHROMIUM), "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--dump-dom", page,
    ]  # fmt: skip
    started = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True, timeout=120)
    return time.perf_counter() - started


def test_a_report_of_sixty_runs(large: Path, tmp_path: Path) -> None:
    report = tmp_path / "report"
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(large), str(report)], capture_output=True, text=True, check=True
    )
    seconds, peak, torch = done.stdout.split()
    size = sum(path.stat().st_size for path in report.rglob("*") if path.is_file())
    print(f"\nreport {float(seconds):.1f} s of processor time, peak {float(peak):.0f} MB, {size / 1e6:.1f} MB on disk")
    assert torch == "False"
    assert float(seconds) < 10
    assert float(peak) < 1000
    assert size < 15e6
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine")
    opening("about:blank")
    empty = min(opening("about:blank") for _ in range(2))
    for page in PAGES:
        took = opening((report / page).as_uri()) - empty
        print(f"{page} opens in {took:.2f} s")
        assert took < 2
