"""Captions as words, as the authors of ExpansionNet v2 prepared theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.data.vocabulary import Vocabulary, tokenize_expansionnet

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
