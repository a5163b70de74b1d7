"""What runs say of themselves: objectives, changed settings, and what a model may have seen before."""

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reports.html.rendering import run_page
from reports.html.report import write_report
from reports.tables.boards import separations
from reports.tables.contents import Contents
from reports.tables.facts import NOT_STATED, contamination, deviations, objective
from reports.tables.selection import choose_tables, matching_tables
from reports.text.csv_rows import as_csv
from reports.text.latex import latex
from reports.text.markup import as_json, markdown
from results.frames import Results
from results.runs.leaderboard import leaderboard
from results.runs.run import Run, StoredPretraining
from results.store.store import Store
from tests.reports.conftest import HOSTILE, dataset, outcome, spec
from tests.reports.examples import run, staged
from tests.reports.html.parsed import Page, run_texts
from tests.reports.text.test_terminal import printed

SEEN = StoredPretraining(
    ("COCO", "web pictures"), "some", ("COCO", "Web"), {"coco": "Twins are in it.", "nocaps": "So here."}, "a paper"
)
LABELS = StoredPretraining(("ImageNet",), "", (), {}, "a paper")
UNKNOWN = StoredPretraining((), "not documented", (), {}, "not documented")


@pytest.mark.parametrize(
    ("seen", "data", "split", "label", "parts"),
    [
        (SEEN, "dataset_coco", "test", "images possibly seen", ["dataset_coco, the run's own", "others: Web", "Twins"]),
        (SEEN, "coco_nocaps", "test", "images possibly seen", ["own data set", "Twins"]),
        (SEEN, "coco", "nocaps", "images possibly seen", ["of coco, the run's own", "So here."]),
        (SEEN, "nocaps", "test", "images possibly seen", ["COCO, Web", "So here."]),
        (SEEN, "flickr8k", "test", "other captions seen", ["COCO, Web"]),
        (SEEN, "scenes", "nocaps", "other captions seen", ["COCO, Web", "drawn by captionbench"]),
        (SEEN, "scenes-6k", "test", "other captions seen", ["COCO, Web", "drawn by captionbench"]),
        (replace(SEEN, overlap={}), "coco", "test", "COCO captions seen", ["own data set"]),
        (LABELS, "coco", "test", "pretrained", ["ImageNet"]),
        (UNKNOWN, "scenes", "test", "pretraining unknown", []),
    ],
)
def test_it_is_told_of_the_split_that_is_scored(
    seen: StoredPretraining, data: str, split: str, label: str, parts: list[str]
) -> None:
    found = contamination(seen, data, split)
    assert found is not None
    assert found.label == label
    assert all(part in found.sentence for part in parts)
    assert ("may have seen images" in found.sentence) == (label == "images possibly seen")


@pytest.mark.parametrize("config", [{}, {"card": None}, {"card": {}}])
def test_runs_without_a_pretraining_have_seen_nothing_known(config: dict[str, object]) -> None:
    assert run(**config).pretraining is None
    assert contamination(None, "coco", "test") is None


@pytest.mark.parametrize(
    ("detail", "said"),
    [
        (staged("cross_entropy"), "XE"),
        (staged("cross_entropy", "cross_entropy", "self_critical"), "XE + SCST"),
        (staged("cross_entropy", "reinforce"), "XE + REINFORCE"),
        (run(pretrained="somewhere"), "pretrained"),
        (replace(run(), kind="stored"), "stored"),
        (run(), NOT_STATED),
        (replace(run(), role="reference"), "untrained"),
    ],
)
def test_the_objective_is_told_from_the_stages(detail: Run, said: str) -> None:
    assert objective(detail) == said


def test_deviations_are_told_setting_by_setting() -> None:
    said = ["size.max_len: 74 → 20", "schedule.peak: 0.01 → 0.009127999999999999", "preset: it does not ship"]
    found = deviations({"preset": {"name": "quick"}, "shipped_preset": {"deviations": said}})
    assert found is not None
    assert found.changed == (
        ("size.max_len", "74", "20"), ("schedule.peak", "0.01", "0.009128"), ("preset: it does not ship", "", ""),
    )  # fmt: skip
    assert deviations({}) is None


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """One model trained from nothing and two whose weights saw captions, alike in all else."""
    folder = tmp_path_factory.mktemp("mixed")
    (folder / "data").mkdir()
    card = {
        "data_sets": ["web"],
        "captions": "many",
        "captions_of": ["Web"],
        "overlap": {"coco": HOSTILE},
        "source": "it",
    }
    plain = spec("blind")
    seen = [spec(model, pretraining="captions of Web") for model in ("blip/finetuned", "git/finetuned")]
    with Store(folder / "bench.sqlite") as opened:
        opened.record_dataset(replace(dataset(folder / "data"), name="coco"))
        opened.plan([plain, *(replace(each, record={**each.record, "card": {"pretraining": card}}) for each in seen)])
        for planned in (plain, *seen):
            opened.finish(planned.key, outcome(planned.model, 1, 0.7))
        yield opened


