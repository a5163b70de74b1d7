"""Captions for many images by a checkpoint of transformers' own interface, in batches that fit into memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from harness.config.preset import Decoding
from harness.data.dataset import Dataset
from harness.data.images import load_image
from harness.inference.generate import Captions
from harness.inference.hub.captioner import Generated, HubCaptioner
from harness.measure.memory import LiveTensors, free_memory
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter

MOST = {"cuda": 64, "cpu": 16}
"""Images at once, where memory suffices; a processor gains nothing from more."""
SHARE_OF_FREE = 0.5
"""Of the free memory: the rest is for larger images, and for what kernels take for themselves."""


def caption_with_hub(
    captioner: HubCaptioner,
    dataset: Dataset,
    image_ids: Sequence[int],
    decoding: Decoding,
    *,
    reporter: Reporter,
    title: str,
    jobs: int = 1,
) -> Captions:
    """Caption the images in order; seconds are those of processor and network, reading images left out.

    `tokens` of the result are empty: they are entries of the model's own tokenizer.

    Args:
        jobs: processes that share the free memory.

    Raises:
        BenchError: there is no room for a single image.
    """
    paths = {sample.image_id: dataset.path(sample) for sample in dataset.samples}
    captions: dict[int, str] = {}
    generated, seconds, first = 0, 0.0, 0
    size = images_at_once(captioner, [paths[image_id] for image_id in image_ids], decoding, jobs, reporter)
    with reporter.task(title, len(image_ids)) as task:
        while first < len(image_ids):
            ids = image_ids[first : first + size]
            images = [load_image(paths[image_id]) for image_id in ids]
            started = time.monotonic()
            found: Generated | None = None
            try:
                found = captioner.caption(images, decoding)
            except (RuntimeError, MemoryError) as error:
                if not _is_out_of_memory(error):
                    raise
                if size == 1:
                    raise BenchError(
                        "out of memory with a single image at a time",
                        "add --hub-dtype bf16, or choose a smaller model or beam",
                    ) from error
            if found is None:  # outside the handler, which would keep the tensors of the failed batch alive
                if captioner.device.type == "cuda":
                    torch.cuda.empty_cache()
                size = min(size, len(ids)) // 2 or 1
                reporter.note(f"  out of memory: from now on {size} images at once", style="yellow")
                continue
            seconds += time.monotonic() - started
            captions.update(zip(ids, found.captions, strict=True))
            generated += sum(found.lengths)
            first += len(ids)
            task.advance(len(ids))
    return Captions(captions, {}, generated, seconds)


def images_at_once(
    captioner: HubCaptioner, paths: Sequence[Path], decoding: Decoding, jobs: int, reporter: Reporter
) -> int:
    """The largest power of two up to `MOST` that the free memory has room for, by what the first image takes.

    Captions do not depend on it, but for the rounding of sums (`docs/hub_models.md`).
    """
    most = MOST.get(captioner.device.type, 1)
    free = free_memory(captioner.device)
    if len(paths) < 2 or free is None:
        return most
    try:
        with LiveTensors() as live:
            captioner.caption([load_image(paths[0])], decoding)
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        return 1
    size, room = most, SHARE_OF_FREE * free / jobs
    while size > 1 and size * live.peak > room:
        size //= 2
    if size < most:
        takes = f"{live.peak / 2**20:,.0f} MiB an image, and {free / 2**20:,.0f} MiB are free"
        reporter.note(f"  {size} images at once: {takes}")
    return size


def _is_out_of_memory(error: Exception) -> bool:
    """Whether an allocation failed; a processor's is told by its text alone."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "DefaultCPUAllocator" in str(error)
