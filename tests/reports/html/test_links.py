"""Links out of the report: papers and code by http(s) alone, and whatever else is said stays text."""

from __future__ import annotations

import pytest

from reports.html.rendering import linked


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
    said = str(linked(text))
    assert "<script" not in said
    assert "<b>" not in said
    assert 'onclick="' not in said
