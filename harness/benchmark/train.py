"""`train_model` trains one model through its schedule; `StageLoader` makes the data and objective of each stage."""

import copy
import pickle
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from harness.benchmark.context import ComputeDevice, RunContext
from harness.benchmark.own_backbone import CachedBackboneSource, cache_own_features
from harness.config.execution import ExecutionConfig
from harness.config.preset import Decoding
from harness.config.schedule import Schedule, Stage
from harness.data.batches import CaptionBatches, VisualSource, few_widths
from harness.data.dataset import Sample
from harness.data.features import Features
from harness.data.graphs import NumberedGraph, SentenceGraphs
from harness.data.pixels import resident
from harness.data.vocabulary import Vocabulary, as_read
from harness.data.word_tokenizers import word_tokenizer
from harness.inference.generate import caption_images
from harness.key import check_plugins
from harness.metrics.cider import mean_cider_d
from harness.training.checkpoint import WEIGHTS
from harness.training.distributed import Collective, Distributed, start_training
from harness.training.losses import StepLoss
from harness.training.sentence_graphs import numbered_graphs, validate_sentences
from harness.training.stage import StageData, make_objective, stages_for
from harness.training.stage_cache import StageCache
from harness.training.trainer import Trainer, TrainState
from harness.utils.plugins import load_plugins
from harness.utils.progress import Reporter, silent
from results.records import EpochRecord
from zoo import Captioner, HasBackbone


def train_model(
    model: Captioner,
    seed: int,
    context: RunContext,
    folder: Path,
    on_epoch: Callable[[EpochRecord], None],
    reporter: Reporter,
    *,
    on_step: Callable[[StepLoss], None] = lambda _: None,
    stage_cache: StageCache | None = None,
) -> TrainState:
    """Train `model` through the schedule of the context's preset; afterwards it holds its best weights.

    Training resumes from the last checkpoint in `folder`; without one, it starts from the longest prefix of its stages
    in `stage_cache`.
    """
    # Leave out stages that train a part which the model lacks; stored epochs keep the preset's stage indices.
    all_stages = context.preset.schedule.stages
    schedule = stages_for(model, context.preset.schedule)
    stage_indices = [index for index, stage in enumerate(all_stages) if stage in schedule.stages]
    if left_out := [stage.name for stage in all_stages if stage not in schedule.stages]:
        reporter.note(f"  left out, since the model has no part for sentence graphs: {', '.join(left_out)}")

    def record_epoch(epoch: EpochRecord) -> None:
        on_epoch(replace(epoch, stage=stage_indices[epoch.stage]))

    def report_epoch(epoch: EpochRecord) -> None:
        record_epoch(epoch)
        cider = ""
        if epoch.val_cider is not None:
            reporter.watch(validated=epoch.val_cider)
            cider = f", validation CIDEr-D {100 * epoch.val_cider:.1f}"
        reporter.log(
            f"  {epoch.stage_name} epoch {epoch.epoch + 1}: loss {epoch.train_loss:.3f}{cider}, "
            f"{epoch.images_per_second:.0f} images/s"
        )

    def cache_stage(state: TrainState) -> None:
        if stage_cache is not None and state.micro_batches == 1:
            epochs = [replace(epoch, stage=stage_indices.index(epoch.stage)) for epoch in stage_cache.recorded()]
            stage_cache.keep(schedule.stages[: state.stage + 1], folder / WEIGHTS, state, epochs)

    if stage_cache is not None:
        stage_cache.begin(schedule.stages, folder, record_epoch, reporter)

    task = TrainingTask(
        model=model,
        seed=seed,
        schedule=schedule,
        samples=as_read(context.data.train, context.inputs.vocabulary.preparation),
        vocabulary=context.inputs.vocabulary,
        source=context.source(model.visual),
        max_len=context.preset.vocabulary.max_len,
        compute=context.compute,
        folder=folder,
        cache_dir=context.data.cache,
        sentences=context.data.sentences,
    )
    compute = context.compute
    collective = Collective()
    with ExitStack() as other_ranks:
        if compute.settings.devices > 1:
            pickled = pickle.dumps(replace(task, model=copy.deepcopy(model).cpu()))
            train_share = partial(_train_on_other_rank, pickled, compute.settings)
            collective = other_ranks.enter_context(
                start_training(train_share, compute.device.type, compute.settings.devices)
            )
        loader = StageLoader(
            task,
            collective,
            reporter,
            cache_features=partial(cache_own_features, model, context, reporter),
            validate=_validation(model, context, reporter),
        )
        trainer = Trainer(
            model,
            schedule,
            stage_data=loader.load,
            folder=folder,
            device=compute.device,
            precision=compute.precision,
            seed=seed,
            on_epoch=report_epoch,
            reporter=reporter,
            on_step=on_step,
            on_stage=cache_stage,
            collective=collective,
        )
        return trainer.fit()


def _train_on_other_rank(pickled: bytes, config: ExecutionConfig, collective: Distributed) -> None:
    """Train this rank's share of every batch, without output; called on every rank but 0."""
    load_plugins(config.plugins)
    check_plugins(config.digests)
    task: TrainingTask = pickle.loads(pickled)  # noqa: S301  # from rank 0
    task = replace(task, compute=replace(task.compute, device=collective.device))
    task.model.to(collective.device)
    trainer = Trainer(
        task.model,
        task.schedule,
        stage_data=StageLoader(task, collective, silent()).load,
        folder=task.folder,
        device=collective.device,
        precision=task.compute.precision,
        seed=task.seed,
        on_epoch=lambda _: None,
        reporter=silent(),
        collective=collective,
    )
    trainer.fit()


