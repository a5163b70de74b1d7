"""A plug-in's model is held to the laws of the interface before it trains; the zoo's own are held to them by tests."""

from __future__ import annotations

import torch

from harness.benchmark.context import RunContext
from harness.measure.model_modes import preserve_state
from zoo import Captioner
from zoo.laws import check_laws
from zoo.registry import is_shipped

IMAGES = 3


def hold_to_laws(name: str, model: Captioner, context: RunContext) -> None:
    """Check the laws at the run's sizes, on a few training images; the model and random numbers are as before.

    Args:
        name: a registered model; nothing is done for one of the zoo.
        model: on the run's device.

    Raises:
        BrokenLawError: of the first law that it breaks.
    """
    if is_shipped(name):
        return
    vocabulary, images = context.inputs.vocabulary, [sample.image_id for sample in context.data.train[:IMAGES]]
    visual = context.source(model.visual).visual(images, model.visual).to(context.execution.device)
    # Convolutions of another batch would round otherwise in TF32.
    with preserve_state(model), torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        check_laws(model.eval(), visual, vocab_size=len(vocabulary), begin=vocabulary.bos)
