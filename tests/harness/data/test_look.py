"""What is said of texts that are hardly captions, before a number hides it."""

import pytest

from harness.data.formats.look import cut_references, odd_captions, refuse_unspaced, without_shared_words
from harness.utils.errors import BenchError

PLAIN = {1: "a dog on a street", 2: "a sign that reads STOP [sic]", 3: "a score of 3-2", 4: "i <3 dogs"}


@pytest.mark.parametrize(
    "odd",
    [
        "<start> a dog <end>",
        "a dog</s>",
        "[CLS] a dog [SEP]",
        "a dog<|endoftext|>",
        "a <unk> dog",
        "ASSISTANT: a dog",
        '{"caption": "a dog"}',
        "['a dog', 'one dog']",
        "000000000391",
        "val2014/dog.jpg",
        "nan",
    ],
)
def test_odd_texts_are_counted_with_an_example(odd: str) -> None:
    assert odd_captions(PLAIN) == []
    [sentence] = odd_captions(PLAIN | {9: odd})
    assert "1 of 5 captions" in sentence
    assert odd[:20] in sentence


def test_captions_of_other_images_share_no_word_with_references() -> None:
    references = {1: ("a dog runs", "one dog"), 2: ("two cats sleep",)}
    assert without_shared_words({1: "the dog", 2: "cats"}, references) == ""
    assert "image 1" in without_shared_words({1: "red buses", 2: "ducks swim"}, references)


@pytest.mark.parametrize("text", ["一只灰色的山羊站在石墙上", "灰色のヤギが石の壁に立っている", "แพะสีเทายืนอยู่บนกำแพง"])
def test_scripts_without_spaces_are_refused(text: str) -> None:
    with pytest.raises(BenchError, match="script without spaces"):
        refuse_unspaced([text] * 3 + ["a dog"], "x")
    refuse_unspaced([" ".join(text), "灰色 の ヤギ が 立っ て いる"], "parted by spaces")
    refuse_unspaced([f"a sign that says {text}", "a dog", "a cat"], "mostly words")


def test_cut_captions_are_counted() -> None:
    assert cut_references([3, 20, 9], 20) == ""
    sentence = cut_references([3, 21, 30], 20)
    assert "2 of 3 training captions" in sentence
    assert "--set vocabulary.max_len=32" in sentence
