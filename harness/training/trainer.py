"""The training loop: stages of a schedule, validation by decoding, best checkpoint by CIDEr-D, exact resume.

A run killed at any instant and started again gives, on the CPU, bit for bit what an undisturbed run gives: the order
of batches is a function of (seed, epoch), and the checkpoint holds weights, optimiser, random generators and state.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from harness.config.schedule import LearningRate, Schedule, Stage
from harness.data.batches import Batch
from harness.training.checkpoint import (
    WEIGHTS,
    CheckpointWriter,
    generator_states,
    last_checkpoint,
    load_checkpoint,
    load_weights,
    restore_generators,
    save_weights,
)
from harness.training.distributed import Collective
from harness.training.losses import BatchGradient, StepLoss, TrainingDivergedError, UnreadLosses, denormals_as_zero
from harness.training.optimisers import make_optimiser, set_rate
from harness.training.stage import DropoutRates, StageData, validate_schedule
from harness.utils.errors import BenchError
from harness.utils.precision import set_products
from harness.utils.progress import Reporter, Task, describe_seconds
from harness.utils.signals import HeldSignals
from results.records import EpochRecord
from results.statistics.learning import CHANCE
from zoo import Captioner, HasBackbone

CHECKPOINT_INTERVAL_S = 60.0
VALIDATION_INTERVAL_S = 10.0
"""A validation, which ends at once on Ctrl-C or SIGTERM, begins with a checkpoint of at most this age."""
RANK_SEED = 1_000_003
"""Added to the seed once a rank, so that dropout differs between ranks; rank 0 draws what one process would."""
CHECKPOINTS = "checkpoint"  # the folder of a run's checkpoints, inside its own; without it, training starts anew


@dataclass
class TrainState:
    """Where training stands, and what the current epoch has gathered so far; part of every checkpoint."""

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    total_steps: int = 0
    best: float = -math.inf
    best_epoch: int = 0
    bad_epochs: int = 0
    """Validations since the best one of this stage, which are counted once it is above the level of chance."""
    loss_sum: float = 0.0
    epoch_seconds: float = 0.0
    epoch_images: int = 0
    seconds: float = 0.0
    images: int = 0
    ends: list[int] = field(default_factory=list)
    """The images that training had seen at the end of each stage."""
    data_wait_seconds: float = 0.0
    """Seconds spent waiting for the next batch."""
    finished: bool = False
    saves: int = 0
    reductions: int = 0
    """Of the learning rate, on plateaus of this stage."""
    level: float = -math.inf
    """What a plateau is measured from: the best CIDEr-D, as the stage's annealing sees it."""
    plateau_epochs: int = 0
    """Validations since the level rose, or the learning rate was reduced."""
    stage_start_score: float = -math.inf
    latest: float = -math.inf
    micro_batches: int = 1
    """How many passes a batch takes since memory ran out."""

    def next_stage(self, last: bool) -> TrainState:
        """The state after the stage; the end of training where it was the last one."""
        kept = ("total_steps", "best_epoch", "seconds", "images", "data_wait_seconds", "saves", "micro_batches")
        return TrainState(
            stage=self.stage if last else self.stage + 1,
            best=self.best if last else -math.inf,
            finished=last,
            stage_start_score=self.best,
            ends=[*self.ends, self.images],
            **{name: getattr(self, name) for name in kept},
        )

    def take_in(self, cider: float, annealed: LearningRate) -> bool:
        """Take in a validation's CIDEr-D, or a stage's own score; whether it is the stage's best so far.

        Where it no longer rises, a rate `annealed` on plateaus is reduced, as torch's ReduceLROnPlateau does.
        """
        if annealed.annealing == "plateau":
            if annealed.plateau.rises(cider, self.level):
                self.level, self.plateau_epochs = cider, 0
            else:
                self.plateau_epochs += 1
            if self.plateau_epochs > annealed.plateau.patience:
                self.reductions, self.plateau_epochs = self.reductions + 1, 0
        # Patience is for what has learnt something: slow learners stay at the level of chance for a while.
        self.latest, self.bad_epochs = cider, self.bad_epochs + 1 if self.best > CHANCE else 0
        if cider <= self.best:
            return False
        self.best, self.best_epoch, self.bad_epochs = cider, self.epoch, 0
        return True

    def advance(self, images: int, seconds: float) -> None:
        """Count one more batch; its loss is added when it is read."""
        self.batch, self.step, self.total_steps = self.batch + 1, self.step + 1, self.total_steps + 1
        self.images, self.epoch_images = self.images + images, self.epoch_images + images
        self.add_time(seconds)

    def add_time(self, seconds: float) -> None:
        """Add seconds of training."""
        self.seconds, self.epoch_seconds = self.seconds + seconds, self.epoch_seconds + seconds

    def next_epoch(self) -> None:
        """All batches of the epoch are done."""
        self.epoch, self.batch = self.epoch + 1, 0
        self.loss_sum, self.epoch_seconds, self.epoch_images = 0.0, 0.0, 0

    def record(self, stage: Stage, rate: float, cider: float | None) -> EpochRecord:
        """The epoch whose last batch was done, as the store keeps it."""
        return EpochRecord(
            stage=self.stage,
            stage_name=stage.name,
            objective=stage.objective,
            epoch=self.epoch,
            step=self.total_steps,
            learning_rate=rate,
            train_loss=self.loss_sum / self.batch,
            val_cider=cider,
            seconds=self.epoch_seconds,
            images_per_second=self.epoch_images / max(self.epoch_seconds, 1e-9),
        )


