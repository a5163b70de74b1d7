"""The training loop: stages of a schedule, validation by decoding, best checkpoint by CIDEr-D, exact resume.

A run that was killed at any moment and resumed ends, on the CPU, with the same bits as one that was not: the order of
batches is a function of (seed, epoch), and a checkpoint holds weights, optimiser, random generators and `TrainState`.
"""

from __future__ import annotations

import importlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
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
"""Seconds between two checkpoints within an epoch."""
EPOCH_END_INTERVAL_S = 10.0
"""The same after the last batch of an epoch: Ctrl-C or SIGTERM may end the validation that follows at once."""
RANK_SEED_STRIDE = 1_000_003
"""Rank r is seeded with the seed + r times this: ranks draw different dropout, and rank 0 that of a single process."""
CHECKPOINTS = "checkpoint"
"""The folder of checkpoints in a run's folder; a run that has none starts from the beginning."""


@dataclass
class TrainState:
    """The progress of training, and the sums of the current epoch; part of every checkpoint.

    A stage's score is its validation CIDEr-D as a fraction, or what its objective measures instead
    (`stage.gives_ciders`). A step trains on one batch.

    Attributes:
        stage: index of the stage in the schedule.
        epoch: finished epochs of the stage.
        batch: finished batches of the epoch.
        step: finished batches of the stage.
        total_steps: finished batches of all stages.
        best: the best score of the stage.
        best_epoch: the index of its epoch, from 0.
        bad_validations: validations since `best`; not counted while `best` is at the level of chance.
        loss_sum: sum of the epoch's losses.
        epoch_seconds: seconds of training in this epoch, without validation and waiting for data.
        epoch_images: images trained on in this epoch.
        seconds: seconds of training in all epochs, without validation and waiting for data.
        images: images trained on in all epochs, each counted as often as it was trained on.
        images_at_stage_ends: `images` at the end of each finished stage.
        data_wait_seconds: seconds spent waiting for the next batch.
        finished: whether all stages are trained.
        saves: checkpoints that were saved.
        reductions: how often the stage's learning rate was reduced on a plateau.
        plateau_reference: the best score so far by the plateau's own threshold; one that does not exceed it counts in
            `plateau_validations`.
        plateau_validations: validations since `plateau_reference` rose or the learning rate was reduced.
        stage_start_score: the score of the weights that the stage began with.
        latest: the score of the last validation of the stage.
        micro_batches: passes that each batch is split into since memory ran out; 1 while memory suffices.
    """

    stage: int = 0
    epoch: int = 0
    batch: int = 0
    step: int = 0
    total_steps: int = 0
    best: float = -math.inf
    best_epoch: int = 0
    bad_validations: int = 0
    loss_sum: float = 0.0
    epoch_seconds: float = 0.0
    epoch_images: int = 0
    seconds: float = 0.0
    images: int = 0
    images_at_stage_ends: list[int] = field(default_factory=list)
    data_wait_seconds: float = 0.0
    finished: bool = False
    saves: int = 0
    reductions: int = 0
    plateau_reference: float = -math.inf
    plateau_validations: int = 0
    stage_start_score: float = -math.inf
    latest: float = -math.inf
    micro_batches: int = 1

    def next_stage(self, last: bool) -> TrainState:
        """The state after this stage; with `last`, the state at the end of training.

        Totals stay, counters of the stage and the epoch start anew, and the best score becomes the next stage's start.
        """
        return TrainState(
            stage=self.stage if last else self.stage + 1,
            total_steps=self.total_steps,
            best=self.best if last else -math.inf,
            best_epoch=self.best_epoch if last else 0,
            seconds=self.seconds,
            images=self.images,
            images_at_stage_ends=[*self.images_at_stage_ends, self.images],
            data_wait_seconds=self.data_wait_seconds,
            finished=last,
            saves=self.saves,
            stage_start_score=self.best,
            micro_batches=self.micro_batches,
        )

    def record_score(self, score: float, learning_rate: LearningRate) -> bool:
        """Record the score of a validation; gives whether it is the stage's best so far.

        If scores no longer rise and `learning_rate` anneals on plateaus, `reductions` rises by one, as torch's
        ReduceLROnPlateau would reduce the rate; it applies from the next step on.
        """
        if learning_rate.annealing == "plateau":
            if learning_rate.plateau.rises(score, self.plateau_reference):
                self.plateau_reference = score
                self.plateau_validations = 0
            else:
                self.plateau_validations += 1
            if self.plateau_validations > learning_rate.plateau.patience:
                self.reductions += 1
                self.plateau_validations = 0
        self.latest = score
        if score > self.best:
            self.best = score
            self.best_epoch = self.epoch
            self.bad_validations = 0
            return True
        # Slow learners stay at the level of chance for a while; they do not lose patience there.
        self.bad_validations = self.bad_validations + 1 if self.best > CHANCE else 0
        return False

    def advance(self, images: int, seconds: float) -> None:
        """Count one more batch; its loss is added later, when it is read from the device."""
        self.batch += 1
        self.step += 1
        self.total_steps += 1
        self.images += images
        self.epoch_images += images
        self.add_time(seconds)

    def add_time(self, seconds: float) -> None:
        """Add seconds of training."""
        self.seconds += seconds
        self.epoch_seconds += seconds

    def next_epoch(self) -> None:
        """Begin the next epoch of the stage."""
        self.epoch += 1
        self.batch = 0
        self.loss_sum = 0.0
        self.epoch_seconds = 0.0
        self.epoch_images = 0

    def epoch_record(self, stage: Stage, rate: float, cider: float | None) -> EpochRecord:
        """The epoch that has just ended, as it is stored."""
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
        stage_data: makes the data, objective and validation of a stage when it begins.
        folder: gets `checkpoint/step-*` during training and `best.safetensors`, which stays.
        on_epoch: called at the end of an epoch, before its checkpoint is saved; after a crash in between it is called
            again for the same epoch.
        on_step: called when a step's loss is read; after a resume, called again for steps made after the last
            checkpoint.
        on_stage: called at the end of a stage, before its checkpoint is saved; the model then has its best weights.
        collective: the ranks that train together. Each gets its share of every batch from its own `stage_data`; rank 0
            validates, saves and reports for all. All need the same `folder`.
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
        self.model = model
        self.schedule = schedule
        self.folder = folder
        self.device = device
        self.state = TrainState()
        self._seed = seed
        self._stage_data = stage_data
        self._on_epoch = on_epoch
        self._on_step = on_step
        self._on_stage = on_stage
        self._reporter = reporter
        self._collective = collective or Collective()
        self._is_rank_zero = self._collective.rank == 0
        set_products(device, precision)
        self._gradient = BatchGradient(
            model,
            device,
            precision=precision,
            collective=self._collective,
            on_split=self._note_split,
            note=reporter.note,
        )
        self._unread_losses = UnreadLosses(device)
        self._progress_text = ""
        self._last_saved = time.monotonic()
        self.best_path = folder / WEIGHTS
        self.checkpoints = folder / CHECKPOINTS
        self._writer = CheckpointWriter(self.checkpoints, device)
        self._dropout = DropoutRates(model)
        self._objective_module = nn.Module()  # the stage's objective, if it has parameters
        self._model_params: list[nn.Parameter] = []  # their gradients are clipped
        self._trained_params: list[nn.Parameter] = []  # of the model, frozen ones too, and the objective

    def fit(self) -> TrainState:
        """Train from the last checkpoint, or from the beginning, to the end; then load the best weights.

        Raises:
            BenchError: a stage needs a backbone or recurrent states that the model lacks, or a checkpoint is damaged.
            TrainingDivergedError: the loss or the gradient is not finite.
        """
        # Torch's optimisers import its compiler in their first step: import it here, outside the measured time.
        importlib.import_module("torch._dynamo")
        validate_schedule(self.model, self.schedule)
        checkpoint = load_checkpoint(self.checkpoints, self.model)
        if checkpoint is not None:
            try:
                self.state = TrainState(**checkpoint["position"])
            except TypeError as error:
                raise BenchError(
                    f"{self._last_checkpoint()} was written by another version of captionbench: {error}",
                    "add --reuse none to train the run from the beginning",
                ) from error
            self._gradient.micro_batches = self.state.micro_batches
        self._collective.broadcast_weights(self.model)
        try:
            with denormals_as_zero(), self._writer:
                while not self.state.finished:
                    self._run_stage(self.schedule.stages[self.state.stage], checkpoint)
                    checkpoint = None  # belongs to the first stage alone
        except BenchError as error:
            raise BenchError(f"{error}; last good checkpoint: {self._last_checkpoint()}", error.hint) from error
        self._load_best()
        return self.state

    def _run_stage(self, stage: Stage, checkpoint: dict[str, Any] | None) -> None:
        """Train a stage to its end, from `checkpoint` if it was saved within the stage, and load its best weights."""
        self._dropout.apply(stage)
        if isinstance(self.model, HasBackbone):
            self.model.freeze_backbone(stage.backbone == "frozen")
        self._gradient.begin_stage()
        with self._reporter.step(f"Preparing the batches of {stage.name}"):
            data = self._stage_data(stage)
        self._objective_module = nn.Module()
        if isinstance(data.objective, nn.Module):
            self._objective_module = data.objective.to(self.device)
        # Listed once: listing them at each step would take some 3 % of a small model's time.
        self._model_params = list(self.model.parameters())
        objective_params = list(self._objective_module.parameters())
        self._trained_params = [*self._model_params, *objective_params]
        optimiser = make_optimiser(self.model, stage.optimiser, objective_params, stage.constant_rates)
        state = self.state
        self._reporter.watch(stage=stage.name, epoch=state.epoch + 1, epochs=stage.epochs)
        if state.epoch == 0 and state.batch == 0:  # a checkpoint of the previous stage's end has nothing to restore
            self._seed_and_score_start(stage, data)
        elif checkpoint is not None:
            self._restore(checkpoint, optimiser)
        while state.epoch < stage.epochs and (stage.patience is None or state.bad_validations < stage.patience):
            self._run_epoch(stage, data, optimiser)
        if state.epoch < stage.epochs and self._is_rank_zero:
            self._reporter.log(
                f"  {stage.name} stopped early at epoch {state.epoch} of {stage.epochs}, "
                f"no better since epoch {state.best_epoch + 1}"
            )
        optimiser.zero_grad(set_to_none=True)
        self._load_best()
        if self._is_rank_zero:
            self._on_stage(state)
        self.state = state.next_stage(last=state.stage + 1 == len(self.schedule.stages))
        self._save(optimiser)

    def _seed_and_score_start(self, stage: Stage, data: StageData) -> None:
        """Seed a stage; validate the weights it begins with if the previous stage's score is not comparable."""
        state = self.state
        torch.manual_seed(self._seed + state.stage + RANK_SEED_STRIDE * self._collective.rank)
        if state.stage == 0:
            return
        previous = self.schedule.stages[state.stage - 1]
        # Scores of another beam width, or of another kind, are not comparable. A cross-entropy stage after one without
        # CIDEr-D needs no score, since it is never compared with its start (`describe_drop`).
        needs_first_cider = stage.gives_ciders and not previous.gives_ciders and stage.objective != "cross_entropy"
        if needs_first_cider or previous.validation_beam_size != stage.validation_beam_size:
            state.stage_start_score = self._validate(data)

    def _restore(self, checkpoint: dict[str, Any], optimiser: torch.optim.Optimizer) -> None:
        """Load optimiser, objective, accumulated gradients and random generators of a checkpoint within a stage."""
        optimiser.load_state_dict(checkpoint["optimiser"])
        self._objective_module.load_state_dict(checkpoint["objective"])
        for name, parameter in self._named_parameters():
            gradient = checkpoint["gradients"].get(name)
            parameter.grad = None if gradient is None else gradient.to(parameter)
        self._restore_generators(checkpoint["generators"])

    def _run_epoch(self, stage: Stage, data: StageData, optimiser: torch.optim.Optimizer) -> None:
        """Train the remaining batches of an epoch, validate, keep the best weights, and save a checkpoint."""
        state = self.state
        loader = data.train_batches
        self.model.train()
        title = f"  {stage.name} epoch {state.epoch + 1}/{stage.epochs}"
        with self._reporter.task(title, len(loader), state.batch) as task, HeldSignals() as signals:
            wait_start = time.monotonic()
            for batch in loader.epoch(state.epoch, start=state.batch):
                state.data_wait_seconds += time.monotonic() - wait_start
                self._train_batch(stage, data, optimiser, batch, task)
                is_last = state.batch == len(loader)
                self._save_if_due(optimiser, signals, EPOCH_END_INTERVAL_S if is_last else CHECKPOINT_INTERVAL_S)
                wait_start = time.monotonic()
        is_due = (state.epoch + 1) % stage.validate_every == 0 or state.epoch + 1 == stage.epochs
        score = self._validate(data) if is_due else None
        is_best = score is not None and state.record_score(score, stage.learning_rate)
        if is_best and self._is_rank_zero:
            # Finish the last checkpoint first: a killed run must not resume from an older one beside these weights.
            self._writer.wait()
            save_weights(self.model, self.best_path)
        cider = score if stage.gives_ciders else None
        if self._is_rank_zero:
            self._on_epoch(state.epoch_record(stage, optimiser.param_groups[0]["lr"], cider))
            drop = None if cider is None else describe_drop(state, stage, cider)
            if drop is not None:
                ends_below_start = state.epoch + 1 == stage.epochs and state.best < state.stage_start_score
                report = self._reporter.note if ends_below_start else self._reporter.log
                report(drop, style="yellow")
        state.next_epoch()
        self._save(optimiser)

    def _validate(self, data: StageData) -> float:
        """The stage's score; rank 0 measures it and sends it to the others."""
        return self._collective.broadcast(data.validate() if self._is_rank_zero else 0.0)

    def _train_batch(
        self, stage: Stage, data: StageData, optimiser: torch.optim.Optimizer, batch: Batch, task: Task
    ) -> None:
        """Train on one batch; with summed gradients, the optimiser steps only at every `parts`-th batch."""
        state = self.state
        started = time.monotonic()
        batches_per_epoch = len(data.train_batches)

        # Set the learning rate of this step.
        planned_steps = stage.epochs * batches_per_epoch
        rate = stage.learning_rate.at(state.step, batches_per_epoch, planned_steps, state.reductions)
        set_rate(optimiser, rate)

        # Forward and backward passes over micro-batches, and the sum of all ranks' gradients.
        micro_batches = stage.accumulation.parts
        will_step = True
        if stage.accumulation.gradients == "summed":  # over batches: as in ExpansionNet's code, the first steps alone
            micro_batches = 1
            will_step = state.step % stage.accumulation.parts == 0
        losses, images = self._gradient(
            data.objective, self._trained_params, batch, state.epoch, micro_batches, waits=not will_step
        )

        # Measure the gradient's norm, clip it (not with an infinite limit), and stop where loss or norm is not finite.
        max_norm = stage.clip_norm if stage.clip_norm and will_step else math.inf
        norm = torch.nn.utils.clip_grad_norm_(self._model_params, max_norm)
        self._unread_losses.add(state.total_steps + 1, losses, norm, rate)
        read_now = self._unread_losses.due or state.batch + 1 == batches_per_epoch
        if read_now:
            self._read_losses()

        # Optimiser step, unless gradients are summed over further batches first.
        if will_step:
            if stage.clip_value:
                torch.nn.utils.clip_grad_value_(self._model_params, stage.clip_value)
            try:
                optimiser.step()
            except torch.OutOfMemoryError as error:
                raise BenchError(
                    "out of memory for the optimiser's state",
                    "choose a smaller model (--set size.d_model=...), or --device cpu",
                ) from error
            optimiser.zero_grad(set_to_none=True)

        # Count and report.
        state.advance(images, time.monotonic() - started)
        if read_now:
            self._progress_text = describe_progress(state, stage, batches_per_epoch)
            self._reporter.watch(**watched_values(state, stage))
        task.reach(state.batch, self._progress_text)

    def _read_losses(self) -> None:
        """Read the losses of all steps since the last call from the device; called before each checkpoint.

        Raises:
            TrainingDivergedError: the loss or the gradient of a step is not finite.
        """
        state = self.state
        for step_loss in self._unread_losses.read(self._collective):
            if not step_loss.finite:
                self._writer.wait()
                position = f"(stage {self.schedule.stages[state.stage].name}, epoch {state.epoch + 1})"
                raise TrainingDivergedError(f"{step_loss} {position}; last good checkpoint: {self._last_checkpoint()}")
            state.loss_sum += step_loss.loss
            if self._is_rank_zero:
                self._on_step(step_loss)

    def _note_split(self, micro_batches: int) -> None:
        """Record and report that batches are split from now on, since memory ran out."""
        self.state.micro_batches = micro_batches
        self._reporter.note(
            f"  out of memory: from now on each batch is split into {micro_batches} passes before its step",
            style="yellow",
        )

    def _save_if_due(self, optimiser: torch.optim.Optimizer, signals: HeldSignals, interval: float) -> None:
        """Save a checkpoint on all ranks if the interval is over on rank 0, or a signal asks any rank to stop.

        A signal (Ctrl-C, SIGTERM) takes effect after that.
        """
        is_stopping = signals.pending
        is_due = is_stopping or (self._is_rank_zero and time.monotonic() - self._last_saved >= interval)
        if self._collective.all_reduce_sum([float(is_due)])[0]:
            self._save(optimiser)
        if is_stopping:
            self._writer.wait()
        signals.deliver()

    def _save(self, optimiser: torch.optim.Optimizer) -> None:
        """Save a checkpoint of all ranks; rank 0 writes it in the background."""
        started = time.monotonic()
        self._read_losses()
        self.state.add_time(time.monotonic() - started)
        self.state.saves += 1
        # Memory may have run out on one rank only: resumed ranks all split their batches alike.
        self.state.micro_batches = max(self._collective.all_gather(self.state.micro_batches))
        generators = self._collective.all_gather(generator_states(self.device))
        if self._is_rank_zero:
            gradients = {
                name: parameter.grad for name, parameter in self._named_parameters() if parameter.grad is not None
            }
            checkpoint = {
                "position": asdict(self.state),
                "optimiser": optimiser.state_dict(),
                "generators": generators,
                "objective": self._objective_module.state_dict(),
                "gradients": gradients,
            }
            self._writer.save(self.state.saves, self.model, checkpoint)
        self._last_saved = time.monotonic()

    def _restore_generators(self, generators: Sequence[Any]) -> None:
        """Restore this rank's random generators; a rank that the checkpoint does not have gets a new seed."""
        rank = self._collective.rank
        if rank < len(generators):
            restore_generators(generators[rank], self.device)
        else:
            torch.manual_seed(self._seed + self.state.total_steps + RANK_SEED_STRIDE * rank)

    def _load_best(self) -> None:
        """Load the best weights of the stage on all ranks."""
        if self._is_rank_zero:
            load_weights(self.model, self.best_path)
        self._collective.broadcast_weights(self.model)

    def _named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All parameters of the model, frozen ones too, and of the stage's objective."""
        yield from self.model.named_parameters()
        yield from self._objective_module.named_parameters("objective")

    def _last_checkpoint(self) -> str:
        return str(last_checkpoint(self.checkpoints) or "none yet")


