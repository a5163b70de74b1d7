"""A data set's own tokens and its `restval`, from the file to the vocabulary, the signature and the batches."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.context import RunContext, open_context
from harness.benchmark.run_config import Opening
from harness.config.features import FeatureConfig
from harness.config.load import load_preset
from harness.data.karpathy import read_karpathy
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.data.vocabulary import as_read, counted_captions
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from tests.harness.benchmark.small_runs import quiet

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

    change(folder, tokenise)
    [file] = folder.glob("dataset*.json")
    content = json.loads(file.read_text())
    next(image for image in reversed(content["images"]) if image["split"] == "train")["split"] = "restval"
    file.write_text(json.dumps(content))
    return folder


def change(folder: Path, how: Change) -> None:
    [file] = folder.glob("dataset*.json")
    content = json.loads(file.read_text())
    for image in content["images"]:
        how(image)
    file.write_text(json.dumps(content))


def context(data: Path, tmp_path: Path, *overrides: str, preset: str = "updown-paper") -> RunContext:
    chosen = load_preset(preset, ("vocabulary.min_count=1", *overrides))
    opening = Opening(data=str(data), preset=chosen, features=FeatureConfig(), sees={})
    return open_context(opening, Workspace(tmp_path / "workspace"), quiet())


def test_tokens_are_counted_over_all_splits_and_signed(data: Path, tmp_path: Path) -> None:
    found = context(data, tmp_path)
    words = found.inputs.vocabulary.words
    assert {"only-train", "only-val", "only-test"} <= set(words)
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
    with pytest.raises(BenchError, match='1 images of scenes have captions without "tokens"') as caught:
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
    with pytest.raises(BenchError, match="all training images of scenes are of its split 'restval'"):
        context(data, tmp_path, "recipe.restval=dropped")
