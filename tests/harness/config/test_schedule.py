"""Learning rates of schedules; and those that come with the harness: typed, shown, and run once from end to end."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from harness.config.load import PRESETS, SCHEDULES, load_preset, load_schedule
from harness.config.schedule import LearningRate, Plateau, Schedule, ScheduledSampling, SelfCritical, Stage
from harness.data.batches import CaptionBatches
from harness.data.dataset import Sample
from harness.data.graphs import NumberedGraph
from harness.data.vocabulary import Vocabulary
from harness.training.stage import StageData, make_objective
from harness.training.trainer import Trainer
from harness.utils.errors import BenchError
from harness.utils.progress import silent
from results.statistics.learning import IDLE_SHARE
from tests.harness.conftest import bench, bench_ok
from zoo import Visual, VisualSpec, create_model, model_card

FIXTURES = Path(__file__).parents[2] / "fixtures" / "training"
HALVED = {"annealing": "step", "factor": 0.5}
UNREAD = "1.scheduled_sampling={} 1.label_smoothing=0.1 0.self_critical.samples=9 0.dictionary=true"


@pytest.mark.parametrize(
    ("settings", "rates"),
    [
        ({"warmup_steps": 4}, {0: 0.25, 2: 0.75, 3: 1.0, 4: 1.0}),
        (HALVED | {"every_epochs": 2}, {19: 1.0, 20: 0.5, 39: 0.5, 40: 0.25}),
        (HALVED | {"every_epochs": 3, "from_epoch": 3}, {30: 1.0, 50: 1.0, 60: 0.5, 89: 0.5, 90: 0.25}),
        (HALVED | {"minimum": 0.3}, {0: 1.0, 10: 0.5, 20: 0.3}),
        ({"warmup_steps": 10, "annealing": "cosine", "floor": 0.1}, {10: 1.0, 60: 0.55, 110: 0.1}),
    ],
)
def test_rates_of_steps(settings: dict[str, Any], rates: dict[int, float]) -> None:
    rate = LearningRate.model_validate({"peak": 1.0} | settings)
    assert {step: rate.at(step, 10, 110) for step in rates} == pytest.approx(rates)


@pytest.mark.parametrize("stage", ["step1_xe_frozen", "step2_xe_e2e", "step3_scst_frozen", "annealing_example"])
def test_released_learning_rates(stage: str) -> None:
    released = json.loads((FIXTURES / "lr_schedules.json").read_text())[stage]
    ours = released["kind"] == "custom_warmup_anneal"
    rate = LearningRate(
        peak=released["lr"],
        warmup_steps=released["warmup"],
        warmup="hyperbolic" if ours else "linear-from-zero",
        annealing="step",
        factor=released.get("anneal_coeff", 0.8),
        every_epochs=released["anneal_every_epoch"],
        minimum=released.get("min_lr", 0.0),
    )
    found = [rate.at(it, released["num_batches"], 10**6) for it in released["its"]]
    assert found == pytest.approx(released["values"], rel=1e-12)


def test_later_settings_are_dumped_only_where_used() -> None:
    plain = {"name": "xe", "epochs": 1, "batch_size": 2, "learning_rate": {"peak": 0.1}}
    dumped = Stage.model_validate(plain).model_dump(mode="json")
    assert not {"accumulation", "backbone", "batch_of", "drop_last", "self_critical"} & set(dumped)
    assert "warmup" not in dumped["learning_rate"]
    used = Stage.model_validate(plain | {"backbone": "trained", "accumulation": {"parts": 2}})
    dumped = used.model_dump(mode="json")
    assert (dumped["backbone"], dumped["accumulation"]) == ("trained", {"parts": 2, "gradients": "mean"})
    assert Stage.model_validate(dumped) == used


def test_noam_is_the_transformers_rate() -> None:
    width, warmup = 512, 20_000
    rate = LearningRate(peak=(width * warmup) ** -0.5, warmup_steps=warmup, annealing="noam")
    steps = [0, 1, 500, 19_998, 19_999, 20_000, 80_000]
    theirs = [width**-0.5 * min((step + 1) ** -0.5, (step + 1) * warmup**-1.5) for step in steps]
    assert [rate.at(step, 100, 10**6) for step in steps] == pytest.approx(theirs, rel=1e-12)
    with pytest.raises(ValidationError, match="warmup_steps"):
        LearningRate(peak=1.0, annealing="noam")


@given(epochs=st.integers(1, 50), warmup=st.floats(0, 0.4), start=st.floats(0, 1), every=st.floats(0.01, 0.5))
def test_shares_of_a_stage_are_its_steps_and_epochs(epochs: int, warmup: float, start: float, every: float) -> None:
    steps = 64
    total = epochs * steps
    shares = LearningRate(
        peak=1.0, annealing="step", factor=0.5, warmup_share=warmup, from_share=start, every_share=every
    )
    counts = LearningRate(
        peak=1.0,
        annealing="step",
        factor=0.5,
        warmup_steps=round(warmup * total),
        from_epoch=start * epochs,
        every_epochs=every * epochs,
    )
    found = [shares.at(step, steps, total) for step in range(total)]
    other = sum(rate != counts.at(step, steps, total) for step, rate in enumerate(found))
    assert other <= 1 / every, "but for the rounding of a step's place"
    assert shares.at(total // 2, steps, total) == shares.at(total, 2 * steps, 2 * total), "whatever the length"


@pytest.mark.parametrize("name", PRESETS)
def test_controlled_schedules_keep_their_shape_and_papers_their_numbers(name: str) -> None:
    preset = load_preset(name)
    for stage in preset.schedule.stages:
        rate = stage.learning_rate.model_dump()
        shares, counts = rate.keys() & LearningRate.SHARES, {"warmup_steps", "from_epoch"} & rate.keys()
        if preset.recipe is not None:
            assert not shares
            continue
        assert not any(rate[name] for name in counts)
        assert "every_share" in shares or rate["annealing"] != "step"
        for epochs in (stage.epochs, 4 * stage.epochs):
            steps = stage.steps_per_epoch(6_000, 30_000)
            assert stage.learning_rate.idle_share(steps, epochs * steps) <= IDLE_SHARE


def test_a_rate_that_stays_near_zero_is_measured() -> None:
    early = LearningRate(peak=1.0, annealing="step", factor=0.5, every_epochs=0.5, from_epoch=1)
    assert early.idle_share(10, 100) == pytest.approx(0.4)  # 2 ** -10 from epoch 6 on
    assert early.model_copy(update={"minimum": 1e-3}).idle_share(10, 100) == 0
    rate = "schedule.stages.0.learning_rate"
    longer = tuple(
        f"{rate}.{each}" for each in ("from_share=null", "every_share=null", "from_epoch=4", "every_epochs=0.3")
    )
    [warning] = load_preset("quick", ("schedule.stages.0.epochs=20", *longer)).schedule.idle_stages(1500, 7500)
    assert f"{rate}.every_epochs" in warning
    assert list(load_preset("quick", ("schedule.stages.0.epochs=20",)).schedule.idle_stages(1500, 7500)) == []
    assert LearningRate(peak=1.0, warmup_steps=90, warmup="hyperbolic").idle_share(10, 100) == 0
    with pytest.raises(BenchError, match="8 training images do not fill a batch"):
        list(load_preset("quick", ("schedule.stages.0.drop_last=true",)).schedule.idle_stages(8, 40))


@pytest.mark.parametrize("share", LearningRate.SHARES)
def test_a_share_and_a_count_exclude_each_other(share: str) -> None:
    count = LearningRate.SHARES[share]
    with pytest.raises(BenchError, match=f"{share} .*{count}"):
        load_preset(
            "quick", (f"schedule.stages.0.learning_rate.{share}=0.5", f"schedule.stages.0.learning_rate.{count}=2")
        )
    changed = [f"schedule.stages.0.learning_rate.{share}=null", f"schedule.stages.0.learning_rate.{count}=2"]
    [stage] = load_preset("quick", tuple(changed)).schedule.stages
    assert getattr(stage.learning_rate, count) == 2
    assert Stage.model_validate(stage.model_dump(mode="json")) == stage


@pytest.mark.parametrize("negated", [False, True])
def test_plateaus_are_those_of_torch(negated: bool) -> None:
    """With `negated` it is torch's own class, handed the negative score, as released codes do."""
    scores = [0.5, 0.9, 1.0, 0.99995, 0.9999, 0.99, 1.00005, 0.8, 0.8, 0.8, 0.8, 1.2, 0.1, 0.1, 0.1, 0.1, 0.1]
    optimiser = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    mode = "min" if negated else "max"
    theirs = torch.optim.lr_scheduler.ReduceLROnPlateau(optimiser, mode, factor=0.5, patience=2)
    plateau, best, stuck, reductions = Plateau(patience=2, negated=negated), -math.inf, 0, 0
    rate = LearningRate(peak=1.0, annealing="plateau", factor=0.5)
    found, expected = [], []
    for score in scores:
        theirs.step(-score if negated else score)
        best, stuck = (score, 0) if plateau.rises(score, best) else (best, stuck + 1)
        if stuck > plateau.patience:
            reductions, stuck = reductions + 1, 0
        found.append(rate.at(0, 1, 1, reductions))
        expected.append(optimiser.param_groups[0]["lr"])
    assert found == expected
    assert found[-1] < 1.0


