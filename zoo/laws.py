"""Checks of the properties of a captioner that training and search rely on.

A model that lacks one trains and captions without an error, but its results are wrong. `bench run` checks a plug-in's
model before training it; the test file of `bench new-model` and the zoo's own tests use the same functions.

Shapes: B images, two captions each (rows are image-major), T words.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from zoo.captioner import Captioner, DecodingState, Visual
from zoo.errors import ZooError

TOLERANCE: Final = {torch.float64: 1e-9, torch.float32: 1e-3}
"""Allowed difference of logits that should be equal, relative to the largest of them.

Another order of summation changes single precision by 1e-6 to 1e-5, TF32 and half precision by 1e-3. A broken law
changes logits by as much as their own size.
"""
CAPTIONS: Final = 2
"""Captions per image."""
WORDS: Final = 6
"""Words per caption, the begin token included."""
_SPECIAL_TOKENS = 4


class BrokenLawError(ZooError):
    """A model lacks a property that training or search relies on; the message names it, the hint says where to look."""


@torch.no_grad()
def check_laws(model: Captioner, visual: Visual, *, vocab_size: int, begin: int) -> None:
    """Check every law on a few images; the model must be in evaluation mode.

    Args:
        visual: at least two images, some of them padded so that padding is checked too.

    Raises:
        BrokenLawError: of the first law that the model breaks.
    """
    if model.vocab_size != vocab_size:
        raise BrokenLawError(
            f"the model's vocab_size is {model.vocab_size}, but it was created with {vocab_size}",
            "set self.vocab_size to the constructor's vocab_size",
        )
    tokens = random_captions(CAPTIONS * visual.batch_size, min(WORDS, model.max_len), vocab_size, begin)
    tokens = tokens.to(next(model.parameters(), tokens).device)
    for law in LAWS:
        law(model, visual, tokens)


def random_captions(rows: int, words: int, vocab_size: int, begin: int) -> Tensor:
    """Captions (rows, words) of a begin token and random words from a fixed seed, without special tokens."""
    first = min(_SPECIAL_TOKENS, vocab_size - 1)
    tokens = torch.randint(first, vocab_size, (rows, words), generator=torch.Generator().manual_seed(0))
    tokens[:, 0] = begin
    return tokens


@torch.no_grad()
def check_logits(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """`decode` returns finite logits (rows, T, V), and the same ones when called again."""
    logits = _decode(model, visual, tokens)
    expected = (*tokens.shape, model.vocab_size)
    if logits.shape != expected:
        raise BrokenLawError(
            f"decode returns logits of shape {tuple(logits.shape)}, not {expected}: rows, words, vocabulary",
            "decode repeats each image's memory for the rows of its captions; V is the constructor's vocab_size",
        )
    if not logits.isfinite().all():
        raise BrokenLawError(
            "decode returns NaN or infinity before any training",
            "look for a division by zero, a softmax over masked positions only, or weights that are not initialised",
        )
    _check_equal(
        _decode(model, visual, tokens), logits, "the same input gives different logits when decode is called again",
        "in evaluation mode nothing may be random, and no state may be kept between calls",
    )  # fmt: skip


@torch.no_grad()
def check_causality(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """The logits at a position do not depend on later words."""
    memory = model.encode(visual)
    logits = model.decode(memory, tokens)
    for position in range(1, tokens.shape[1], 2):
        changed = tokens.clone()
        changed[:, position:] = _other_words(changed[:, position:], model.vocab_size)
        _check_equal(
            model.decode(memory, changed)[:, :position], logits[:, :position], "logits depend on later words",
            "decode must mask later positions: in training the model would read the words that it has to predict",
        )  # fmt: skip


@torch.no_grad()
def check_stepping(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """`step`, word by word, returns the logits of `decode`."""
    memory = model.encode(visual)
    state = model.start(memory).expand(len(tokens) // memory.batch_size)
    step_logits = []
    for words in tokens.unbind(1):
        logits, state = _step(model, words, state)
        step_logits.append(logits)
    _check_equal(
        torch.stack(step_logits, 1), model.decode(memory, tokens),
        "step and decode return different logits for the same words",
        "training uses decode and captioning uses step: both must compute the same",
    )  # fmt: skip


@torch.no_grad()
def check_reordering(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """After `DecodingState.reorder`, `step` returns the logits of the reordered prefixes."""
    memory = model.encode(visual)
    width = len(tokens) // memory.batch_size
    row = torch.arange(len(tokens), device=tokens.device)
    # Reverse the beams of every image, but replace those of the second image by copies of its last beam.
    index = row - 2 * (row % width) + width - 1
    index[width : 2 * width] = 2 * width - 1
    length = tokens.shape[1] // 2
    state = model.start(memory).expand(width)
    for words in tokens[:, :length].unbind(1):
        _, state = _step(model, words, state)
    logits, _ = _step(model, tokens[:, length], state.reorder(index))
    prefixes = torch.cat((tokens[index, :length], tokens[:, length : length + 1]), 1)
    _check_equal(
        logits, model.decode(memory, prefixes)[:, -1], "after reordering, a beam continues with another beam's state",
        "tensors that differ between beams belong in the state's `rows`, which beam search reorders, not in `images`",
    )  # fmt: skip


@torch.no_grad()
def check_captions_independent(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """A caption's logits do not depend on the other captions of its image."""
    memory = model.encode(visual)
    logits = model.decode(memory, tokens)
    width = len(tokens) // memory.batch_size
    for caption in range(width):
        _check_equal(
            logits[caption::width], model.decode(memory, tokens[caption::width]),
            "a caption's logits depend on the image's other captions",
            "rows are image-major (row = image * n + caption), and no row may read another",
        )  # fmt: skip


