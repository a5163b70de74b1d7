"""From a caption to a cell of the leaderboard: how many files a score goes through, counted while it does."""

import io
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from rich.console import Console

from harness.metrics.evaluator import Evaluator, with_intervals
from harness.metrics.signature import EvaluationSettings
from reports.tables.table import Cell
from reports.text.terminal import print_leaderboard
from results import DatasetRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult, Store
from results.runs.spreads import Spread

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("harness", "zoo", "results", "reports")
REFERENCES = {i: [f"a red ball {i} on a table", f"the ball {i}"] for i in range(1, 9)}
CAPTIONS = {i: f"a red ball {i}" if i % 2 else "a dog" for i in REFERENCES}
MOST = 10


def holds(value: Any, number: float, depth: int = 3) -> bool:
    """Whether this is the number, or a score, a cell, or a small collection of some that has it."""
    if isinstance(value, float):
        return math.isclose(value, number, rel_tol=1e-12)
    if isinstance(value, Quantity | Spread | Cell):
        return holds(getattr(value, "mean" if isinstance(value, Spread) else "value"), number)
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return depth > 0 and len(inner) < 40 and any(holds(each, number, depth - 1) for each in inner)


@contextmanager
def files_that_hand_on(number: float) -> Iterator[set[str]]:
    """The project's files of which a function gives the number to another."""
    found: set[str] = set()

    def watch(frame: FrameType, event: str, given: Any) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "return" and any(file.is_relative_to(ROOT / room) for room in ROOMS) and holds(given, number):
            found.add(str(file.relative_to(ROOT)))

    sys.setprofile(watch)
    try:
        yield found
    finally:
        sys.setprofile(None)


def scored() -> SplitResult:
    with Evaluator(settings=EvaluationSettings(meteor=False)) as evaluator:
        evaluation = with_intervals(evaluator.evaluate(REFERENCES, CAPTIONS))
    return SplitResult("test", CAPTIONS, evaluation.scores, evaluation.per_image)


def test_a_score_goes_through_few_files(tmp_path: Path) -> None:
    number = scored().scores["overall"]["CIDEr-D"].value
    assert number is not None
    images = tuple(ImageRecord(i, f"{i}.png", "test", tuple(texts)) for i, texts in REFERENCES.items())
    shown = io.StringIO()
    with Store(tmp_path / "bench.sqlite") as store, files_that_hand_on(number) as files:
        store.record_dataset(DatasetRecord("d", "f" * 16, str(tmp_path), {"test": 8}, images))
        store.plan([RunSpec("k", "m2", "model", 1, "controlled", "f" * 16, {}, {})])
        store.finish("k", Outcome((scored(),), {}, {}))
        print_leaderboard(store, Console(file=shown, width=80))
    assert f"{100 * number:.1f}" in shown.getvalue()
    rooms = [file.rpartition("/")[0] for file in files]
    assert {"harness/metrics", "results/store", "results/runs", "reports/tables"} <= set(rooms), "none is missed"
    assert len(files) <= MOST, sorted(files)
