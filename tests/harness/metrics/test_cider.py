"""CIDEr-D for validation: equal to pycocoevalcap's for every caption."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pycocoevalcap.cider.cider import Cider

from harness.metrics.cider import CiderD
from harness.utils.errors import BenchError

captions = st.lists(st.sampled_from(["a", "cat", "dog", "runs", "on", "the"]), max_size=9).map(" ".join)


def test_equals_pycocoevalcap_on_coco(coco):
    mean, per_image = CiderD(coco.tokenized_references).score(coco.tokenized_candidates)
    assert mean == pytest.approx(coco.corpus["CIDEr-D"], abs=1e-12, rel=0)
    assert per_image == pytest.approx(coco.per_image["CIDEr-D"], abs=1e-12, rel=0)


@settings(max_examples=80)
@given(st.lists(st.tuples(st.lists(captions, min_size=1, max_size=4), captions), min_size=1, max_size=8))
def test_equals_pycocoevalcap_on_any_words(pairs):
    references = {number: ["word", *texts] for number, (texts, _) in enumerate(pairs)}
    candidates = {number: text for number, (_, text) in enumerate(pairs)}
    mean, per_image = CiderD(references).score(candidates)
    expected_mean, expected = Cider().compute_score(references, {i: [text] for i, text in candidates.items()})
    assert mean == pytest.approx(expected_mean, abs=1e-12, rel=0)
    assert list(per_image.values()) == pytest.approx(list(expected), abs=1e-12, rel=0)


def test_references_are_reused_and_left_alone():
    references = {1: ["a red cat", "a cat"], 2: ["a dog runs", "one dog"]}
    scorer = CiderD(references)
    first = scorer.score({1: "a red cat", 2: "a zebra"})
    assert first[1][1] > 1 > first[1][2]
    scorer.score({1: "zebra zebra", 2: "a dog"})
    assert scorer.score({1: "a red cat", 2: "a zebra"}) == first


def test_no_words_and_single_images_score_zero():
    assert CiderD({1: ["a cat"]}).score({1: "a cat"}) == (0.0, {1: 0.0})
    assert CiderD({1: [""], 2: [""]}).score({1: "", 2: "a"}) == (0.0, {1: 0.0, 2: 0.0})


def test_other_images_are_refused():
    with pytest.raises(BenchError, match=r"no caption \(2\)"):
        CiderD({1: ["a cat"], 2: ["a dog"]}).score({1: "a cat"})
