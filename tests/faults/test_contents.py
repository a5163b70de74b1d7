"""Files whose blocks were lost, and vocabularies of other types than they should be: sentences with the file's name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.data.regions.hdf5 import RegionHdf5
from harness.data.regions.regions import RawRegions
from harness.data.vocabularies import SubwordVocabulary, load_vocabulary
from harness.data.vocabulary import Vocabulary
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
HUB = WORDS | {"format": "captionbench pretrained tokenizer 1", "tokenizer": '{"model": 5}'}
PIECES = SubwordVocabulary(("a", "b", "ab"), merges=(("a", "b"),)).content()


@pytest.mark.parametrize(
    "content",
    [
        5,
        WORDS | {"format": []},
        WORDS | {"format": "other"},
        WORDS | {"words": "dog"},
        WORDS | {"words": ["dog", 5]},
        WORDS | {"words": ["dog", "dog"]},
        WORDS | {"words": ["dog", "\ud800"]},
        WORDS | {"specials": [0, 1, 2, 3]},
        WORDS | {"specials": {"pad": 0, "bos": 1, "eos": 2}},
        WORDS | {"specials": WORDS["specials"] | {"pad": 1}},
        WORDS | {"specials": WORDS["specials"] | {"pad": "0"}},
        WORDS | {"specials": WORDS["specials"] | {"pad": 0.0}},
        WORDS | {"specials": WORDS["specials"] | {"pad": False}},
        WORDS | {"specials": WORDS["specials"] | {"pad": 10**400}},
        WORDS | {"preparation": 5},
        WORDS | {"preparation": "x" * 9999},
        HUB,
        HUB | {"tokenizer": {}},
        PIECES | {"merges": None},
        PIECES | {"merges": {"ab": 1}},
        PIECES | {"merges": ["ab"]},
        PIECES | {"merges": [["a", 1]]},
        PIECES | {"merges": [["a"]]},
        PIECES | {"merges": [["b", "a"]]},
    ],
)
def test_vocabularies_of_odd_types_are_refused(tmp_path: Path, content: Any) -> None:
    file = tmp_path / "vocabulary.json"
    file.write_text(json.dumps(content))
    with pytest.raises(BenchError) as caught:
        load_vocabulary(file)
    assert str(file) in str(caught.value)
    assert len(str(caught.value)) < 800


@pytest.mark.parametrize("content", [WORDS, PIECES])
def test_whole_vocabularies_are_read(tmp_path: Path, content: dict[str, Any]) -> None:
    (tmp_path / "vocabulary.json").write_text(json.dumps(content))
    assert json.loads(json.dumps(load_vocabulary(tmp_path / "vocabulary.json").content())) == json.loads(
        json.dumps(content)
    )
