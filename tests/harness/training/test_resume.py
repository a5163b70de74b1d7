"""A training that was killed continues as if nothing had been, bit for bit."""

import io
import shutil
import signal
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.config.schedule import Optimiser, Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.training import checkpoint, trainer
from harness.training.checkpoint import CheckpointWriter
from harness.training.objectives import CrossEntropy, Objective
from harness.training.stage import make_objective
from harness.training.trainer import TrainState
from harness.utils.signals import ENDING, end_on_sigterm
from results.records import EpochRecord
from tests.harness.training.test_gradients import Small
from tests.harness.training.tiny_training import VOCABULARY, Killed, Loader, fit_tiny, tiny_schedule, weights_of
from zoo import Captioner, create_model, model_card

KINDS: dict[str, dict[str, Any]] = {
    "dropout and a cosine": {},
    "summed gradients": {"accumulation": {"parts": 2, "gradients": "summed"}},
    "plateaus and drawn words": {
        "learning_rate": {"peak": 0.01, "annealing": "plateau", "factor": 0.5, "plateau": {"patience": 0}},
        "scheduled_sampling": {"every": 1, "step": 0.5, "most": 1.0},
    },
    "muon": {"optimiser": {"name": "muon", "weight_decay": 0.1}},
    "packed dropout": {"dropout_masks": "packed"},
    "a baseline beside the model": {"objective": "reinforce", "reinforce": {"max_len": 4}},
}
WORDS = Vocabulary(["a", "b", "c", "d", "e", "f", "g"])
SAMPLES = [Sample(image, f"{image}.png", "train", (f"{word} {word}",)) for image, word in enumerate("abcdef")]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Tensor], TrainState]:
    """Weights and summary of a training that nothing interrupts."""
    model, summary = fit_tiny(tmp_path_factory.mktemp("undisturbed"))
    return weights_of(model), summary


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_resumes_bit_for_bit(tmp_path: Path, kind: str) -> None:
    """Killed three times, also where its losses are read late; the second stage has another optimiser, anew."""
    first, second = tiny_schedule(**KINDS[kind]).stages
    second = second.model_copy(update={"optimiser": Optimiser(name="adam", betas=(0.5, 0.6), weight_decay=0.1)})
    schedule = tiny_schedule().model_copy(update={"stages": (first, second)})

    def fit(name: str, records: list[EpochRecord], **options: Any) -> tuple[dict[str, Tensor], TrainState]:
        torch.manual_seed(0)
        model = create_model("cgru", vocab_size=VOCABULARY, visual_dim=8, **model_card("cgru").tiny)
        made: list[Objective] = []

        def objective(stage: Stage) -> Objective:
            made.append(make_objective(stage, model, SAMPLES, WORDS))
            return made[-1]

        _, summary = fit_tiny(
            tmp_path / name, model=model, schedule=schedule, objective=objective, records=records, **options
        )
        return weights_of(model) | (made[-1].state_dict() if isinstance(made[-1], nn.Module) else {}), summary

    undisturbed: list[EpochRecord] = []
    resumed: list[EpochRecord] = []
    expected, summary = fit("undisturbed", undisturbed)
    killed: dict[str, Any] = {"read_losses_every": 20, "interval": 0.0}
    for stage, moment in (("xe", (1, 1)), ("xe", (2, 0)), ("second", (0, 0))):
        with pytest.raises(Killed):
            fit("killed", resumed, kill_stage=stage, kill_at=moment, **killed)
    found, again = fit("killed", resumed, **killed)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.equal(value, found[name]), name
    assert (again.total_steps, again.images, again.best) == (summary.total_steps, summary.images, summary.best)
    assert [replace(row, seconds=0, images_per_second=0) for row in resumed] == [
        replace(row, seconds=0, images_per_second=0) for row in undisturbed
    ]
    if kind.startswith("plateaus"):
        assert {row.learning_rate for row in undisturbed} > {0.01}


