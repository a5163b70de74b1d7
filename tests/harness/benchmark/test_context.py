"""What runs are executed in: the record of the data, the costs' image, and the source of each kind of model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.benchmark import context as module
from harness.benchmark.context import RunContext, usable_splits
from harness.data.dataset import Dataset, Sample
from harness.data.features import NullSource
from harness.data.images import ImagePreprocessing
from harness.data.pixels import PixelSource
from harness.data.vocabularies import SubwordVocabulary
from harness.utils.errors import BenchError
from results.records import ImageRecord
from tests.harness.benchmark.small_runs import make_context
from zoo import VisualSpec


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


def test_channels_are_the_backbone_s_where_no_features_were_made(small: RunContext) -> None:
    assert small.data.features is not None
    assert small.data.visual_dim == small.data.features.dim
    assert replace(small.data, features=None).visual_dim == small.data.backbone.dim


@pytest.mark.parametrize("kind", ["grid", "pooled", "regions", "none"])
def test_a_model_reads_the_shared_features(small: RunContext, kind: str) -> None:
    assert small.source(VisualSpec(kind, small.data.visual_dim)) is small.data.features  # type: ignore[arg-type]


def test_a_model_on_pixels_reads_the_pictures_as_it_prepares_them(small: RunContext) -> None:
    own = replace(small.inputs, preprocessing=ImagePreprocessing(16))
    source = replace(small, inputs=own).source(VisualSpec("pixels", 0))
    assert isinstance(source, PixelSource)
    pixels = source.visual([small.data.typical_image()], VisualSpec("pixels", 0)).pixels
    assert pixels is not None
    assert pixels.shape == (1, 3, 16, 16)


def test_a_model_that_sees_nothing_needs_no_features(small: RunContext) -> None:
    context = replace(small, data=replace(small.data, features=None))
    assert isinstance(context.source(VisualSpec("none", 0)), NullSource)


def test_no_features_are_made_for_models_that_see_nothing(tmp_path: Path) -> None:
    assert make_context(tmp_path, sees="none").data.features is None


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
    monkeypatch.setattr(module, "configured_backbone", lambda _: pytest.fail("a backbone was opened"))
    with pytest.raises(BenchError, match="no usable image in its 'test' split"):
        make_context(tmp_path)


def test_skipped_images_are_in_no_split() -> None:
    splits = usable_splits(dataset("train", "val", "test", "test", "extra"), {3: "no picture"})
    found = {name: [sample.image_id for sample in samples] for name, samples in splits.items()}
    assert found == {"train": [0], "val": [1], "test": [2], "extra": [4]}


def test_the_vocabulary_is_of_the_preset_s_kind(small: RunContext) -> None:
    data, preset = small.data, small.preset
    config = preset.vocabulary.model_copy(update={"kind": "bpe", "merges": 5})
    made = [
        module._build_vocabulary(data.dataset, data.train, preset.model_copy(update={"vocabulary": each}))
        for each in (preset.vocabulary, config)
    ]
    assert made[0] == small.inputs.vocabulary
    assert isinstance(made[1], SubwordVocabulary)
