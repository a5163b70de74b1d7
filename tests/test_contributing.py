"""A metric, a format and a column are added by the files that CONTRIBUTING.md lists for each, and by no others."""

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.conftest import PACKAGES
from tests.reports.test_new_column import overlap

ROOT = Path(__file__).resolve().parents[1]

OVERLAP = f"""
from collections.abc import Mapping, Sequence

import numpy as np

from harness.metrics.contract import mean_of
from results.statistics.significance import Statistics


{inspect.getsource(overlap)}
"""
SEMICOLONS = '''
"""Files whose lines are a picture, a caption and a split, between semicolons."""

from harness.data.formats.annotations import Annotations, ReadOptions
from harness.data.formats.content import Content


def sniff_semicolons(content: Content) -> str:
    """A first line "picture;caption;split"."""
    return "its first line is picture;caption;split" if content.lines[:1] == ["picture;caption;split"] else ""


def read_semicolons(content: Content, options: ReadOptions) -> Annotations:
    """One line a caption."""
    annotations = Annotations(content.path)
    for line in content.lines[1:]:
        picture, caption, split = line.split(";")
        image = annotations.image(picture, picture)
        image.captions.append(caption)
        image.split = split
    return annotations
'''


def listed_files(addition: str) -> set[str]:
    """The files of the packages in the row of CONTRIBUTING.md's table."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [row] = [line for line in text.splitlines() if line.startswith(f"| {addition} |")]
    files = re.findall(r"`([\w/.<>]+\.py)`", row)
    return {file for file in files if file.split("/")[0] in PACKAGES}


def insert(file: Path, before: str, lines: str) -> None:
    """Put lines before a line that stands once in a file."""
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1, (file, before)
    file.write_text(text.replace(before, lines + before), encoding="utf-8")


def changed_files(copy: Path) -> set[str]:
    """The files of a copy that differ from the project's; those that it has not are <new>.py."""
    changed = set()
    for package in PACKAGES:
        for path in (copy / package).rglob("*.py"):
            name = path.relative_to(copy).as_posix()
            if not (ROOT / name).exists():
                changed.add(f"{Path(name).parent.as_posix()}/<new>.py")
            elif (ROOT / name).read_bytes() != path.read_bytes():
                changed.add(name)
    return changed


def bench(copy: Path, *words: str) -> str:
    """The output of a command of the copy, in its folder."""
    code = f"import sys; sys.path.insert(0, {str(copy)!r}); from harness.cli.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=copy, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def write_captions(folder: Path) -> None:
    """Two images with references, and a system's captions of them."""
    references = {"1": ["a red ball on a table", "the ball is red"], "2": ["two dogs", "a pair of dogs"]}
    captions = [{"image_id": 1, "caption": "a red cube"}, {"image_id": 2, "caption": "two dogs"}]
    (folder / "references.json").write_text(json.dumps(references), encoding="utf-8")
    (folder / "captions.json").write_text(json.dumps(captions), encoding="utf-8")


def test_a_metric_is_its_file_its_call_and_its_line(copy: Path) -> None:
    evaluator = copy / "harness" / "metrics" / "evaluator.py"
    (copy / "harness" / "metrics" / "overlap.py").write_text(OVERLAP, encoding="utf-8")
    insert(evaluator, "from harness.metrics.rouge import", "from harness.metrics.overlap import overlap\n")
    call = "        rouge_l(round_.references, round_.captions),\n"
    insert(evaluator, call, call.replace("rouge_l", "overlap"))
    line = 'METRICS: tuple[MetricInfo, ...] = (\n    MetricInfo(\n        name="BLEU-1"'
    new = 'MetricInfo(name="Overlap", meaning="share of words that a reference has.", short="O", priority=15)'
    file = copy / "results" / "metrics.py"
    text = file.read_text(encoding="utf-8")
    assert line in text
    file.write_text(text.replace(line, line.replace("(\n    M", f"(\n    {new},\n    M", 1)), encoding="utf-8")
    write_captions(copy)
    bench(copy, "evaluate", "captions.json", "--references", "references.json", "--out", "scores.json")
    scores = json.loads((copy / "scores.json").read_text(encoding="utf-8"))["scores"]
    assert scores["Overlap"] == pytest.approx((2 / 3 + 1) / 2, rel=1e-12)
    assert changed_files(copy) == listed_files("a metric")


def test_a_format_is_its_file_and_its_line(copy: Path) -> None:
    (copy / "harness" / "data" / "formats" / "semicolons.py").write_text(SEMICOLONS, encoding="utf-8")
    registry = copy / "harness" / "data" / "formats" / "registry.py"
    insert(registry, "from harness.utils.errors import", "from harness.data.formats import semicolons\n")
    functions = "semicolons.sniff_semicolons, semicolons.read_semicolons"
    line = f'Format("semicolons", "Semicolons", "a.jpg;a dog;test", {functions})'
    text = registry.read_text(encoding="utf-8")
    text, count = re.subn(r"^(ANNOTATION_FORMATS: Final = \()$", rf"\1\n    {line},", text, flags=re.MULTILINE)
    assert count == 1
    registry.write_text(text, encoding="utf-8")
    for number in range(3):
        Image.new("RGB", (8, 8)).save(copy / f"{number}.jpg")
    rows = [f"{number}.jpg;a {word} dog;test" for number, word in enumerate(("red", "blue", "green"))]
    (copy / "captions.txt").write_text("\n".join(["picture;caption;split", *rows]), encoding="utf-8")
    bench(copy, "data", "convert", "captions.txt", "--out", "converted.json")
    assert json.loads((copy / "converted.json").read_text())["images"][1]["sentences"][0]["raw"] == "a blue dog"
    assert changed_files(copy) == listed_files("a form of annotations")


def test_a_column_is_one_more_in_the_registry(copy: Path) -> None:
    columns = copy / "reports" / "columns.py"
    column = (
        '    columns.append(Column("Runs", lambda row, _: Cell(str(len(row.seeds)), len(row.seeds)),'
        ' "finished runs", "Runs", priority=1))\n'
    )
    text = columns.read_text(encoding="utf-8")
    start = text.index("def leaderboard_columns(")
    end = text.index("    return columns\n", start)
    columns.write_text(text[:end] + column + text[end:], encoding="utf-8")
    stored = ROOT / "baselines" / "flickr8k.sqlite"
    assert re.search(r"\bRuns\b", bench(copy, "report", "--terminal", "--db", str(stored)))
    assert changed_files(copy) == listed_files("a column")
