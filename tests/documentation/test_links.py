"""Pages: their links, paths and commands lead to what exists, and the site has all of them."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.pages import LANGUAGES, PAGES, ROOT, SHELL, blocks_of, commands_of, lines_of, prose_of
from tests.documentation.parsing import check, unknown_options

_LINK = re.compile(r"!?\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} +(?P<title>.+?)\s*$", re.MULTILINE)
_LARGEST_KB = 110
ROOMS = ("captionbench", "zoo", "harness", "results", "reports", "tests", "docs", "baselines", "benchmarks")


def links_of(page: str) -> list[str]:
    """Targets of a page's links that are no addresses of the network."""
    targets = (link["target"] for link in _LINK.finditer(re.sub(r"`[^`\n]*`", "", prose_of(page))))
    return [target for target in targets if not target.startswith(("https://", "http://", "mailto:"))]


def anchors_of(page: str) -> set[str]:
    """The anchors of a page's headings: in lower case, without marks, with hyphens for spaces."""
    titles = (heading["title"].replace("`", "").lower() for heading in _HEADING.finditer(prose_of(page)))
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title)) for title in titles}


def broken(page: str, target: str) -> bool:
    """Whether a link of `page` leads nowhere, or out of the site."""
    path, _, anchor = target.partition("#")
    file = (ROOT / page).parent / path if path else ROOT / page
    if not file.is_file() or (page.startswith("docs/") and not file.resolve().is_relative_to(ROOT / "docs")):
        return True
    return bool(anchor) and anchor not in anchors_of(str(file.resolve().relative_to(ROOT)))


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    assert not [target for target in links_of(page) if broken(page, target)]


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    named = set(re.findall(rf"`((?:{'|'.join(ROOMS)})/[\w./-]*)`", (ROOT / page).read_text(encoding="utf-8")))
    assert {path for path in named if not (ROOT / path).exists()} == set()


def test_every_page_is_in_the_index_and_in_the_site() -> None:
    pages = {Path(page).name for page in PAGES if page.startswith("docs/")}
    site = tomllib.loads((ROOT / "docs/zensical.toml").read_text(encoding="utf-8"))
    assert set(_files(site["project"]["nav"])) == pages
    assert {target.partition("#")[0] for target in links_of("docs/index.md")} == pages - {"index.md"}


def test_pictures_are_small_and_shown() -> None:
    pictures = {path.name: path.stat().st_size for path in (ROOT / "docs/images").iterdir()}
    assert set(pictures) == {Path(target).name for page in PAGES for target in links_of(page) if "images/" in target}
    assert max(pictures.values()) < _LARGEST_KB * 1000


def _files(nav: Any) -> Iterator[str]:
    """The files of a navigation, at whatever depth."""
    if isinstance(nav, str):
        yield nav
    for entry in nav.values() if isinstance(nav, dict) else nav if isinstance(nav, list) else ():
        yield from _files(entry)


_SPAN = re.compile(r"(?<!`)`([^`\n]+|[^`]+?)`(?!`)", re.DOTALL)
_INDENTED_COMMAND = re.compile(r"^ {4}(?:\$ )?(?:bench|uv|pip|pytest|python) ", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_names_its_language(page: str) -> None:
    assert {block.language for block in blocks_of(page)} <= set(LANGUAGES)
    assert not _INDENTED_COMMAND.search(prose_of(page)), "commands stand in fenced blocks, so that tests find them"


@pytest.mark.parametrize("page", PAGES)
def test_every_command_parses(page: str) -> None:
    for block in blocks_of(page, SHELL):
        for line in lines_of(block.code):
            for words in commands_of(line):
                try:
                    check(words)
                except Exception as error:
                    said = getattr(error, "format_message", lambda error=error: str(error))()
                    pytest.fail(f"{page}: {line}: {said}", pytrace=False)


@pytest.mark.parametrize("page", PAGES)
def test_options_in_the_prose_exist(page: str) -> None:
    """In spans such as `bench run --seeds 3`, and in blocks of text that show how a command is used."""
    prose = prose_of(page)
    if page == "docs/migration.md":
        prose = re.sub(r"^\|[^|]*\|", "|", prose, flags=re.MULTILINE)  # the first column holds names of 1.0
    spans = [" ".join(span.split()) for span in _SPAN.findall(prose)]
    usage = " ".join(" ".join(block.code.split()) for block in blocks_of(page, ["text"]))
    shown = [*spans, *(f"bench {rest}" for rest in usage.split("bench ")[1:])]
    assert not {text: found for text in shown if text.startswith("bench ") and (found := unknown_options(text))}


@pytest.mark.skipif(find_spec("zensical") is None, reason="zensical is not installed: uv sync --group docs")
def test_the_site_builds_in_strict_mode(tmp_path: Path) -> None:
    docs = shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("site", ".cache"))
    words = ("build", "--strict", "--config-file", docs / "zensical.toml")
    done = subprocess.run([sys.executable, "-m", "zensical", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    stems = {Path(page).stem for page in PAGES if page.startswith("docs/")} - {"index"}
    assert stems <= {path.parent.name for path in (docs / "site").glob("*/index.html")}
