"""Words and numbers, and a data set's own tokens: from the file to the vocabulary, the signature and the batches."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.benchmark.context import RunContext, open_context
from harness.config.features import FeatureConfig
from harness.config.load import load_preset
from harness.config.run import Conditions, RunData
from harness.data.karpathy import read_karpathy
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.data.vocabularies import SubwordVocabulary, load_vocabulary
from harness.data.vocabulary import (
    BOS,
    EOS,
    PAD,
    UNK,
    Vocabulary,
    as_read,
    counted_captions,
    tokenize,
    tokenize_expansionnet,
)
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from tests.harness.benchmark.small_runs import quiet

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


@given(st.text(st.characters(max_codepoint=127), max_size=40) | captions)
def test_plain_letters_are_read_as_among_others(caption: str) -> None:
    assert tokenize(caption) == tokenize(f"{caption} \u2026"), "a sign that is no word"


@given(st.lists(captions, max_size=8))
def test_known_captions_come_back(texts: list[str]) -> None:
    vocabulary = Vocabulary.build(texts, min_count=1)
    for text in texts:
        words = tokenize(text)
        numbers = vocabulary.encode(text, max_len=len(words) + 1)
        assert numbers[-1] == EOS
        assert all(UNK < number < len(vocabulary) for number in numbers[:-1])
        assert vocabulary.decode([BOS, *numbers, PAD, PAD]) == " ".join(words)


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
    assert Vocabulary(("a", "b")).numbers_of(["b", "zebra", "<unk>", "b"], "decoding.banned") == (5, UNK)
    pieces = SubwordVocabulary.build(["a b"], 1)
    assert pieces.numbers_of(["<unk>"], "decoding.banned") == (UNK,)
    with pytest.raises(BenchError, match=r"decoding.banned names a"):
        pieces.numbers_of(["a", "<unk>"], "decoding.banned")


def test_long_captions_are_cut_with_the_end_token_in_place() -> None:
    vocabulary = Vocabulary.build(["a b c d"], 1)
    assert vocabulary.encode("a b c d", 3) == [4, 5, EOS]
    assert vocabulary.encode("a b c d", 1) == [EOS]


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


FIXTURE = Path(__file__).parents[2] / "fixtures" / "training" / "preprocessing.json"


@pytest.fixture(scope="module")
def theirs() -> dict[str, Any]:
    content: dict[str, Any] = json.loads(FIXTURE.read_text())
    return content


def test_the_words_of_a_caption(theirs: dict[str, Any]) -> None:
    for example in theirs["examples"]:
        words = tokenize_expansionnet(example["raw"])
        assert ["SOS", *words, "EOS"] == example["tokens"]
        assert " ".join([*words, "EOS"]).split() == example["reward_reference"].split()


def test_the_vocabulary_of_an_annotation_file(theirs: dict[str, Any]) -> None:
    train = [
        sentence["raw"]
        for image in theirs["annotations"]
        if image["split"] in {"train", "restval"}
        for sentence in image["sentences"]
    ]
    vocabulary = Vocabulary.build(train, theirs["min_occurrences"], "expansionnet")
    numbers = {name: theirs[name] for name in ("PAD", "SOS", "EOS", "UNK")}
    assert vocabulary.specials == tuple(numbers.values())
    assert len(vocabulary) == len(theirs["idx2word"])
    for number, word in enumerate(theirs["idx2word"]):
        if word not in numbers:
            assert vocabulary.encode(word, 2) == [number, theirs["EOS"]]
            assert vocabulary.decode([number]) == word
    assert max(len(vocabulary.encode(caption, 99)) for caption in train) + 1 == theirs["max_seq_len"]
    assert vocabulary == Vocabulary.of_entries(theirs["idx2word"], "expansionnet")


CAPTIONS = [
    "A man's dog runs on the beach.",
    "Two dogs -- running, running! -- in the snow",
    "the t-shirt of the ÉTÉ: 3.5 m of हिन्दी 猫",
    "Runners run beside the dog's owner; the owner runs",
    "",
    "snow",
]
several = st.lists(
    st.text(max_size=30) | st.lists(st.sampled_from(["dog", "dogs", "t-shirt", "man's"])).map(" ".join), max_size=6
)


@pytest.fixture(scope="module")
def vocabulary() -> SubwordVocabulary:
    return SubwordVocabulary.build(CAPTIONS, 1, merges=20)


@settings(max_examples=50)
@given(several, st.randoms(), st.sampled_from(["words", "expansionnet"]), st.sampled_from([1, 20, 5000]))
def test_any_captions_come_back_and_their_order_does_not_matter(
    texts: list[str], randomness: random.Random, preparation: str, merges: int
) -> None:
    vocabulary = SubwordVocabulary.build(texts, 1, preparation, merges)
    shuffled = list(texts)
    randomness.shuffle(shuffled)
    assert SubwordVocabulary.build(shuffled, 1, preparation, merges) == vocabulary
    for text in texts:
        numbers = vocabulary.encode(text, 999)
        assert vocabulary.words_of([BOS, *numbers, PAD]) == vocabulary.tokenize(text)
        assert vocabulary.decode(numbers) == " ".join(vocabulary.tokenize(text))


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
        assert caption.startswith(said := vocabulary.decode(numbers))
        assert said in "the" or caption.removeprefix(said)[:1] in ("", " ")
        assert bool(said) == (max_len > 1), "a first word that is too long is cut"
    assert vocabulary.decode(numbers) == caption


def test_subwords_are_read_as_they_were_saved(vocabulary: SubwordVocabulary, tmp_path: Path) -> None:
    vocabulary.save(tmp_path / "v.json")
    loaded = load_vocabulary(tmp_path / "v.json")
    assert loaded == vocabulary
    assert loaded.digest() == vocabulary.digest() != SubwordVocabulary.build(CAPTIONS, 1, merges=19).digest()
    assert loaded.encode("dogs run", 99) == vocabulary.encode("dogs run", 99)
    assert vocabulary != Vocabulary(vocabulary.words)


Change = Callable[[dict[str, Any]], object]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Four images to train, the last one of `restval`; each sentence has its own tokens, every second one more."""
    folder = prepare_scenes(tmp_path / "data", ScenesConfig(train=4, val=1, test=2, nocaps_per_domain=1))

    def tokenise(image: dict[str, Any]) -> None:
        if image["split"] == "nocaps":
            return
        for number, sentence in enumerate(image["sentences"]):
            words = sentence["raw"].rstrip(".").lower().split()
            sentence["tokens"] = [*words, f"only-{image['split']}"] if number % 2 else words
        if image["imgid"] == 3:
            image["split"] = "restval"

    change(folder, tokenise)
    return folder


