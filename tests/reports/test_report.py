"""`bench report`: the folder is written whole, replaced whole, and never instead of something else."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from reports.html.report import MARKER, replaced, write_report
from reports.tables.contents import Contents
from reports.text.markup import markdown
from results.errors import StoreError
from results.records import DatasetRecord, EpochRecord, ImageRecord, Outcome, Quantity, RunSpec, SplitResult
from results.store.publish import publish
from results.store.rescoring import add_scores
from results.store.store import Store
from tests.harness.conftest import bench_ok
from tests.reports.conftest import dataset, outcome, spec
from tests.reports.html.parsed import Page, rows
from tests.reports.text.test_terminal import printed


@pytest.fixture
def little(tmp_path: Path) -> Iterator[Store]:
    """A store of one run, whose report is quickly written."""
    (tmp_path / "data").mkdir()
    planned = spec("m2")
    with Store(tmp_path / "bench.sqlite") as opened:
        opened.record_dataset(dataset(tmp_path / "data"))
        opened.plan([planned])
        opened.finish(planned.key, outcome("m2", 1, 0.7))
        yield opened


def run(*arguments: str | Path) -> str:
    return bench_ok("report", *arguments).stdout


def left_behind(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir() if path.name.startswith(".report-")]


def test_it_is_written_into_the_workspace_or_where_out_says(little: Store, tmp_path: Path) -> None:
    assert Path(run("--workspace", tmp_path).strip()) == tmp_path / "report" / "index.html"
    run("--db", little.name, "--out", tmp_path / "a" / "b")
    assert (tmp_path / "report" / "index.html").is_file()
    assert (tmp_path / "a" / "b" / "index.html").is_file()


def test_terminal_writes_nothing(store: Store, tmp_path: Path) -> None:
    assert "expansionnet_v2" in run("--db", store.name, "--workspace", tmp_path, "--terminal")
    text = run("--db", store.name, "--terminal", "--metric", "ROUGE-L", "--rank-unconverged")
    assert "differences in ROUGE-L" in " ".join(text.split())
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("there", [True, False])
def test_the_report_is_opened_or_its_link_told(
    little: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda link: opened.append(link) or there)
    said = bench_ok("report", "--db", little.name, "--workspace", tmp_path, "--open").output + capsys.readouterr().err
    assert opened == [(tmp_path / "report" / "index.html").as_uri()]
    assert (f"hint: open {opened[0]}" in said) is not there


@pytest.mark.parametrize(
    ("options", "error", "named"),
    [
        (["--terminal", "--out", "elsewhere"], BenchError, "--terminal"),
        (["--terminal", "--open"], BenchError, "--open"),
        (["--workspace", "nowhere"], BenchError, "nowhere"),
        (["--out", "thesis"], StoreError, "thesis"),
        (["--out", "thesis/chapter.tex"], BenchError, "--out"),
        (["--metric", "CIDER"], Exception, "CIDER"),
    ],
)
def test_what_cannot_be_done_is_one_error_and_changes_nothing(
    store: Store,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    error: type[Exception],
    named: str,
) -> None:
    assert store.status("aoanet-s1-plain") == "failed"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work", encoding="utf-8")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(error, match=named) as caught:
        run("--workspace", ".", *options)
    assert getattr(caught.value, "hint", None)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert (tmp_path / "thesis" / "chapter.tex").read_text(encoding="utf-8") == "years of work"


def test_little_data_gives_a_report_that_says_so(tmp_path: Path) -> None:
    with Store(tmp_path / "bench.sqlite") as store:
        index = write_report(store, tmp_path / "report")
        assert "No run has finished yet" in Page(index).root.text
        assert not (tmp_path / "report" / "gallery.html").exists()
        store.record_dataset(DatasetRecord("tiny", "f", str(tmp_path), {}, ()))
        waiting = RunSpec("k", "blind", "model", 1, "controlled", "f", {"card": {"summary": "No image"}}, {})
        store.plan([waiting, RunSpec("../../up", "m", "model", 1, "controlled", "f", {}, {})])
        store.record_epoch("../../up", EpochRecord(0, "s", "xe", 0, 1, 1e-3, 2.0, None, 1.0, 1.0))
        scores = {"overall": {"CIDEr-D": Quantity(None, "no Java")}}
        store.finish("../../up", Outcome((SplitResult("test", {}, scores, {}),), {}, {}))
        folder = write_report(store, tmp_path / "report").parent
    assert "no Java" in Page(index).root.text
    assert len(list((folder / "runs").iterdir())) == 2, "a key never becomes a path"
    assert [path for path in tmp_path.iterdir() if path.suffix == ".html"] == []
    assert next(Page(folder / "models" / "blind.html").root.find("p", class_="lead")).text.startswith("No image. A")


def test_writing_again_drops_stale_pages_and_keeps_files_of_others(little: Store, tmp_path: Path) -> None:
    folder = write_report(little, tmp_path / "report").parent
    (folder / "runs" / "stale.js").write_text("old", encoding="utf-8")
    marker = folder / MARKER
    marker.write_text(marker.read_text(encoding="utf-8") + "runs/stale.js\n", encoding="utf-8")
    (folder / "mine").mkdir()
    (folder / "mine" / "table.csv").write_text("kept", encoding="utf-8")
    (folder / "link").symlink_to("nowhere")
    for _ in range(2):
        write_report(little, folder)
        assert (folder / "mine" / "table.csv").read_text(encoding="utf-8") == "kept"
        assert (folder / "link").is_symlink()
    assert not (folder / "runs" / "stale.js").exists()
    assert left_behind(tmp_path) == []


def test_a_failure_half_way_leaves_the_old_report(
    little: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = write_report(little, tmp_path / "report").read_bytes()
    monkeypatch.setattr("reports.html.report.run_page", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(little, tmp_path / "report")
    assert (tmp_path / "report" / "index.html").read_bytes() == before
    assert left_behind(tmp_path) == []


def test_what_killed_commands_left_is_removed_or_put_back(tmp_path: Path) -> None:
    for name in (".report-killed", ".report-killed2", ".other-killed"):
        (tmp_path / name / "new").mkdir(parents=True)
        (tmp_path / name / "new" / "index.html").write_text("half")
    with replaced(tmp_path / "report") as folder:
        (folder / "index.html").write_text("whole")
        with replaced(tmp_path / "report") as beside:  # another command at the same moment
            (beside / "index.html").write_text("beside")
        assert (folder / "index.html").read_text() == "whole"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other-killed", "report"]
    (tmp_path / ".report-killed").mkdir()
    (tmp_path / "report").rename(tmp_path / ".report-killed" / "old")
    with pytest.raises(ZeroDivisionError), replaced(tmp_path / "report"):
        raise ZeroDivisionError
    assert (tmp_path / "report" / "index.html").read_text() == "whole"
    assert left_behind(tmp_path) == []


def test_a_published_copy_has_tables_and_says_why_it_has_no_gallery(store: Store, tmp_path: Path) -> None:
    publish(store.url.render_as_string(hide_password=False), tmp_path / "published.sqlite")
    with Store(tmp_path / "published.sqlite", read_only=True) as copy:
        folder = write_report(copy, tmp_path / "report").parent
    assert "bench db publish" in next(Page(folder / "method.html").root.find("section", id="absent")).text
    assert list(folder.glob("gallery*.html")) == list((folder / "gallery").iterdir()) == []
    name, cells = rows(next(Page(folder / "index.html").root.find("table", id="group-1-table")))[0]
    assert (name.strip()[:15], cells[1].text) == ("expansionnet_v2", "104.9 ±0.9")


def menu(folder: Path) -> list[str]:
    [header] = Page(folder / "index.html").root.find("header", class_="top")
    return [link.attributes["href"] for link in next(header.find("nav")).find("a")]


def test_the_menu_has_pages_that_show_something(store: Store, tmp_path: Path) -> None:
    everything = write_report(store, tmp_path / "everything").parent
    assert {"costs.html", "trade-offs.html", "curves.html", "gallery.html"} < set(menu(everything))
    assert not list(Page(everything / "method.html").root.find("section", id="absent"))
    images = (ImageRecord(1, "1.png", "test", ("a dog",)),)
    costs = {"score_seconds": Quantity(2.0, unit="s"), "parameters": Quantity(None, "only its captions are known")}
    with Store(tmp_path / "captions.sqlite") as captions_only:
        captions_only.record_dataset(DatasetRecord("toy", "f" * 16, str(tmp_path), {"test": 1}, images))
        for name in ("one", "other"):
            captions_only.plan([RunSpec(name, name, "model", 0, "systems", "f" * 16, {}, {"beam": "3"})])
            split = SplitResult("test", {1: "a dog"}, {"overall": {"CIDEr-D": Quantity(0.5)}}, {})
            captions_only.finish(name, Outcome((split,), costs, {}))
        little = write_report(captions_only, tmp_path / "little").parent
    assert menu(little) == ["index.html", "gallery.html", "models.html", "method.html"]
    assert {path.name for path in little.glob("*.html")} == {*menu(little), "run.html"}
    [absent] = Page(little / "method.html").root.find("section", id="absent")
    assert len(list(absent.find("li"))) == 3


def test_older_code_is_marked_on_page_terminal_and_table(tmp_path: Path) -> None:
    newer = spec("m2", 2)
    assert newer.code is not None
    older = replace(newer, key="m2-old", seed=1, code=replace(newer.code, model="old", files={"zoo/models/m2.py": "0"}))
    (tmp_path / "data").mkdir()
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(dataset(tmp_path / "data"))
        store.plan([older, newer])
        for planned in (older, newer):
            store.finish(planned.key, outcome("m2", planned.seed, 0.7))
        badges = list(Page(write_report(store, tmp_path / "report")).root.find("a", class_="symbol"))
        texts = [printed(store), markdown(Contents.read(store)).replace("\\", "")]
    sentence = badges[0].attributes["title"].removeprefix("older code: ")
    assert "zoo/models/m2.py changed" in sentence
    assert [badge.attributes["aria-label"] for badge in badges] == ["older code"]
    assert all(sentence in " ".join(text.split()) for text in texts)


def test_further_metrics_have_a_table_once_something_was_measured(tmp_path: Path) -> None:
    images = (ImageRecord(1, "1.png", "test", ("a dog",)), ImageRecord(2, "2.png", "test", ("a cat",)))
    captions = {1: "a dog", 2: "a bird"}
    more = {
        "caption_words": Quantity(2.0, unit="words"),
        "CHAIR-i (objects:instances#1a2b, references)": Quantity(0.5, low=0.0, high=1.0),
        "CLIPScore": Quantity(None, "no CLIP model is named: --clip FOLDER"),
    }
    specs = [RunSpec(name, name, "model", 0, "controlled", "f" * 16, {}, {"beam": "3"}) for name in ("m2", "updown")]
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(DatasetRecord("toy", "f" * 16, str(tmp_path), {"test": 2}, images))
        store.plan(specs)
        for each in specs:
            scores = {"overall": {"CIDEr-D": Quantity(0.5)}}
            store.finish(each.key, Outcome((SplitResult("test", captions, scores, {}),), {}, {}))
        assert "More metrics" not in printed(store)
        add_scores(store, "m2", [SplitResult("test", captions, {"overall": more}, {})])
        text, page = printed(store), write_report(store, tmp_path / "report").read_text(encoding="utf-8")
    table = text[text.index("More metrics, toy test") :].splitlines()
    assert table[1].split() == ["Words", "CHAIR-i"]
    assert (table[3].split()[0], table[3].split()[-2:]) == ("m2", ["2.00", "50.0"])
    assert not any(line.startswith("updown") for line in table)
    section = page[page.index("<summary>More metrics</summary>") :]
    assert ">50.0" in section
    for said in (" ".join(" ".join(table).split()), section):
        assert "objects:instances#1a2b, references" in said
        assert "CLIPScore: no CLIP model is named: --clip FOLDER" in said
