"""Every command of the documentation has options, files and extras that exist."""

import re

import pytest

from tests.documentation.pages import LANGUAGES, PAGES, SHELL, blocks_of, commands_of, languages_of, lines_of, prose_of
from tests.documentation.parsing import check, unknown_options

_SPAN = re.compile(r"(?<!`)`([^`\n]+|[^`]+?)`(?!`)", re.DOTALL)
_INDENTED_COMMAND = re.compile(r"^ {4}(?:\$ )?(?:bench|uv|pip|pytest|python) ", re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_every_block_names_its_language(page: str) -> None:
    assert set(languages_of(page)) <= set(LANGUAGES)
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
    spans = [" ".join(span.split()) for span in _SPAN.findall(prose_of(page))]
    usage = " ".join(" ".join(block.code.split()) for block in blocks_of(page, ["text"]))
    shown = [*spans, *(f"bench {rest}" for rest in usage.split("bench ")[1:])]
    wrong = {text: found for text in shown if text.startswith("bench ") and (found := unknown_options(text))}
    assert not wrong
