"""Words of captions: the same in every form, and unknown where no reference has any."""

from __future__ import annotations

import pytest

from reports.html.gallery import forms, pieces, stem, stems


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("house", "houses"),
        ("House", "house"),
        ("sitting", "sits"),
        ("man", "men"),
        ("person", "people"),
        ("lit", "lit"),
    ],
)
def test_forms_of_a_word_have_one_stem(one: str, other: str) -> None:
    assert stem(one) == stem(other)


@pytest.mark.parametrize(("one", "other"), [("cat", "cattle"), ("ball", "bell"), ("red", "reading"), ("7", "17")])
def test_other_words_have_other_stems(one: str, other: str) -> None:
    assert stem(one) != stem(other)


def test_a_form_of_a_reference_is_no_hallucination() -> None:
    known = stems(["Two houses and some men", "a red house"])
    assert pieces("a man by the houses, barking", known) == (
        ("a man by the houses, ", False),
        ("barking", True),
        ("", False),
    )
    assert pieces("the men", known) == (("the men", False),), "function words are never marked"


def test_forms_that_stand_alone_are_left_out() -> None:
    assert forms(["A house", "two houses", "a dog", "House"]) == [["house", "houses"]]
    assert forms([]) == []