def test_scheduled_sampling_rises_in_steps_up_to_its_most() -> None:
    ramp = ScheduledSampling(start=0, every=5, step=0.05, most=0.25)
    assert [ramp.probability(epoch) for epoch in (0, 4, 5, 10, 24, 25, 40)] == pytest.approx(
        [0, 0, 0.05, 0.1, 0.2, 0.25, 0.25]
    )
    assert ScheduledSampling(start=3, every=2).probability(4) == 0
    assert ScheduledSampling(start=3, every=2).probability(5) == 0.05
    assert load_schedule("sgae").times(4).stages[1].scheduled_sampling == ScheduledSampling(start=-40, every=20)


@pytest.mark.parametrize("unread", [*UNREAD.split(), "0.learning_rate.plateau.patience=9"])
def test_settings_that_a_stage_does_not_read_are_refused(unread: str) -> None:
    with pytest.raises(BenchError, match=r"needs .*; leave it out"):
        load_preset("quick-scst", (f"schedule.stages.{unread}",))


def test_what_is_rewarded_has_a_signature() -> None:
    assert SelfCritical().signature() == "STANDARD_wInit+Cider-D[n4,s6.0]+average[nspi5]"
    other = SelfCritical(samples=2, baseline="greedy", end_in_reward=False)
    assert other.signature() == "NO<EOS>+Cider-D[n4,s6.0]+greedy[nspi2]"
    assert load_schedule("m2").stages[1].reward_signature() == "NO<EOS>+Cider-D[n4,s6.0,df=captions]+mean[nspi5,beams]"


