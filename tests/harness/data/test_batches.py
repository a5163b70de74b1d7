"""Batches: a pure function of seed and epoch, resumable anywhere, prepared by a thread that always ends."""

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from harness.data.batches import Batch, CaptionBatches, evaluation_batches, few_widths, least_width, prefetched
from harness.data.dataset import Sample
from harness.data.features import ARRAY, META, Features
from harness.data.vocabulary import BOS, EOS, PAD, Vocabulary
from harness.utils.errors import BenchError
from zoo.captioner import VisualSpec

SPEC = VisualSpec("grid", 2)
COUNTS = (5, 1, 3, 5, 2, 5, 4)
SAMPLES = tuple(
    Sample(10 * image, f"{image}.png", "train", tuple("word " * turn + f"i{image}c{turn}" for turn in range(count)))
    for image, count in enumerate(COUNTS)
)
VOCABULARY = Vocabulary.build([caption for sample in SAMPLES for caption in sample.captions], 1)


@pytest.fixture
def features(tmp_path: Path) -> Features:
    """Features that tell their image: every value of image i is i."""
    array = np.broadcast_to(np.arange(7, dtype=np.float16)[:, None, None], (7, 1, 2))
    np.save(tmp_path / ARRAY, np.ascontiguousarray(array))
    meta = {"key": "k", "shape": [7, 1, 2], "grid": [1, 1], "image_ids": [sample.image_id for sample in SAMPLES]}
    (tmp_path / META).write_text(json.dumps(meta))
    return Features(tmp_path)


def batches(features: Features, **settings: Any) -> CaptionBatches:
    arguments: dict[str, Any] = {"batch_size": 3, "captions_per_image": 2, "seed": 1, "max_len": 10, **settings}
    return CaptionBatches(SAMPLES, VOCABULARY, features, SPEC, **arguments)


def same(one: Batch, other: Batch) -> bool:
    equal = torch.equal(one.tokens, other.tokens) and torch.equal(one.visual.features, other.visual.features)
    return equal and one.image_ids == other.image_ids