def change(folder: Path, how: Change) -> None:
    [file] = folder.glob("dataset*.json")
    content = json.loads(file.read_text())
    for image in content["images"]:
        how(image)
    file.write_text(json.dumps(content))


def context(data: Path, tmp_path: Path, *overrides: str, preset: str = "updown-paper") -> RunContext:
    chosen = load_preset(preset, ("vocabulary.min_count=1", *overrides))
    conditions = Conditions.of_inputs(str(data), None, FeatureConfig(), described=RunData(), preset=chosen)
    return open_context(conditions, Workspace(tmp_path / "workspace"), quiet())


def test_tokens_are_counted_over_all_splits_and_signed(data: Path, tmp_path: Path) -> None:
    found = context(data, tmp_path)
    assert {"only-train", "only-val", "only-test"} <= set(found.inputs.vocabulary.words)
    assert found.signature["vocab"].startswith("karpathy-tokens,min1#")
    assert "captions=karpathy-tokens" in found.signature["recipe"]
    others = context(data, tmp_path, "recipe.captions=words")
    assert not {"only-train", "only-val"} & set(others.inputs.vocabulary.words)
    assert others.signature["data"] == found.signature["data"]


def test_training_reads_tokens_and_scores_read_the_raw_captions(data: Path, tmp_path: Path) -> None:
    found = context(data, tmp_path)
    [read, *_] = as_read(found.data.train, found.inputs.vocabulary.preparation)
    assert read.captions[1].endswith(" only-train")
    unknown = found.inputs.vocabulary.unk
    assert all(unknown not in found.inputs.vocabulary.encode(caption, 30) for caption in read.captions)
    assert "only" not in " ".join(found.data.evaluated["test"][0].captions)
    assert as_read(found.data.train, "words") == found.data.train


def test_tokens_leave_the_fingerprint_as_it_is(data: Path) -> None:
    with_tokens = read_karpathy(data).fingerprint
    change(data, lambda image: [sentence.pop("tokens", None) for sentence in image["sentences"]])
    assert read_karpathy(data).fingerprint == with_tokens


def test_captions_without_tokens_are_named(data: Path, tmp_path: Path) -> None:
    change(data, lambda image: image["split"] == "val" and image["sentences"][0].pop("tokens"))
    with pytest.raises(BenchError, match=r'1 image .*"tokens"') as caught:
        context(data, tmp_path)
    assert "recipe.captions=words" in (caught.value.hint or "")
    dataset = read_karpathy(data)
    assert len(list(counted_captions(dataset, dataset.splits["train"], "words"))) == 4 * 5


def test_restval_is_dropped_and_signed(data: Path, tmp_path: Path) -> None:
    kept = context(data, tmp_path)
    dropped = context(data, tmp_path, "recipe.restval=dropped")
    assert (len(kept.data.train), len(dropped.data.train)) == (4, 3)
    assert not any(sample.restval for sample in dropped.data.train)
    assert "restval=dropped" in dropped.signature["recipe"]
    assert dropped.signature["data"] == f"{kept.signature['data']},restval:dropped"
    assert context(data, tmp_path, preset="cgru-paper").data.train == dropped.data.train
    change(data, lambda image: image["split"] == "train" and image.update(split="restval"))
    with pytest.raises(BenchError, match="'restval'"):
        context(data, tmp_path, "recipe.restval=dropped")
