"""Training one model under a run's conditions: what each stage reads and minimises, and what validates it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from harness.captioning import caption_images
from harness.conditions import Conditions
from harness.config import Decoding
from harness.data.batches import CaptionBatches
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.metrics.cider import CiderD
from harness.progress import Reporter
from harness.training.objectives import CrossEntropy, Objective
from harness.training.position import TrainingSummary
from harness.training.reinforce import ReinforceLoss, require_states
from harness.training.schedule import Stage
from harness.training.self_critical import CaptionRewards, SelfCriticalLoss
from harness.training.trainer import Trainer
from results.records import EpochRecord
from zoo import Captioner


def fit(
    model: Captioner,
    seed: int,
    conditions: Conditions,
    folder: Path,
    on_epoch: Callable[[EpochRecord], None],
    reporter: Reporter,
) -> TrainingSummary:
    """Train `model` through the schedule; it holds the best weights afterwards. Checkpoints lie in `folder`."""
    task = _Task(model, seed, conditions, reporter)

    def report_epoch(record: EpochRecord) -> None:
        on_epoch(record)
        cider = "" if record.val_cider is None else f", validation CIDEr-D {100 * record.val_cider:.1f}"
        reporter.note(
            f"  {record.stage_name} epoch {record.epoch + 1}: loss {record.train_loss:.3f}{cider}, "
            f"{record.images_per_second:.0f} images/s"
        )

    trainer = Trainer(
        model,
        conditions.preset.schedule,
        batches=task.batches,
        validate=task.validate,
        folder=folder,
        device=conditions.device,
        precision=conditions.precision,
        seed=seed,
        on_epoch=report_epoch,
        reporter=reporter,
        objective=task.objective,
    )
    return trainer.fit()


def make_objective(stage: Stage, model: Captioner, samples: Sequence[Sample], vocabulary: Vocabulary) -> Objective:
    """What a stage makes smaller, on these training images; BenchError where the model is of the wrong kind."""
    if stage.objective == "self_critical":
        rewards = CaptionRewards(samples, vocabulary, stage.self_critical.end_in_reward)
        return SelfCriticalLoss(stage, vocabulary, rewards)
    if stage.objective == "reinforce":
        rewards = CaptionRewards(samples, vocabulary, stage.reinforce.end_in_reward)
        return ReinforceLoss(stage, vocabulary, rewards, require_states(model, stage).d_model)
    return CrossEntropy(stage, vocabulary.pad)


class _Task:
    """A model under a run's conditions: loaders and objectives by stage, and validation."""

    def __init__(self, model: Captioner, seed: int, conditions: Conditions, reporter: Reporter) -> None:
        self._model, self._seed, self._conditions, self._reporter = model, seed, conditions, reporter
        words = conditions.vocabulary.tokenize
        self._references = {
            sample.image_id: [" ".join(words(caption)) for caption in sample.captions] for sample in conditions.val
        }
        self._scorer = CiderD(self._references)

    def batches(self, stage: Stage) -> CaptionBatches:
        """The loader of a stage."""
        conditions = self._conditions
        samples = list(conditions.train)
        if stage.batch_of == "captions":
            samples = [replace(image, captions=(caption,)) for image in samples for caption in image.captions]
        return CaptionBatches(
            samples,
            conditions.vocabulary,
            conditions.source(self._model.visual),
            self._model.visual,
            batch_size=stage.batch_size,
            captions_per_image=1 if stage.batch_of == "captions" else stage.captions_per_image,
            seed=self._seed,
            max_len=conditions.preset.vocabulary.max_len,
            drop_last=stage.drop_last,
        )

    def objective(self, stage: Stage) -> Objective:
        """See `make_objective`."""
        return make_objective(stage, self._model, self._conditions.train, self._conditions.vocabulary)

    def validate(self, beam_size: int) -> float:
        """CIDEr-D of the validation split's captions, as a fraction."""
        conditions = self._conditions
        captions = caption_images(
            self._model,
            conditions.vocabulary,
            conditions.source(self._model.visual),
            list(self._references),
            Decoding(beam_size=beam_size, max_len=conditions.preset.decoding.max_len),
            device=conditions.device,
            reporter=self._reporter,
            title="  validating",
        )
        return self._scorer.score(captions.by_image)[0]
