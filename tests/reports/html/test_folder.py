"""Writing the report folder: little data, stale pages, failures and other files."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.errors import ReportError
from reports.html.report import MARKER, replaced, write_report
from results.records import DatasetRecord, EpochRecord, Outcome, Quantity, RunSpec, SplitResult
from results.store.store import Store
from tests.reports.html.parsed import Page


def test_sentences_about_a_model_are_separated(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("tiny", "f", str(tmp_path), {}, ()))
        store.plan([RunSpec("k", "blind", "model", 1, "controlled", "f", {"card": {"summary": "No image"}}, {})])
        folder = write_report(store, tmp_path / "report").parent
    lead = next(Page(folder / "models" / "blind.html").root.find("p", class_="lead"))
    assert lead.text.startswith("No image. A trained model")


def test_an_empty_store_gives_a_report_that_says_so(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        index = write_report(store, tmp_path / "report")
    assert "No run has finished yet" in Page(index).root.text
    assert not (tmp_path / "report" / "gallery.html").exists()


def test_an_unvalidated_epoch_and_missing_scores_can_be_drawn(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("tiny", "f", str(tmp_path), {}, ()))
        store.plan([RunSpec("../../up", "m", "model", 1, "controlled", "f", {}, {})])
        store.record_epoch("../../up", EpochRecord(0, "s", "xe", 0, 1, 1e-3, 2.0, None, 1.0, 1.0))
        store.finish(
            "../../up",
            Outcome((SplitResult("test", {}, {"overall": {"CIDEr-D": Quantity(None, "no Java")}}, {}),), {}, {}),
        )
        index = write_report(store, tmp_path / "report")
    assert "no Java" in Page(index).root.text
    assert len(list((tmp_path / "report" / "runs").iterdir())) == 1, "a key never becomes a path"
    assert sorted(path.name for path in tmp_path.iterdir() if path.suffix == ".html") == []


def test_writing_again_drops_stale_pages(store: Store, tmp_path: Path) -> None:
    folder = write_report(store, tmp_path / "report").parent
    (folder / "runs" / "stale.html").write_text("old", encoding="utf-8")
    marker = folder / MARKER
    marker.write_text(marker.read_text(encoding="utf-8") + "runs/stale.html\n", encoding="utf-8")
    write_report(store, folder)
    assert not (folder / "runs" / "stale.html").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".report-")]


def test_files_of_others_stay_in_a_report(store: Store, tmp_path: Path) -> None:
    folder = write_report(store, tmp_path / "report").parent
    (folder / "mine").mkdir()
    (folder / "mine" / "table.csv").write_text("kept", encoding="utf-8")
    (folder / "link").symlink_to("nowhere")
    for _ in range(2):
        write_report(store, folder)
        assert (folder / "mine" / "table.csv").read_text(encoding="utf-8") == "kept"
        assert (folder / "link").is_symlink()


def test_a_failure_half_way_leaves_the_old_report(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = write_report(store, tmp_path / "report")
    before = index.read_bytes()

    def fail(*_: object) -> str:
        raise RuntimeError("half way")

    monkeypatch.setattr("reports.html.report.run_page", fail)
    with pytest.raises(RuntimeError):
        write_report(store, tmp_path / "report")
    assert index.read_bytes() == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".report-")]


def test_a_folder_with_other_files_is_never_replaced(store: Store, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(ReportError, match="not a report"):
        write_report(store, tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text(encoding="utf-8") == "years of work"


def test_what_a_killed_command_began_is_removed(tmp_path: Path) -> None:
    for name in (".report-killed", ".report-killed2", ".other-killed"):
        (tmp_path / name / "new").mkdir(parents=True)
        (tmp_path / name / "new" / "index.html").write_text("half")
    with replaced(tmp_path / "report") as folder:
        (folder / "index.html").write_text("whole")
        with replaced(tmp_path / "report") as beside:  # another command at the same moment
            (beside / "index.html").write_text("beside")
        assert (folder / "index.html").read_text() == "whole"
    assert (tmp_path / "report" / "index.html").read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other-killed", "report"]


def test_a_report_that_a_kill_left_aside_is_put_back(tmp_path: Path) -> None:
    with replaced(tmp_path / "report") as folder:
        (folder / "index.html").write_text("first")
    (tmp_path / ".report-killed").mkdir()
    (tmp_path / "report").rename(tmp_path / ".report-killed" / "old")
    with pytest.raises(ZeroDivisionError), replaced(tmp_path / "report"):
        raise ZeroDivisionError
    assert (tmp_path / "report" / "index.html").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["report"]
