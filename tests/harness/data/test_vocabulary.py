"""Words and numbers."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.vocabularies import SubwordVocabulary, load_vocabulary
from harness.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary, tokenize
from harness.utils.errors import BenchError

captions = st.text(max_size=60) | st.lists(st.sampled_from(["A dog", "t-shirt", "man's", "ÉTÉ", "two"])).map(" ".join)


@pytest.mark.parametrize(
    ("caption", "words"),
    [
        ("A man in a Red T-Shirt.", ["a", "man", "in", "a", "red", "t-shirt"]),
        ("The man's dog -- 'Rex' -- doesn't run!", ["the", "man's", "dog", "rex", "doesn't", "run"]),
        ("the man’s dog", ["the", "man's", "dog"]),
        ("rock'n'roll, well-to-do", ["rock'n'roll", "well-to-do"]),
        ("snake_case and 3.5 m", ["snake", "case", "and", "3", "5", "m"]),
        ("Cafe\u0301 CAFÉ", ["café", "café"]),
        ("हिन्दी 猫 über", ["हिन्दी", "猫", "über"]),
        ("a\nb\tc\u2028d\x00e", ["a", "b", "c", "d", "e"]),
        ("...", []),
        ("", []),
    ],
)
def test_words_of_a_caption(caption: str, words: list[str]) -> None:
    assert tokenize(caption) == words


@given(captions)
def test_tokenizing_again_changes_nothing(caption: str) -> None:
    words = tokenize(caption)
    assert tokenize(" ".join(words)) == words


@given(st.lists(captions, max_size=8))
def test_known_captions_come_back(texts: list[str]) -> None:
    vocabulary = Vocabulary.build(texts, min_count=1)
    for text in texts:
        words = tokenize(text)
        numbers = vocabulary.encode(text, max_len=len(words) + 1)
        assert numbers[-1] == EOS
        assert all(UNK < number < len(vocabulary) for number in numbers[:-1])
        assert vocabulary.decode([BOS, *numbers, PAD, PAD]) == " ".join(words)


@given(st.lists(captions, max_size=8), st.randoms())
def test_the_order_of_captions_does_not_matter(texts: list[str], random: object) -> None:
    shuffled = list(texts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = Vocabulary.build(texts, 1), Vocabulary.build(shuffled, 1)
    assert one == other
    assert one.digest() == other.digest()


@settings(max_examples=25)
@given(st.lists(captions, max_size=5))
def test_saving_and_loading_is_the_identity(tmp_path_factory: pytest.TempPathFactory, texts: list[str]) -> None:
    path = tmp_path_factory.mktemp("vocabulary") / "words.json"
    vocabulary = Vocabulary.build(texts, 1)
    vocabulary.save(path)
    assert load_vocabulary(path) == vocabulary
    assert [file.name for file in path.parent.iterdir()] == ["words.json"]


def test_frequent_words_come_first_and_ties_by_code_point() -> None:
    assert Vocabulary.build(["b a c", "c b", "c é e"], 1).words == ("c", "b", "a", "e", "é")


def test_rare_words_are_unknown() -> None:
    vocabulary = Vocabulary.build(["a dog", "a cat"], min_count=2)
    assert vocabulary.words == ("a",)
    assert len(vocabulary) == 5
    assert vocabulary.encode("a dog", 9) == [4, UNK, EOS]
    assert vocabulary.decode([4, UNK, EOS]) == "a <unk>"
    assert Vocabulary.build(["a"], 1, "expansionnet").decode([3]) == "UNK"


def test_words_of_settings_are_found_by_number() -> None:
    vocabulary = Vocabulary(("a", "b"))
    assert vocabulary.numbers_of(["b", "zebra", "<unk>", "b"], "decoding.banned") == (5, UNK)
    pieces = SubwordVocabulary.build(["a b"], 1)
    assert pieces.numbers_of(["<unk>"], "decoding.banned") == (UNK,)
    with pytest.raises(BenchError, match=r"decoding.banned names a, but this vocabulary is of subwords"):
        pieces.numbers_of(["a", "<unk>"], "decoding.banned")


def test_long_captions_are_cut_with_the_end_token_in_place() -> None:
    vocabulary = Vocabulary.build(["a b c d"], 1)
    assert vocabulary.encode("a b c d", 3) == [4, 5, EOS]
    assert vocabulary.encode("a b c d", 1) == [EOS]
    with pytest.raises(ValueError, match="max_len"):
        vocabulary.encode("a", 0)


def test_decoding_stops_at_the_end_token() -> None:
    vocabulary = Vocabulary(("a", "b"))
    assert vocabulary.decode([BOS, 4, EOS, 5]) == "a"


def test_digests_tell_orders_apart() -> None:
    assert Vocabulary(("a", "b")).digest() != Vocabulary(("b", "a")).digest()


def test_paper_vocabulary_has_special_tokens_among_words(tmp_path: Path) -> None:
    vocabulary = Vocabulary.of_entries(["\n", "EOS", "PAD", "SOS", "UNK", "a", "dog"], "expansionnet")
    assert (vocabulary.pad, vocabulary.bos, vocabulary.eos, vocabulary.unk) == (2, 3, 1, 4)
    assert len(vocabulary) == 7
    assert vocabulary.encode("A dog's\nUNK!", 9) == [5, 6, 4, 0, 4, 1]
    assert vocabulary.decode([3, 0, 5, 4, 6, 1, 5]) == "\n a UNK dog"
    assert vocabulary.digest() != Vocabulary(vocabulary.words).digest()
    vocabulary.save(tmp_path / "v.json")
    assert load_vocabulary(tmp_path / "v.json") == vocabulary


def test_a_vocabulary_without_its_special_tokens_is_refused() -> None:
    with pytest.raises(BenchError, match="lacks SOS, UNK"):
        Vocabulary.of_entries(["PAD", "EOS", "a"], "expansionnet")
    with pytest.raises(BenchError, match="twice"):
        Vocabulary.of_entries(["PAD", "SOS", "EOS", "UNK", "a", "a"], "expansionnet")
    with pytest.raises(ValueError, match="not four different"):
        Vocabulary(("a",), pad=1)
