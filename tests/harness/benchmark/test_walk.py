"""The way from the command to the optimiser's step stays short, and a worker begins with no more than it needs."""

import subprocess
import sys
import traceback
from pathlib import Path

import pytest
import torch

import harness
from tests.harness.conftest import TINY, DrawScenes, bench_ok, run_words

ROOT = Path(harness.__file__).parent.parent
ROOMS = ("harness", "zoo", "results", "reports")


def test_a_step_is_at_most_11_frames_in_12_files_from_the_command(
    draw_scenes: DrawScenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[list[traceback.FrameSummary]] = []
    zero = torch.optim.Optimizer.zero_grad

    def zeroed(self: torch.optim.Optimizer, **named: bool) -> None:  # called right after `optimiser.step()`
        walks.append(traceback.extract_stack())
        zero(self, **named)

    monkeypatch.setattr(torch.optim.Optimizer, "zero_grad", zeroed)
    words = run_words(draw_scenes(train=24, val=4, test=6), tmp_path, "blind", TINY)
    bench_ok(*words, "--backbone", "filterbank")
    stack = next(walk for walk in walks if any(frame.name == "_run_step" for frame in walk))
    own = [frame for frame in stack if Path(frame.filename).is_relative_to(ROOT)]
    own = [frame for frame in own if Path(frame.filename).relative_to(ROOT).parts[0] in ROOMS]
    command = next(place for place, frame in enumerate(own) if frame.filename.endswith("cli/run.py"))
    called = next(place for place, frame in enumerate(own) if frame.name == "_run_step")
    walk = [f"{Path(frame.filename).relative_to(ROOT)}: {frame.name}" for frame in own[command : called + 1]]
    assert len(walk) <= 11, walk
    assert len({step.partition(":")[0] for step in walk}) <= 12, walk


def test_a_worker_does_not_import_what_its_runs_may_not_need() -> None:
    heavy = ("timm", "torchvision", "transformers", "pandas", "optuna", "ray", "torch._dynamo")
    code = f"import sys, harness.benchmark.work; print(*({{*{heavy!r}}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_training_and_counting_do_not_import_torchs_compiler() -> None:
    code = """
import sys, torch
from harness.config.schedule import Optimiser
from harness.measure.flops.counting import count_flops
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
