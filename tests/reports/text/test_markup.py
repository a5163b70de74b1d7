"""Leaderboards as Markdown, CSV, LaTeX and JSON: complete, escaped, and honest about what is missing."""

import csv
import io
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from reports.tables.contents import Contents
from reports.text.grid import escape_latex, escape_markdown
from reports.text.markup import as_csv, as_json, latex, markdown
from results import Results
from results.errors import StoreError
from results.store.store import Store
from tests.harness.conftest import bench_or_raise


@pytest.fixture
def shown(store: Store) -> Contents:
    return Contents.read(store)


def heads(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| Model")]


def test_markdown_has_a_table_a_group_with_notes_and_signature(shown: Contents) -> None:
    text = markdown(shown)
    assert text.count("## scenes test, controlled track") == 2
    for part in (
        "| expansionnet_v2 ×2 | 104.9 ±0.9 | 81.8–127.9 | 1 |",
        "| human (human level, nrefs: 4, not ranked) |",
        "| human (human level) | 117.0 |",
        "| not above the floor <sup>",
        "Nothing beats expansionnet_v2 on scenes test",
        "beam: 1.",
        "</sup> METEOR took longer than 300 s",
        "`CIDEr-D|split:test|data:scenes#1f3a09bc|nrefs:5|",
        "Against 4 references per image:",
    ):
        assert part in text
    columns = {line.count("|") for line in text.split("## ")[1].splitlines() if line.startswith("|")}
    assert len(columns) == 1


@pytest.mark.parametrize(
    ("text", "markdown", "latex"),
    [
        ("a|b", r"a\|b", r"a\textbar{}b"),
        ("<script>&", r"\<script\>&", r"\textless{}script\textgreater{}\&"),
        ("50 % of $x_1$ #2", "50 % of $x_1$ #2", r"50 \% of \$x\_1\$ \#2"),
        ("3 → 4", "3 → 4", r"3 $\to$ 4"),
        ("_plain_ {a}", "\\_plain\\_ {a}", r"\_plain\_ \{a\}"),
        ("\\b ~^", "\\\\b ~^", r"\textbackslash{}b \textasciitilde{}\textasciicircum{}"),
        ("two\nlines\r\n\u2028 \x1b", "two lines  \ufffd", "two lines  \ufffd"),
    ],
)
def test_text_stays_text_on_one_line(text: str, markdown: str, latex: str) -> None:
    assert escape_markdown(text).replace("   ", "  ") == markdown
    assert escape_latex(text).replace("   ", "  ") == latex


def test_latex_is_booktabs(shown: Contents) -> None:
    shown.groups[0].signature["feat"] = "one\r\ntwo\u2028three"
    text = latex(shown)
    assert text.count(r"\begin{tabular}") == text.count(r"\toprule") == text.count(r"\bottomrule") == 5
    assert r"expansionnet\_v2 $\times$2 & 104.9 $\pm$0.9 & 81.8--127.9 & \textbf{1} &" in text
    assert r"transformer\_base $\times$2 & 97.8 $\pm$0.9 & 76.3--119.4 & 2 &" in text
    assert len(set(re.findall(r"\\label\{(.*)\}", text))) == 5
    header = next(line for line in text.splitlines() if line.startswith("Model &"))
    assert header == r"Model & C & 95 \% & Rank & B-4 & M & R & MAC \\"
    rows = [line for line in text.split(r"\end{tabular}")[0].splitlines() if line.endswith(r"\\")]
    assert len({line.count(" & ") for line in rows}) == 1
    assert "feat:one two three|" in text, "whatever ends a line would end the comment"


def test_columns_are_chosen_by_name(shown: Contents) -> None:
    assert heads(markdown(shown, ["parameters", "cider", "bleu-1"]))[0] == "| Model | Parameters | CIDEr-D | BLEU-1 |"
    assert "| BLEU-3 |" in heads(markdown(shown, ["all", "rank"]))[0]
    # A column may be of one table alone, as the place is, where other runs have one seed.
    assert {"| Model | Rank | CIDEr-D |", "| Model | CIDEr-D |"} <= set(heads(markdown(shown, ["Rank", "CIDEr-D"])))
    refused = {"bleu": "BLEU-4, BLEU-1", "speed": "speed is no", "": "is no column", "spice": "no row has a number"}
    for column, message in refused.items():
        with pytest.raises(StoreError, match=message):
            latex(shown, [column])


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a TeX: Debian's texlive-latex-extra")
def test_latex_compiles_and_fits_a_page(shown: Contents, tmp_path: Path) -> None:
    shown.groups[0].signature["feat"] = "a_b#c%d&{e}[one,two,three]@four,five,six,seven,eight,nine,ten"
    packages = "".join(rf"\usepackage{{{name}}}" for name in ("booktabs", "threeparttable"))
    page = rf"\documentclass{{article}}{packages}\begin{{document}}{latex(shown)}\end{{document}}"
    (tmp_path / "a.tex").write_text(page, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stdout[-2000:]
    assert "Overfull" not in found.stdout


def test_csv_is_the_leaderboard_frame_with_blanks_for_missing(store: Store) -> None:
    frame = Results(store).leaderboard()
    lines = list(csv.DictReader(io.StringIO(as_csv(frame))))
    assert len(lines) == 18, "on each of two splits four models, one under another beam too, and two references a group"
    assert list(lines[0]) == list(frame.columns)
    best, blind = lines[0], next(line for line in lines if line["model"] == "blind")
    placed = {name: best[name] for name in ("model", "seeds", "place_best", "place_worst", "train_seconds")}
    assert list(placed.values()) == ["expansionnet_v2", "1 2", "1", "1", "84.5"]
    assert float(best["CIDEr-D_percent"]) == pytest.approx(104.86)
    assert float(best["CIDEr-D_held_out_percent"]) == pytest.approx(0.9 * 104.86)
    blank = ("METEOR_percent", "METEOR_sd_percent", "place_best", "not_above", "METEOR_held_out_percent")
    assert [blind[name] for name in blank] == [""] * 5
    below = next(line for line in lines if line["split"] == "nocaps" and line["model"] == "show_tell_lstm")
    assert (below["place_best"], below["not_above"]) == ("", "blind retrieval")
    assert best["signature"].startswith("data:scenes#1f3a09bc|nrefs:5|")


def test_csv_holds_no_formula(store: Store) -> None:
    frame = Results(store).leaderboard()
    frame["differs"] = "=cmd()"
    frame["signature"] = frame.signature.cat.rename_categories(lambda signature: f"+{signature}")
    line = next(csv.DictReader(io.StringIO(as_csv(frame))))
    assert (line["differs"], line["signature"][:6]) == ("'=cmd()", "'+data")


def test_json_has_reasons_and_each_metric_its_own_tests(shown: Contents) -> None:
    rows = {row["model"]: row for row in json.loads(as_json(shown))[0]["rows"]}
    missing = rows["blind"]["scores"]["METEOR"]
    assert (missing.pop("reason"), missing.pop("n")) == ("METEOR took longer than 300 s", 0)
    assert set(missing.values()) == {None}
    standings = rows["expansionnet_v2"]["standings"]
    assert (standings["CIDEr-D"]["best"], rows["blind"]["standings"]["CIDEr-D"]["is_floor"]) == (1, True)
    assert [test["floor"] for test in standings["CIDEr-D"]["floors"]] == ["blind", "retrieval"]
    others = {metric: of for metric, of in standings.items() if metric != "CIDEr-D"}
    assert others
    assert all(of["floors"] is None and "CIDEr-D" in of["floors_reason"] for of in others.values())
    assert rows["blind"]["held_out"]["METEOR"]["reason"] == "METEOR took longer than 300 s"
    assert rows["expansionnet_v2"]["published"] is None, "papers print nothing of scenes"


@pytest.mark.parametrize("format", ["markdown", "csv", "latex", "json"])
def test_the_command_prints_or_writes(store: Store, tmp_path: Path, format: str) -> None:
    words = ("export", "leaderboard", "--db", store.name, "--format", format)
    code, printed = bench_or_raise(*words)
    assert (code, bool(printed)) == (0, True)
    assert bench_or_raise(*words, "--out", tmp_path / "out.txt")[0] == 0
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") == printed
    if format == "markdown":
        printed = bench_or_raise(*words, "--metric", "ROUGE-L")[1]
        assert heads(printed)[0].startswith("| Model | ROUGE-L | 95 % interval | Rank | CIDEr-D | BLEU-4 |")
        assert ", by ROUGE-L\n" in printed


def test_columns_of_a_csv_cannot_be_chosen(store: Store) -> None:
    with pytest.raises(BenchError, match="--columns") as caught:
        bench_or_raise("export", "leaderboard", "--db", store.name, "--format", "csv", "--columns", "CIDEr-D")
    assert caught.value.hint
