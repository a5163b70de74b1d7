"""Leaderboards as Markdown, CSV, LaTeX and JSON: complete, escaped, and honest about what is missing."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from harness.cli import export
from harness.utils.errors import BenchError
from reports.errors import ReportError
from reports.html.method import method
from reports.tables.contents import Contents
from reports.text import data as export_data
from reports.text.grid import escape_latex, escape_markdown
from reports.text.markup import latex, markdown
from results import Results
from results.store.store import Store
from tests.reports.conftest import outcome, spec


@pytest.fixture
def shown(store: Store) -> Contents:
    return Contents.read(store)


def test_markdown_has_a_table_a_group_with_notes_and_signature(shown: Contents) -> None:
    text = markdown(shown)
    assert text.count("## scenes test, controlled track") == 2
    assert "| expansionnet_v2 ×2 | 104.9 ±0.9 | 81.8–127.9 | 1 |" in text
    assert (
        "\n\nBest of 2 placed models on scenes test: expansionnet_v2 (place 1, 2 seeds). "
        "1 of 3 models besides blind has no place" in text
    )
    assert "| human (human level, nrefs: 4, not ranked) |" in text
    assert "Not comparable with the other tables of this split: beam: 1." in text
    assert "</sup> METEOR took longer than 300 s" in text
    assert "`CIDEr-D|split:test|data:scenes#1f3a09bc|nrefs:5|" in text
    columns = {line.count("|") for line in text.split("## ")[1].splitlines() if line.startswith("|")}
    assert len(columns) == 1
    assert text.count("### Against the same references as people\n\nAgainst 4 references per image:") == 1
    assert "| human (human level) | 117.0 |" in text
    assert "| not above the floor <sup>" in text


@pytest.mark.parametrize(
    ("text", "markdown", "latex"),
    [
        ("a|b", r"a\|b", r"a\textbar{}b"),
        ("<script>&", r"\<script\>&", r"\textless{}script\textgreater{}\&"),
        ("50 % of $x_1$ #2", "50 % of $x_1$ #2", r"50 \% of \$x\_1\$ \#2"),
        ("_plain_ {a}", "\\_plain\\_ {a}", r"\_plain\_ \{a\}"),
        ("\\b ~^", "\\\\b ~^", r"\textbackslash{}b \textasciitilde{}\textasciicircum{}"),
        ("two\nlines \x1b", "two lines \ufffd", "two lines \ufffd"),
    ],
)  # fmt: skip
def test_text_stays_text(text: str, markdown: str, latex: str) -> None:
    assert escape_markdown(text) == markdown
    assert escape_latex(text) == latex


def test_latex_is_booktabs(shown: Contents) -> None:
    text = latex(shown)
    assert text.count(r"\begin{tabular}") == text.count(r"\toprule") == text.count(r"\bottomrule") == 5
    assert r"expansionnet\_v2 $\times$2 & 104.9 $\pm$0.9 & 81.8--127.9 & \textbf{1} &" in text
    assert r"transformer\_base $\times$2 & 97.8 $\pm$0.9 & 76.3--119.4 & 2 &" in text
    assert re.findall(r"\\label\{(.*)\}", text)[:2] == ["tab:scenes-test", "tab:scenes-test-people"]
    assert len(set(re.findall(r"\\label\{(.*)\}", text))) == 5
    header = next(line for line in text.splitlines() if line.startswith("Model &"))
    assert header == r"Model & C & 95 \% & Place & B-4 & M & R & MAC \\"
    rows = [line for line in text.split(r"\end{tabular}")[0].splitlines() if line.endswith(r"\\")]
    assert len({line.count(" & ") for line in rows}) == 1


def test_a_column_may_be_of_one_table_alone(shown: Contents) -> None:
    """As `Place` is, where other runs have one seed; it is asked for by its own name, which is no default."""
    headings = [line for line in markdown(shown, ["Place", "CIDEr-D"]).splitlines() if line.startswith("| Model")]
    assert headings[0] == "| Model | Place | CIDEr-D |"
    assert "| Model | CIDEr-D |" in headings


def test_columns_are_chosen_by_name(shown: Contents) -> None:
    lines = markdown(shown, ["parameters", "cider", "bleu-1"]).splitlines()
    assert next(line for line in lines if line.startswith("| Model")) == "| Model | Parameters | CIDEr-D | BLEU-1 |"
    assert "a reference row has no model" not in markdown(shown), "a blank needs no note"
    everything = next(line for line in markdown(shown, ["all"]).splitlines() if line.startswith("| Model"))
    assert "| BLEU-3 |" in everything
    for columns, told in ((["bleu"], "may be each of: BLEU-4, BLEU-1"), (["speed"], "is no column"), ([""], "is no")):
        with pytest.raises(ReportError, match=told):
            latex(shown, columns)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a TeX: Debian's texlive-latex-extra")
def test_latex_compiles_and_fits_a_page(shown: Contents, tmp_path: Path) -> None:
    shown.groups[0].signature["feat"] = "a_b#c%d&{e}[one,two,three]@four,five,six,seven,eight,nine,ten"
    packages = "".join(rf"\usepackage{{{name}}}" for name in ("booktabs", "threeparttable"))
    page = rf"\documentclass{{article}}{packages}\begin{{document}}{latex(shown)}\end{{document}}"
    (tmp_path / "a.tex").write_text(page, encoding="utf-8")
    found = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.returncode == 0, found.stdout[-2000:]
    assert "Overfull" not in found.stdout


def test_whatever_ends_a_line_stays_within_its_row(shown: Contents) -> None:
    shown.groups[0].signature["feat"] = "one\r\ntwo\u2028three"
    for text in (markdown(shown), latex(shown)):
        assert "feat:one two three|" in text
    assert escape_markdown("a\rb") == escape_latex("a\rb") == "a b"
    assert escape_latex("a|<b>") == r"a\textbar{}\textless{}b\textgreater{}", "plain ones are dashes in OT1"


def test_csv_is_the_leaderboard_frame_with_blanks_for_missing(store: Store) -> None:
    frame = Results(store).leaderboard()
    lines = list(csv.DictReader(io.StringIO(export_data.as_csv(frame))))
    assert len(lines) == 18, "on each of two splits four models, one under another beam too, and two references a group"
    assert list(lines[0]) == list(frame.columns)
    best, blind = lines[0], next(line for line in lines if line["model"] == "blind")
    assert (best["model"], best["seeds"], best["place_best"], best["place_worst"]) == (
        "expansionnet_v2",
        "1 2",
        "1",
        "1",
    )
    assert float(best["CIDEr-D_percent"]) == pytest.approx(104.86)
    assert (best["train_seconds"], best["latency_median_s"]) == ("84.5", "0.0123")
    assert (blind["METEOR_percent"], blind["METEOR_seeds"], blind["METEOR_sd_percent"]) == ("", "0", "")
    assert best["CIDEr-D_published_matches"] == "", "papers print nothing of scenes"
    assert (blind["place_best"], blind["not_above"], blind["METEOR_held_out_percent"]) == ("", "", "")
    assert float(best["CIDEr-D_held_out_percent"]) == pytest.approx(0.9 * 104.86)
    below = next(line for line in lines if line["split"] == "nocaps" and line["model"] == "show_tell_lstm")
    assert (below["place_best"], below["not_above"]) == ("", "blind retrieval")
    assert best["signature"].startswith("data:scenes#1f3a09bc|nrefs:5|")


def test_csv_holds_no_formula(store: Store) -> None:
    frame = Results(store).leaderboard()
    frame["differs"] = "=cmd()"
    frame["signature"] = frame.signature.cat.rename_categories(lambda signature: f"+{signature}")
    line = next(csv.DictReader(io.StringIO(export_data.as_csv(frame))))
    assert (line["differs"], line["signature"][:6]) == ("'=cmd()", "'+data")


def test_json_has_reasons_and_published_scores(shown: Contents) -> None:
    groups = json.loads(export_data.as_json(shown))
    rows = {row["model"]: row for row in groups[0]["rows"]}
    assert rows["blind"]["scores"]["METEOR"] == {
        "mean": None, "sd": None, "n": 0, "reason": "METEOR took longer than 300 s", "low": None, "high": None,
        "over": None,
    }  # fmt: skip
    assert rows["expansionnet_v2"]["standings"]["CIDEr-D"]["best"] == 1
    assert [test["floor"] for test in rows["expansionnet_v2"]["standings"]["CIDEr-D"]["floors"]] == [
        "blind",
        "retrieval",
    ]
    assert rows["blind"]["standings"]["CIDEr-D"]["is_floor"]
    assert rows["blind"]["held_out"]["METEOR"]["reason"] == "METEOR took longer than 300 s"
    assert rows["expansionnet_v2"]["published"] is None, "papers print nothing of scenes"
    assert groups[0]["signature"]["beam"] == "3"


def test_json_has_the_controls_of_each_group(store: Store) -> None:
    plan = [spec("show_tell_lstm", seed, **changed) for seed, changed in ((2, {}), (1, {"preprocessing": "bicubic"}))]
    store.plan(plan)
    for planned, cider in zip(plan, (0.6, 0.65), strict=True):
        store.finish(planned.key, outcome(planned.model, planned.seed, cider))
    contents = Contents.read(store)
    exported = json.loads(export_data.as_json(contents))
    [test, nocaps, *others] = exported
    [pair] = test["controls"]["pairs"]
    assert (pair["model"], pair["kind"], pair["change"], pair["seeds"]) == (
        "show_tell_lstm", "preprocessing", "bicubic", [1, 2]
    )  # fmt: skip
    assert (pair["low"], pair["p"]) == (None, None)
    assert "needs seeds" in pair["reason"]
    assert test["controls"]["largest"] == pytest.approx(104.86 - 62.0)
    assert [found["change"] for found in nocaps["controls"]["pairs"]] == ["bicubic"]
    assert {len(group["controls"]["pairs"]) for group in others} == {0}
    [said] = method(contents, {}).tables[0].controls
    assert said.startswith("Not the architecture: show_tell_lstm with the resize filter bicubic differs by ")


@pytest.mark.parametrize("format", ["markdown", "csv", "latex", "json"])
def test_the_command_prints_or_writes(store: Store, tmp_path: Path, format: str) -> None:
    assert store.status("aoanet-s1-plain") == "failed"
    app = typer.Typer()
    app.callback()(lambda: None)
    export.register(app)
    arguments = ["export", "leaderboard", "--workspace", str(tmp_path), "--format", format]
    printed = CliRunner().invoke(app, arguments)
    assert printed.exit_code == 0, printed.output
    written = CliRunner().invoke(app, [*arguments, "--out", str(tmp_path / "out.txt")])
    assert written.exit_code == 0, written.output
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == printed.stdout


@pytest.mark.parametrize(("out", "said"), [(".", "is a folder"), ("/proc/nowhere/table.md", "cannot write --out")])
def test_a_file_that_cannot_be_written_ends_in_one_sentence(store: Store, tmp_path: Path, out: str, said: str) -> None:
    assert store.status("aoanet-s1-plain") == "failed"
    app = typer.Typer()
    app.callback()(lambda: None)
    export.register(app)
    result = CliRunner().invoke(app, ["export", "leaderboard", "--workspace", str(tmp_path), "--out", out])
    assert isinstance(result.exception, BenchError)
    assert said in str(result.exception)
