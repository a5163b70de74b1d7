"""Tables for papers, and the choice of tables, rows and columns that all exports share."""

import csv
import io
import json
import re
import shutil
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

import pytest

from harness.utils.errors import BenchError
from reports.model_names import display_name
from reports.tables.contents import Contents
from reports.tables.selection import choose_tables, matching_tables, with_tables
from reports.text.csv_rows import as_csv
from reports.text.latex import latex
from results.errors import StoreError
from results.runs.selection import keep_models
from results.store.store import Store
from tests.documentation.pages import ROOT
from tests.harness.conftest import bench_ok, bench_or_raise

SCENES = ROOT / "baselines" / "scenes.sqlite"
FLICKR8K = ROOT / "baselines" / "flickr8k.sqlite"


@pytest.fixture(scope="module")
def flickr8k() -> Contents:
    with Store(str(FLICKR8K), read_only=True) as store:
        return Contents.read(store)


def rows_of(text: str) -> dict[str, list[str]]:
    """The cells of a LaTeX table's rows by the name in the first, without its marks."""
    lines = [line.removesuffix(r" \\").split(" & ") for line in text.splitlines() if line.endswith(r"\\")]
    return {re.sub(r"\$.*?\$", "", name): cells for name, *cells in lines}


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_latex_is_one_table_of_booktabs_with_the_best_bold(flickr8k: Contents) -> None:
    text = latex(with_tables(flickr8k, choose_tables(matching_tables(flickr8k), None)))
    for once in (r"\begin{table}", r"\toprule", r"\bottomrule", r"\label{tab:flickr8k-test}"):
        assert text.count(once) == 1
    assert r"\tnote" not in text
    header, *_ = rows_of(text).values()
    assert header == ["CIDEr-D", "BLEU-4", "METEOR", "ROUGE-L", "MAC (M)", "Rank"]
    rows = rows_of(text)
    assert rows["Transformer (base)"][0] == r"\textbf{55.5}\,{\scriptsize$\pm$1.2}"
    assert rows["AoANet"][0] == r"\underline{55.2}\,{\scriptsize$\pm$1.5}"
    for index in range(4):
        column = [cells[index] for name, cells in rows.items() if name != "Model"]
        assert sum(r"\textbf" in cell for cell in column) == 1
        assert sum(r"\underline" in cell for cell in column) == 1
    mac = {name: cells[4] for name, cells in rows.items()}
    assert (mac["Up-Down"], mac["X-LAN"]) == (r"\textbf{71.2}", r"\underline{72.5}"), "of costs the least is best"
    assert rows["Blind"][-1] == "---"
    assert not any(r"\textbf" in cell for cell in rows["Human"]), "a reference is not ranked"
    notes = re.findall(r"\$\^\{(\w)\}\$\\,", text)
    assert notes == sorted(set(notes)), "each note stands once below the table"


def test_only_numbers_of_one_unit_have_it_in_the_heading() -> None:
    words = ("export", "leaderboard", "--db", FLICKR8K, "--format", "latex", "--metrics", "training", "--models")
    of_seconds, of_minutes = (rows_of(bench_ok(*words, model).stdout) for model in ("transformer_base", "x_lan"))
    assert of_seconds["Model"][0].endswith(" (s)")
    assert of_seconds["Transformer (base)"][0].startswith("31.9")
    assert "(" not in of_minutes["Model"][0]
    assert of_minutes["X-LAN"][0].startswith(r"1\,min 17\,s")


def test_rows_without_a_rank_are_never_marked_as_best(flickr8k: Contents) -> None:
    groups = tuple(keep_models(group, {"blind", "updown"}) for group in flickr8k.groups[:1])
    [numbered] = matching_tables(flickr8k, models={"blind", "updown"})[:1]
    assert numbered.group == groups[0]
    text = latex(with_tables(flickr8k, [numbered]), ["CIDEr-D", "parameters"])
    assert r"\textbf" not in text, "one ranked model has nobody to be better than"


def test_a_table_without_ranks_has_no_column_of_them(store: Store) -> None:
    contents = Contents.read(store)
    unranked = next(table for table in matching_tables(contents, split="nocaps") if len(table.group.rows) > 1)
    assert not any(unranked.group.is_ranked(row) for row in unranked.group.rows)
    alone = with_tables(contents, [unranked])
    assert "Rank" not in rows_of(latex(alone))["Model"]
    assert rows_of(latex(alone, ["CIDEr-D", "rank"]))["Model"] == ["CIDEr-D", "Rank"], "asked for, it is there"


