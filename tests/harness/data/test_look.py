"""What is said of texts that are hardly captions, before a number hides it."""

import re

import pytest

from harness.config.load import load_preset
from harness.data.formats.look import (
    copied_references,
    cut_references,
    odd_captions,
    refuse_unspaced,
    unspaced,
    without_shared_words,
)
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


def test_captions_that_are_references_are_told() -> None:
    references = {image: (f"of {image}", "one dog") for image in range(10)}
    captions = {image: f"of {image}" for image in range(10)}
    assert "10 of 10 captions are word for word a reference" in copied_references(captions, references)
    assert not copied_references(captions | {1: "new", 2: "new"}, references)


def test_captions_of_other_images_share_no_word_with_references() -> None:
    references = {1: ("a dog runs", "one dog"), 2: ("two cats sleep",)}
    assert without_shared_words({1: "the dog", 2: "cats"}, references) == ""
    assert "image 1" in without_shared_words({1: "red buses", 2: "ducks swim"}, references)
    assert without_shared_words({1: "一只猫"}, {1: ("狗在草地上跑",)}) == "", "refused for its script"
    assert "image 1" in without_shared_words({1: "小猫"}, {1: ("狗在草地上跑",)}, "zh")
    assert without_shared_words({1: "一只狗"}, {1: ("狗在草地上跑",)}, "zh") == ""


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("一只灰色的山羊站在石墙上", ["zh", "characters"]),
        ("灰色のヤギが石の壁に立っている", ["ja", "characters"]),
        ("แพะสีเทายืนอยู่บนกำแพง", ["characters"]),
        ("တောင်ပေါ်မှာဆိတ်တစ်ကောင်", ["characters"]),
    ],
)
def test_scripts_without_spaces_are_refused_with_the_tokenizer_to_type(text: str, options: list[str]) -> None:
    with pytest.raises(BenchError, match="script without spaces") as caught:
        refuse_unspaced([text] * 3 + ["a dog"], "x")
    assert re.findall(r"--tokenizer (\w+)", str(caught.value.hint)) == options
    script = unspaced([text], "x")
    assert script is not None
    assert re.findall(r"--tokenizer (\w+)", script.options) == options
    refuse_unspaced([text], "x", "characters")
    refuse_unspaced([" ".join(text), "灰色 の ヤギ が 立っ て いる"], "parted by spaces")
    refuse_unspaced([f"a sign that says {text}", "a dog", "a cat"], "mostly words")
    assert unspaced(["a dog"], "x") is None
    assert unspaced([], "x") is None


def test_cut_captions_are_counted_with_what_takes_them_whole() -> None:
    preset = load_preset("quick", ("vocabulary.max_len=22", "decoding.max_len=20", "size.max_len=24"))
    captions = ["a dog", "a long one", "the longest one"]
    assert cut_references(captions, [3, 20, 9], preset) == ""
    sentence = cut_references(captions, [3, 21, 30], preset)
    assert "2 of 3 training captions" in sentence
    assert "(up to 30)" in sentence
    assert "the longest one" in sentence
    assert re.findall(r"--set (\S+)=(\d+)", sentence) == [
        ("vocabulary.max_len", "32"),
        ("decoding.max_len", "31"),
        ("size.max_len", "32"),
    ]
    assert re.findall(r"--set (\S+)=(\d+)", cut_references(captions, [3, 20, 21], preset)) == [
        ("vocabulary.max_len", "23"),
        ("decoding.max_len", "22"),
    ], "models of this size take them"


@pytest.mark.parametrize("length", [21, 30, 998, 1500])
def test_a_preset_takes_captions_whole_as_it_is_told_to(length: int) -> None:
    sentence = cut_references(["a"], [length], load_preset("quick"))
    changed = load_preset("quick", tuple(re.findall(r"--set (\S+)", sentence)))
    changed.check_lengths()
    assert changed.vocabulary.max_len - 2 == min(length, 998)
    assert cut_references(["a"], [min(length, 998)], changed) == ""
