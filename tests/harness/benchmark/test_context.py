"""What runs are executed in: the record of the data, the costs' image, and the source of each kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.benchmark import context as module
from harness.benchmark.context import RunContext, usable_splits
from harness.data.dataset import Dataset, Sample
from harness.utils.errors import BenchError
from results.records import ImageRecord
from tests.harness.benchmark.small_runs import make_context


def test_the_data_set_is_recorded_with_its_evaluated_images(small: RunContext) -> None:
    first = small.data.evaluated["test"][0]
    skipped = {**small.data.skipped, 9: "no picture", 7: "no caption"}
    record = replace(small.data, skipped=skipped).record("the fingerprint")
    assert (record.name, record.fingerprint) == (small.data.dataset.name, "the fingerprint")
    assert Path(record.root) == small.data.dataset.root.resolve()
    assert record.split_sizes == {"train": 4, "val": 2, "test": 3, "nocaps": 3}
    assert [image.split for image in record.images] == ["test"] * 3 + ["nocaps"] * 3
    assert record.images[0] == ImageRecord(first.image_id, first.file, "test", first.captions)
    assert {image.domain for image in record.images[3:]} == {"in-domain", "near-domain", "out-domain"}
    assert list(record.skipped.items()) == [("image 7", "no caption"), ("image 9", "no picture")]


def test_costs_are_measured_with_an_image_of_the_test_split(small: RunContext) -> None:
    test = [sample.image_id for sample in small.data.evaluated["test"]]
    assert small.data.features is not None
    assert small.data.typical_image() == small.data.features.typical(test)
    assert replace(small.data, features=None).typical_image() == test[0]


def dataset(*splits: str, faults: Sequence[int] = ()) -> Dataset:
    samples = tuple(Sample(number, f"{number}.png", split, ("a dog",)) for number, split in enumerate(splits))
    return Dataset("tiny", Path("tiny"), samples, "f", dict.fromkeys(faults, "no caption"))


@pytest.mark.parametrize("missing", ["train", "val", "test"])
def test_a_data_set_without_a_needed_split_is_refused(missing: str) -> None:
    kept = [split for split in ("train", "val", "test") if split != missing]
    with pytest.raises(BenchError, match=f"tiny has no usable image in its '{missing}' split"):
        usable_splits(dataset(*kept), ())


def test_a_split_of_unusable_images_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = dataset("train", "val", "test", "test", faults=(2, 3))
    monkeypatch.setattr(module, "open_dataset", lambda *_, **__: broken)
    monkeypatch.setattr(module, "open_backbone", lambda _: pytest.fail("a backbone was opened"))
    with pytest.raises(BenchError, match="no usable image in its 'test' split"):
        make_context(tmp_path)


def test_skipped_images_are_in_no_split() -> None:
    splits = usable_splits(dataset("train", "val", "test", "test", "extra"), {3: "no picture"})
    found = {name: [sample.image_id for sample in samples] for name, samples in splits.items()}
    assert found == {"train": [0], "val": [1], "test": [2], "extra": [4]}
