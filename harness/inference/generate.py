"""Encode images, and generate captions by beam search."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from harness.config.preset import Decoding
from harness.data.batches import VisualSource, evaluation_batches, images_of
from harness.data.vocabulary import Vocabulary
from harness.inference.replay import Replayed
from harness.measure.model_modes import eval_mode
from harness.utils.errors import BenchError
from harness.utils.precision import autocast
from harness.utils.progress import Reporter
from zoo import Captioner, Visual
from zoo.decoding import Hypotheses, SearchRules, beam_search

IMAGES_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class Captions:
    """Captions of images, and what generating them took.

    Attributes:
        by_image: captions by image id.
        tokens: the generated tokens by image id.
        generated: number of generated tokens of all captions, end tokens included.
        seconds: time of encoding and decoding, without reading features.
    """

    by_image: dict[int, str]
    tokens: dict[int, list[int]]
    generated: int
    seconds: float


@torch.inference_mode()
def caption_images(
    model: Captioner,
    vocabulary: Vocabulary,
    features: VisualSource,
    image_ids: Sequence[int],
    decoding: Decoding,
    *,
    device: torch.device,
    precision: str,
    reporter: Reporter,
    title: str,
    replayed: bool = False,
) -> Captions:
    """Caption the images in order by beam search, with the model in evaluation mode.

    Args:
        precision: of `harness.utils.precision.autocast`; log-probabilities are compared in float32.
        replayed: on a GPU, replay the search as a CUDA graph.
    """
    beam_search_of_run = search_of(decoding, vocabulary)

    def search(visual: Visual) -> tuple[Hypotheses]:
        return (beam_search_of_run(model, model.encode(visual), early_stop=not replayed),)

    run_search = Replayed(search, reporter.note) if replayed else search
    tokens_by_image: dict[int, list[int]] = {}
    generated = 0
    seconds = 0.0
    with eval_mode(model), autocast(device, precision), reporter.task(title, len(image_ids)) as task:
        for ids, visual in evaluation_batches(image_ids, features, model.visual, IMAGES_AT_ONCE):
            started = time.monotonic()
            parts = in_parts(lambda part: run_search(part.to(device))[0], visual)
            best = [tokens for hypotheses in parts for tokens in hypotheses.tokens[:, 0].tolist()]
            if decoding.cut_unfinished:
                best = [tokens if vocabulary.eos in tokens else tokens[:-1] for tokens in best]
            generated += sum(int(hypotheses.lengths[:, 0].sum()) for hypotheses in parts)
            seconds += time.monotonic() - started
            tokens_by_image.update(zip(ids, best, strict=True))
            task.advance(len(ids))
    captions = {image_id: vocabulary.decode(tokens) for image_id, tokens in tokens_by_image.items()}
    return Captions(captions, tokens_by_image, generated, seconds)


@torch.no_grad()
def encode_images(
    model: Captioner, features: VisualSource, image_ids: Sequence[int], *, device: torch.device
) -> Tensor:
    """The features of the encoder's memory for images in order, (N, L, D) float32 on the CPU.

    L is the largest number of visual tokens of an image; rows of missing and masked tokens are NaN. The model is in
    evaluation mode.
    """
    batches = []
    with eval_mode(model):
        for _, visual in evaluation_batches(image_ids, features, model.visual, IMAGES_AT_ONCE):
            memory = model.encode(visual.to(device))
            batches.append(memory.features.float().masked_fill(~memory.mask[..., None], torch.nan).cpu())
    longest = max(batch.shape[1] for batch in batches)
    return torch.cat([F.pad(batch, (0, 0, 0, longest - batch.shape[1]), value=torch.nan) for batch in batches])


def search_of(decoding: Decoding, vocabulary: Vocabulary) -> partial[Hypotheses]:
    """`beam_search` with these settings; BenchError where they have words that are not in the vocabulary."""
    bad_endings = vocabulary.numbers_of(decoding.bad_endings, "decoding.bad_endings")
    return partial(
        beam_search,
        beam_size=decoding.beam_size,
        max_len=decoding.max_len,
        bos=vocabulary.bos,
        eos=vocabulary.eos,
        length_penalty=decoding.length_penalty,
        count_bos=decoding.count_bos,
        banned=vocabulary.numbers_of(decoding.banned, "decoding.banned"),
        release_finished=decoding.release_finished,
        rules=SearchRules(bad_endings, decoding.trigram_penalty),
    )


def in_parts(search: Callable[[Visual], Hypotheses], visual: Visual) -> list[Hypotheses]:
    """Search a batch, in halves if memory runs out; BenchError if it runs out with a single image."""
    try:
        return [search(visual)]
    except torch.OutOfMemoryError as error:
        if visual.batch_size == 1:
            hint = "choose a smaller model or beam (--set decoding.beam_size=...), or --device cpu"
            raise BenchError("out of memory while a single image is captioned", hint) from error
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    half = visual.batch_size // 2
    parts = (images_of(visual, 0, half), images_of(visual, half, visual.batch_size))
    return [hypotheses for part in parts for hypotheses in in_parts(search, part)]
