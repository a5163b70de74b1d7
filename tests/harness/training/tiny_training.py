"""A training of seconds: a tiny model on six images whose words follow from their features."""

import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from rich.console import Console
from torch import Tensor

from harness.config.schedule import Schedule, Stage
from harness.data.batches import Batch
from harness.training import losses, trainer
from harness.training.objectives import CrossEntropy, Objective
from harness.training.stage import StageData
from harness.training.trainer import TrainState
from harness.utils.progress import Reporter
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


def tiny_schedule(**changes: Any) -> Schedule:
    """Two stages, of three epochs and of one, with `changes` to both."""
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


def fit_tiny(
    folder: Path,
    *,
    schedule: Schedule | None = None,
    kill_at: tuple[int, int] | None = None,
    kill_stage: str = "xe",
    validate: Callable[[Captioner], float] | None = None,
    records: list[EpochRecord] | None = None,
    model: Captioner | None = None,
    interval: float = 1e9,
    read_losses_every: int = 1,
    objective: Callable[[Stage], Objective] = CrossEntropy,
    said: io.StringIO | None = None,
) -> tuple[Captioner, TrainState]:
    """Train in `folder` as far as `kill_at` (epoch, batch) of a stage, or to the end; `validate` sees the model."""
    torch.manual_seed(5)
    if model is None:
        model = create_model(
            "transformer_base", vocab_size=VOCABULARY, visual_dim=8, **model_card("transformer_base").tiny
        )
    trained = model

    def score() -> float:
        return validate(trained) if validate else -sum(p.square().sum().item() for p in trained.parameters())

    def stage_data(stage: Stage) -> StageData:
        loader: Any = Loader(kill_at if stage.name == kill_stage else None)
        return StageData(loader, objective(stage), score)

    with (
        patch.object(trainer, "CHECKPOINT_INTERVAL_S", interval),
        patch.dict(losses.STEPS_BETWEEN_READINGS, cpu=read_losses_every),
    ):
        training = trainer.Trainer(
            model,
            schedule or tiny_schedule(),
            stage_data=stage_data,
            folder=folder,
            device=torch.device("cpu"),
            precision="fp32",
            seed=5,
            on_epoch=(records if records is not None else []).append,
            reporter=Reporter(Console(file=said or io.StringIO(), width=300)),
        )
        return model, training.fit()


def weights_of(model: Captioner) -> dict[str, Tensor]:
    """A copy of the weights as they are."""
    return {name: value.clone() for name, value in model.state_dict().items()}