def describe_progress(state: TrainState, stage: Stage, batches_per_epoch: int) -> str:
    """A line with the epoch's mean loss, the last CIDEr-D, the speed, and the stage's remaining time."""
    cider = ""
    if stage.gives_ciders and state.latest != -math.inf:
        cider = f", CIDEr-D {100 * state.latest:.1f}"
    seconds = max(state.epoch_seconds, 1e-9)
    batches_left = (stage.epochs - state.epoch) * batches_per_epoch - state.batch
    time_left = describe_seconds(seconds / state.batch * batches_left)
    speed = f"{state.epoch_images / seconds:.0f} images/s"
    return f"loss {state.loss_sum / state.batch:.3f}{cider}, {speed}, stage: {time_left} left"


def watched_values(state: TrainState, stage: Stage) -> dict[str, Any]:
    """The stage, epoch, mean loss and speed that `Reporter.watch` shows."""
    return {
        "stage": stage.name,
        "epoch": state.epoch + 1,
        "epochs": stage.epochs,
        "loss": state.loss_sum / max(state.batch, 1),
        "images_per_second": state.epoch_images / max(state.epoch_seconds, 1e-9),
    }


def describe_drop(state: TrainState, stage: Stage, cider: float) -> str | None:
    """How far a self-critical stage's score is below that of the weights it began with; None where it is not."""
    start = state.stage_start_score
    if stage.objective == "cross_entropy" or cider >= start:
        return None
    drop = f"  validation CIDEr-D {100 * cider:.1f} is {100 * (start - cider):.1f} below where {stage.name} began"
    if state.epoch + 1 < stage.epochs:
        return f"{drop}; scores often fall in the first epochs of self-critical training"
    if state.best >= start:
        return f"{drop}; the weights of the best epoch, which are kept, score higher"
    return f"{drop}, and so is its best epoch: try more epochs or another learning rate"
