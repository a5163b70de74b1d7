"""Files whose blocks were lost, and vocabularies of other types than they should be: sentences with the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.data.hub import vocabulary as hub_vocabulary
from harness.data.regions.hdf5 import RegionHdf5
from harness.data.regions.regions import RawRegions
from harness.data.subwords import SubwordVocabulary
from harness.data.vocabulary import Vocabulary
from harness.data.vocabulary_file import load_vocabulary
from harness.utils.errors import BenchError

IMAGES = range(1, 30)


def test_hdf5_with_zeroed_blocks_is_told_or_read(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    file, draw = tmp_path / "regions.h5", np.random.default_rng(0)
    with h5py.File(file, "w") as opened:
        for image_id in IMAGES:
            opened[f"{image_id}_features"] = draw.random((5, 8), dtype=np.float32)
            opened[f"{image_id}_boxes"] = draw.random((5, 4), dtype=np.float32)
    whole = file.read_bytes()
    told, named = 0, 0
    for start in range(0, len(whole), 512):
        file.write_bytes(whole[:start] + bytes(512) + whole[start + 512 :])
        try:
            found = [regions for _, regions in RegionHdf5(file).read(IMAGES)]
        except BenchError as error:
            told += str(file) in str(error)
            continue
        assert all(isinstance(regions, str | RawRegions) for regions in found)
        named += any(isinstance(regions, str) for regions in found)
    assert told > 5
    assert named > 5


WORDS = Vocabulary(("dog", "cat")).content()
HUB = WORDS | {"format": hub_vocabulary.FORMAT, "tokenizer": '{"model": 5}'}
PIECES = SubwordVocabulary(("a", "b", "ab"), merges=(("a", "b"),)).content()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (WORDS | {"format": []}, "is not a vocabulary of captionbench"),
        (WORDS | {"format": {"captionbench": 2}}, "is not a vocabulary of captionbench"),
        (WORDS | {"words": "dog"}, "is not a vocabulary of captionbench"),
        (WORDS | {"words": ["dog", 5]}, "is not a vocabulary of captionbench"),
        (WORDS | {"words": ["dog", "\ud800"]}, "a word that is no text"),
        (WORDS | {"specials": [0, 1, 2, 3]}, "specials is [0, 1, 2, 3], which is no dict"),
        (WORDS | {"specials": {"pad": 0, "bos": 1, "eos": 2}}, "damaged: no 'unk'"),
        (WORDS | {"specials": WORDS["specials"] | {"pad": "0"}}, "pad is '0', which is no int"),
        (WORDS | {"specials": WORDS["specials"] | {"pad": 0.0}}, "pad is 0.0, which is no int"),
        (WORDS | {"specials": WORDS["specials"] | {"pad": False}}, "pad is False, which is no int"),
        (WORDS | {"specials": WORDS["specials"] | {"pad": 10**400}}, "damaged: (1000"),
        (WORDS | {"preparation": 5}, "preparation is 5, which is no str"),
        (WORDS | {"preparation": "x" * 9999}, "unknown preparation 'xxxx"),
        (HUB, "its tokenizer cannot be read"),
        (HUB | {"tokenizer": {}}, "tokenizer is {}, which is no str"),
        (PIECES | {"merges": {"ab": 1}}, "merges is {'ab': 1}, which is no list"),
        (PIECES | {"merges": ["ab"]}, "a merge is 'ab', which is no list"),
        (PIECES | {"merges": [["a", 1]]}, "a merge's part is 1, which is no str"),
        (PIECES | {"merges": [["a"]]}, "damaged: not enough values"),
    ],
)
def test_vocabularies_of_odd_types_are_refused(tmp_path: Path, content: dict[str, Any], said: str) -> None:
    file = tmp_path / "vocabulary.json"
    file.write_text(json.dumps(content))
    with pytest.raises(BenchError) as caught:
        load_vocabulary(file)
    assert said in str(caught.value)
    assert str(file) in str(caught.value)
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("content", [WORDS, PIECES])
def test_whole_vocabularies_are_read(tmp_path: Path, content: dict[str, Any]) -> None:
    (tmp_path / "vocabulary.json").write_text(json.dumps(content))
    assert json.loads(json.dumps(load_vocabulary(tmp_path / "vocabulary.json").content())) == json.loads(
        json.dumps(content)
    )
