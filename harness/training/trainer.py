"""The training loop: stages of a schedule, validation by decoding, best checkpoint by CIDEr-D, exact resume.

A run killed at any instant and started again gives, on the CPU, bit for bit what an undisturbed run gives: the order
of batches is a function of (seed, epoch), and the checkpoint holds weights, optimiser, random generators and position.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from harness.config.schedule import Schedule, Stage
from harness.data.batches import Batch, CaptionBatches
from harness.training.checkpoint import (
    generator_states,
    last_checkpoint,
    load_checkpoint,
    load_weights,
    restore_generators,
    save_checkpoint,
    save_weights,
)
from harness.training.gradients import BatchGradient
from harness.training.objectives import CrossEntropy, Objective
from harness.training.optimisers import make_optimiser
from harness.training.processes import Alone, Processes
from harness.training.requirements import validate_schedule
from harness.training.state import TrainingSummary, TrainState
from harness.training.watching import describe_progress, warn_if_worse
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter, Task
from results.records import EpochRecord
from zoo import Captioner, HasBackbone

CHECKPOINT_INTERVAL_S = 60.0
OTHERS_SEED = 1_000_003
"""What sets the random numbers of processes that train together apart; none of the first one's."""
CHECKPOINTS = "checkpoint"
"""The folder of a run's checkpoints, inside its own; without it, training starts anew."""


class TrainingDivergedError(Exception):
    """The loss is no longer a number; the message names the step and the last good checkpoint."""