def test_dropout_is_a_rate_or_a_scale_and_not_both() -> None:
    scaled = load_schedule("shared-xe-own-dropout").stages[0]
    assert (scaled.dropout, scaled.dropout_scale) == (None, 1.0)
    assert type(scaled).model_validate(scaled.model_dump(mode="json")) == scaled
    with pytest.raises(BenchError, match=r"dropout 0\.2 and dropout_scale 0\.5"):
        load_preset("small", ("schedule.stages.0.dropout_scale=0.5",))
    changed = load_preset("small", ("schedule.stages.0.dropout_scale=0.5", "schedule.stages.0.dropout=null"))
    assert changed.schedule.stages[0].dropout_scale == 0.5


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


@pytest.mark.parametrize("name", SCHEDULES)
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
        reporter=silent(),
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
    for name in SCHEDULES:
        assert name in listed
        of = load_preset(name).schedule if name in PRESETS else load_schedule(name)
        assert all(stage.name in bench_ok("schedules", name).stdout for stage in of.stages)


def test_unknown_keys_are_refused() -> None:
    content = load_schedule("updown").model_dump(mode="json")
    content["stages"][0]["scheduled_sampling"]["probability"] = 0.5
    with pytest.raises(ValidationError, match="probability"):
        Schedule.model_validate(content)
