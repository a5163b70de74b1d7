"""Leaderboards as Markdown and JSON: complete, escaped, and honest about what is missing."""

import json

import pytest

from reports.tables.contents import Contents
from reports.text.grid import escape_latex, escape_markdown
from reports.text.latex import latex
from reports.text.markup import as_json, markdown
from results.errors import StoreError
from results.store.store import Store


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
        "| not above a baseline <sup>",
        "expansionnet_v2 leads on scenes test",
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
        ("--cards 1–3", "--cards 1–3", "-{}-cards 1--3"),
        ("_plain_ {a}", "\\_plain\\_ {a}", r"\_plain\_ \{a\}"),
        ("\\b ~^", "\\\\b ~^", r"\textbackslash{}b \textasciitilde{}\textasciicircum{}"),
        ("two\nlines\r\n\u2028 \x1b", "two lines  \ufffd", "two lines  \ufffd"),
    ],
)
def test_text_stays_text_on_one_line(text: str, markdown: str, latex: str) -> None:
    assert escape_markdown(text).replace("   ", "  ") == markdown
    assert escape_latex(text).replace("   ", "  ") == latex


def test_columns_are_chosen_by_name(shown: Contents) -> None:
    assert heads(markdown(shown, ["parameters", "cider", "bleu-1"]))[0] == "| Model | Parameters | CIDEr-D | BLEU-1 |"
    assert "| BLEU-3 |" in heads(markdown(shown, ["all", "rank"]))[0]
    # A column may be of one table alone, as the place is, where other runs have one seed.
    assert {"| Model | Rank | CIDEr-D |", "| Model | CIDEr-D |"} <= set(heads(markdown(shown, ["Rank", "CIDEr-D"])))
    refused = {"bleu": "BLEU-4, BLEU-1", "speed": "speed is no", "": "is no column", "spice": "no row has a number"}
    for column, message in refused.items():
        with pytest.raises(StoreError, match=message):
            latex(shown, [column])


def test_json_has_reasons_and_each_metric_its_own_tests(shown: Contents) -> None:
    rows = {row["model"]: row for row in json.loads(as_json(shown))[0]["rows"]}
    missing = rows["blind"]["scores"]["METEOR"]
    assert (missing.pop("reason"), missing.pop("n")) == ("METEOR took longer than 300 s", 0)
    assert set(missing.values()) == {None}
    standings = rows["expansionnet_v2"]["ranks"]
    assert (standings["CIDEr-D"]["best"], rows["blind"]["ranks"]["CIDEr-D"]["is_baseline"]) == (1, True)
    assert [test["baseline"] for test in standings["CIDEr-D"]["baselines"]] == ["blind", "retrieval"]
    others = {metric: of for metric, of in standings.items() if metric != "CIDEr-D"}
    assert others
    assert all(of["baselines"] is None and "CIDEr-D" in of["baselines_reason"] for of in others.values())
    assert rows["blind"]["held_out"]["METEOR"]["reason"] == "METEOR took longer than 300 s"
    assert rows["expansionnet_v2"]["published"] is None, "papers print nothing of scenes"
