"""Plans: steps, images and multiply-accumulates by stage, and the command that shows them without starting anything."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update
from typer.testing import Result

from harness.benchmark.identity.signature import training_fields
from harness.config.load import load_preset
from harness.config.schedule import Schedule
from harness.measure.estimate import DataShape, PassCosts, plan_stages
from results import Store
from results.store.schema import RunRow
from tests.harness.conftest import bench
from tests.results.conftest import Make

pytestmark = pytest.mark.usefixtures("quick_runs")
DATA = DataShape(train=103, val=10, test=7, captions=5.0, words=50, caption_length=9)
COSTS = PassCosts(parameters=1000, encoder=100, start=10, step=3, caption=40, backbone=7000)
STAGE = {"name": "xe", "epochs": 2, "batch_size": 10, "captions_per_image": 5, "learning_rate": {"peak": 0.1}}


def planned(*stages: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    """Steps, images and multiply-accumulates of each stage."""
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [STAGE | stage for stage in stages]})
    found = plan_stages(schedule, COSTS, DATA, max_len=20)
    return [(stage.steps, stage.images, stage.training, stage.decoding) for stage in found]


SCST = {"objective": "self_critical", "validate_every": 2}
SEEN, WORDS, GREEDY = 100, 5 * 40, 100 + 10 + 20 * 3
"""Of an image: the encoder, five captions at once, and a greedy caption word by word."""


@pytest.mark.parametrize(
    ("stage", "steps", "images", "trained", "decoded"),
    [
        ({"validation_beam_size": 2}, 22, 206, SEEN + WORDS, 2 * 10 * (GREEDY + 20 * 3)),
        ({"batch_of": "captions", "drop_last": True, "batch_size": 100}, 10, 1000, SEEN + 40, 2 * 10 * GREEDY),
        (
            SCST | {"self_critical": {"baseline": "others"}},
            22,
            206,
            SEEN + WORDS,
            206 * (GREEDY + 4 * 60) + 10 * GREEDY,
        ),
        (
            SCST | {"self_critical": {"baseline": "greedy"}},
            22,
            206,
            SEEN + WORDS,
            206 * (GREEDY + 5 * 60) + 10 * GREEDY,
        ),
        *(
            (
                SCST | {"self_critical": {"baseline": baseline, "gradient": gradient, "sampling_dropout": True}},
                22,
                206,
                SEEN + 10 + 5 * drawn,
                (206 * GREEDY if baseline == "greedy" else 0) + 10 * GREEDY,
            )
            for gradient, drawn in (("steps", 20 * 3), ("prefixes", 21 * 40 // 2))
            for baseline in ("others", "greedy")
        ),
    ],
)
def test_a_stage_costs_passes_with_gradients_thrice_and_others_once(
    stage: dict[str, Any], steps: int, images: int, trained: int, decoded: int
) -> None:
    assert planned(stage) == [(steps, images, images * trained * 3, decoded)]


def test_a_trained_backbone_costs_its_stage_and_once_after() -> None:
    before, trained, after = planned({}, {"name": "b", "backbone": "trained"}, {"name": "c"})
    assert trained[2] - before[2] == 206 * 7000 * 3
    assert trained[3] - before[3] == 2 * 10 * 7000
    assert after[2] == before[2]
    assert after[3] - before[3] == (103 + 10) * 7000


SHORT = ("--set", "decoding.max_len=6", "--set", "size.n_encoder_layers=1", "--set", "size.n_decoder_layers=1")
"""What is counted by tracing grows with these."""


def plan(*words: str) -> Result:
    """`bench plan` on a terminal of 100 columns."""
    return bench("plan", *words, env={"COLUMNS": "100"})


def test_the_command_counts_and_estimates_but_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    small = ("--set", "size.d_model=16", "--set", "size.d_ff=16", "--set", "size.n_heads=2", *SHORT)
    asked = ("--models", "transformer_base,human", "--preset", "quick-scst", "--seeds", "3", *small)
    told = plan(*asked, "--device", "cpu").stdout
    assert "4 runs: models 1, seeds 3, rows without training 1" in told
    assert "ESTIMATE" in told
    assert "stage xe: 10 epochs, 300 steps, 15,000 images" in told
    assert len([line for line in told.splitlines() if line.startswith("transformer_base ")]) == 1, "one line a model"
    assert re.search(r"ESTIMATE of [\d.,]+ – [\d.,]+ device-hours .* measured on cpu here", " ".join(told.split()))
    assert re.search(r"disk: about [\d.]+ GB in workspace: .* [\d.]+ GB are free at ", " ".join(told.split())), (
        "the disk that fills"
    )
    assert "time: not estimated, no run is stored here, and runs are elsewhere" in plan(*asked, "--on", "slurm").stdout
    assert not list(tmp_path.iterdir())


def test_the_authors_epochs_have_the_authors_number_of_batches() -> None:
    tiny = ("--set", "size.max_len=74", "--set", "size.d_model=16", "--set", "size.d_ff=16", "--set", "size.n_heads=2")
    asked = plan("--models", "transformer_base", "--preset", "expansionnet-v2-paper-frozen", *tiny, "--data", "coco")
    assert asked.exit_code == 0, asked.output
    assert f"{8 * 11_807:,}" in asked.stdout  # of 48 captions, as their README prints


def test_stored_runs_of_the_same_conditions_tell_the_time(tmp_path: Path) -> None:
    preset = load_preset("quick", ("size.d_model=16",))
    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(Make.dataset())
        Make.run(store, Make.outcome(), "blind", 0, signature=training_fields(preset))
        times = {"started_at": datetime(2026, 1, 1), "finished_at": datetime(2026, 1, 1, minute=2), "attempts": 1}
        with store.writing() as connection:
            connection.execute(update(RunRow).values(**times))
    asked = ("--models", "blind,show_tell", "--workspace", str(tmp_path), "--set", "size.d_model=16")
    told = " ".join(plan(*asked, "--on", "ray").stdout.split())
    assert "an ESTIMATE of 0.10 device-hours (6 min on 1), as stored runs of these conditions took" in told
    assert "time of show_tell: not estimated, no run is stored here, and runs are elsewhere" in told
    other = plan(*asked, "--on", "ray", "--set", "schedule.stages.0.epochs=9").stdout
    assert "time: not estimated" in other, "another schedule"
