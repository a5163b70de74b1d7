"""The way from the command to the optimiser's step stays short, and a worker begins with no more than it needs."""

import subprocess
import sys
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import harness
from harness.benchmark import context as module
from harness.benchmark.context import RunContext, usable_splits
from harness.data.dataset import Dataset, Sample
from harness.utils.errors import BenchError
from results.records import ImageRecord
from tests.harness.benchmark.small_runs import make_context
from tests.harness.conftest import TINY, DrawScenes, bench_ok, run_words

ROOT = Path(harness.__file__).parent.parent
ROOMS = ("harness", "zoo", "results", "reports")


def test_a_step_is_at_most_13_frames_in_7_files_from_the_command(
    draw_scenes: DrawScenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[list[traceback.FrameSummary]] = []
    zero = torch.optim.Optimizer.zero_grad

    def zeroed(self: torch.optim.Optimizer, **named: bool) -> None:  # called right after `optimiser.step()`
        walks.append(traceback.extract_stack())
        zero(self, **named)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", zeroed)
    bench_ok(*run_words(draw_scenes(train=24, val=4, test=6), tmp_path, "blind", TINY), "--backbone", "filterbank")
    stack = next(walk for walk in walks if any(frame.name == "_train_batch" for frame in walk))
    own = [frame for frame in stack if Path(frame.filename).is_relative_to(ROOT)]
    own = [frame for frame in own if Path(frame.filename).relative_to(ROOT).parts[0] in ROOMS]
    command = next(place for place, frame in enumerate(own) if frame.filename.endswith("cli/run.py"))
    called = next(place for place, frame in enumerate(own) if frame.name == "_train_batch")
    walk = [f"{Path(frame.filename).relative_to(ROOT)}: {frame.name}" for frame in own[command : called + 1]]
    assert len(walk) <= 13, walk
    assert len({step.partition(":")[0] for step in walk}) <= 7, walk


def test_a_worker_does_not_import_what_its_runs_may_not_need() -> None:
    heavy = ("timm", "torchvision", "transformers", "pandas", "optuna", "ray", "torch._dynamo")
    code = f"import sys, harness.benchmark.execute; print(*({{*{heavy!r}}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_training_and_counting_do_not_import_torchs_compiler() -> None:
    code = """
import sys, torch
from harness.config.schedule import Optimiser
from harness.measure.flops import count_flops
from harness.training.optimisers import make_optimiser
from zoo import Visual, create_model
from zoo.width import count_parameters

sizes = {"vocab_size": 30, "visual_dim": 8, "d_model": 16}
count_parameters("transformer_base", **sizes)
model = create_model("transformer_base", **sizes)
visual = Visual(features=torch.ones(1, 2, 8), mask=torch.ones(1, 2, dtype=torch.bool))
count_flops(model, visual, caption_length=2, beam_size=2)
optimiser = make_optimiser(model, Optimiser(name="muon"))
model(visual, torch.ones(1, 2, dtype=torch.long)).sum().backward()
optimiser.step()
optimiser.zero_grad()
optimiser.load_state_dict(optimiser.state_dict())
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False"]


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
