"""The caption that agrees best with a data set: the scores are those of CIDEr-D, caption by caption."""

from __future__ import annotations

import numpy as np
import pytest

from harness.metrics.cider import CiderD, consensus_scores

WORDS = ["a", "dog", "runs", "the", "on", "grass"]


def random_references(seed: int, images: int) -> dict[int, list[str]]:
    """Captions of few words, so that n-grams repeat within them and between them; lengths and numbers differ."""
    generator = np.random.default_rng(seed)
    return {
        3 * image: [" ".join(generator.choice(WORDS, generator.integers(0, 14))) for _ in range(1 + image % 3)]
        for image in range(images)
    }


@pytest.mark.parametrize(("seed", "images"), [(0, 30), (1, 12), (2, 2), (3, 1)])
def test_scores_are_cider_d_of_one_caption_for_all(seed: int, images: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.metrics.ngrams._BLOCK_TOKENS", 40)  # several blocks
    references = random_references(seed, images)
    scorer = CiderD(references)
    captions = [caption for texts in references.values() for caption in texts]
    expected = [scorer.score(dict.fromkeys(references, caption))[0] for caption in captions]
    np.testing.assert_allclose(consensus_scores(references), expected, atol=1e-14, rtol=0)


def test_there_is_nothing_to_score_without_images() -> None:
    assert consensus_scores({}).size == 0