@torch.no_grad()
def check_images_independent(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """An image's logits depend neither on the other images of its batch nor on padding."""
    logits = _decode(model, visual, tokens)
    width = len(tokens) // visual.batch_size
    for image in range(visual.batch_size):
        rows = slice(image * width, (image + 1) * width)
        _check_equal(
            _decode(model, single_image(visual, image), tokens[rows]), logits[rows],
            "an image has different logits alone than in a padded batch",
            "no mean, norm or softmax may include other images of the batch, or padding",
        )  # fmt: skip


def check_gradients_change_nothing(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """`decode` returns the same logits with and without gradients: training may take a faster form of the same."""
    with torch.no_grad():
        expected = _decode(model, visual, tokens)
    with torch.enable_grad():
        logits = _decode(model, visual, tokens).detach()
    _check_equal(
        logits, expected, "logits differ between training and inference",
        "a faster form that only training takes, such as scan of a recurrent decoder, must compute the same",
    )  # fmt: skip


LAWS: Final[tuple[Callable[[Captioner, Visual, Tensor], None], ...]] = (
    check_logits,
    check_causality,
    check_stepping,
    check_captions_independent,
    check_reordering,
    check_images_independent,
    check_gradients_change_nothing,
)
"""The checks. Each takes a model in evaluation mode, images, and tokens (B * n, T), and raises BrokenLawError."""


def single_image(visual: Visual, image: int) -> Visual:
    """One image of a batch, without padding."""
    mask = visual.mask
    length = None if mask is None else max(int(mask[image].sum()), 1)
    parts = {name: tensor[image : image + 1] for name, tensor in visual.parts().items()}
    for name in ("features", "mask", "boxes"):
        if name in parts:
            parts[name] = parts[name][:, :length]
    return replace(visual, **parts)


def _decode(model: Captioner, visual: Visual, tokens: Tensor) -> Tensor:
    return model.decode(model.encode(visual), tokens)


def _step(model: Captioner, words: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
    """`step`, with a check of its logits' shape."""
    logits, state = model.step(words, state)
    expected = (len(words), model.vocab_size)
    if logits.shape != expected:
        raise BrokenLawError(
            f"step returns logits of shape {tuple(logits.shape)}, not {expected}: rows, vocabulary",
            "step takes one word per row and returns one row of logits for each",
        )
    return logits, state


def _other_words(tokens: Tensor, vocab_size: int) -> Tensor:
    """A different word at every position, without special tokens."""
    first = min(_SPECIAL_TOKENS, vocab_size - 1)
    return first + (tokens - first + 1) % (vocab_size - first)


def _check_equal(logits: Tensor, expected: Tensor, problem: str, hint: str) -> None:
    """BrokenLawError where logits differ from those expected by more than rounding."""
    scale = float(expected.abs().max())
    difference = float((logits - expected).abs().max())
    if not difference <= TOLERANCE.get(expected.dtype, TOLERANCE[torch.float32]) * scale:
        raise BrokenLawError(f"{problem}: logits of up to {scale:.3g} differ by {difference:.3g}", hint)
