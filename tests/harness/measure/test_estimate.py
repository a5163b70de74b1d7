"""Steps, images and multiply-accumulates by stage."""

from typing import Any

import pytest

from harness.config.schedule import Schedule
from harness.measure.estimate import DataShape, PassCosts, work_of_stages

DATA = DataShape(train=103, val=10, captions=5.0, caption_length=9)
COSTS = PassCosts(encoder=100, start=10, step=3, caption=40, backbone=7000)
STAGE = {"name": "xe", "epochs": 2, "batch_size": 10, "captions_per_image": 5, "learning_rate": {"peak": 0.1}}


def planned(*stages: dict[str, Any]) -> list[tuple[int, int, int, int]]:
    """Steps, images and multiply-accumulates of each stage."""
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [STAGE | stage for stage in stages]})
    images, captions = DATA.train, round(DATA.train * DATA.captions)
    steps = [stage.steps_per_epoch(images, captions) * stage.epochs for stage in schedule.stages]
    work = work_of_stages(schedule, COSTS, DATA, max_len=20)
    return [(count, stage.images, stage.training, stage.decoding) for count, stage in zip(steps, work, strict=True)]


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
