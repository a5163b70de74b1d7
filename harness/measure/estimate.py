"""Estimate the work of a training schedule: images and multiply-accumulates of each stage. Imports no torch."""

import math
from dataclasses import dataclass

from harness.config.schedule import Schedule, SelfCritical, Stage

FORWARD_AND_BACKWARD = 3
"""Cost of a pass with gradients, in forward passes: the forward pass, and gradients of inputs and of weights."""
WEIGHT, MOMENTS = 4, 8


@dataclass(frozen=True, slots=True)
class DataShape:
    """The properties of a data set that the work of a training depends on.

    Attributes:
        train, val: numbers of images.
        captions: mean number of captions of a training image.
        caption_length: tokens of the longest caption of a batch, the end token included.
    """

    train: int
    val: int
    captions: float
    caption_length: int


@dataclass(frozen=True, slots=True)
class PassCosts:
    """Multiply-accumulates of a model on one image, see `harness.measure.flops.FlopCounts`.

    Attributes:
        caption: one pass of the decoder over a whole caption.
        backbone: one pass of the model's own backbone, which cached features avoid; 0 if it has none.
    """

    encoder: int
    start: int
    step: int
    caption: int
    backbone: int = 0

    def decoding(self, rows: int, length: int) -> int:
        """Cost of decoding the captions of one image from its features."""
        return self.encoder + self.start + rows * length * self.step


@dataclass(frozen=True, slots=True)
class StageWork:
    """The work of one stage of one model.

    Attributes:
        images: number of encoded images over all epochs.
        training: multiply-accumulates of passes with gradients.
        decoding: multiply-accumulates of passes without gradients: sampling, validation, and extracting features of
            the trained backbone.
    """

    images: int
    training: int
    decoding: int


def work_of_stages(schedule: Schedule, costs: PassCosts, data: DataShape, max_len: int) -> list[StageWork]:
    """The work of the stages of a schedule for a model; `max_len` is the length that captions are decoded to."""
    return [
        _work_of_stage(
            stage, costs, data, max_len, tuned=index > 0 and schedule.stages[index - 1].backbone == "trained"
        )
        for index, stage in enumerate(schedule.stages)
    ]


def _work_of_stage(stage: Stage, costs: PassCosts, data: DataShape, max_len: int, *, tuned: bool) -> StageWork:
    images = stage.images_per_epoch(data.train, round(data.train * data.captions)) * stage.epochs
    rows = 1 if stage.batch_of == "captions" else stage.captions_per_image
    encode_cost = costs.encoder + (costs.backbone if stage.backbone == "trained" else 0)
    with_gradients = encode_cost + rows * costs.caption
    without_gradients = 0
    if stage.objective == "self_critical":
        with_gradients, without_gradients = _rewarded(stage.self_critical, costs, encode_cost, max_len)
    elif stage.objective == "reinforce":
        with_gradients = encode_cost + costs.caption
        without_gradients = encode_cost - costs.encoder + costs.decoding(1, max_len)
    elif stage.scheduled_sampling is not None:
        without_gradients = costs.start + rows * data.caption_length * costs.step
    validations = math.ceil(stage.epochs / stage.validate_every)
    validation = (
        validations * data.val * (encode_cost - costs.encoder + costs.decoding(stage.validation_beam_size, max_len))
    )
    if stage.objective == "sentence_graph":  # counted as captions of images, the layers of the graphs themselves not
        validation = validations * round(data.val * data.captions) * costs.caption
    extraction = (data.train + data.val) * costs.backbone if stage.backbone == "frozen" and tuned else 0
    return StageWork(
        images, images * with_gradients * FORWARD_AND_BACKWARD, images * without_gradients + validation + extraction
    )


def _rewarded(settings: SelfCritical, costs: PassCosts, encode_cost: int, max_len: int) -> tuple[int, int]:
    """Costs per image in self-critical training: of passes with gradients, and of passes without."""
    rows = settings.samples
    greedy = settings.baseline == "greedy"
    if settings.gradient == "second-pass":
        return encode_cost + rows * costs.caption, encode_cost - costs.encoder + costs.decoding(
            rows + int(greedy), max_len
        )
    # Prefixes are half of a caption long in the mean.
    draw_cost = max_len * costs.step if settings.gradient == "steps" else (max_len + 1) * costs.caption // 2
    greedy_cost = encode_cost - costs.encoder + costs.decoding(1, max_len) if greedy else 0
    return encode_cost + costs.start + rows * draw_cost, greedy_cost
