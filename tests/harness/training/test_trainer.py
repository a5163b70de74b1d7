"""The training loop: it learns, resumes bit for bit, stops early, and names the step of a NaN."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

from harness.data.batches import Batch
from harness.errors import BenchError
from harness.progress import Reporter
from harness.training import trainer
from harness.training.objectives import CrossEntropy, Objective, cross_entropy
from harness.training.optimisers import make_optimiser
from harness.training.position import TrainingSummary
from harness.training.schedule import Optimiser, Schedule, Stage
from harness.training.trainer import Trainer, TrainingDivergedError
from results.records import EpochRecord
from zoo import Captioner, Visual, create_model, model_card

VOCABULARY = 11
IMAGES = 6


class Killed(BaseException):
    """Stands for the end of the process."""


class Loader:
    """Three batches of two images; the words of an image follow from its features."""

    def __init__(self, kill_at: tuple[int, int] | None) -> None:
        self._kill_at = kill_at

    def __len__(self) -> int:
        return 3

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        order = torch.randperm(IMAGES, generator=torch.Generator().manual_seed(number))
        for at in range(start, 3):
            if (number, at) == self._kill_at:
                raise Killed
            chosen = order[2 * at : 2 * at + 2]
            features = torch.nn.functional.one_hot(chosen, 8).float()[:, None]
            words = 4 + chosen
            tokens = torch.stack([torch.ones_like(words), words, words, torch.full_like(words, 2)], 1)
            yield Batch(Visual(features, torch.ones(2, 1, dtype=torch.bool)), tokens, tuple(chosen.tolist()))


def _schedule(**changes: Any) -> Schedule:
    stage = {
        "name": "xe",
        "epochs": 3,
        "batch_size": 2,
        "learning_rate": {"peak": 0.01, "warmup_steps": 2, "annealing": "cosine"},
        "dropout": 0.2,
        "clip_norm": 1.0,
    }
    second = stage | {"name": "second", "epochs": 1} | changes
    return Schedule.model_validate({"name": "t", "summary": "t", "stages": [stage | changes, second]})


def _fit(
    folder: Path,
    *,
    schedule: Schedule | None = None,
    kill_at: tuple[int, int] | None = None,
    kill_stage: str = "xe",
    validate: Callable[[Captioner], float] | None = None,
    records: list[EpochRecord] | None = None,
    model: Captioner | None = None,
    interval: float = 0.0,
    objective: Callable[[Stage], Objective] = CrossEntropy,
    said: io.StringIO | None = None,
) -> tuple[Captioner, TrainingSummary]:
    torch.manual_seed(5)
    if model is None:
        model = create_model(
            "transformer_base", vocab_size=VOCABULARY, visual_dim=8, **model_card("transformer_base").tiny
        )
    trained = model

    def score(_: int) -> float:
        return validate(trained) if validate else -sum(p.square().sum().item() for p in trained.parameters())

    training = Trainer(
        model,
        schedule or _schedule(),
        batches=lambda stage: Loader(kill_at if stage.name == kill_stage else None),  # type: ignore[arg-type, return-value]
        validate=score,
        folder=folder,
        device=torch.device("cpu"),
        precision="fp32",
        seed=5,
        on_epoch=(records if records is not None else []).append,
        reporter=Reporter(Console(file=said or io.StringIO(), width=300)),
        objective=objective,
        checkpoint_interval_s=interval,
    )
    return model, training.fit()


def _weights(model: Captioner) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("kill_at", [(0, 0), (0, 2), (1, 1), (2, 0)])
def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path, kill_at: tuple[int, int]) -> None:
    undisturbed: list[EpochRecord] = []
    expected, summary = _fit(tmp_path / "undisturbed", records=undisturbed)
    resumed: list[EpochRecord] = []
    with pytest.raises(Killed):
        _fit(tmp_path / "killed", kill_at=kill_at, records=resumed)
    model, again = _fit(tmp_path / "killed", records=resumed)
    for name, value in _weights(expected).items():
        assert torch.equal(value, model.state_dict()[name]), name
    assert (again.steps, again.images, again.best_cider) == (summary.steps, summary.images, summary.best_cider)
    assert [(r.stage, r.epoch, r.train_loss, r.val_cider, r.step) for r in resumed] == [
        (r.stage, r.epoch, r.train_loss, r.val_cider, r.step) for r in undisturbed
    ]


def test_a_kill_between_stages_begins_the_next_as_if_nothing_had_been(tmp_path: Path) -> None:
    """With another optimiser, whose settings are not those of the stage before."""
    first, second = _schedule().stages
    other = second.model_copy(update={"optimiser": Optimiser(name="adam", betas=(0.5, 0.6), weight_decay=0.1)})
    schedule = _schedule().model_copy(update={"stages": (first, other)})
    expected, _ = _fit(tmp_path / "undisturbed", schedule=schedule)
    with pytest.raises(Killed):
        _fit(tmp_path / "killed", schedule=schedule, kill_at=(0, 0), kill_stage="second")
    model, _ = _fit(tmp_path / "killed", schedule=schedule)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in _weights(expected).items())


def test_a_kill_during_validation_repeats_only_what_was_lost(tmp_path: Path) -> None:
    expected, _ = _fit(tmp_path / "undisturbed", interval=1e9, validate=lambda _: 1.0)

    def die(_: Captioner) -> float:
        raise Killed

    with pytest.raises(Killed):
        _fit(tmp_path / "killed", interval=1e9, validate=die)
    model, _ = _fit(tmp_path / "killed", interval=1e9, validate=lambda _: 1.0)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in _weights(expected).items())


def test_out_of_memory_is_told_once_recorded_and_remembered_by_a_resumed_run(tmp_path: Path) -> None:
    def small(stage: Stage) -> Objective:
        inner = CrossEntropy(stage)

        class Small:
            def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
                asked.append(len(batch.image_ids))
                if len(batch.image_ids) > 1:
                    raise torch.OutOfMemoryError
                return inner(model, batch, epoch)

            def weight(self, batch: Batch) -> float:
                return inner.weight(batch)

        return Small()

    asked: list[int] = []
    said = io.StringIO()
    schedule = _schedule(dropout=0.0)
    whole, parts = [], []
    _fit(tmp_path / "whole", schedule=schedule, records=whole)
    with pytest.raises(Killed):
        _fit(tmp_path / "parts", schedule=schedule, records=parts, objective=small, said=said, kill_at=(1, 1))
    _, summary = _fit(tmp_path / "parts", schedule=schedule, records=parts, objective=small, said=said)
    assert asked.count(2) == 1
    assert said.getvalue().count("out of memory: every batch is worked through in 2 parts") == 1
    assert summary.parts == 2
    assert [record.train_loss for record in parts] == pytest.approx([record.train_loss for record in whole], rel=1e-4)


def test_an_error_within_training_names_the_last_good_checkpoint(tmp_path: Path) -> None:
    def unreadable(_: Captioner) -> float:
        raise BenchError("the feature cache is gone", "run again")

    with pytest.raises(BenchError, match=r"is gone; last good checkpoint: .*step-000000002$") as caught:
        _fit(tmp_path, validate=unreadable)
    assert caught.value.hint == "run again"


def test_a_fall_after_the_switch_to_rewards_is_called_out(tmp_path: Path) -> None:
    first = _schedule().stages[0].model_dump(mode="json") | {"epochs": 1}
    rewards = {"name": "rl", "objective": "self_critical", "epochs": 3}
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [first, first | rewards]})
    scores, said = iter([0.5, 0.4, 0.6, 0.3]), io.StringIO()
    _fit(tmp_path, schedule=schedule, validate=lambda _: next(scores), said=said, objective=CrossEntropy)
    [dip, end] = [line for line in said.getvalue().splitlines() if "below where rl began" in line]
    assert "40.0 is 10.0 below" in dip
    assert "first epochs may fall" in dip
    assert "30.0 is 20.0 below" in end
    assert "best epoch, which is kept, is above" in end


def test_a_stage_with_a_beam_of_its_own_is_measured_before_it_begins(tmp_path: Path) -> None:
    first = _schedule().stages[0].model_dump(mode="json") | {"epochs": 1}
    rewards = {"name": "rl", "objective": "self_critical", "epochs": 1, "validation_beam_size": 5}
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [first, first | rewards]})
    scores, said = iter([0.5, 0.7, 0.6]), io.StringIO()
    _fit(tmp_path, schedule=schedule, validate=lambda _: next(scores), said=said, objective=CrossEntropy)
    assert "60.0 is 10.0 below where rl began, and so is its best epoch" in said.getvalue()


def test_a_finished_run_trains_no_more(tmp_path: Path) -> None:
    expected, summary = _fit(tmp_path)
    records: list[EpochRecord] = []
    model, again = _fit(tmp_path, records=records, kill_at=(0, 0))
    assert records == []
    assert again == summary
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in _weights(expected).items())


def test_training_lowers_the_loss_and_counts_images(tmp_path: Path) -> None:
    records: list[EpochRecord] = []
    _, summary = _fit(tmp_path, schedule=_schedule(epochs=12, dropout=0.0), records=records)
    assert records[11].train_loss < 0.5 * records[0].train_loss
    assert summary.images == 24 * IMAGES
    assert summary.steps == 72


def test_waiting_for_batches_is_counted_beside_steps_and_survives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    moment = SimpleNamespace(now=0.0)
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: moment.now))
    epoch = Loader.epoch

    def slow(self: Loader, number: int, start: int = 0) -> Iterator[Batch]:
        for batch in epoch(self, number, start):
            moment.now += 0.25
            yield batch

    monkeypatch.setattr(Loader, "epoch", slow)
    with pytest.raises(Killed):
        _fit(tmp_path, kill_at=(1, 2), interval=0.0)
    _, summary = _fit(tmp_path)
    assert summary.waited == 0.25 * 12
    assert summary.seconds == 0


def test_the_best_weights_win_and_patience_ends_a_stage(tmp_path: Path) -> None:
    scores = iter([0.1, 0.5, 0.3, 0.2, 0.1, 0.9])
    kept: dict[float, dict[str, Tensor]] = {}

    def validate(model: Captioner) -> float:
        score = next(scores)
        kept[score] = _weights(model)
        return score

    single = Schedule.model_validate(
        {"name": "t", "summary": "t", "stages": [_schedule(epochs=6, patience=2).stages[0].model_dump()]}
    )
    records: list[EpochRecord] = []
    model, summary = _fit(tmp_path, schedule=single, validate=validate, records=records)
    assert [record.val_cider for record in records] == [0.1, 0.5, 0.3, 0.2]
    assert summary.best_cider == 0.5
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in kept[0.5].items())


def test_a_nan_stops_with_step_and_last_good_checkpoint(tmp_path: Path) -> None:
    torch.manual_seed(5)
    model = create_model("blind", vocab_size=VOCABULARY, visual_dim=8, **model_card("blind").tiny)
    calls = 0
    decode = model.decode

    def poisoned(memory: Any, tokens: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return decode(memory, tokens) * (float("nan") if calls == 5 else 1.0)

    model.decode = poisoned  # type: ignore[method-assign]
    with pytest.raises(TrainingDivergedError, match=r"step 5 .*last good checkpoint: .*step-000000004"):
        _fit(tmp_path, model=model)
    assert all(value.isfinite().all() for value in model.state_dict().values())


@pytest.mark.parametrize("kill_at", [(1, 0), (1, 2)])
def test_a_kill_between_summed_gradients_and_their_step_changes_nothing(
    tmp_path: Path, kill_at: tuple[int, int]
) -> None:
    schedule = _schedule(accumulation={"parts": 2, "gradients": "summed"})
    expected, _ = _fit(tmp_path / "undisturbed", schedule=schedule)
    with pytest.raises(Killed):
        _fit(tmp_path / "killed", schedule=schedule, kill_at=kill_at)
    model, _ = _fit(tmp_path / "killed", schedule=schedule)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in _weights(expected).items())


def test_a_batch_in_parts_makes_the_same_steps(tmp_path: Path) -> None:
    whole: list[EpochRecord] = []
    parts: list[EpochRecord] = []
    _fit(tmp_path / "whole", schedule=_schedule(dropout=0.0), records=whole)
    _fit(tmp_path / "parts", schedule=_schedule(dropout=0.0, accumulation={"parts": 2}), records=parts)
    assert [record.train_loss for record in parts] == pytest.approx([record.train_loss for record in whole], rel=1e-4)


@pytest.mark.parametrize("kill_at", [(1, 1), (2, 0)])
def test_scheduled_sampling_and_plateaus_survive_a_kill(tmp_path: Path, kill_at: tuple[int, int]) -> None:
    schedule = _schedule(
        learning_rate={"peak": 0.01, "annealing": "plateau", "factor": 0.5, "plateau": {"patience": 0}},
        scheduled_sampling={"every": 1, "step": 0.5, "most": 1.0},
    )
    undisturbed: list[EpochRecord] = []
    falling = iter([0.9, 0.8, 0.7, 0.6, 0.5])
    expected, _ = _fit(
        tmp_path / "undisturbed", schedule=schedule, validate=lambda _: next(falling), records=undisturbed
    )
    assert [record.learning_rate for record in undisturbed] == [0.01, 0.01, 0.005, 0.01]
    resumed: list[EpochRecord] = []
    falling = iter([0.9, 0.8, 0.7, 0.6, 0.5])
    with pytest.raises(Killed):
        _fit(tmp_path / "k", schedule=schedule, validate=lambda _: next(falling), records=resumed, kill_at=kill_at)
    model, _ = _fit(tmp_path / "k", schedule=schedule, validate=lambda _: next(falling), records=resumed)
    assert [record.learning_rate for record in resumed] == [0.01, 0.01, 0.005, 0.01]
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in _weights(expected).items())


def test_gradients_are_clipped_element_by_element(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    largest: list[float] = []
    step = torch.optim.AdamW.step

    def watch(optimiser: torch.optim.AdamW, *_: Any) -> None:
        gradients = [p.grad for group in optimiser.param_groups for p in group["params"] if p.grad is not None]
        largest.append(max(gradient.abs().max().item() for gradient in gradients))
        step(optimiser)

    monkeypatch.setattr(torch.optim.AdamW, "step", watch)
    _fit(tmp_path, schedule=_schedule(clip_norm=None, clip_value=0.001))
    assert max(largest) == pytest.approx(0.001)


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_losses_of_parts_weigh_as_much_as_their_words(parts: int) -> None:
    torch.manual_seed(5)
    model = create_model("blind", vocab_size=VOCABULARY, visual_dim=8, **model_card("blind").tiny).eval()
    tokens = torch.tensor([[1, 4, 5, 6, 2], [1, 4, 2, 0, 0], [1, 2, 0, 0, 0]]).repeat_interleave(2, 0)
    batch = Batch(Visual(torch.zeros(3, 1, 8), torch.ones(3, 1, dtype=torch.bool)), tokens, (7, 8, 9))
    objective = CrossEntropy(_schedule().stages[0])
    split = batch.split(parts)
    assert [image for part in split for image in part.image_ids] == [7, 8, 9]
    assert len(split) == min(parts, 3)
    mean = sum(objective(model, part) * objective.weight(part) for part in split) / objective.weight(batch)
    torch.testing.assert_close(mean, objective(model, batch))


def test_summed_gradients_step_after_the_first_batch_and_then_at_multiples(tmp_path: Path) -> None:
    torch.manual_seed(3)
    tiny = model_card("blind").tiny
    trained, reference = (create_model("blind", vocab_size=VOCABULARY, visual_dim=8, **tiny) for _ in range(2))
    reference.load_state_dict(trained.state_dict())
    stage = {
        "name": "xe", "epochs": 2, "batch_size": 2, "dropout": 0.0, "learning_rate": {"peak": 0.01},
        "accumulation": {"parts": 2, "gradients": "summed"},
    }  # fmt: skip
    schedule = Schedule.model_validate({"name": "t", "summary": "t", "stages": [stage]})
    scores = iter([1.0, 2.0])
    _fit(tmp_path, schedule=schedule, model=trained, validate=lambda _: next(scores))

    reference.set_dropout(0.0)
    objective = CrossEntropy(schedule.stages[0])
    optimiser = make_optimiser(reference.parameters(), schedule.stages[0].optimiser)
    optimiser.param_groups[0]["lr"] = 0.01
    batches = [batch for number in range(2) for batch in Loader(None).epoch(number)]
    for together in ((0,), (1, 2), (3, 4)):  # the last batch's gradients are still waiting when training ends
        optimiser.zero_grad()
        for number in together:
            objective(reference, batches[number]).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    for name, value in _weights(reference).items():
        torch.testing.assert_close(trained.state_dict()[name], value, atol=1e-6, rtol=1e-6)


def test_a_stage_on_the_backbone_needs_a_model_that_has_one(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="stage 'xe' trains the backbone"):
        _fit(tmp_path, schedule=_schedule(backbone="trained"))


@pytest.mark.parametrize(("eps", "name"), [(0.0, "lm"), (0.1, "ls0.1"), (0.2, "ls0.2")])
def test_cross_entropy_is_that_of_luos_code(eps: float, name: str) -> None:
    with np.load(Path(__file__).parents[2] / "fixtures" / "training" / "losses.npz") as file:
        theirs = {key: torch.from_numpy(file[key]) for key in ("in/logprobs", "in/seq", "in/mask", f"out/{name}")}
    classes = theirs["in/logprobs"].shape[-1]
    words = torch.where(theirs["in/mask"] > 0, theirs["in/seq"], -1)
    tokens = torch.cat((torch.zeros_like(words[:, :1]), words), 1)
    constant = (1 - eps) * math.log(1 - eps) + eps * math.log(eps / (classes - 1)) if eps else 0.0
    ours = cross_entropy(theirs["in/logprobs"], tokens, eps * classes / (classes - 1), pad=-1).double() + constant
    torch.testing.assert_close(ours, theirs[f"out/{name}"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("pad", [0, 3])
def test_label_smoothing_is_luos_and_expansionnets_up_to_a_constant(pad: int) -> None:
    """They spread eps over the other V - 1 entries and subtract the target's entropy (Kullback-Leibler)."""
    torch.manual_seed(0)
    logits = torch.randn(2, 4, VOCABULARY, dtype=torch.double)
    tokens = torch.tensor([[1, 5, 6, 2, pad], [1, 7, 2, pad, pad]])
    eps, others = 0.1, VOCABULARY - 1
    target = torch.full((VOCABULARY, VOCABULARY), eps / others, dtype=torch.double).fill_diagonal_(1 - eps)
    kept = tokens[:, 1:] != pad
    divergence = (
        torch.nn.functional.kl_div(logits[kept].log_softmax(-1), target[tokens[:, 1:][kept]], reduction="sum")
        / kept.sum()
    )
    entropy = -(1 - eps) * math.log(1 - eps) - eps * math.log(eps / others)
    ours = cross_entropy(logits, tokens, eps * VOCABULARY / others, pad).double()
    torch.testing.assert_close(ours, divergence + entropy, atol=1e-6, rtol=0)
