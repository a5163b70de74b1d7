"""Training of one run: the data and objective of each stage, validation, and features of a model's own backbone.

Between end-to-end stages the backbone is another one, so that its features are extracted anew, as ExpansionNet v2 does
between its steps B and C; the cache is keyed by the weights, so that an interrupted stage finds it again."""

import copy
import hashlib
import json
import pickle
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn

from harness.benchmark.context import RunContext
from harness.config.execution import ExecutionConfig
from harness.config.preset import Decoding
from harness.config.schedule import Schedule, Stage
from harness.data.backbones.backbone import Backbone, TrainableBackbone
from harness.data.batches import CaptionBatches, VisualSource, few_widths
from harness.data.dataset import Sample
from harness.data.feature_cache import extract_features
from harness.data.features import Features
from harness.data.graphs import NumberedGraph, SentenceGraphs
from harness.data.images import ImagePreprocessing
from harness.data.pixels import resident
from harness.data.vocabulary import Vocabulary, as_read
from harness.inference.generate import caption_images
from harness.key import check_plugins
from harness.metrics.cider import mean_cider_d
from harness.training.checkpoint import last_checkpoint, save_first_checkpoint
from harness.training.distributed import Collective, Distributed, start_training
from harness.training.finished_stages import WEIGHTS, FinishedStages
from harness.training.losses import StepLoss
from harness.training.sentence_graphs import numbered_graphs, validate_sentences
from harness.training.stage import StageData, make_objective, stages_for
from harness.training.trainer import CHECKPOINTS, Trainer, TrainState
from harness.utils.atomic import replacing, write_text
from harness.utils.plugins import load_plugins
from harness.utils.progress import Reporter, silent
from results.records import EpochRecord
from zoo import Captioner, HasBackbone, Visual, VisualSpec
from zoo.models.end_to_end import grid_tokens

BEGINNING: Final = "beginning.json"
"""In the folder of a run: which run trained its first stages, and on what machine."""


def fit(
    model: Captioner,
    seed: int,
    context: RunContext,
    folder: Path,
    on_epoch: Callable[[EpochRecord], None],
    reporter: Reporter,
    on_step: Callable[[StepLoss], None] = lambda _: None,
    kept: FinishedStages | None = None,
) -> TrainState:
    """Train `model` through the schedule; it holds the best weights afterwards. Checkpoints lie in `folder`.

    A training that has no checkpoint yet begins with the longest beginning of its schedule that is `kept`.
    """

    def report_epoch(record: EpochRecord) -> None:
        _record_at(places, on_epoch, record)
        if record.val_cider is not None:
            reporter.watch(validated=record.val_cider)
        cider = "" if record.val_cider is None else f", validation CIDEr-D {100 * record.val_cider:.1f}"
        reporter.log(
            f"  {record.stage_name} epoch {record.epoch + 1}: loss {record.train_loss:.3f}{cider}, "
            f"{record.images_per_second:.0f} images/s"
        )

    every = context.preset.schedule.stages
    schedule = stages_for(model, context.preset.schedule)
    places = [place for place, stage in enumerate(every) if stage in schedule.stages]
    if left_out := [stage.name for stage in every if stage not in schedule.stages]:
        reporter.note(f"  left out, since the model has no part for sentence graphs: {', '.join(left_out)}")
    if kept is not None and kept.take:
        _begin_with_kept(kept, schedule, folder, partial(_record_at, places, on_epoch), reporter)

    def keep_stage(state: TrainState) -> None:
        if kept is not None and state.micro_batches == 1:
            epochs = [replace(epoch, stage=places.index(epoch.stage)) for epoch in kept.recorded()]
            kept.keep(schedule.stages[: state.stage + 1], folder / WEIGHTS, state, epochs)

    task = _Task(
        model,
        seed,
        schedule,
        as_read(context.data.train, context.inputs.vocabulary.preparation),
        context.inputs.vocabulary,
        context.source(model.visual),
        context.preset.vocabulary.max_len,
        context.execution.precision,
        folder,
        context.data.sentences,
    )

    execution, devices, collective = context.execution, context.execution.config.devices, Collective()
    with ExitStack() as ranks:
        if devices > 1:
            others = pickle.dumps(replace(task, model=copy.deepcopy(model).cpu()))
            work = partial(_train_on_other_rank, others, execution.config)
            collective = ranks.enter_context(start_training(work, execution.device.type, devices))
        cache = partial(cache_own_features, model, context, reporter)
        validation = _validation(model, context, reporter)
        rank = _Rank(task, collective, execution.device, reporter, cache, validation)
        return rank.trainer(report_epoch, on_step, keep_stage).fit()


