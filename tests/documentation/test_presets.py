"""`docs/presets.md` has every preset and schedule that ships, and what each differs in."""

from tests.documentation.presets_page import PAGE, page


def test_the_page_is_that_of_the_files() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()
