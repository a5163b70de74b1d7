"""Estimate of a run before it starts: steps, images, multiply-accumulates, bytes. Imports no torch."""

import math
from dataclasses import dataclass

from harness.config.schedule import Schedule, SelfCritical, Stage

FORWARD_AND_BACKWARD = 3
"""Cost of a pass with gradients in forward passes: one forward, and one backward each for inputs and weights."""
WEIGHT, MOMENTS = 4, 8
KEPT_CHECKPOINTS = 2


@dataclass(frozen=True, slots=True)
class DataShape:
    """The properties of a data set that the cost of a run depends on.

    Attributes:
        train, val, test: images; `test` counts all evaluated splits.
        words: size of the vocabulary, special tokens included.
        caption_length: tokens of the longest caption of a batch, the end token included.
        cells, channels: of an image's features, unless given by options.
        restval: how many of `train` Karpathy's file keeps apart.
    """

    train: int
    val: int
    test: int
    captions: float
    words: int
    caption_length: int
    cells: int = 144
    channels: int = 1536
    restval: int = 0


KNOWN = {
    "scenes": DataShape(1_500, 150, 1_600, 5.0, 118, 16, 64, 311),
    "coco": DataShape(113_287, 5_000, 5_000, 5.0028, 10_000, 18, restval=30_504),
    "flickr30k": DataShape(29_000, 1_014, 1_000, 5.0, 7_500, 20),
    "flickr8k": DataShape(6_000, 1_000, 1_000, 5.0, 2_600, 18),
}
"""Data sets of known size: the embedded one with its filterbank, and Karpathy's splits, with about as many words as
occur five times there, and the features of a Swin-L at 384 pixels."""
SCENE_REGIONS = (3, 64)
"""Most regions of an image of the embedded data set, and their channels, where a preset has its objects' boxes seen."""


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Multiply-accumulates of a model on one image, as `harness.measure.flops.FlopCounts` has them.

    Attributes:
        caption: one pass of the decoder over a whole caption.
        backbone: one pass of the model's own backbone, which cached features save; 0 if it has none.
    """

    parameters: int
    encoder: int
    start: int
    step: int
    caption: int
    backbone: int = 0

    def decoding(self, rows: int, length: int) -> int:
        """Cost of decoding the captions of one image from its features."""
        return self.encoder + self.start + rows * length * self.step


@dataclass(frozen=True, slots=True)
class Speed:
    """Multiply-accumulates a second of one device, in passes with gradients and in decoding.

    `step_s` is how long the pass with gradients took that was timed: a step of a larger batch takes at least as long.
    """

    training: float
    decoding: float
    step_s: float = 0.0


@dataclass(frozen=True, slots=True)
class StagePlan:
    """One stage of one model.

    Attributes:
        epochs: the maximum; the stage may stop early.
        steps, images: batches and images (encoded once each) over all epochs.
        training: multiply-accumulates of passes with gradients.
        decoding: of passes without gradients: sampling, validation, and extracting the backbone's features anew.
    """

    stage: str
    epochs: int
    steps: int
    images: int
    training: int
    decoding: int


def plan_stages(schedule: Schedule, costs: PassCosts, data: DataShape, max_len: int) -> list[StagePlan]:
    """The stages of a schedule for a model; `max_len` is the length that captions are decoded to."""
    return [
        _plan_stage(stage, costs, data, max_len, tuned=number > 0 and schedule.stages[number - 1].backbone == "trained")
        for number, stage in enumerate(schedule.stages)
    ]


def run_bytes(parameters: int) -> int:
    """Disk for one model's best weights and its checkpoints while it trains."""
    return parameters * (WEIGHT + KEPT_CHECKPOINTS * (WEIGHT + MOMENTS))


def feature_bytes(images: int, cells: int, channels: int) -> int:
    """Disk for cached features in half precision."""
    return images * cells * channels * 2


def _plan_stage(stage: Stage, costs: PassCosts, data: DataShape, max_len: int, *, tuned: bool) -> StagePlan:
    per_caption = stage.batch_of == "captions"
    count = round(data.train * data.captions) if per_caption else data.train
    batches = stage.steps_per_epoch(data.train, round(data.train * data.captions))
    images = min(batches * stage.batch_size, count) * stage.epochs
    rows = 1 if per_caption else stage.captions_per_image
    seen = costs.encoder + (costs.backbone if stage.backbone == "trained" else 0)
    learnt, explored = seen + rows * costs.caption, 0
    if stage.objective == "self_critical":
        learnt, explored = _rewarded(stage.self_critical, costs, seen, max_len)
    elif stage.objective == "reinforce":
        learnt, explored = seen + costs.caption, seen - costs.encoder + costs.decoding(1, max_len)
    elif stage.scheduled_sampling is not None:
        explored = costs.start + rows * data.caption_length * costs.step
    validations = math.ceil(stage.epochs / stage.validate_every)
    validated = validations * data.val * (seen - costs.encoder + costs.decoding(stage.validation_beam_size, max_len))
    if stage.objective == "sentence_graph":  # counted as captions of images, the layers of the graphs themselves not
        validated = validations * round(data.val * data.captions) * costs.caption
    extracted = (data.train + data.val) * costs.backbone if stage.backbone == "frozen" and tuned else 0
    return StagePlan(
        stage.name,
        stage.epochs,
        batches * stage.epochs,
        images,
        images * learnt * FORWARD_AND_BACKWARD,
        images * explored + validated + extracted,
    )


def _rewarded(settings: SelfCritical, costs: PassCosts, seen: int, max_len: int) -> tuple[int, int]:
    """Of one image in self-critical training: the pass with gradients, and those without."""
    rows, greedy = settings.samples, settings.baseline == "greedy"
    if settings.gradient == "second-pass":
        return seen + rows * costs.caption, seen - costs.encoder + costs.decoding(rows + int(greedy), max_len)
    # Prefixes are half of a caption long in the mean.
    drawn = max_len * costs.step if settings.gradient == "steps" else (max_len + 1) * costs.caption // 2
    without = seen - costs.encoder + costs.decoding(1, max_len) if greedy else 0
    return seen + costs.start + rows * drawn, without