def _record_at(places: Sequence[int], on_epoch: Callable[[EpochRecord], None], epoch: EpochRecord) -> None:
    """Record an epoch by the place of its stage in the preset, which may have stages that the model has no part for."""
    on_epoch(replace(epoch, stage=places[epoch.stage]))


def _begin_with_kept(
    kept: FinishedStages,
    schedule: Schedule,
    folder: Path,
    on_epoch: Callable[[EpochRecord], None],
    reporter: Reporter,
) -> None:
    """Let a training that has no checkpoint begin with the longest kept beginning of its schedule, if there is one.

    Its epochs are recorded for this run too, with the time that they took; a note in `folder` says whose they are.
    """
    if last_checkpoint(folder / CHECKPOINTS) is not None:
        return
    (folder / BEGINNING).unlink(missing_ok=True)
    begun = kept.longest(schedule.stages)
    if begun is None:
        return
    for epoch in begun.epochs:
        on_epoch(epoch)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / BEGINNING, json.dumps({"made_by": begun.made_by, "machine": begun.machine}))
    finished = begun.count == len(schedule.stages)
    if finished:
        with replacing(folder / WEIGHTS) as temporary:
            shutil.copyfile(begun.weights, temporary)
    state = replace(begun.state.next_stage(last=finished), saves=1)
    save_first_checkpoint(folder / CHECKPOINTS, begun.weights, {"position": asdict(state)})
    names = ", ".join(stage.name for stage in schedule.stages[: begun.count])
    reporter.log(f"  {names}: not trained again, the weights are those of {begun.made_by}")


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
    folder: Path
    sentences: SentenceGraphs | None = None


@dataclass(slots=True)
class _Rank:
    """A rank of a training: what its stages read, their share of every batch and what is seen of the images.

    Attributes:
        cache_features: extracts the features of the model's own backbone as it stands, and gives their folder.
        validate: the score of a stage on what is seen of the images; called, as `cache_features`, on rank 0 alone.
        held: the task's own features on the device, for all stages.
    """

    task: _Task
    collective: Collective
    device: torch.device
    reporter: Reporter
    cache_features: Callable[[], Path]
    validate: Callable[[Stage, VisualSource], float] = lambda *_: 0.0
    held: VisualSource | None = None

    def trainer(
        self,
        on_epoch: Callable[[EpochRecord], None],
        on_step: Callable[[StepLoss], None] = lambda _: None,
        on_stage: Callable[[TrainState], None] = lambda _: None,
    ) -> Trainer:
        task = self.task
        return Trainer(
            task.model,
            task.schedule,
            stage_data=self.stage_data,
            folder=task.folder,
            device=self.device,
            precision=task.precision,
            seed=task.seed,
            on_epoch=on_epoch,
            reporter=self.reporter,
            on_step=on_step,
            on_stage=on_stage,
            collective=self.collective,
        )

    def stage_data(self, stage: Stage) -> StageData:
        """The data of a stage; one that leaves the model's own backbone as it is reads cached features of it."""
        task, rank = self.task, self.collective.rank
        source = task.source
        if stage.backbone == "frozen" and isinstance(task.model, HasBackbone):
            folder = self.collective.broadcast(self.cache_features() if rank == 0 else Path())
            source = CachedBackboneSource(Features(folder))
        samples = list(task.train)
        seen = self._resident(source)
        if stage.batch_of == "captions":
            samples = [replace(image, captions=(caption,)) for image in samples for caption in image.captions]
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
            share=(rank, self.collective.world_size),
            pinned=self.device.type == "cuda",
            widths=self._widths(task.max_len),
            graphs=self._graphs(stage),
        )
        objective = make_objective(
            stage,
            task.model,
            task.train,
            task.vocabulary,
            self._widths(stage.self_critical.max_len),
            self.reporter.note,
        )
        return StageData(batches, objective, partial(self.validate, stage, source))

    def _widths(self, max_len: int) -> tuple[int, ...]:
        """To which captions are padded for a GPU, which has a graph for each."""
        return few_widths(max_len) if self.device.type == "cuda" else ()

    def _graphs(self, stage: Stage) -> list[list[NumberedGraph]] | None:
        """Of each sample that the stage reads, the graphs of its captions; None where it is of images."""
        task = self.task
        if stage.objective != "sentence_graph" or task.sentences is None:
            return None
        graphs = numbered_graphs(task.train, task.sentences, task.vocabulary)
        return [[graph] for told in graphs for graph in told] if stage.batch_of == "captions" else graphs

    def _resident(self, source: VisualSource) -> VisualSource:
        """The training features on the device where they fit; those of a tuned backbone are of one stage."""
        task, own = self.task, source is self.task.source
        if own and self.held is not None:
            return self.held
        self.held = None  # before others take its memory
        images = [sample.image_id for sample in task.train]
        held = resident(source, images, task.model.visual, self.device, self.reporter.note)
        self.held = held if own else None
        return held