def test_it_never_shares_a_group_with_models_trained_here(mixed: Store) -> None:
    groups = [group for group in leaderboard(mixed) if group.split == "test"]
    assert [[row.model for row in group.rows] for group in groups] == [["blind"], ["blip/finetuned", "git/finetuned"]]
    assert all(group.separating == ("pretraining",) for group in groups)
    several = replace(groups[0], separating=("track", "pretraining"))
    assert [field for field, _, _ in separations(several, groups)] == ["pretraining", "track"], "never cut off"


def test_pages_show_a_badge_with_a_note_and_what_was_seen(mixed: Store, tmp_path: Path) -> None:
    folder = write_report(mixed, tmp_path / "report").parent
    for name, tables in (("nocaps.html", 1), ("trade-offs.html", 2), ("costs.html", 0)):
        page = Page(folder / name).root
        badges = list(page.find("a", class_="badge"))
        assert len(badges) == 2 * tables, "of two models, in each of their tables"
        for badge in badges:
            note = next(page.find("li", id=badge.attributes["href"].removeprefix("#")))
            assert badge.attributes["title"] in note.text
            assert badge.text.split("\xa0")[0] in note.text
    index = Page(folder / "index.html").root
    symbols = list(index.find("a", class_="symbol"))
    common = list(next(index.find("p", class_="every-row")).find("a"))
    assert (symbols, len(common)) == ([], 1), "what both models have is said once"
    note = next(index.find("li", id=common[0].attributes["href"].removeprefix("#")))
    assert common[0].attributes["title"] in note.text
    assert "they differ in pretraining (captions of Web here; none there)" in " ".join(index.text.split())
    shown = next(Page(folder / "models/blip.finetuned.html").root.find("section", id="pretraining")).text
    assert all(part in shown for part in ("web", "many", "Images of coco", "<script>"))
    run = Page(run_texts(folder)[run_page("blip/finetuned-s1-captions of Web")]).root
    assert "images possibly seen Scores on test" in next(run.find("section", id="pretraining")).text
    assert not list(Page(folder / "models/blind.html").root.find("section", id="pretraining"))


def test_terminal_and_exports_show_a_mark_with_its_note(mixed: Store) -> None:
    contents, terminal = Contents.read(mixed), printed(mixed, 44)
    assert max(map(len, terminal.splitlines())) <= 44
    for text, named, note in (
        (terminal, r"blip/finetuned (\w)\)", r"\n(\w)\)"),
        (markdown(contents), r"blip/finetuned \(images possibly seen\) <sup>(\w)</sup>", r"<sup>(\w)</sup>"),
    ):
        marks = set(re.findall(named, text))
        assert marks
        assert marks <= set(re.findall(note + " images possibly seen: Before", text))
    assert latex(contents).count("mages possibly seen: Before") == 1, "of every model of the table: its caption says it"
    tables = choose_tables(matching_tables(contents), "all")
    lines = {line["model"]: line["notes"] for line in csv.DictReader(io.StringIO(as_csv(contents, tables)))}
    assert "seen: Before" not in lines["blind"]
    assert "seen: Before" in lines["blip/finetuned"]
    pretraining = Results(mixed).leaderboard().set_index("model")["pretraining"].dropna()
    assert set(pretraining) == {"web"}
    rows = {row["model"]: row for group in json.loads(as_json(contents)) for row in group["rows"]}
    assert rows["blind"]["contamination"] is rows["blind"]["pretraining"] is None
    assert rows["blip/finetuned"]["contamination"]["label"] == "other captions seen"
    assert rows["blip/finetuned"]["pretraining"]["captions_of"] == ["Web"]
