"""The table of further metrics, on the page and on the terminal: only where there is something to show."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from reports.html.report import write_report
from reports.text.terminal import print_leaderboard
from results import DatasetRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult, Store
from results.store.rescoring import add_scores

IMAGES = (ImageRecord(1, "1.png", "test", ("a dog",)), ImageRecord(2, "2.png", "test", ("a cat",)))
CAPTIONS = {1: "a dog", 2: "a bird"}
MORE = {
    "caption_words": Quantity(2.0, unit="words"),
    "CHAIR-i (objects:instances#1a2b, references)": Quantity(0.5, low=0.0, high=1.0),
    "CLIPScore": Quantity(None, "no CLIP model is named: --clip FOLDER"),
}


def shown(store: Store, folder: Path) -> tuple[str, str]:
    console = Console(file=io.StringIO(), width=80)
    print_leaderboard(store, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue(), write_report(store, folder / "report").read_text(encoding="utf-8")


def test_the_table_is_there_once_something_was_measured(tmp_path: Path) -> None:
    specs = [RunSpec(name, name, "model", 0, "controlled", "f" * 16, {}, {"beam": "3"}) for name in ("m2", "updown")]
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("toy", "f" * 16, str(tmp_path), {"test": 2}, IMAGES))
        store.plan(specs)
        for spec in specs:
            scores = {"overall": {"CIDEr-D": Quantity(0.5)}}
            store.finish(spec.key, Outcome((SplitResult("test", CAPTIONS, scores, {}),), {}, {}))
        assert all("More metrics" not in text for text in shown(store, tmp_path))
        add_scores(store, "m2", [SplitResult("test", CAPTIONS, {"overall": MORE}, {})])
        text, page = shown(store, tmp_path)
    table = text[text.index("More metrics, toy test") :].splitlines()
    assert table[1].split() == ["Words", "CHAIR-i"]
    assert (table[3].split()[0], table[3].split()[-2:]) == ("m2", ["2.00", "50.0"])
    assert not any(line.startswith("updown") for line in table)
    said = " ".join(" ".join(table).split())
    assert "less is better (objects:instances#1a2b, references)" in said
    assert "CLIPScore: no CLIP model is named: --clip FOLDER" in said
    section = page[page.index("<h3>More metrics</h3>") :]
    assert ">50.0" in section
    assert "<li>CLIPScore: no CLIP model is named: --clip FOLDER</li>" in section
