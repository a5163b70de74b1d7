"""Train a model under a run's conditions: what each stage reads, what it makes smaller, and how it is validated."""

import copy
import pickle
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
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
    """Train `model` through the schedule; it holds the best weights afterwards. Checkpoints lie in `folder`.

    Without a checkpoint, training starts from the longest prefix of its stages in `stage_cache`.
    """
    # Leave out stages that train a part which the model lacks; epochs keep the preset's numbers of stages.
    all_stages = context.preset.schedule.stages
    schedule = stages_for(model, context.preset.schedule)
    numbers = [number for number, stage in enumerate(all_stages) if stage in schedule.stages]
    if left_out := [stage.name for stage in all_stages if stage not in schedule.stages]:
        reporter.note(f"  left out, since the model has no part for sentence graphs: {', '.join(left_out)}")

    def record_epoch(epoch: EpochRecord) -> None:
        on_epoch(replace(epoch, stage=numbers[epoch.stage]))

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

    def keep_stage(state: TrainState) -> None:
        if stage_cache is not None and state.micro_batches == 1:
            epochs = [replace(epoch, stage=numbers.index(epoch.stage)) for epoch in stage_cache.recorded()]
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
    compute, collective = context.compute, Collective()
    with ExitStack() as other_ranks:
        if compute.settings.devices > 1:
            pickled = pickle.dumps(replace(task, model=copy.deepcopy(model).cpu()))
            work = partial(_train_on_other_rank, pickled, compute.settings)
            collective = other_ranks.enter_context(start_training(work, compute.device.type, compute.settings.devices))
        stages = StageLoader(
            task,
            collective,
            reporter,
            cache_features=partial(cache_own_features, model, context, reporter),
            validate=_validation(model, context, reporter),
        )
        trainer = Trainer(
            model,
            schedule,
            stage_data=stages.load,
            folder=folder,
            device=compute.device,
            precision=compute.precision,
            seed=seed,
            on_epoch=report_epoch,
            reporter=reporter,
            on_step=on_step,
            on_stage=keep_stage,
            collective=collective,
        )
        return trainer.fit()


def _train_on_other_rank(pickled: bytes, config: ExecutionConfig, collective: Distributed) -> None:
    """What every rank but 0 does: train its share of every batch, silently."""
    load_plugins(config.plugins)
    check_plugins(config.digests)
    task: TrainingTask = pickle.loads(pickled)  # noqa: S301  # rank 0 made it
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
    """What every rank of a training needs; picklable."""

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
        cache_features: extracts the features of the model's own backbone as it stands, and gives their folder.
        validate: gives a stage's score on these features or pixels; like `cache_features`, called on rank 0 only.
    """

    def __init__(
        self,
        task: TrainingTask,
        collective: Collective,
        reporter: Reporter,
        cache_features: Callable[[], Path] = Path,
        validate: Callable[[Stage, VisualSource], float] = lambda *_: 0.0,
    ) -> None:
        self._task, self._collective, self._reporter = task, collective, reporter
        self._cache_features, self._validate = cache_features, validate
        self._resident: VisualSource | None = None  # the task's own features on the device, for all stages

    def load(self, stage: Stage) -> StageData:
        """The data of a stage; one that leaves the model's own backbone as it is reads cached features of it."""
        task, rank = self._task, self._collective.rank
        source, device = task.source, task.compute.device
        if stage.backbone == "frozen" and isinstance(task.model, HasBackbone):
            folder = self._collective.broadcast(self._cache_features() if rank == 0 else Path())
            source = CachedBackboneSource(Features(folder))
        samples = list(task.samples)
        if stage.batch_of == "captions":
            samples = [replace(image, captions=(caption,)) for image in samples for caption in image.captions]
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
            pinned=device.type == "cuda",
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
        """To which captions are padded for a GPU, which has a graph for each."""
        return few_widths(max_len) if self._task.compute.device.type == "cuda" else ()

    def _graphs(self, stage: Stage) -> list[list[NumberedGraph]] | None:
        """Of each sample that the stage reads, the graphs of its captions; None where it is of images."""
        task = self._task
        if stage.objective != "sentence_graph" or task.sentences is None:
            return None
        by_image = numbered_graphs(task.samples, task.sentences, task.vocabulary)
        return [[graph] for graphs in by_image for graph in graphs] if stage.batch_of == "captions" else by_image

    def _on_device(self, source: VisualSource) -> VisualSource:
        """The training features on the device where they fit; those of a tuned backbone are of one stage."""
        task, is_shared = self._task, source is self._task.source
        if is_shared and self._resident is not None:
            return self._resident
        self._resident = None  # before others take its memory
        image_ids = [sample.image_id for sample in task.samples]
        on_device = resident(source, image_ids, task.model.visual, task.compute.device, self._reporter.note)
        self._resident = on_device if is_shared else None
        return on_device


def _validation(model: Captioner, context: RunContext, reporter: Reporter) -> Callable[[Stage, VisualSource], float]:
    """CIDEr-D of the validation split's captions, as a fraction, or the score of a stage that captions no images."""
    vocabulary, device, precision = context.inputs.vocabulary, context.compute.device, context.compute.precision
    samples = as_read(context.data.val, vocabulary.preparation)
    tokenize = vocabulary.tokenize
    references = {sample.image_id: [" ".join(tokenize(caption)) for caption in sample.captions] for sample in samples}

    def validate(stage: Stage, source: VisualSource) -> float:
        if not stage.gives_ciders:
            graphs, max_len = context.data.sentences, context.preset.vocabulary.max_len
            assert graphs is not None
            images = context.source(model.visual)
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
        if word_tokenizer(vocabulary.preparation) is not None:  # a pretrained model's text may have no spaces
            by_image = {image_id: " ".join(tokenize(caption)) for image_id, caption in by_image.items()}
        return mean_cider_d(references, by_image)

    return validate