@dataclass(frozen=True, slots=True)
class TrainingTask:
    """All that a rank needs to train a model; can be pickled."""

    model: Captioner
    seed: int
    schedule: Schedule
    samples: tuple[Sample, ...]
    vocabulary: Vocabulary
    source: VisualSource
    max_len: int
    compute: ComputeDevice
    folder: Path
    cache_dir: Path
    sentences: SentenceGraphs | None


class StageLoader:
    """Makes the data, objective and validation of each stage, on one rank of a training.

    Args:
        cache_features: extracts the features of the model's own backbone with its present weights; returns their
            folder. Called on rank 0 only.
        validate: the score of a stage on given features or pixels. Called on rank 0 only.
    """

    def __init__(
        self,
        task: TrainingTask,
        collective: Collective,
        reporter: Reporter,
        cache_features: Callable[[], Path] = Path,
        validate: Callable[[Stage, VisualSource], float] = lambda *_: 0.0,
    ) -> None:
        self._task = task
        self._collective = collective
        self._reporter = reporter
        self._cache_features = cache_features
        self._validate = validate
        self._resident: VisualSource | None = None  # the task's features on the device, shared by its stages

    def load(self, stage: Stage) -> StageData:
        """The batches, objective and validation of a stage; a frozen backbone of the model is read from a cache."""
        task = self._task
        rank = self._collective.rank
        source = task.source
        if stage.backbone == "frozen" and isinstance(task.model, HasBackbone):
            folder = self._collective.broadcast(self._cache_features() if rank == 0 else Path())
            source = CachedBackboneSource(Features(folder))
        samples = list(task.samples)
        if stage.batch_of == "captions":
            samples = _one_per_caption(samples)
        batches = CaptionBatches(
            samples,
            task.vocabulary,
            self._on_device(source),
            task.model.visual,
            batch_size=stage.batch_size,
            captions_per_image=1 if stage.batch_of == "captions" else stage.captions_per_image,
            seed=task.seed,
            max_len=task.max_len,
            drop_last=stage.drop_last,
            share=(rank, self._collective.world_size),
            pinned=task.compute.device.type == "cuda",
            widths=self._widths(task.max_len),
            graphs=self._graphs(stage),
            cache_dir=task.cache_dir,
        )
        objective = make_objective(
            stage,
            task.model,
            task.samples,
            task.vocabulary,
            self._widths(stage.self_critical.max_len),
            self._reporter.note,
        )
        return StageData(batches, objective, partial(self._validate, stage, source))

    def _widths(self, max_len: int) -> tuple[int, ...]:
        """The lengths that captions are padded to on a GPU, where each length has a CUDA graph; empty on a CPU."""
        return few_widths(max_len) if self._task.compute.device.type == "cuda" else ()

    def _graphs(self, stage: Stage) -> list[list[NumberedGraph]] | None:
        """The graphs of each sample's captions; None if the stage reads images."""
        task = self._task
        if stage.objective != "sentence_graph" or task.sentences is None:
            return None
        by_image = numbered_graphs(task.samples, task.sentences, task.vocabulary)
        if stage.batch_of == "captions":
            return [[graph] for graph in chain.from_iterable(by_image)]
        return by_image

    def _on_device(self, source: VisualSource) -> VisualSource:
        """The training features, in the device's memory if they fit; cached backbone features serve one stage."""
        task = self._task
        is_shared = source is task.source
        if is_shared and self._resident is not None:
            return self._resident
        self._resident = None  # frees its memory for the others
        image_ids = [sample.image_id for sample in task.samples]
        on_device = resident(source, image_ids, task.model.visual, task.compute.device, self._reporter.note)
        self._resident = on_device if is_shared else None
        return on_device


def _one_per_caption(samples: Sequence[Sample]) -> list[Sample]:
    """A sample for each caption of each image."""
    return [replace(sample, captions=(caption,)) for sample in samples for caption in sample.captions]


def _validation(model: Captioner, context: RunContext, reporter: Reporter) -> Callable[[Stage, VisualSource], float]:
    """A function that gives the validation score of a stage: CIDEr-D as a fraction, or that of a sentence stage."""
    vocabulary = context.inputs.vocabulary
    device = context.compute.device
    precision = context.compute.precision
    samples = as_read(context.data.val, vocabulary.preparation)
    tokenize = vocabulary.tokenize
    references = {sample.image_id: [" ".join(tokenize(caption)) for caption in sample.captions] for sample in samples}

    def validate(stage: Stage, source: VisualSource) -> float:
        if not stage.gives_ciders:
            graphs = context.data.sentences
            assert graphs is not None
            images = context.source(model.visual)
            max_len = context.preset.vocabulary.max_len
            return validate_sentences(
                stage, model, samples, graphs, vocabulary, images, max_len, device, precision, reporter.note
            )
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
        by_image = captions.by_image
        if word_tokenizer(vocabulary.preparation) is not None:  # text without spaces between words
            by_image = {image_id: " ".join(tokenize(caption)) for image_id, caption in by_image.items()}
        return mean_cider_d(references, by_image)

    return validate