def test_a_note_says_more_than_the_name(flickr8k: Contents) -> None:
    references = with_tables(flickr8k, matching_tables(flickr8k, models={"human", "retrieval"})[:1])
    assert "nearest image" not in latex(references)
    assert "nearest image" in latex(references, None, {"retrieval": "Baseline"})


def test_costs_that_do_not_compare_are_not_marked(store: Store) -> None:
    contents = Contents.read(store)
    rows = rows_of(latex(with_tables(contents, matching_tables(contents)[:1]), ["CIDEr-D", "latency", "training"]))
    noisy = [cells for cells in rows.values() if any(cell.startswith(r"\textasciitilde") for cell in cells)]
    assert not any(r"\textbf{\textasciitilde" in cell for cells in noisy for cell in cells)


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="needs a TeX: Debian's texlive-latex-base")
def test_latex_compiles_with_booktabs_alone_and_fits_a_page(store: Store, flickr8k: Contents, tmp_path: Path) -> None:
    hostile = Contents.read(store)
    hostile.groups[0].signature["feat"] = "a_b#c%d&{e}[one,two\r\nthree]@four\u2028five"
    tables = latex(hostile) + latex(flickr8k, None, {"updown": "Ours & 100 % more_of"})
    page = rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{tables}\end{{document}}"
    (tmp_path / "a.tex").write_text(page, encoding="utf-8")
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "a.tex"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == 0, found.stdout[-2000:]
    assert "Overfull" not in found.stdout


def test_ranks_of_all_rows_are_those_of_the_leaderboard(flickr8k: Contents) -> None:
    group = flickr8k.groups[0]
    names = {row.model for row in group.rows if row.ranks["CIDEr-D"].best is not None}
    kept = keep_models(group, names)
    for row in kept.rows:
        before = next(each for each in group.rows if each.keys == row.keys).ranks["CIDEr-D"]
        after = row.ranks["CIDEr-D"]
        assert (after.best, after.worst) == (before.best, before.worst)


def test_ranks_of_chosen_rows_are_among_them_and_tests_stay(flickr8k: Contents) -> None:
    group = flickr8k.groups[0]
    kept = keep_models(group, {"transformer_base", "cgru", "human"})
    assert [(row.model, row.ranks["CIDEr-D"].best, row.ranks["CIDEr-D"].worst) for row in kept.rows] == [
        ("transformer_base", 1, 1),
        ("cgru", 2, 2),
    ]
    assert [row.model for row in kept.references] == ["human"]
    assert kept.comparisons is not None
    assert group.comparisons is not None
    [pair] = kept.comparisons.pairs
    names = {row.model: index for index, row in enumerate(group.rows)}
    found = group.comparisons.between(names["transformer_base"], names["cgru"])
    assert found is not None
    assert pair.estimate == found[0].estimate


@pytest.mark.parametrize("models", ["updown", "updown,blind", "updown,cgru", "human", "updown,cgru,puret,human"])
def test_any_choice_of_models_has_its_table_in_every_format(models: str) -> None:
    words = ("export", "leaderboard", "--db", FLICKR8K, "--models", models, "--table", "1", "--format")
    texts = {format: bench_ok(*words, format).stdout for format in ("markdown", "csv", "latex", "json")}
    [table] = json.loads(texts["json"])
    rows = [row["model"] for row in (*table["rows"], *table["references"])]
    assert sorted(rows) == sorted(models.split(","))
    assert [line["model"] for line in read_csv(texts["csv"])] == rows
    assert len(rows_of(texts["latex"])) == len(rows) + 1
    ranks = [row["ranks"]["CIDEr-D"]["best"] for row in table["rows"]]
    assert any(ranks) == (len({"updown", "cgru", "puret"} & {*rows}) > 1), "alone, a model has no rank"


def test_csv_has_one_row_a_model_and_plain_names(store: Store) -> None:
    contents = Contents.read(store)
    lines = read_csv(as_csv(contents, matching_tables(contents, split="test")[:1]))
    names = [line["model"] for line in lines]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z0-9_]+", name) for name in lines[0])
    best = lines[0]
    expected = {"model": "expansionnet_v2", "name": "ExpansionNet v2", "seeds": "2", "rank_low": "1", "rank_high": "1"}
    assert {name: best[name] for name in expected} == expected
    assert float(best["cider_d"]) == pytest.approx(104.86)
    assert float(best["cider_d_low"]) < 104.86 < float(best["cider_d_high"])
    assert float(best["params"]) == 2.3e6
    assert float(best["gmac"]) == pytest.approx(0.0786)
    blind = next(line for line in lines if line["model"] == "blind")
    assert [blind[name] for name in ("meteor", "meteor_std", "rank_low", "rank_high")] == [""] * 4
    assert "meteor: METEOR took longer than 300 s" in blind["notes"]
    assert blind["unranked_because"] == "baseline"


