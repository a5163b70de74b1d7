"""Captions for many images by a checkpoint of transformers' own interface, in batches that fit into memory."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

from harness.config.preset import Decoding
from harness.data.dataset import Dataset
from harness.data.images import load_image
from harness.inference.generate import Captions
from harness.inference.hub.captioner import Generated, HubCaptioner
from harness.utils.progress import Reporter

BATCH = 16
"""Images at once, where memory suffices; half as many, again and again, where a GPU has no room for them."""


def caption_with_hub(
    captioner: HubCaptioner,
    dataset: Dataset,
    image_ids: Sequence[int],
    decoding: Decoding,
    *,
    reporter: Reporter,
    title: str,
) -> Captions:
    """Caption the images in order; seconds are those of processor and network, reading images left out.

    `tokens` of the result are empty: they are entries of the model's own tokenizer.
    """
    paths = {sample.image_id: dataset.path(sample) for sample in dataset.samples}
    captions: dict[int, str] = {}
    generated, seconds, size, first = 0, 0.0, BATCH, 0
    with reporter.task(title, len(image_ids)) as task:
        while first < len(image_ids):
            ids = image_ids[first : first + size]
            images = [load_image(paths[image_id]) for image_id in ids]
            started = time.monotonic()
            found: Generated | None = None
            try:
                found = captioner.caption(images, decoding)
            except torch.cuda.OutOfMemoryError:
                if size == 1:
                    raise
            if found is None:  # outside the handler, which would keep the tensors of the failed batch alive
                torch.cuda.empty_cache()
                size //= 2
                continue
            seconds += time.monotonic() - started
            captions.update(zip(ids, found.captions, strict=True))
            generated += sum(found.lengths)
            first += len(ids)
            task.advance(len(ids))
    return Captions(captions, {}, generated, seconds)
