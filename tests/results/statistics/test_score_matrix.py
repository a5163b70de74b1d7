"""The numbers of single images of several runs: which images runs share, and their order."""

import numpy as np
import pytest

from results.statistics.score_matrix import ScoreMatrix
from results.statistics.significance import image_means

NUMBERS: dict[int, dict[int, float]] = {7: {1: 1.0, 2: 0.0}, 5: {1: 0.0, 2: 1.0, 30: 9.0}, 9: {1: 0.5, 2: 0.25}, 4: {}}


@pytest.fixture
def matrix() -> ScoreMatrix:
    """Of four runs: two have the same images, one has another one too, and one has none."""
    arrays = {
        run: (np.array(list(scores)), np.array(list(scores.values()))) for run, scores in NUMBERS.items() if scores
    }
    return ScoreMatrix.from_runs(list(NUMBERS), arrays)


def test_it_is_of_all_images_and_runs(matrix: ScoreMatrix) -> None:
    assert (matrix.values.shape, matrix.values.dtype) == ((3, 4), np.float64)
    assert matrix.images.tolist() == [1, 2, 30]
    assert {run: matrix.by_image(run) for run in matrix.runs} == NUMBERS
    assert [matrix.has(run) for run in matrix.runs] == [True, True, True, False]


def test_scores_of_runs_need_the_same_images(matrix: ScoreMatrix) -> None:
    scores = matrix.of_runs([7, 9])
    assert scores is not None
    assert scores.tolist() == [[1.0, 0.0], [0.5, 0.25]]
    assert scores.flags.c_contiguous
    assert [matrix.of_runs(runs) for runs in ([7, 5], [7, 4], [4], [])] == [None] * 4
    assert not matrix.have_same_images([7, 5])


def test_seeds_are_averaged_over_the_images_that_all_have(matrix: ScoreMatrix) -> None:
    images = matrix.common([7, 5])
    assert matrix.images[images].tolist() == [1, 2]
    assert image_means(matrix.of_images([7, 5], images)).tolist() == [0.5, 0.5]
    assert not matrix.common([7, 4]).any()
    assert not matrix.common([]).any()


def test_numbers_are_given_in_the_order_of_other_ids(matrix: ScoreMatrix) -> None:
    assert np.array_equal(matrix.of_ids(5, np.array([2, 3, 30])), [1.0, np.nan, 9.0], equal_nan=True)


def test_without_any_number_there_are_no_images() -> None:
    empty = ScoreMatrix.from_runs([1, 2], {})
    assert (empty.values.shape, empty.by_image(1), empty.of_runs([1])) == ((0, 2), {}, None)
