"""Places, intervals and p-values: the same in every format, and those of an independent computation."""

import csv
import io
import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.metrics.evaluator import Evaluator, with_intervals
from harness.metrics.signature import EvaluationSettings
from reports.columns import Cell
from reports.model_names import display_name
from reports.tables.boards import boards
from reports.tables.contents import Contents
from reports.tables.selection import matching_tables
from reports.text.csv_rows import as_csv
from reports.text.latex import latex
from reports.text.markup import as_json, markdown
from results import DatasetRecord, ImageRecord, Outcome, Quantity, Results, RunSpec, SplitResult, Store
from results.runs.spreads import Spread
from tests.reports.test_comparisons_anew import apart
from tests.reports.text.test_terminal import printed

SHOWN = ("expansionnet_v2", "transformer_base")


def scores(model: str, results: Results) -> np.ndarray:
    """Scores (S, N) as they were stored."""
    frame = results.image_scores(split="test", metric="CIDEr-D")
    rows = frame[(frame.model == model) & (frame.seed <= 2) & frame.signature.str.contains("beam:3")]
    return rows.pivot_table(index="seed", columns="image_id", values="score_percent", observed=True).to_numpy()


def test_every_format_has_the_numbers_of_an_independent_computation(store: Store) -> None:
    results, contents = Results(store), Contents.read(store)
    measured = [scores(model, results) for model in SHOWN]
    assert {side.shape for side in measured} == {(2, 12)}
    intervals = []
    for side in measured:
        mean, seeds, images, degrees = apart(side)
        intervals.append([round(bound, 1) for bound in stats.t.interval(0.95, degrees, mean, np.sqrt(seeds + images))])
    gap, seeds, images, degrees = apart(*measured)
    p = 2 * stats.t.sf(gap / np.sqrt(seeds + images), degrees)  # the table's only pair: nothing to correct
    places = ["1", "2"] if p < 0.05 else ["1–2", "1–2"]
    texts = [f"{low}–{high}" for low, high in intervals]

    terminal = printed(store, 120)
    board = next(board for board in boards(contents) if "test" in board.title)
    frame = list(csv.DictReader(io.StringIO(as_csv(contents, matching_tables(contents, split="test")))))
    tests = results.leaderboard(split="test")
    exported = json.loads(as_json(contents))[0]["rows"]
    as_markdown, as_latex = markdown(contents), latex(contents, ["CIDEr-D", "interval", "rank"])
    for number, model in enumerate(SHOWN):
        place, text, (low, high) = places[number], texts[number], intervals[number]
        assert [board.table.lines[number].cells[at].text for at in (2, 0)] == [text, place], "HTML"
        assert re.search(rf"^{model} ×2 +{place} .* {text} ", terminal, re.MULTILINE), "terminal"
        assert re.search(rf"^\| {model} ×2 \| [^|]* \| {text} \| {place} \|", as_markdown, re.MULTILINE), "Markdown"
        shown = place.replace("–", "--")
        assert f"& {text.replace('–', '--')} & {shown} " in as_latex.split(display_name(model))[1], "LaTeX"
        row = frame[number]
        assert (row["model"], row["rank_low"], row["rank_high"]) == (model, place[0], place[-1]), "CSV"
        bounds = [float(row[f"cider_d_{end}"]) for end in ("low", "high")]
        assert [round(bound, 1) for bound in bounds] == [low, high]
        standing = exported[number]["ranks"]["CIDEr-D"]
        assert (standing["best"], standing["worst"]) == (int(place[0]), int(place[-1])), "JSON"
        found = exported[number]["scores"]["CIDEr-D"]
        assert [round(100 * found[end], 1) for end in ("low", "high")] == [low, high]
    assert exported[1]["ranks"]["CIDEr-D"]["against_best"] == pytest.approx(p, rel=1e-9)
    assert tests["p_against_best"][1] == pytest.approx(p, rel=1e-9)


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
    with Store(tmp_path / "bench.sqlite") as store, files_that_hand_on(number) as files:
        store.record_dataset(DatasetRecord("d", "f" * 16, str(tmp_path), {"test": 8}, images))
        store.plan([RunSpec("k", "m2", "model", 1, "controlled", "f" * 16, {}, {})])
        store.finish("k", Outcome((scored(),), {}, {}))
        shown = printed(store)
    assert f"{100 * number:.1f}" in shown
    rooms = [file.rpartition("/")[0] for file in files]
    assert {"harness/metrics", "results/store", "results/runs", "reports/tables"} <= set(rooms), "none is missed"
    assert len(files) <= MOST, sorted(files)
