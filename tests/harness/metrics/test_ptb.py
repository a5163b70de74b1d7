"""The PTB tokenizer in Python: equal to the Java program on captions, on probes and across the ends of lines."""

import gzip
import json
import random
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from harness.metrics.java import bundled_java
from harness.metrics.ptb import tokenize_java, tokenize_ptb

FIXTURE = Path(__file__).parents[2] / "fixtures" / "evaluation" / "tokenizer.json.gz"


@pytest.fixture(scope="module")
def expected():
    with gzip.open(FIXTURE, "rt", encoding="utf-8") as file:
        return json.load(file)


def test_captions(expected):
    captions, tokens = zip(*expected["caption_pairs"], strict=True)
    assert tokenize_ptb(captions) == list(tokens)


def test_probes(expected):
    probes, tokens = zip(*expected["probe_pairs_each_followed_by_empty_line"], strict=True)
    assert tokenize_ptb([line for probe in probes for line in (probe, "")])[::2] == list(tokens)


def test_a_final_full_stop_depends_on_the_next_caption(expected):
    for case in expected["context_dependence"]:
        assert tokenize_ptb([case["line"], case["next_line"], ""])[0] == case["tokens"], case


def test_equals_java_on_captions_in_another_order(expected):
    captions = [caption for caption, _ in reversed(expected["caption_pairs"])]
    assert tokenize_ptb(captions) == tokenize_java(captions, java=bundled_java(), timeout_s=60)


WORDS = (
    "dog Dog's it's \"STOP\" 'no' can't cannot Dunkin' 5:30pm 9a.m. a.m. St. No. no. 5 22 3/4 1/2-inch $5.00 50% A. B. "
    "The A there's (left) [x] wi-fi black/white/red o'clock ma'am rock'n'roll '50s '80' men's/women's plate.There "
    "sink., end.; ... --- ----- !! ?! & A&M @home #cat www.a.com a@b.c <unk> ½ é naïve "
    "“quoted” it’s — 日本 שלום 😀 :) ;-) ^_^ "
    "4x4 2nd T-shirt"
)


def test_equals_java_on_captions_of_vision_language_models():
    chance = random.Random(3)
    words = ["the", "image", "shows", "A+B", "C+D+E", "A+", "a+b", "AB+CD", "R&B", "C++", "4+4", "**bold**", "1.", "2)"]
    words += [
        '"STOP"',
        "(left)",
        "SUV",
        "T-shirt",
        "3D",
        "don't",
        "it's",
        "white/black",
        "20%",
        "$5",
        "#1",
        "10:30",
        "5x7",
    ]
    words += ["e.g.", "—", "…", "Wi-Fi", "No.1", "A/C", "iPhone", "A+B.", "A+B,", "H2O", "text:", "“Sale”", "A + B"]
    captions = [" ".join(chance.choices(words, k=chance.randint(3, 14))) for _ in range(600)]
    assert "a+b" in tokenize_ptb(["a board that reads A+B"])[0].split()
    assert tokenize_ptb(captions) == tokenize_java(captions, java=bundled_java(), timeout_s=60)


def test_equals_java_on_mixed_words():
    words = WORDS.split(" ")
    captions = [" ".join(words[(k * step + k * k) % len(words)] for k in range(9)) for step in range(1, 400)]
    assert tokenize_ptb(captions) == tokenize_java(captions, java=bundled_java(), timeout_s=60)


@settings(max_examples=300)
@example("|||")
@example("\u2028\r\x00")
@given(st.text(max_size=60))
def test_any_text_gives_lower_case_tokens_on_one_line(text):
    (tokens,) = tokenize_ptb([text])
    assert len(f"x{tokens}".split("\n")) == 1
    assert tokens == tokens.strip(" ")
    assert "  " not in tokens
    assert tokens == tokens.lower()


def test_a_long_caption_takes_linear_time():
    for part, tokens in (("A. ", "a. "), ("a.", "a."), ("- 5 ", "5 "), ("'", ""), ("<a ", "< a "), ("x@", "x@")):
        assert tokenize_ptb([part * 20_000]) == [(tokens * 20_000).rstrip()]


@pytest.mark.parametrize("empties", [["", "a", "", ""], [""], ["", ""]])
def test_empty_captions_keep_their_lines(empties):
    assert tokenize_java(empties, java=bundled_java(), timeout_s=60) == empties


def test_locale_of_the_machine_does_not_matter(monkeypatch):
    monkeypatch.setenv("LC_ALL", "POSIX")
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Duser.language=tr -Dfile.encoding=ISO-8859-1")
    assert tokenize_java(["TITLE CAF\u00c9"], java=bundled_java(), timeout_s=60) == ["title caf\u00e9"]