class Trainer:
    """Trains one captioner through the stages of a schedule.

    Args:
        model: on `device` already; holds the best weights after `fit`.
        stage_data: makes the data of a stage, its objective and its validation, when it begins.
        folder: keeps `checkpoint/step-*` while training and `best.safetensors` for good.
        on_epoch: called once an epoch, before the checkpoint that makes it final, so it must be idempotent.
        on_step: called when a step's loss is read; again after a resume, for steps that no checkpoint has.
        on_stage: called at the end of a stage, when the best weights are those of it, before the checkpoint that makes
            it final.
        collective: the ranks that train together. Each has its share of every batch from its own `stage_data`; rank 0
            validates, saves and reports for all, and all need the same `folder`.
    """

    def __init__(
        self,
        model: Captioner,
        schedule: Schedule,
        *,
        stage_data: Callable[[Stage], StageData],
        folder: Path,
        device: torch.device,
        precision: str,
        seed: int,
        on_epoch: Callable[[EpochRecord], None],
        reporter: Reporter,
        on_step: Callable[[StepLoss], None] = lambda _: None,
        on_stage: Callable[[TrainState], None] = lambda _: None,
        collective: Collective | None = None,
    ) -> None:
        self.model, self.schedule, self.folder, self.device = model, schedule, folder, device
        self._stage_data, self._on_epoch, self._reporter = stage_data, on_epoch, reporter
        self._on_step, self._on_stage = on_step, on_stage
        self._seed, self._collective = seed, collective or Collective()
        self._is_first = self._collective.rank == 0
        set_products(device, precision)
        self._gradient = BatchGradient(
            model,
            device,
            precision=precision,
            collective=self._collective,
            on_split=self._note_split,
            note=reporter.note,
        )
        self._unread = UnreadLosses(device)
        self._progress, self._saved = "", time.monotonic()
        self.best_path = folder / WEIGHTS
        self.checkpoints = folder / CHECKPOINTS
        self._writer = CheckpointWriter(self.checkpoints, device)
        self._dropout = DropoutRates(model)
        self.state = TrainState()
        self._objective_params = nn.Module()  # of a stage's objective
        self._weights: list[nn.Parameter] = []  # of the model, whose gradients alone are clipped
        self._trained: list[nn.Parameter] = []  # of both

    def fit(self) -> TrainState:
        """Train to the end from wherever the last checkpoint stands, then load the best weights.

        Raises:
            BenchError: a stage needs a backbone or recurrent states that the model has not, or a checkpoint is damaged.
            TrainingDivergedError: the loss or the gradient is not finite.
        """
        # Torch's optimisers import its compiler within their first step, which would count seconds as training.
        importlib.import_module("torch._dynamo")
        validate_schedule(self.model, self.schedule)
        checkpoint = load_checkpoint(self.checkpoints, self.model)
        if checkpoint is not None:
            try:
                self.state = TrainState(**checkpoint["position"])
            except TypeError as error:
                raise BenchError(
                    f"{self._last_checkpoint()} is of another release of captionbench: {error}",
                    "add --reuse none, which trains the run anew",
                ) from error
            self._gradient.micro_batches = self.state.micro_batches
        self._collective.broadcast_weights(self.model)
        try:
            with denormals_as_zero(), self._writer:
                while not self.state.finished:
                    self._run_stage(self.schedule.stages[self.state.stage], checkpoint)
                    checkpoint = None
        except BenchError as error:
            raise BenchError(f"{error}; last good checkpoint: {self._last_checkpoint()}", error.hint) from error
        self._load_best()
        return self.state

    def _run_stage(self, stage: Stage, checkpoint: dict[str, Any] | None) -> None:
        self._dropout.apply(stage)
        if isinstance(self.model, HasBackbone):
            self.model.freeze_backbone(stage.backbone == "frozen")
        self._gradient.begin_stage()
        with self._reporter.step(f"Preparing the batches of {stage.name}"):
            data = self._stage_data(stage)
        self._objective_params = nn.Module()
        if isinstance(data.objective, nn.Module):
            self._objective_params = data.objective.to(self.device)
        # Listed once: walking through all modules would take some 3 % of a small model's step.
        self._weights, also = list(self.model.parameters()), list(self._objective_params.parameters())
        self._trained = [*self._weights, *also]
        optimiser = make_optimiser(self.model, stage.optimiser, also, stage.constant_rates)
        state = self.state
        self._reporter.watch(stage=stage.name, epoch=state.epoch + 1, epochs=stage.epochs)
        if not state.epoch and not state.batch:  # a checkpoint between stages has nothing of the next one
            self._begin(stage, data)
        elif checkpoint is not None:
            optimiser.load_state_dict(checkpoint["optimiser"])
            self._objective_params.load_state_dict(checkpoint["objective"])
            for name, parameter in self._named_parameters():  # accumulated for a step that is still to come
                gradient = checkpoint["gradients"].get(name)
                parameter.grad = None if gradient is None else gradient.to(parameter)
            self._restore_generators(checkpoint)
        while state.epoch < stage.epochs and (stage.patience is None or state.bad_epochs < stage.patience):
            self._run_epoch(stage, data, optimiser)
        if state.epoch < stage.epochs and self._is_first:
            self._reporter.log(
                f"  {stage.name} stopped early at epoch {state.epoch} of {stage.epochs}, "
                f"no better since epoch {state.best_epoch + 1}"
            )
        optimiser.zero_grad(set_to_none=True)
        self._load_best()
        if self._is_first:
            self._on_stage(state)
        self.state = state.next_stage(last=state.stage + 1 == len(self.schedule.stages))
        self._save(optimiser)

    def _begin(self, stage: Stage, data: StageData) -> None:
        """Seed a stage, and measure what it begins from where the one before ended with no score like its own."""
        state = self.state
        torch.manual_seed(self._seed + state.stage + RANK_SEED * self._collective.rank)
        if not state.stage:
            return
        before = self.schedule.stages[state.stage - 1]
        first_ciders = stage.gives_ciders and not before.gives_ciders and stage.objective != "cross_entropy"
        if first_ciders or before.validation_beam_size != stage.validation_beam_size:
            state.stage_start_score = self._validate(data)

    def _run_epoch(self, stage: Stage, data: StageData, optimiser: torch.optim.Optimizer) -> None:
        state, loader = self.state, data.train_batches
        self.model.train()
        title = f"  {stage.name} epoch {state.epoch + 1}/{stage.epochs}"
        with self._reporter.task(title, len(loader), state.batch) as task, HeldSignals() as signals:
            asked = time.monotonic()
            for batch in loader.epoch(state.epoch, start=state.batch):
                state.data_wait_seconds += time.monotonic() - asked
                self._run_step(stage, data, optimiser, batch, task)
                last = state.batch == len(loader)
                self._save_if_due(optimiser, signals, VALIDATION_INTERVAL_S if last else CHECKPOINT_INTERVAL_S)
                asked = time.monotonic()
        is_due = (state.epoch + 1) % stage.validate_every == 0 or state.epoch + 1 == stage.epochs
        score = self._validate(data) if is_due else None
        if score is not None and state.take_in(score, stage.learning_rate) and self._is_first:
            # The last checkpoint is on disk before the best weights change, so that a resumed run never has later ones.
            self._writer.wait()
            save_weights(self.model, self.best_path)
        cider = score if stage.gives_ciders else None
        if self._is_first:
            self._on_epoch(state.record(stage, optimiser.param_groups[0]["lr"], cider))
            if cider is not None and (warning := warn_if_worse(state, stage, cider)):
                stays_below = state.epoch + 1 == stage.epochs and state.best < state.stage_start_score
                report = self._reporter.note if stays_below else self._reporter.log
                report(warning, style="yellow")
        state.next_epoch()
        self._save(optimiser)

    def _validate(self, data: StageData) -> float:
        """The validation CIDEr-D, or the stage's own score, which rank 0 measures."""
        return self._collective.broadcast(data.validate() if self._is_first else 0.0)

    def _run_step(
        self, stage: Stage, data: StageData, optimiser: torch.optim.Optimizer, batch: Batch, task: Task
    ) -> None:
        state, started, batches = self.state, time.monotonic(), len(data.train_batches)
        # Set the learning rate of this step.
        rate = stage.learning_rate.at(state.step, batches, stage.epochs * batches, state.reductions)
        set_rate(optimiser, rate)

        # Forward and backward passes over micro-batches, and the sum of all ranks' gradients.
        summed = stage.accumulation.gradients == "summed"
        micro_batches = 1 if summed else stage.accumulation.parts
        stepping = not summed or state.step % stage.accumulation.parts == 0
        losses, images = self._gradient(
            data.objective, self._trained, batch, state.epoch, micro_batches, waits=not stepping
        )

        # Clip the gradient's norm, which is measured at every step, and stop where loss or norm was not finite.
        limit = stage.clip_norm if stage.clip_norm and stepping else math.inf
        norm = torch.nn.utils.clip_grad_norm_(self._weights, limit)
        self._unread.add(state.total_steps + 1, losses, norm, rate)
        read = self._unread.due or state.batch + 1 == batches
        if read:
            self._read_losses()

        # Optimiser step, unless gradients are summed over further batches first.
        if stepping:
            if stage.clip_value:
                torch.nn.utils.clip_grad_value_(self._weights, stage.clip_value)
            try:
                optimiser.step()
            except torch.OutOfMemoryError as error:
                raise BenchError(
                    "out of memory for what the optimiser keeps of each weight",
                    "choose a smaller model (--set size.d_model=...), or --device cpu",
                ) from error
            optimiser.zero_grad(set_to_none=True)

        # Count and report.
        state.advance(images, time.monotonic() - started)
        if read:
            self._progress = describe_progress(state, stage, batches)
            self._reporter.watch(**describe_position(state, stage))
        task.reach(state.batch, self._progress)

    def _read_losses(self) -> None:
        """Take in the losses of all steps since they were last read; they must be before anything is saved."""
        state = self.state
        for step in self._unread.read(self._collective):
            if not step.finite:
                self._writer.wait()
                stage = f"(stage {self.schedule.stages[state.stage].name}, epoch {state.epoch + 1})"
                raise TrainingDivergedError(f"{step} {stage}; last good checkpoint: {self._last_checkpoint()}")
            state.loss_sum += step.loss
            if self._is_first:
                self._on_step(step)

    def _note_split(self, micro_batches: int) -> None:
        self.state.micro_batches = micro_batches
        self._reporter.note(
            f"  out of memory: from here on every batch takes {micro_batches} passes, for one step as before",
            style="yellow",
        )

    def _save_if_due(self, optimiser: torch.optim.Optimizer, signals: HeldSignals, interval: float) -> None:
        """Save on all ranks when rank 0's interval is over, or any rank is asked to end, which it then does."""
        ending = signals.pending
        due = ending or (self._is_first and time.monotonic() - self._saved >= interval)
        if self._collective.all_reduce_sum([float(due)])[0]:
            self._save(optimiser)
        if ending:
            self._writer.wait()
        signals.deliver()

    def _save(self, optimiser: torch.optim.Optimizer) -> None:
        asked = time.monotonic()
        self._read_losses()
        self.state.add_time(time.monotonic() - asked)
        self.state.saves += 1
        # Memory may have run out on one rank alone.
        self.state.micro_batches = max(self._collective.all_gather(self.state.micro_batches))
        generators = self._collective.all_gather(generator_states(self.device))
        if self._is_first:
            gradients = {name: value.grad for name, value in self._named_parameters() if value.grad is not None}
            checkpoint = {
                "position": asdict(self.state),
                "optimiser": optimiser.state_dict(),
                "generators": generators,
                "objective": self._objective_params.state_dict(),
                "gradients": gradients,
            }
            self._writer.save(self.state.saves, self.model, checkpoint)
        self._saved = time.monotonic()

    def _restore_generators(self, checkpoint: dict[str, Any]) -> None:
        """Where the checkpoint is of fewer ranks, those beyond them go on with fresh numbers."""
        known, rank = checkpoint["generators"], self._collective.rank
        if rank < len(known):
            restore_generators(known[rank], self.device)
        else:
            torch.manual_seed(self._seed + self.state.total_steps + RANK_SEED * rank)

    def _load_best(self) -> None:
        if self._is_first:
            load_weights(self.model, self.best_path)
        self._collective.broadcast_weights(self.model)

    def _named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All that a stage trains: the model, and what its objective learns."""
        yield from self.model.named_parameters()
        yield from self._objective_params.named_parameters("objective")

    def _last_checkpoint(self) -> str:
        return str(last_checkpoint(self.checkpoints) or "none yet")


def describe_progress(state: TrainState, stage: Stage, batches: int) -> str:
    """The epoch's mean loss, the last validation, the speed, and how long the stage still takes without validations."""
    cider = "" if state.latest == -math.inf or not stage.gives_ciders else f", CIDEr-D {100 * state.latest:.1f}"
    seconds = max(state.epoch_seconds, 1e-9)
    time_left = describe_seconds(seconds / state.batch * ((stage.epochs - state.epoch) * batches - state.batch))
    speed = f"{state.epoch_images / seconds:.0f} images/s"
    return f"loss {state.loss_sum / state.batch:.3f}{cider}, {speed}, stage: {time_left} left"


def describe_position(state: TrainState, stage: Stage) -> dict[str, Any]:
    """How far training is, for `Reporter.watch`."""
    return {
        "stage": stage.name,
        "epoch": state.epoch + 1,
        "epochs": stage.epochs,
        "loss": state.loss_sum / max(state.batch, 1),
        "images_per_second": state.epoch_images / max(state.epoch_seconds, 1e-9),
    }


def warn_if_worse(state: TrainState, stage: Stage, cider: float) -> str | None:
    """A warning where self-critical training scores below where the stage began; None where it does not."""
    start = state.stage_start_score
    if stage.objective == "cross_entropy" or cider >= start:
        return None
    drop = f"  validation CIDEr-D {100 * cider:.1f} is {100 * (start - cider):.1f} below where {stage.name} began"
    if state.epoch + 1 < stage.epochs:
        return f"{drop}; the likeliest captions follow the sampled ones late, so the first epochs may fall"
    if state.best >= start:
        return f"{drop}; the best epoch, which is kept, is above"
    return f"{drop}, and so is its best epoch: give the stage more epochs, or another learning rate"