def _validation(model: Captioner, context: RunContext, reporter: Reporter) -> Callable[[Stage, VisualSource], float]:
    """CIDEr-D of the validation split's captions, as a fraction, or the score of a stage that captions no images."""
    vocabulary, device, precision = context.inputs.vocabulary, context.execution.device, context.execution.precision
    samples, words = as_read(context.data.val, vocabulary.preparation), vocabulary.tokenize
    references = {sample.image_id: [" ".join(words(caption)) for caption in sample.captions] for sample in samples}

    def validate(stage: Stage, source: VisualSource) -> float:
        if not stage.gives_ciders:
            graphs, seen = context.data.sentences, context.source(model.visual)
            assert graphs is not None
            longest, note = context.preset.vocabulary.max_len, reporter.note
            return validate_sentences(stage, model, samples, graphs, vocabulary, seen, longest, device, precision, note)
        captions = caption_images(
            model,
            vocabulary,
            source,
            list(references),
            Decoding(beam_size=stage.validation_beam_size, max_len=context.inputs.decoding.max_len),
            device=device,
            precision=precision,
            reporter=reporter,
            title="  validating",
            replayed=device.type == "cuda",
        )
        return mean_cider_d(references, captions.by_image)

    return validate


def _train_on_other_rank(pickled: bytes, config: ExecutionConfig, collective: Distributed) -> None:
    """What every rank but 0 does: train its share of every batch, silently."""
    load_plugins(config.plugins)
    check_plugins(config.digests)
    task: _Task = pickle.loads(pickled)  # noqa: S301  # rank 0 made it
    device = collective.device
    task.model.to(device)
    _Rank(task, collective, device, silent(), Path).trainer(lambda _: None).fit()


class CachedBackboneSource:
    """What the backbone of a model on pixels gave, for that model."""

    def __init__(self, features: Features) -> None:
        self._features = features

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:  # noqa: ARG002  # it asks for pixels
        """Grid features of the images, in the order asked for."""
        return self._features.visual(image_ids, VisualSpec("grid", self._features.dim))


def cache_own_features(model: Captioner, context: RunContext, reporter: Reporter) -> Path:
    """The folder with the features of the model's backbone in its present state, extracted or re-used.

    With the run's own weights they are the run's, which other models share; otherwise they are of the images to train
    and validate with alone.
    """
    assert isinstance(model, HasBackbone)
    data = context.data
    backbone, skip, own = data.backbone, set(data.skipped), model.backbone.state_dict()
    given = backbone.state_dict() if isinstance(backbone, TrainableBackbone) else None
    if given is None or not all(torch.equal(value.cpu(), given[name].cpu()) for name, value in own.items()):
        backbone = _Tuned(model.backbone, data.backbone)
        needed = {sample.image_id for sample in (*data.train, *data.val)}
        skip = {sample.image_id for sample in data.dataset.samples} - needed
    return extract_features(
        data.dataset, backbone, cache_dir=data.cache, skip=skip, device=str(context.execution.device), reporter=reporter
    ).folder


class _Tuned:
    """A model's backbone after a stage that trained it, as a `Backbone`."""

    def __init__(self, network: nn.Module, origin: Backbone) -> None:
        digest = hashlib.sha256(f"tuned {origin.digest}".encode())
        for name, value in sorted(network.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        self.network, self.origin, self.digest = network, origin, digest.hexdigest()
        self.preprocessing: ImagePreprocessing = origin.preprocessing
        self.name, self.dim, self.grid = f"{origin.name}, tuned", origin.dim, origin.grid

    def describe(self) -> str:
        return f"{self.origin.describe()}, tuned#{self.digest[:8]}"

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        was_training = self.network.training
        self.network.eval()
        tokens = grid_tokens(self.network, pixels).float()
        self.network.train(was_training)
        return tokens
