"""Every schedule that comes with the harness: typed, shown, and run once from end to end on a handful of images."""

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from rich.console import Console

from harness.config.load import list_schedules, load_schedule
from harness.config.schedule import Schedule
from harness.data.batches import CaptionBatches
from harness.data.dataset import Sample
from harness.data.graphs.sentences import NumberedGraph
from harness.data.vocabulary import Vocabulary
from harness.training.stage import StageData, make_objective
from harness.training.trainer import Trainer
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from tests.harness.conftest import bench, bench_ok
from zoo import Visual, VisualSpec, create_model, model_card

SAMPLES = [
    Sample(number, f"{number}.png", "train", (f"a {colour} {thing}", f"one {colour} {thing} here"))
    for number, (colour, thing) in enumerate((c, t) for c in ("red", "blue") for t in ("ball", "cube", "star"))
]
GRAPH = NumberedGraph((4, 5), ((6,), ()), ((0, 1, 7),))
VOCABULARY = Vocabulary.build((caption for sample in SAMPLES for caption in sample.captions), 1)


class Eyes:
    """What a model sees of an image: numbers that follow from its id."""

    def visual(self, image_ids: tuple[int, ...], spec: VisualSpec) -> Visual:
        random = np.random.default_rng(list(image_ids))
        if spec.kind == "pixels":
            return Visual(pixels=torch.from_numpy(random.random((len(image_ids), 3, 64, 64), dtype=np.float32)))
        features = torch.from_numpy(random.random((len(image_ids), 4, spec.dim), dtype=np.float32))
        return Visual(features, torch.ones(features.shape[:2], dtype=torch.bool))


def shortened(schedule: Schedule) -> Schedule:
    """One epoch of one batch a stage, with the first words of a model's own already then."""
    stages = []
    for stage in schedule.stages:
        content = stage.model_dump(mode="json") | {"epochs": 1, "batch_size": len(SAMPLES)}
        if stage.batch_of == "captions":
            content["batch_size"] *= 2
        if stage.scheduled_sampling:
            content["scheduled_sampling"] |= {"every": 1, "step": 0.5, "most": 0.5}
            content["epochs"] = 2
        stages.append(content)
    return Schedule.model_validate(schedule.model_dump(mode="json") | {"stages": stages})


@pytest.mark.parametrize("name", list_schedules())
def test_every_schedule_runs(name: str, tmp_path: Path) -> None:
    schedule = shortened(load_schedule(name))
    torch.manual_seed(0)
    trained = any(stage.backbone == "trained" for stage in schedule.stages)
    recurrent = any(stage.objective == "reinforce" for stage in schedule.stages)
    model_name = "expansionnet_v2/end-to-end" if trained else "cgru/mha" if recurrent else "transformer_base"
    sizes = {"max_len": 24}
    if any(stage.objective == "sentence_graph" for stage in schedule.stages):
        model_name, sizes = "sgae", sizes | {"sentences": True}
    model = create_model(model_name, vocab_size=len(VOCABULARY), visual_dim=8, **model_card(model_name).tiny | sizes)
    before = {name: value.clone() for name, value in model.named_parameters()}
    records = []
    trainer = Trainer(
        model,
        schedule,
        stage_data=lambda stage: StageData(
            CaptionBatches(
                SAMPLES if stage.batch_of == "images" else SAMPLES * 2,
                VOCABULARY,
                Eyes(),
                model.visual,
                batch_size=stage.batch_size,
                captions_per_image=stage.captions_per_image,
                seed=0,
                max_len=12,
                graphs=[[GRAPH] * len(sample.captions) for sample in SAMPLES * 2],
            ),
            make_objective(stage, model, SAMPLES, VOCABULARY),
            lambda: float(len(records)),
        ),
        folder=tmp_path,
        device=torch.device("cpu"),
        precision="fp32",
        seed=0,
        on_epoch=records.append,
        reporter=Reporter(Console(file=io.StringIO())),
    )
    summary = trainer.fit()
    assert {record.stage_name for record in records} == {stage.name for stage in schedule.stages}
    assert all(np.isfinite(record.train_loss) for record in records)
    assert summary.total_steps == len(records)
    changed = [name for name, value in model.named_parameters() if not torch.equal(value, before[name])]
    still = all(stage.optimiser.name == "radam_liu" for stage in schedule.stages)  # which waits for five steps
    assert bool(changed) != still


def test_every_schedule_is_listed_and_shown() -> None:
    listed = bench("schedules").stdout
    with pytest.raises(BenchError, match="named 'x'"):
        load_schedule("x")
    for name in list_schedules():
        assert name in listed
        shown = bench_ok("schedules", name)
        assert all(stage.name in shown.stdout for stage in load_schedule(name).stages)


def test_unknown_keys_are_refused() -> None:
    content = load_schedule("updown").model_dump(mode="json")
    content["stages"][0]["scheduled_sampling"]["probability"] = 0.5
    with pytest.raises(ValidationError, match="probability"):
        Schedule.model_validate(content)
