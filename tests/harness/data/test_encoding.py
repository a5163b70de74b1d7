"""Token rows and vocabularies of all captions: made once, equal to those made anew."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import harness.data.encoding
from harness.config.preset import VocabularyConfig
from harness.data.dataset import Sample
from harness.data.encoding import TokenRows, build_vocabulary, encode_captions
from harness.data.vocabulary import Vocabulary

SAMPLES = (
    Sample(3, "a.png", "train", ("a dog runs", "a dog")),
    Sample(1, "b.png", "train", ("two dogs run on the grass",)),
)
CAPTIONS = [caption for sample in SAMPLES for caption in sample.captions]
WORDS = VocabularyConfig(min_count=1, max_len=22)


@given(st.lists(st.lists(st.integers(0, 2**31 - 1), max_size=6), max_size=8))
def test_rows_are_kept_in_their_order(rows: list[list[int]]) -> None:
    flat = TokenRows.of(rows)
    assert len(flat) == len(rows)
    assert [flat[index].tolist() for index in range(len(flat))] == rows


def test_captions_are_encoded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vocabulary = Vocabulary.build(CAPTIONS, 1)
    expected = [[vocabulary.bos, *vocabulary.encode(caption, 4)] for caption in CAPTIONS]
    for cache in (None, tmp_path, tmp_path):
        rows = encode_captions(SAMPLES, vocabulary, 5, cache)
        assert [rows[index].tolist() for index in range(3)] == expected
    monkeypatch.setattr(Vocabulary, "encode", lambda *_: pytest.fail("encoded again"))
    rows = encode_captions(SAMPLES, vocabulary, 5, tmp_path)
    assert [rows[index].tolist() for index in range(3)] == expected


def test_other_captions_lengths_and_words_are_encoded_anew(tmp_path: Path) -> None:
    first = Vocabulary.build(CAPTIONS, 1)
    encode_captions(SAMPLES, first, 5, tmp_path)
    others: Sequence[tuple[Sequence[Sample], Vocabulary, int]] = [
        (SAMPLES[::-1], first, 5),
        (SAMPLES, first, 6),
        (SAMPLES, Vocabulary.build(CAPTIONS, 2), 5),
    ]
    for samples, vocabulary, max_len in others:
        kept, anew = (encode_captions(samples, vocabulary, max_len, cache) for cache in (tmp_path, None))
        assert kept.numbers.tolist() == anew.numbers.tolist()
        assert kept.ends.tolist() == anew.ends.tolist()


@pytest.mark.parametrize("kind", ["words", "bpe"])
def test_a_vocabulary_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    words = WORDS.model_copy(update={"kind": kind, "merges": 5})
    built = build_vocabulary(CAPTIONS, words, "words", tmp_path)
    (path,) = (tmp_path / "vocabularies").iterdir()
    path.write_text("{")
    assert build_vocabulary(CAPTIONS, words, "words", tmp_path) == built
    monkeypatch.setattr(harness.data.encoding.Vocabulary, "build", lambda *_: pytest.fail("built again"))
    monkeypatch.setattr(harness.data.encoding.SubwordVocabulary, "build", lambda *_: pytest.fail("built again"))
    assert build_vocabulary(CAPTIONS, words, "words", tmp_path) == built


def test_other_settings_build_another(tmp_path: Path) -> None:
    once = build_vocabulary(CAPTIONS, WORDS, "words", tmp_path)
    twice = build_vocabulary(CAPTIONS, WORDS.model_copy(update={"min_count": 2}), "words", tmp_path)
    assert set(twice.words) == {"a", "dog"} < set(once.words)
    fewer = build_vocabulary(CAPTIONS[:2], WORDS, "words", tmp_path)
    assert set(fewer.words) == {"a", "dog", "runs"}
