"""The pages of the documentation, their blocks, and the commands that these show."""

import functools
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.harness.conftest import bench_ok

ROOT = Path(__file__).resolve().parents[2]
PAGES = (*sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md")), "CONTRIBUTING.md", "README.md")
SHELL = ("sh", "bash", "console")
LANGUAGES = (*SHELL, "python", "json", "yaml", "text")
_FENCE = re.compile(r"^```(?P<language>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Z_]+=")
_NUMBER = re.compile(r"(?<![\w.,])-?\d+(?:,\d{3})*(?:\.\d+)?")
_RANGE = re.compile(r"(?<=\d)-(?=\d)")
_TIME = re.compile(r"\b\d+(?:\.\d+)?\s?(?:ms|s|min|h|seconds?|minutes?|hours?|days?)\b")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    language: str
    code: str

    @property
    def first(self) -> str:
        """Its first line, by which the tables name it."""
        return self.code.splitlines()[0]

    def __str__(self) -> str:
        return f"{self.page}: {self.first}"


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def numbers_in(text: str) -> list[str]:
    """The numbers of a text, in their order, without times: another machine takes another time."""
    timeless = _TIME.sub("", _RANGE.sub(" ", text.replace("−", "-")))
    return [number.replace(",", "") for number in _NUMBER.findall(timeless)]


def missing_numbers(page: str, numbers: Iterable[str | int]) -> set[str]:
    """Of numbers that belong together those that the page's sentences lack, in the section that has most of them.

    Numbers of tables and blocks are not those of sentences.
    """
    sentences = "\n".join(line for line in prose_of(page).splitlines() if not line.startswith("|"))
    sections = re.split(r"^#+ ", sentences, flags=re.MULTILINE)
    expected = {str(number) for number in numbers}
    return min((expected - set(numbers_in(section)) for section in sections), key=len)


def points(*scores: float) -> set[str]:
    """Scores, and differences of scores, as sentences show them: times 100, with one decimal."""
    return {f"{100 * score:.1f}" for score in scores}


def tables_in(text: str) -> list[list[tuple[str, list[str]]]]:
    """The tables of a text in Markdown: of each row below the head its name, without brackets, and its numbers."""
    tables = []
    for table in re.findall(r"(?:^\|.*\n?)+", text, re.MULTILINE):
        _, _, *rows = table.splitlines()
        names_and_cells = [row.strip("|").partition("|") for row in rows]
        tables.append([(re.split(r"[(<]", name)[0].strip(), numbers_in(cells)) for name, _, cells in names_and_cells])
    return tables


def exported_tables(database: Path, columns: str) -> list[list[tuple[str, list[str]]]]:
    """The first table of each group of comparable runs, the largest group first, exported."""
    exported = bench_ok("export", "leaderboard", "--db", str(database), "--metrics", columns, "--table", "all").stdout
    groups = re.split(r"^## ", exported, flags=re.MULTILINE)[1:]
    return [tables_in(group)[0] for group in groups]


@functools.cache
def groups_of(name: str) -> list[dict[str, Any]]:
    """The groups of comparable runs of a committed database, the largest first; only read them."""
    database = ROOT / "baselines" / f"{name}.sqlite"
    groups: list[dict[str, Any]] = json.loads(
        bench_ok("export", "leaderboard", "--db", database, "--format", "json", "--table", "all").stdout
    )
    return groups


def prose_of(page: str) -> str:
    """A page without its blocks."""
    return _FENCE.sub("", text_of(page))


def blocks_of(page: str, languages: Sequence[str] = ()) -> list[Block]:
    """The blocks of a page, or those in these languages, in their order."""
    found = (Block(page, fence["language"], fence["code"]) for fence in _FENCE.finditer(text_of(page)))
    return [block for block in found if not languages or block.language in languages]


def lines_of(code: str) -> list[str]:
    """Command lines, each of one command or pipe: joined at a backslash, parted at `&&`, without comments."""
    joined = (re.sub(r"\s+", " ", line).removeprefix("$ ") for line in code.replace("\\\n", " ").splitlines())
    parts = (part.strip() for line in joined for part in line.split(" # ")[0].split(" && "))
    return [part for part in parts if part and not part.startswith("#")]


def commands_of(line: str) -> Iterator[list[str]]:
    """The words of each command in a line; without variables, `uv run`, `> FILE`, and `...` for further options."""
    words: list[str] = []
    for word in (*shlex.split(line.partition(" > ")[0]), None):
        if word is not None and word != "exec":
            words.append(word)
            continue
        while words and _ASSIGNMENT.match(words[0]):
            words.pop(0)
        if words[:2] == ["uv", "run"]:
            words = words[2:]
        if words[:2] == ["bash", "-c"]:
            yield from commands_of(words[2])
        elif words and words[0] != "export":
            yield [word for word in words if word != "..."]
        words = []