def test_csv_holds_no_formula(store: Store) -> None:
    contents = Contents.read(store)
    [line, *_] = read_csv(as_csv(contents, matching_tables(contents)[:1], None, {"expansionnet_v2": "=cmd()"}))
    assert line["name"] == "'=cmd()"


def test_csv_has_the_numbers_of_the_database() -> None:
    printed = bench_ok("export", "leaderboard", "--db", FLICKR8K, "--format", "csv", "--models", "updown").stdout
    [line] = read_csv(printed)
    query = """SELECT avg(value), count(*) FROM scores JOIN runs ON runs.id = run_id WHERE metric = 'CIDEr-D'
        AND split = 'test' AND domain = 'overall' AND model = 'updown'
        AND json_extract(signature, '$.schedule') = 'flickr8k#e98f80'"""
    with sqlite3.connect(f"file:{FLICKR8K}?mode=ro&immutable=1", uri=True) as connection:
        [(mean, count)] = connection.execute(query).fetchall()
    assert (float(line["cider_d"]), int(line["seeds"])) == (pytest.approx(100 * mean, abs=1e-5), count)


@pytest.mark.parametrize("format", ["markdown", "csv", "latex", "json"])
def test_each_format_writes_the_table_of_most_models(store: Store, tmp_path: Path, format: str) -> None:
    words = ("export", "leaderboard", "--db", store.name, "--format", format)
    code, printed = bench_or_raise(*words)
    assert code == 0
    assert bench_or_raise(*words, "--out", tmp_path / "out.txt")[0] == 0
    assert (tmp_path / "out.txt").read_text(encoding="utf-8") in printed
    counts: dict[str, Any] = {
        "markdown": lambda text: len(re.findall(r"^## ", text, re.MULTILINE)),
        "csv": lambda text: len({line["table"] for line in read_csv(text)}),
        "latex": lambda text: text.count(r"\begin{table}"),
        "json": lambda text: len(json.loads(text)),
    }
    alone, every = (bench_ok(*words, *more).stdout for more in ((), ("--table", "all")))
    assert (counts[format](alone), counts[format](every)) == (1, 4)


def test_what_was_taken_is_said_beside_the_output(store: Store) -> None:
    result = bench_ok("export", "leaderboard", "--db", store.name, "--format", "csv")
    assert "--table 2" in result.stderr
    assert "--table" not in result.stdout
    assert "--table" not in bench_ok("export", "leaderboard", "--db", store.name, "--table", "2").stderr


def test_models_split_and_metrics_choose(store: Store) -> None:
    words = ("export", "leaderboard", "--db", store.name, "--format", "csv")
    [line, other] = read_csv(
        bench_ok(*words, "--models", "expansion*,human", "--split", "nocaps", "--metrics", "CIDEr-D").stdout
    )
    assert (line["model"], line["split"], other["model"]) == ("expansionnet_v2", "nocaps", "human")
    assert not {"meteor", "params"} & line.keys()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--models", "expansionet_v2"], "expansionnet_v2"),
        (["--models", "nothing-like-it"], "transformer_base"),
        (["--split", "tset"], "nocaps"),
        (["--table", "9"], "4"),
        (["--metrics", "speed"], "CIDEr-D"),
        (["--metrics", "bleu"], "more of its name"),
        (["--format", "json", "--metrics", "CIDEr-D"], "leave it out"),
        (["--format", "markdown", "--rename", "a=b"], "latex"),
        (["--format", "latex", "--rename", "Ours"], "--rename my_model=Ours"),
        (["--format", "latex", "--rename", "expansionnet=Ours"], "expansionnet_v2"),
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(store: Store, words: list[str], named: str) -> None:
    with pytest.raises((BenchError, StoreError)) as caught:
        bench_or_raise("export", "leaderboard", "--db", store.name, *words)
    assert named in (caught.value.hint or "")


def test_a_name_of_its_own_is_kept_and_a_variant_is_told() -> None:
    assert display_name("my_model") == "my_model"
    assert display_name("cgru/x2") == "cGRU (x2)"
    assert display_name("updown", {"updown": "Ours"}) == "Ours"
