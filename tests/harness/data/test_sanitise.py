"""Captions stay on one line of valid Unicode."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.data.formats import sanitise_caption, sanitise_meteor_field


@given(st.text(alphabet=st.characters(exclude_categories=())))
def test_any_text_becomes_one_encodable_line(text):
    clean = sanitise_caption(text)
    assert len(f"x{clean}".splitlines()) == 1
    assert "\x00" not in clean
    clean.encode()
    assert sanitise_caption(clean) == clean


@pytest.mark.parametrize(
    "text", ["A dog.", "caf\u00e9 \u201cx\u201d", "tab\there", "dog\x92s", "\U0001f600", "22\u00a03/4"]
)
def test_ordinary_text_is_left_alone(text):
    assert sanitise_caption(text) == text


def test_broken_surrogates_are_replaced_and_pairs_joined():
    assert sanitise_caption("a \ud800 b") == "a \ufffd b"
    assert sanitise_caption("a \ud83d\ude00 b") == "a \U0001f600 b"


def test_meteor_separator_disappears():
    assert sanitise_meteor_field("a ||| b |||") == "a b "
    assert sanitise_meteor_field("a | | | b") == "a | | | b"
