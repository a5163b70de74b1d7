"""Training one model under a run's conditions: what each stage reads and minimises, and what validates it."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console

from harness.config.preset import Decoding
from harness.config.schedule import Schedule, Stage
from harness.data.batches import CaptionBatches, VisualSource
from harness.data.dataset import Sample
from harness.data.features import Features
from harness.data.vocabulary import Vocabulary
from harness.inference.generate import caption_images
from harness.metrics.cider import CiderD
from harness.runner.backbone_features import CachedBackboneSource, cache_own_features
from harness.runner.context import RunContext
from harness.training.objectives import CrossEntropy, Objective
from harness.training.processes import Alone, Processes
from harness.training.reinforce import ReinforceLoss, require_states
from harness.training.self_critical import CaptionRewards, SelfCriticalLoss
from harness.training.state import TrainingSummary
from harness.training.trainer import Trainer
from harness.utils.plugins import load_plugins
from harness.utils.progress import Reporter
from results.records import EpochRecord
from zoo import Captioner, HasBackbone

if TYPE_CHECKING:
    from harness.training.several import Together


def fit(
    model: Captioner,
    seed: int,
    context: RunContext,
    folder: Path,
    on_epoch: Callable[[EpochRecord], None],
    reporter: Reporter,
) -> TrainingSummary:
    """Train `model` through the schedule; it holds the best weights afterwards. Checkpoints lie in `folder`."""

    def report_epoch(record: EpochRecord) -> None:
        on_epoch(record)
        cider = "" if record.val_cider is None else f", validation CIDEr-D {100 * record.val_cider:.1f}"
        reporter.note(
            f"  {record.stage_name} epoch {record.epoch + 1}: loss {record.train_loss:.3f}{cider}, "
            f"{record.images_per_second:.0f} images/s"
        )

    task = _Task(
        model,
        seed,
        context.preset.schedule,
        context.data.train,
        context.inputs.vocabulary,
        context.source(model.visual),
        context.preset.vocabulary.max_len,
        context.execution.precision,
        context.execution.config.compiled,
        folder,
    )

    def train(processes: Processes) -> TrainingSummary:
        share = _Share(task, processes, context.execution.device, lambda: _cache(model, context, reporter))
        validation = _Validation(share, context, reporter)
        return share.trainer(validation, report_epoch, reporter).fit()

    devices = context.execution.config.devices
    if devices == 1:
        return train(Alone())
    from harness.training.several import several_processes  # takes a second, which one device need not wait for

    others = replace(task, model=copy.deepcopy(model).cpu())
    work = partial(_train_beside, pickle.dumps(others), context.execution.config.plugins)
    with several_processes(devices, context.execution.device.type, work) as processes:
        return train(processes)


def make_objective(stage: Stage, model: Captioner, samples: Sequence[Sample], vocabulary: Vocabulary) -> Objective:
    """What a stage makes smaller, on these training images; BenchError where the model is of the wrong kind."""
    if stage.objective == "self_critical":
        rewards = CaptionRewards(samples, vocabulary, stage.self_critical.end_in_reward)
        return SelfCriticalLoss(stage, vocabulary, rewards)
    if stage.objective == "reinforce":
        rewards = CaptionRewards(samples, vocabulary, stage.reinforce.end_in_reward)
        return ReinforceLoss(stage, vocabulary, rewards, require_states(model, stage).d_model)
    return CrossEntropy(stage, vocabulary.pad)


@dataclass(frozen=True, slots=True)
class _Task:
    """What every process of one training needs to know; picklable."""

    model: Captioner
    seed: int
    schedule: Schedule
    train: tuple[Sample, ...]
    vocabulary: Vocabulary
    source: VisualSource
    max_len: int
    precision: str
    compiled: bool
    folder: Path


class _Share:
    """One process's part in a training: its share of every batch, and what it sees of the images."""

    def __init__(self, task: _Task, processes: Processes, device: torch.device, cache: Callable[[], Path]) -> None:
        self.task, self._processes, self._device, self._cache = task, processes, device, cache
        self.source = task.source
        # What is compiled stays so: a second module around the same layers leaves the one that came as it was.
        self.model = copy.copy(task.model) if task.compiled else task.model

    def trainer(
        self, validate: Callable[[int], float], on_epoch: Callable[[EpochRecord], None], reporter: Reporter
    ) -> Trainer:
        """The training loop of this process."""
        task = self.task
        model = self.model
        if task.compiled:
            model.compile(dynamic=True)  # what is called with whole captions; decoding steps stay as they are
        return Trainer(
            model,
            task.schedule,
            batches=self._batches,
            validate=validate,
            folder=task.folder,
            device=self._device,
            precision=task.precision,
            seed=task.seed,
            on_epoch=on_epoch,
            reporter=reporter,
            objective=lambda stage: make_objective(stage, model, task.train, task.vocabulary),
            processes=self._processes,
        )

    def _batches(self, stage: Stage) -> CaptionBatches:
        """The loader of a stage; one that leaves the model's own backbone as it is reads cached features of it."""
        task = self.task
        self.source = task.source
        if stage.backbone == "frozen" and isinstance(task.model, HasBackbone):
            folder = self._processes.of_first(self._cache() if self._processes.rank == 0 else Path())
            self.source = CachedBackboneSource(Features(folder))
        samples = list(task.train)
        if stage.batch_of == "captions":
            samples = [replace(image, captions=(caption,)) for image in samples for caption in image.captions]
        return CaptionBatches(
            samples,
            task.vocabulary,
            self.source,
            task.model.visual,
            batch_size=stage.batch_size,
            captions_per_image=1 if stage.batch_of == "captions" else stage.captions_per_image,
            seed=task.seed,
            max_len=task.max_len,
            drop_last=stage.drop_last,
            share=(self._processes.rank, self._processes.count),
            pinned=self._device.type == "cuda",
        )


class _Validation:
    """CIDEr-D of the validation split's captions, as a fraction, by the width of the beam."""

    def __init__(self, share: _Share, context: RunContext, reporter: Reporter) -> None:
        self._share, self._context, self._reporter = share, context, reporter
        words = context.inputs.vocabulary.tokenize
        self._references = {
            sample.image_id: [" ".join(words(caption)) for caption in sample.captions] for sample in context.data.val
        }
        self._scorer = CiderD(self._references)

    def __call__(self, beam_size: int) -> float:
        captions = caption_images(
            self._share.model,
            self._context.inputs.vocabulary,
            self._share.source,
            list(self._references),
            Decoding(beam_size=beam_size, max_len=self._context.inputs.decoding.max_len),
            device=self._context.execution.device,
            precision=self._context.execution.precision,
            reporter=self._reporter,
            title="  validating",
        )
        return self._scorer.score(captions.by_image)[0]


def _cache(model: Captioner, context: RunContext, reporter: Reporter) -> Path:
    assert isinstance(model, HasBackbone)
    return cache_own_features(model, context, reporter)


def _train_beside(pickled: bytes, plugins: Sequence[str], processes: Together) -> None:
    """What another process does: train its share of every batch, in silence."""
    load_plugins(plugins)
    task: _Task = pickle.loads(pickled)  # noqa: S301  # the first process made it
    task.model.to(processes.device)
    share = _Share(task, processes, processes.device, Path)
    share.trainer(lambda _: 0.0, lambda _: None, Reporter(Console(file=io.StringIO()))).fit()