@pytest.mark.parametrize("at", [2, 4, 7])
def test_a_kill_while_a_checkpoint_is_written_beside_training_loses_nothing(
    undisturbed: tuple[dict[str, Tensor], TrainState], tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on from what the disk has in the middle of the `at`th checkpoint, when the next step has begun."""
    expected, summary = undisturbed
    stepped, saves = threading.Event(), 0
    write = checkpoint._save_state

    class Stepping(CrossEntropy):
        """Tells that training has gone on."""

        def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
            stepped.set()
            return super().__call__(model, batch, epoch)

    def watched(*given: Any) -> None:
        nonlocal saves
        saves += 1
        if saves == at:
            assert stepped.wait(60)
            shutil.copytree(tmp_path / "run", tmp_path / "killed")
        write(*given)
        stepped.clear()

    monkeypatch.setattr(checkpoint, "_save_state", watched)
    monkeypatch.setattr(trainer, "CheckpointWriter", lambda folder, _: CheckpointWriter(folder, torch.device("cuda")))
    fit_tiny(tmp_path / "run", objective=Stepping, interval=0.0)
    model, again = fit_tiny(tmp_path / "killed")
    assert again.total_steps == summary.total_steps
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in expected.items())


@pytest.mark.parametrize(
    ("number", "step"),  # the fourth step is the first of the second epoch
    [(signal.SIGINT, 1), (signal.SIGINT, 3), (signal.SIGINT, 4), (signal.SIGTERM, 3)],
)
def test_a_signal_waits_for_its_step_and_a_checkpoint(
    undisturbed: tuple[dict[str, Tensor], TrainState], tmp_path: Path, step: int, number: signal.Signals
) -> None:
    steps: list[int] = []

    class Signalled(CrossEntropy):
        """Sends this process a signal in the middle of a step."""

        def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
            steps.append(epoch)
            if len(steps) == step:
                signal.raise_signal(number)
            return super().__call__(model, batch, epoch)

    expected, summary = undisturbed
    records: list[EpochRecord] = []
    before = {each: signal.getsignal(each) for each in ENDING}
    signal.signal(signal.SIGINT, signal.default_int_handler)  # tests in the background inherit that it is ignored
    end_on_sigterm()
    try:
        with pytest.raises(KeyboardInterrupt):
            fit_tiny(tmp_path / "stopped", objective=Signalled, records=records)
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    assert len(steps) == step
    assert len(records) == (step > 3)  # it comes before the validation of the epoch that it ends
    model, again = fit_tiny(tmp_path / "stopped", objective=Signalled)
    assert len(steps) == summary.total_steps == again.total_steps
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in expected.items())


def test_a_kill_during_validation_repeats_only_what_was_lost(tmp_path: Path) -> None:
    expected, _ = fit_tiny(tmp_path / "undisturbed", validate=lambda _: 1.0)

    def die(_: Captioner) -> float:
        raise Killed

    with pytest.raises(Killed):
        fit_tiny(tmp_path / "killed", validate=die)
    model, _ = fit_tiny(tmp_path / "killed", validate=lambda _: 1.0)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())


def test_out_of_memory_is_noted_once_and_kept_on_resume(tmp_path: Path) -> None:
    small, said, schedule = Small(1), io.StringIO(), tiny_schedule(dropout=0.0)
    whole, parts = [], []
    fit_tiny(tmp_path / "whole", schedule=schedule, records=whole)
    halved: dict[str, Any] = {"schedule": schedule, "records": parts, "objective": lambda _: small, "said": said}
    with pytest.raises(Killed):
        fit_tiny(tmp_path / "parts", kill_at=(1, 1), **halved)
    _, summary = fit_tiny(tmp_path / "parts", **halved)
    assert small.refused == [2]
    assert said.getvalue().count("2 passes") == 1
    assert summary.micro_batches == 2
    assert [record.train_loss for record in parts] == pytest.approx([record.train_loss for record in whole], rel=1e-4)


def test_a_finished_run_trains_no_more(tmp_path: Path) -> None:
    expected, summary = fit_tiny(tmp_path)
    records: list[EpochRecord] = []
    model, again = fit_tiny(tmp_path, records=records, kill_at=(0, 0))
    assert (records, again) == ([], summary)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in weights_of(expected).items())


def test_data_wait_is_counted_apart_and_survives_a_kill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moment = SimpleNamespace(now=0.0)
    monkeypatch.setattr(trainer, "time", SimpleNamespace(monotonic=lambda: moment.now))
    epoch = Loader.epoch

    def slow(self: Loader, number: int, start: int = 0) -> Iterator[Batch]:
        for batch in epoch(self, number, start):
            moment.now += 0.25
            yield batch

    monkeypatch.setattr(Loader, "epoch", slow)
    with pytest.raises(Killed):
        fit_tiny(tmp_path, kill_at=(1, 2), interval=0.0)
    _, summary = fit_tiny(tmp_path)
    assert summary.data_wait_seconds == 0.25 * 12
    assert summary.seconds == 0
