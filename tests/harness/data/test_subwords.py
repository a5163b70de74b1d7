"""Pieces of words: they give words back, do not depend on order, and are read back as they were written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.data.vocabularies import SubwordVocabulary, load_vocabulary
from harness.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary

CAPTIONS = [
    "A man's dog runs on the beach.",
    "Two dogs -- running, running! -- in the snow",
    "the t-shirt of the ÉTÉ: 3.5 m of हिन्दी 猫",
    "Runners run beside the dog's owner; the owner runs",
    "",
    "snow",
]
captions = st.lists(
    st.text(max_size=30) | st.lists(st.sampled_from(["dog", "dogs", "t-shirt", "man's"])).map(" ".join), max_size=6
)


@pytest.fixture(scope="module")
def vocabulary() -> SubwordVocabulary:
    return SubwordVocabulary.build(CAPTIONS, 1, merges=20)


@pytest.mark.parametrize("preparation", ["words", "expansionnet"])
@pytest.mark.parametrize("merges", [1, 20, 5000])
def test_captions_come_back_as_words(preparation: str, merges: int) -> None:
    vocabulary = SubwordVocabulary.build(CAPTIONS, 1, preparation, merges)
    for caption in CAPTIONS:
        numbers = vocabulary.encode(caption, 200)
        assert numbers[-1] == EOS
        assert all(UNK < number < len(vocabulary) for number in numbers[:-1])
        assert vocabulary.words_of([BOS, *numbers, PAD]) == vocabulary.tokenize(caption)
        assert vocabulary.decode([BOS, *numbers, PAD]) == " ".join(vocabulary.tokenize(caption))


@settings(max_examples=50)
@given(captions, st.randoms())
def test_any_captions_come_back_and_their_order_does_not_matter(texts: list[str], randomness: random.Random) -> None:
    vocabulary = SubwordVocabulary.build(texts, 1)
    shuffled = list(texts)
    randomness.shuffle(shuffled)
    assert SubwordVocabulary.build(shuffled, 1) == vocabulary
    for text in texts:
        assert vocabulary.words_of(vocabulary.encode(text, 999)) == vocabulary.tokenize(text)


def test_merges_make_frequent_words_whole(vocabulary: SubwordVocabulary) -> None:
    assert len(vocabulary.merges) == 20
    whole = SubwordVocabulary.build(CAPTIONS, 1)
    assert len(whole.encode("the owner runs", 99)) == 4
    assert len(SubwordVocabulary.build(CAPTIONS, 3).merges) < len(whole.merges)
    made = {left + right for left, right in vocabulary.merges}
    assert set(vocabulary.words) == made | set("".join(vocabulary.words))


def test_unseen_words_are_subwords_and_unseen_characters_unknown(vocabulary: SubwordVocabulary) -> None:
    assert vocabulary.decode(vocabulary.encode("dogsnow runner", 99)) == "dogsnow runner"
    assert vocabulary.words_of(vocabulary.encode("a døg runs", 99)) == ["a", None, "runs"]
    assert vocabulary.decode(vocabulary.encode("a døg runs ø", 99)) == "a <unk> runs <unk>"
    assert UNK in vocabulary.encode("døg", 99)


def test_what_a_model_may_say_is_words_all_the_same(vocabulary: SubwordVocabulary) -> None:
    number = {piece: vocabulary.words.index(piece) + 4 for piece in (" ", "d", "o", "s")}
    said = [number["d"], number["o"], number[" "], number[" "], number["s"], UNK, number["s"], number[" "], EOS, 5]
    assert vocabulary.words_of(said) == ["do", None]
    assert vocabulary.words_of([UNK, number["s"], number[" "], number["s"]]) == [None, "s"]
    assert vocabulary.decode([number[" "]]) == ""


def test_long_captions_lose_whole_words(vocabulary: SubwordVocabulary) -> None:
    caption = "the dog runs in the snow"
    for max_len in range(1, 30):
        numbers = vocabulary.encode(caption, max_len)
        assert len(numbers) <= max_len
        assert numbers[-1] == EOS
        assert caption.startswith(vocabulary.decode(numbers))
        assert caption.removeprefix(vocabulary.decode(numbers))[:1] in ("", " ", "t")
    assert vocabulary.decode(numbers) == caption
    with pytest.raises(ValueError, match="max_len"):
        vocabulary.encode("a", 0)


def test_saving_and_loading_is_the_identity(vocabulary: SubwordVocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "v.json")
    loaded = load_vocabulary(tmp_path / "v.json")
    assert loaded == vocabulary
    assert loaded.digest() == vocabulary.digest() != SubwordVocabulary.build(CAPTIONS, 1, merges=19).digest()
    assert loaded.encode("dogs run", 99) == vocabulary.encode("dogs run", 99)
    assert vocabulary != Vocabulary(vocabulary.words)
