"""Training of one run: the data and objective of each stage, and validation."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from rich.console import Console

from harness.benchmark.backbone_features import CachedBackboneSource, cache_own_features
from harness.benchmark.context import RunContext
from harness.benchmark.sentence_stages import choose_stages, measure_score, numbered_graphs
from harness.config.preset import Decoding
from harness.config.schedule import Schedule, Stage
from harness.data.batches import CaptionBatches, VisualSource
from harness.data.dataset import Sample
from harness.data.features import Features
from harness.data.graphs.sentences import NumberedGraph, SentenceGraphs
from harness.data.pixels import resident
from harness.data.vocabulary import Vocabulary, as_read
from harness.inference.generate import caption_images
from harness.metrics.cider import CiderD
from harness.training.distributed import Collective, Distributed, SingleProcess
from harness.training.losses import StepLoss
from harness.training.objectives import CrossEntropy, Objective
from harness.training.peers import start_training
from harness.training.reinforce import ReinforceLoss, require_states
from harness.training.self_critical import CaptionRewards, SelfCriticalLoss
from harness.training.sentence_graph import SentenceGraphLoss
from harness.training.stage import StageData
from harness.training.state import TrainingSummary
from harness.training.trainer import Trainer
from harness.utils.plugins import load_plugins
from harness.utils.progress import Reporter
from harness.utils.run_events import Validated
from results.records import EpochRecord
from zoo import Captioner, HasBackbone


def fit(
    model: Captioner,
    seed: int,
    context: RunContext,
    folder: Path,
    on_epoch: Callable[[EpochRecord], None],
    reporter: Reporter,
    on_step: Callable[[StepLoss], None] = lambda _: None,
) -> TrainingSummary:
    """Train `model` through the schedule; it holds the best weights afterwards. Checkpoints lie in `folder`.

    Raises:
        BenchError: what `Trainer.fit` refuses, or another rank of a training on several devices failed.
    """

    def report_epoch(record: EpochRecord) -> None:
        on_epoch(replace(record, stage=places[record.stage]))
        if record.val_cider is not None:
            reporter.watch(Validated(record.val_cider))
        cider = "" if record.val_cider is None else f", validation CIDEr-D {100 * record.val_cider:.1f}"
        reporter.note(
            f"  {record.stage_name} epoch {record.epoch + 1}: loss {record.train_loss:.3f}{cider}, "
            f"{record.images_per_second:.0f} images/s"
        )

    schedule, places = choose_stages(model, context.preset.schedule, reporter)
    task = _Task(
        model,
        seed,
        schedule,
        as_read(context.data.train, context.inputs.vocabulary.preparation),
        context.inputs.vocabulary,
        context.source(model.visual),
        context.preset.vocabulary.max_len,
        context.execution.precision,
        context.execution.config.compiled,
        folder,
        context.data.sentences,
    )

    def train(collective: Collective) -> TrainingSummary:
        device = context.execution.device
        trained = task.compiled_model(device)
        score = partial(measure_score, trained, context, reporter)
        data = _StageDataMaker(task, collective, device, lambda: _cache(model, context, reporter), reporter, score)
        validation = _Validation(trained, context, reporter)
        return task.trainer(trained, data, validation, device, collective, report_epoch, reporter, on_step).fit()

    devices = context.execution.config.devices
    if devices == 1:
        return train(SingleProcess())
    others = replace(task, model=copy.deepcopy(model).cpu())
    work = partial(_train_on_other_rank, pickle.dumps(others), context.execution.config.plugins)
    with start_training(work, context.execution.device.type, devices) as collective:
        return train(collective)


def make_objective(stage: Stage, model: Captioner, samples: Sequence[Sample], vocabulary: Vocabulary) -> Objective:
    """What a stage makes smaller, on these training images; BenchError where the model is of the wrong kind."""
    if stage.objective == "self_critical":
        settings = stage.self_critical
        rewards = CaptionRewards(samples, vocabulary, settings.end_in_reward, settings.documents)
        return SelfCriticalLoss(stage, vocabulary, rewards)
    if stage.objective == "reinforce":
        rewards = CaptionRewards(samples, vocabulary, stage.reinforce.end_in_reward)
        return ReinforceLoss(stage, vocabulary, rewards, require_states(model, stage).d_model)
    if stage.objective == "sentence_graph":
        return SentenceGraphLoss(stage, vocabulary.pad)
    return CrossEntropy(stage, vocabulary.pad)


@dataclass(frozen=True, slots=True)
class _Task:
    """What every rank of one training needs to know; picklable."""

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
    sentences: SentenceGraphs | None = None

    def compiled_model(self, device: torch.device) -> Captioner:
        """The model to train: compiled where asked for, around the same layers; on a GPU replayed as CUDA graphs."""
        if not self.compiled:
            return self.model
        model = copy.copy(self.model)  # what is compiled stays so; the one that came is traced for its costs later
        # What is called with whole captions is compiled; decoding steps stay as they are.
        if device.type == "cuda":
            keep_gradients(model)
            model.compile(mode="reduce-overhead")
        else:
            model.compile(dynamic=True)
        return model

    def trainer(
        self,
        model: Captioner,
        stage_data: Callable[[Stage], StageData],
        validate: Callable[[int, VisualSource], float],
        device: torch.device,
        collective: Collective,
        on_epoch: Callable[[EpochRecord], None],
        reporter: Reporter,
        on_step: Callable[[StepLoss], None] = lambda _: None,
    ) -> Trainer:
        """The training loop of this rank."""
        return Trainer(
            model,
            self.schedule,
            stage_data=stage_data,
            validate=validate,
            folder=self.folder,
            device=device,
            precision=self.precision,
            seed=self.seed,
            on_epoch=on_epoch,
            on_step=on_step,
            reporter=reporter,
            objective=lambda stage: make_objective(stage, model, self.train, self.vocabulary),
            collective=collective,
        )


def keep_gradients(model: Captioner) -> None:
    """Copy each gradient as it arrives.

    Those of a CUDA graph lie in memory that the next pass writes over, and may wait longer than that: for further
    micro-batches, or for the batches of an accumulated step.
    """
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_hook(torch.clone)  # type: ignore[no-untyped-call]


class _StageDataMaker:
    """Makes what a stage reads on this rank: its share of every batch, and what it sees of the images.

    Args:
        cache_features: extracts the features of the model's own backbone as it stands, and gives their folder.
        reporter: told where the features lie.
        measure_score: validates a stage of sentence graphs; this and `cache_features` are called on rank 0 alone.
    """

    def __init__(
        self,
        task: _Task,
        collective: Collective,
        device: torch.device,
        cache_features: Callable[[], Path],
        reporter: Reporter,
        measure_score: Callable[[Stage], float] = lambda _: 0.0,
    ) -> None:
        self._task, self._collective, self._device, self._cache_features = task, collective, device, cache_features
        self._reporter, self._measure_score = reporter, measure_score
        self._held: VisualSource | None = None  # the task's own features on the device, for all stages

    def __call__(self, stage: Stage) -> StageData:
        """The data of a stage; one that leaves the model's own backbone as it is reads cached features of it."""
        task, rank = self._task, self._collective.rank
        source = task.source
        if stage.backbone == "frozen" and isinstance(task.model, HasBackbone):
            folder = self._collective.broadcast(self._cache_features() if rank == 0 else Path())
            source = CachedBackboneSource(Features(folder))
        samples = list(task.train)
        seen = self._resident(source)
        if stage.batch_of == "captions":
            samples = [replace(image, captions=(caption,)) for image in samples for caption in image.captions]
        graphs = self._graphs(stage)
        batches = CaptionBatches(
            samples,
            task.vocabulary,
            seen,
            task.model.visual,
            batch_size=stage.batch_size,
            captions_per_image=1 if stage.batch_of == "captions" else stage.captions_per_image,
            seed=task.seed,
            max_len=task.max_len,
            drop_last=stage.drop_last,
            share=(rank, self._collective.world_size),
            pinned=self._device.type == "cuda",
            fixed_width=task.compiled,
            graphs=graphs,
        )
        return StageData(batches, source, partial(self._measure_score, stage) if graphs is not None else None)

    def _graphs(self, stage: Stage) -> list[list[NumberedGraph]] | None:
        """Of each sample that the stage reads, the graphs of its captions; None where it is of images."""
        task = self._task
        if stage.objective != "sentence_graph" or task.sentences is None:
            return None
        graphs = numbered_graphs(task.train, task.sentences, task.vocabulary)
        return [[graph] for told in graphs for graph in told] if stage.batch_of == "captions" else graphs

    def _resident(self, source: VisualSource) -> VisualSource:
        """The training features on the device where they fit; those of a tuned backbone are of one stage."""
        task, own = self._task, source is self._task.source
        if own and self._held is not None:
            return self._held
        self._held = None  # before others take its memory
        images = [sample.image_id for sample in task.train]
        held = resident(source, images, task.model.visual, self._device, self._reporter.note)
        self._held = held if own else None
        return held


