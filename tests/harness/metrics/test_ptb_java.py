"""The PTB tokenizer as COCO uses it."""

from __future__ import annotations

import pytest

from harness.metrics.java import bundled_java
from harness.metrics.ptb import tokenize_java, tokenizer_jar

CASES = {
    "An airplane's letters, 'MT': flying!": "an airplane 's letters mt flying",
    "a (brown) dog [left]": "a -lrb- brown -rrb- dog -lsb- left -rsb-",
    'She can\'t... gonna; "yes" -- no?': "she ca n't gon na yes no",
    "": "",
    "Caf\u00e9 ||| 22 3/4": "caf\u00e9 | | | 22\u00a03/4",
    "first\u2028second\rthird\x00fourth": "first second third fourth",
    "dog\x92s": "dog 's",
    "smile \U0001f600 \ud800 end": "smile end",
    "... ": "",
}


def test_tokens_and_lines():
    assert tokenize_java(list(CASES), java=bundled_java(), timeout_s=60) == list(CASES.values())


@pytest.mark.parametrize("empties", [["", "a", "", ""], [""], ["", ""]])
def test_empty_captions_keep_their_lines(empties):
    assert tokenize_java(empties, java=bundled_java(), timeout_s=60) == empties


def test_nothing_needs_no_java(tmp_path):
    assert tokenize_java([], java=tmp_path / "absent", timeout_s=1) == []


def test_locale_of_the_machine_does_not_matter(monkeypatch):
    monkeypatch.setenv("LC_ALL", "POSIX")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=tr -Dfile.encoding=ISO-8859-1")
    assert tokenize_java(["TITLE CAF\u00c9"], java=bundled_java(), timeout_s=60) == ["title caf\u00e9"]


def test_nothing_is_written_next_to_the_jar():
    before = sorted(tokenizer_jar().parent.iterdir())
    tokenize_java(["a dog"], java=bundled_java(), timeout_s=60)
    assert sorted(tokenizer_jar().parent.iterdir()) == before