class Trainer:
    """Trains one captioner through the stages of a schedule.

    Args:
        model: on `device` already; holds the best weights after `fit`.
        batches: makes the loader of a stage.
        validate: decodes the validation split with a beam of the given width; gives its CIDEr-D.
        folder: keeps `checkpoint/step-*` while training and `best.safetensors` for good.
        objective: makes the loss of a stage.
        on_epoch: called once an epoch, before the checkpoint that makes it final, so it must be idempotent.
        precision: "bf16" autocasts, "fp32" does not.
        processes: those that train together. Each has its share of every batch from its own `batches`; the first one
            validates, saves and reports for all, so that all need the same `folder`.
    """

    def __init__(
        self,
        model: Captioner,
        schedule: Schedule,
        *,
        batches: Callable[[Stage], CaptionBatches],
        validate: Callable[[int], float],
        folder: Path,
        device: torch.device,
        precision: str,
        seed: int,
        on_epoch: Callable[[EpochRecord], None],
        reporter: Reporter,
        objective: Callable[[Stage], Objective] = CrossEntropy,
        checkpoint_interval_s: float = CHECKPOINT_INTERVAL_S,
        processes: Processes | None = None,
    ) -> None:
        self.model, self.schedule, self.folder, self.device = model, schedule, folder, device
        self._batches, self._validate, self._on_epoch, self._reporter = batches, validate, on_epoch, reporter
        self._objective = objective
        self._seed, self._processes = seed, processes or Alone()
        self._first = self._processes.rank == 0
        self._gradient = BatchGradient(
            model, device, precision=precision, processes=self._processes, on_split=self._note_split
        )
        self._interval = checkpoint_interval_s
        self._saved = time.monotonic()
        self.best_path = folder / "best.safetensors"
        self.checkpoints = folder / CHECKPOINTS
        self._dropouts = {module: module.p for module in model.modules() if isinstance(module, nn.Dropout)}
        self.position = TrainState()
        self._beside = nn.Module()  # what a stage's objective learns; clipping is for the model's gradients alone

    def fit(self) -> TrainingSummary:
        """Train to the end from wherever the last checkpoint stands, then load the best weights.

        Raises:
            BenchError: a stage needs a backbone or recurrent states that the model has not, or a checkpoint is damaged.
            TrainingDivergedError: the loss is no number.
        """
        validate_schedule(self.model, self.schedule)
        state = load_checkpoint(self.checkpoints, self.model)
        if state is not None:
            self.position = TrainState(**state["position"])
            self._gradient.parts = self.position.parts
        self._processes.share_weights(self.model)
        try:
            while not self.position.finished:
                self._run_stage(self.schedule.stages[self.position.stage], state)
                state = None
        except BenchError as error:
            raise BenchError(f"{error}; last good checkpoint: {self._last_checkpoint()}", error.hint) from error
        self._load_best()
        at = self.position
        return TrainingSummary(at.seconds, at.images, at.total_steps, at.best, at.parts, at.waited)

    def _run_stage(self, stage: Stage, state: dict[str, Any] | None) -> None:
        self._set_dropout(stage.dropout)
        if isinstance(self.model, HasBackbone):
            self.model.freeze_backbone(stage.backbone == "frozen")
        loader, objective = self._batches(stage), self._objective(stage)
        self._beside = objective.to(self.device) if isinstance(objective, nn.Module) else nn.Module()
        optimiser = make_optimiser((value for _, value in self._named_parameters()), stage.optimiser)
        at = self.position
        if at.begins_stage:  # a checkpoint between stages has nothing of the next one
            self._begin(stage)
        elif state is not None:
            optimiser.load_state_dict(state["optimiser"])
            self._beside.load_state_dict(state.get("objective", {}))
            self._restore_gradients(state.get("gradients", {}))
            self._restore_generators(state)
        while at.epoch < stage.epochs and (stage.patience is None or at.stale < stage.patience):
            self._run_epoch(stage, loader, objective, optimiser)
        optimiser.zero_grad(set_to_none=True)
        self._load_best()
        self.position = at.next_stage(last=at.stage + 1 == len(self.schedule.stages))
        self._save(optimiser)

    def _begin(self, stage: Stage) -> None:
        """Seed a stage, and measure what it begins from where that is not known with its own beam."""
        at, stages = self.position, self.schedule.stages
        torch.manual_seed(self._seed + at.stage + OTHERS_SEED * self._processes.rank)
        if at.stage and stages[at.stage - 1].validation_beam_size != stage.validation_beam_size:
            at.before = self._validated(stage)

    def _set_dropout(self, p: float | None) -> None:
        """One rate for the whole model, or what each part was built with."""
        if p is not None:
            self.model.set_dropout(p)
            return
        for module, built_with in self._dropouts.items():
            module.p = built_with

    def _run_epoch(
        self, stage: Stage, loader: CaptionBatches, objective: Objective, optimiser: torch.optim.Optimizer
    ) -> None:
        at = self.position
        self.model.train()
        title = f"  {stage.name} epoch {at.epoch + 1}/{stage.epochs}"
        with self._reporter.task(title, len(loader), at.batch) as task:
            asked = time.monotonic()
            for batch in loader.epoch(at.epoch, start=at.batch):
                at.waited += time.monotonic() - asked
                self._run_step(stage, loader, objective, optimiser, batch, task)
                asked = time.monotonic()
        validated = (at.epoch + 1) % stage.validate_every == 0 or at.epoch + 1 == stage.epochs
        cider = self._validated(stage) if validated else None
        if cider is not None:
            better = at.validated(cider, stage.learning_rate)
            if better and self._first:
                save_weights(self.model, self.best_path)
        if self._first:
            self._on_epoch(at.record(stage, optimiser.param_groups[0]["lr"], cider))
            if cider is not None and (warning := warn_if_worse(at, stage, cider)):
                self._reporter.note(warning, style="yellow")
        at.next_epoch()
        self._save(optimiser)

    def _validated(self, stage: Stage) -> float:
        return self._processes.of_first(self._validate(stage.validation_beam_size) if self._first else 0.0)

    def _run_step(
        self,
        stage: Stage,
        loader: CaptionBatches,
        objective: Objective,
        optimiser: torch.optim.Optimizer,
        batch: Batch,
        task: Task,
    ) -> None:
        at, started = self.position, time.monotonic()
        rate = stage.learning_rate.at(at.step, len(loader), stage.epochs * len(loader), at.reductions)
        for group in optimiser.param_groups:
            group["lr"] = rate
        summed = stage.accumulation.gradients == "summed"
        parts = 1 if summed else stage.accumulation.parts
        parameters = [parameter for _, parameter in self._named_parameters()]
        value, images = self._gradient(objective, parameters, batch, at.epoch, parts)
        stepping = not summed or at.step % stage.accumulation.parts == 0
        limit = stage.clip_norm if stage.clip_norm and stepping else math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), limit).item()
        if not math.isfinite(value) or not math.isfinite(norm):
            raise TrainingDivergedError(
                f"loss {value}, gradient norm {norm} at step {at.total_steps + 1} "
                f"(stage {stage.name}, epoch {at.epoch + 1}); last good checkpoint: {self._last_checkpoint()}"
            )
        if stepping:
            if stage.clip_value:
                torch.nn.utils.clip_grad_value_(self.model.parameters(), stage.clip_value)
            optimiser.step()
            optimiser.zero_grad(set_to_none=True)
        at.stepped(value, images, time.monotonic() - started)
        task.reach(at.batch, describe_progress(at, stage, len(loader)))
        due = self._first and time.monotonic() - self._saved >= self._interval
        if at.batch < len(loader) and self._processes.total([float(due)])[0]:
            self._save(optimiser)

    def _note_split(self, parts: int) -> None:
        self.position.parts = parts
        self._reporter.note(
            f"  out of memory: every batch is worked through in {parts} parts from here on, as one step as before",
            style="yellow",
        )

    def _save(self, optimiser: torch.optim.Optimizer) -> None:
        self.position.saves += 1
        generators = self._processes.of_all(generator_states(self.device))
        if self._first:
            state = {
                "position": asdict(self.position),
                "optimiser": optimiser.state_dict(),
                "generators": generators[0],
                "other_generators": generators[1:],
                "objective": self._beside.state_dict(),
                "gradients": {
                    name: parameter.grad for name, parameter in self._named_parameters() if parameter.grad is not None
                },
            }
            save_checkpoint(self.checkpoints, self.position.saves, self.model, state)
        self._saved = time.monotonic()

    def _restore_generators(self, state: dict[str, Any]) -> None:
        """Where the checkpoint is of fewer processes, those beyond them go on with fresh numbers."""
        known = [state["generators"], *state.get("other_generators", [])]
        rank = self._processes.rank
        if rank < len(known):
            restore_generators(known[rank], self.device)
        else:
            torch.manual_seed(self._seed + self.position.total_steps + OTHERS_SEED * rank)

    def _load_best(self) -> None:
        if self._first:
            load_weights(self.model, self.best_path)
        self._processes.share_weights(self.model)

    def _restore_gradients(self, gradients: dict[str, Tensor]) -> None:
        """What was accumulated for a step that is still to come."""
        for name, parameter in self._named_parameters():
            parameter.grad = gradients[name].to(parameter) if name in gradients else None

    def _named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """All that a stage trains: the model, and what its objective learns."""
        yield from self.model.named_parameters()
        yield from self._beside.named_parameters("objective")

    def _last_checkpoint(self) -> str:
        return str(last_checkpoint(self.checkpoints) or "none yet")