class _Validation:
    """CIDEr-D of the validation split's captions, as a fraction, by the width of the beam and what is seen."""

    def __init__(self, model: Captioner, context: RunContext, reporter: Reporter) -> None:
        self._model, self._context, self._reporter = model, context, reporter
        words = context.inputs.vocabulary.tokenize
        self._references = {
            sample.image_id: [" ".join(words(caption)) for caption in sample.captions]
            for sample in as_read(context.data.val, context.inputs.vocabulary.preparation)
        }
        self._scorer = CiderD(self._references)

    def __call__(self, beam_size: int, source: VisualSource) -> float:
        captions = caption_images(
            self._model,
            self._context.inputs.vocabulary,
            source,
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


def _train_on_other_rank(pickled: bytes, plugins: Sequence[str], collective: Distributed) -> None:
    """What every rank but 0 does: train its share of every batch, silently."""
    load_plugins(plugins)
    task: _Task = pickle.loads(pickled)  # noqa: S301  # rank 0 made it
    device = collective.device
    task.model.to(device)
    silent = Reporter(Console(file=io.StringIO()))
    data = _StageDataMaker(task, collective, device, Path, silent)
    task.trainer(task.compiled_model(device), data, lambda *_: 0.0, device, collective, lambda _: None, silent).fit()
