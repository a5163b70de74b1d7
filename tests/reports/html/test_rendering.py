"""Names of pages, and links out of the report: neither lets what a store says become a path or markup."""

import pytest

from reports.html.rendering import linked, model_page, run_page


@pytest.mark.parametrize("name", ["../../up", "a/b/c", "A", "", "x" * 300, "con.txt", "show_tell/../up"])
def test_no_name_becomes_a_path(name: str) -> None:
    for page in (model_page(name), run_page(name)):
        assert page.count("/") == 1
        assert ".." not in page
        assert len(page) < 150
    assert model_page("show_tell/fc") == "models/show_tell.fc.html" != model_page("show_tell.fc")


def test_addresses_and_arxiv_numbers_become_links() -> None:
    said = str(linked("CVPR 2020 (arXiv:1912.08226v2) and https://github.com/a/b."))
    assert said == (
        'CVPR 2020 (<a class="out" rel="noreferrer" href="https://arxiv.org/abs/1912.08226">arXiv:1912.08226v2</a>) '
        'and <a class="out" rel="noreferrer" href="https://github.com/a/b">https://github.com/a/b</a>.'
    )


@pytest.mark.parametrize(
    "text", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "//host/x", "https://", "arXiv:hep-th/1"]
)
def test_anything_else_stays_text(text: str) -> None:
    assert "<a" not in linked(text)


@pytest.mark.parametrize("text", ['https://a.b/"onclick="x', "https://a.b/<script>", "<b>https://a.b</b>", "'\"&<>"])
def test_nothing_said_ends_the_link(text: str) -> None:
    assert not any(part in str(linked(text)) for part in ("<script", "<b>", 'onclick="'))