def drawn(loader: CaptionBatches, epoch: int) -> list[tuple[int, str]]:
    """Image and last word of every row of an epoch."""
    found = []
    for batch in loader.epoch(epoch):
        words = [VOCABULARY.decode(row[1:]).split()[-1] for row in batch.tokens.tolist()]
        per_image = len(words) // len(batch.image_ids)
        found += [(batch.image_ids[row // per_image], word) for row, word in enumerate(words)]
    return found


def test_epoch_has_every_image_once_with_captions_and_features(features: Features) -> None:
    loader = batches(features)
    found = list(loader.epoch(0))
    assert len(found) == len(loader) == 3
    assert [len(batch.image_ids) for batch in found] == [3, 3, 1]
    assert sorted(image for batch in found for image in batch.image_ids) == [sample.image_id for sample in SAMPLES]
    for batch in found:
        assert batch.visual.features[:, 0, 0].mul(10).tolist() == list(batch.image_ids)
        assert batch.tokens.dtype == torch.long
    for image, word in drawn(loader, 0):
        assert word.startswith(f"i{image // 10}c")


def test_captions_are_used_up_before_one_is_repeated(features: Features) -> None:
    for per_image in (1, 2, 5, 7):
        used = Counter(drawn(batches(features, captions_per_image=per_image), 3))
        for sample in SAMPLES:
            counts = [used[sample.image_id, caption.split()[-1]] for caption in sample.captions]
            assert sum(counts) == per_image
            assert max(counts) - min(counts) <= 1


def test_order_is_a_pure_function_of_seed_and_epoch(features: Features) -> None:
    one, two = batches(features), batches(features)
    list(two.epoch(5))
    for first, second in zip(one.epoch(2), two.epoch(2), strict=True):
        assert same(first, second)
    assert drawn(one, 0) != drawn(one, 1)
    assert drawn(one, 0) != drawn(batches(features, seed=2), 0)


@pytest.mark.parametrize("start", [0, 1, 2, 3])
def test_resuming_gives_the_rest_of_the_epoch(features: Features, start: int) -> None:
    loader = batches(features)
    rest, whole = list(loader.epoch(4, start=start)), list(loader.epoch(4))
    assert len(rest) == 3 - start
    assert all(same(one, other) for one, other in zip(rest, whole[start:], strict=True))


@pytest.mark.parametrize("count", [2, 3])
def test_shares_make_up_the_batches_of_one_process(features: Features, count: int) -> None:
    shares = [batches(features, share=(number, count)) for number in range(count)]
    assert {len(share) for share in shares} == {3}
    for whole, *parts in zip(batches(features).epoch(4), *(share.epoch(4) for share in shares), strict=True):
        expected = dict(zip(whole.image_ids, whole.tokens.view(len(whole.image_ids), 2, -1), strict=True))
        assert sorted(whole.image_ids) == sorted(image for part in parts for image in part.image_ids)
        for part in filter(lambda part: part.image_ids, parts):
            for image, rows in zip(part.image_ids, part.tokens.view(len(part.image_ids), 2, -1), strict=True):
                assert torch.equal(rows, expected[image][:, : rows.shape[1]])
    assert not list(shares[-1].epoch(4))[-1].image_ids  # the last batch holds one image


def test_rows_begin_end_and_are_cut(features: Features) -> None:
    for batch in batches(features, captions_per_image=5, max_len=4).epoch(0):
        for row in batch.tokens.tolist():
            words = row[1 : row.index(EOS)]
            assert row[0] == BOS
            assert 1 <= len(words) <= 2
            assert set(row[row.index(EOS) + 1 :]) <= {PAD}
        assert batch.tokens.shape[1] <= 4
        assert (batch.tokens[:, -1] != PAD).any(), "padded beyond the longest row"


@pytest.mark.parametrize("widths", [(10,), (3, 6, 10)])
def test_few_widths_pad_every_batch(features: Features, widths: tuple[int, ...]) -> None:
    plain, wide = batches(features), batches(features, widths=widths)
    for one, other in zip(plain.epoch(0), wide.epoch(0), strict=True):
        width = next(width for width in widths if width >= one.tokens.shape[1])
        assert other.tokens.shape == (len(one.tokens), width)
        assert torch.equal(other.tokens[:, : one.tokens.shape[1]], one.tokens)
        assert not other.tokens[:, one.tokens.shape[1] :].any()


def test_four_widths_end_with_the_longest() -> None:
    assert few_widths(54) == (14, 27, 41, 54)
    assert few_widths(2) == (1, 2)
    assert [least_width(length, (3, 5)) for length in (1, 3, 4, 5, 6)] == [3, 3, 5, 5, 6]


def test_samples_without_captions_are_named(features: Features) -> None:
    bare = Sample(0, "bare.png", "train", ())
    with pytest.raises(BenchError, match=r"bare\.png"):
        CaptionBatches([bare], VOCABULARY, features, SPEC, batch_size=1, captions_per_image=1, seed=0, max_len=5)
    with pytest.raises(BenchError, match="no training image"):
        CaptionBatches([], VOCABULARY, features, SPEC, batch_size=1, captions_per_image=1, seed=0, max_len=5)


def test_evaluation_keeps_the_order(features: Features) -> None:
    found = list(evaluation_batches([30, 0, 60], features, SPEC, 2))
    assert [image_ids for image_ids, _ in found] == [(30, 0), (60,)]
    assert found[0][1].features[:, 0, 0].tolist() == [3, 0]


def workers() -> int:
    return sum(thread.name.startswith("batch-prefetch") for thread in threading.enumerate())


def test_prefetching_keeps_order_and_stays_within_its_depth() -> None:
    made = 0

    def source() -> Iterator[int]:
        nonlocal made
        while made < 50:
            made += 1
            yield made

    slow = prefetched(source())
    assert [next(slow) for _ in range(3)] == [1, 2, 3]
    time.sleep(0.05)
    assert made <= 3 + 2 + 1  # three taken, two waiting, one in the thread's hand
    assert list(slow) == list(range(4, 51))
    assert workers() == 0


def test_the_prefetch_thread_ends_when_the_consumer_stops() -> None:
    for number in (found := prefetched(iter(range(1000)))):
        if number == 3:
            break
    found.close()
    assert workers() == 0
    del found
    next(prefetched(iter(range(1000))))  # left behind at once
    deadline = time.monotonic() + 60
    while workers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert workers() == 0


def test_an_exception_of_the_source_reaches_the_consumer() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise BenchError("the cache is damaged")

    found = prefetched(source())
    assert next(found) == 1
    with pytest.raises(BenchError, match="damaged"):
        next(found)
    assert workers() == 0
