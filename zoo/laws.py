"""Laws of the interface that training and search take for granted, checked on any model in a moment.

A model that breaks one trains and captions without an error, and is wrong. So that each is stated once, `bench run`
asks them of a plug-in's model before it trains, the test that `bench new-model` writes asks them, and so do the zoo's
own tests.

B images, two captions each (rows are image-major), T words.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import torch
from torch import Tensor

from zoo.captioner import Captioner, DecodingState, Visual
from zoo.errors import ZooError

TOLERANCE: Final = {torch.float64: 1e-9, torch.float32: 1e-3}
"""How far logits may be apart that should be equal, relative to the largest of them.

Single precision rounds sums of another order at 1e-6 to 1e-5, TF32 and half precision at 1e-3; what a broken law
changes is of the size of the logits.
"""
CAPTIONS: Final = 2
WORDS: Final = 6
_SPECIAL = 4


class BrokenLawError(ZooError):
    """A model breaks a law of the interface; the message names it, the hint says where to look."""


@torch.no_grad()
def check_laws(model: Captioner, visual: Visual, *, vocab_size: int, begin: int) -> None:
    """Check every law on a few images, as the model stands: put it into evaluation mode first.

    Args:
        visual: at least two images; padded where the model shall be tried on padding.

    Raises:
        BrokenLawError: of the first law that it breaks.
    """
    if model.vocab_size != vocab_size:
        raise BrokenLawError(
            f"the model says vocab_size {model.vocab_size}, and was given {vocab_size}",
            "set self.vocab_size to the constructor's vocab_size",
        )
    tokens = some_captions(CAPTIONS * visual.batch_size, min(WORDS, model.max_len), vocab_size, begin)
    tokens = tokens.to(next(model.parameters(), tokens).device)
    for law in LAWS:
        law(model, visual, tokens)


def some_captions(rows: int, words: int, vocab_size: int, begin: int) -> Tensor:
    """Captions (rows, words) that begin with the begin token; of fixed random numbers, special ones left out."""
    first = min(_SPECIAL, vocab_size - 1)
    tokens = torch.randint(first, vocab_size, (rows, words), generator=torch.Generator().manual_seed(0))
    tokens[:, 0] = begin
    return tokens


@torch.no_grad()
def check_logits(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """`decode` gives logits (rows, T, V) that are finite, and the same ones if it is asked again."""
    logits = _decode(model, visual, tokens)
    wanted = (*tokens.shape, model.vocab_size)
    if logits.shape != wanted:
        raise BrokenLawError(
            f"decode gives logits of shape {tuple(logits.shape)}, not {wanted}: rows, words, vocabulary",
            "decode brings each image's memory to the rows of its captions; V is the constructor's vocab_size",
        )
    if not logits.isfinite().all():
        raise BrokenLawError(
            "decode gives NaN or infinity before any training",
            "look for a division by zero, a softmax over masked places alone, or weights that are not initialised",
        )
    _agree(
        _decode(model, visual, tokens), logits, "the same input gives other logits when it is asked again",
        "in evaluation mode nothing may be random, and nothing may be kept from one call to the next",
    )  # fmt: skip


@torch.no_grad()
def check_causality(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """The logits behind a word do not change with the words after it."""
    memory = model.encode(visual)
    logits = model.decode(memory, tokens)
    for position in range(1, tokens.shape[1], 2):
        other = tokens.clone()
        other[:, position:] = _other_words(other[:, position:], model.vocab_size)
        _agree(
            model.decode(memory, other)[:, :position], logits[:, :position], "a word sees later ones",
            "decode must mask what comes later: in training the model reads the words that it is to say",
        )  # fmt: skip


@torch.no_grad()
def check_stepping(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """`step`, word by word, gives the logits of `decode`."""
    memory = model.encode(visual)
    state, found = model.start(memory).expand(len(tokens) // memory.batch_size), []
    for words in tokens.unbind(1):
        logits, state = _step(model, words, state)
        found.append(logits)
    _agree(
        torch.stack(found, 1), model.decode(memory, tokens), "step gives other logits than decode for the same words",
        "what is trained is decode, and what captions is step: both must compute the same",
    )  # fmt: skip


@torch.no_grad()
def check_reordering(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """A state that beam search reorders goes on as the prefixes that it now has, decoded anew."""
    memory = model.encode(visual)
    width = len(tokens) // memory.batch_size
    place = torch.arange(len(tokens), device=tokens.device)
    # The beams of every image in reverse order, but for the second image: there the last one takes all places.
    index = place - 2 * (place % width) + width - 1
    index[width : 2 * width] = 2 * width - 1
    seen = tokens.shape[1] // 2
    state = model.start(memory).expand(width)
    for words in tokens[:, :seen].unbind(1):
        _, state = _step(model, words, state)
    logits, _ = _step(model, tokens[:, seen], state.reorder(index))
    prefix = torch.cat((tokens[index, :seen], tokens[:, seen : seen + 1]), 1)
    _agree(
        logits, model.decode(memory, prefix)[:, -1], "a beam goes on with the state of another one",
        "what differs between beams belongs into the state's `rows`, which beam search reorders, not into `images`",
    )  # fmt: skip


@torch.no_grad()
def check_captions_independent(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """Several captions of an image give each the logits that it has alone."""
    memory = model.encode(visual)
    together, width = model.decode(memory, tokens), len(tokens) // memory.batch_size
    for caption in range(width):
        _agree(
            together[caption::width], model.decode(memory, tokens[caption::width]),
            "a caption changes with the image's other captions",
            "rows are image-major (row = image * n + caption), and none may look at another",
        )  # fmt: skip


@torch.no_grad()
def check_images_independent(model: Captioner, visual: Visual, tokens: Tensor) -> None:
    """An image gives in a batch the logits that it has alone, without the padding."""
    together, width = _decode(model, visual, tokens), len(tokens) // visual.batch_size
    for image in range(visual.batch_size):
        rows = slice(image * width, (image + 1) * width)
        _agree(
            _decode(model, alone(visual, image), tokens[rows]), together[rows],
            "an image has other logits alone than in a batch",
            "no mean, norm or softmax may go over the images of a batch, or over padded places",
        )  # fmt: skip


LAWS: Final[tuple[Callable[[Captioner, Visual, Tensor], None], ...]] = (
    check_logits,
    check_causality,
    check_stepping,
    check_captions_independent,
    check_reordering,
    check_images_independent,
)
"""Each takes a model in evaluation mode, images, and tokens (B * n, T); it raises BrokenLawError."""


def alone(visual: Visual, image: int) -> Visual:
    """One image of a batch, without padding."""
    mask = visual.mask
    length = None if mask is None else max(int(mask[image].sum()), 1)
    own = {name: part[image : image + 1] for name, part in visual.parts().items()}
    padded = {name: own[name][:, :length] for name in ("features", "mask", "boxes") if name in own}
    return replace(visual, **(own | padded))


def _decode(model: Captioner, visual: Visual, tokens: Tensor) -> Tensor:
    return model.decode(model.encode(visual), tokens)


def _step(model: Captioner, words: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
    logits, state = model.step(words, state)
    if logits.shape != (wanted := (len(words), model.vocab_size)):
        raise BrokenLawError(
            f"step gives logits of shape {tuple(logits.shape)}, not {wanted}: rows, vocabulary",
            "step takes one word a row, and gives one row of logits for each",
        )
    return logits, state


def _other_words(tokens: Tensor, vocab_size: int) -> Tensor:
    """Another word at every place, none of them special."""
    first = min(_SPECIAL, vocab_size - 1)
    return first + (tokens - first + 1) % (vocab_size - first)


def _agree(found: Tensor, expected: Tensor, broken: str, hint: str) -> None:
    """BrokenLawError where logits are not those expected, but for rounding."""
    scale = float(expected.abs().max())
    apart = float((found - expected).abs().max())
    if not apart <= TOLERANCE.get(expected.dtype, TOLERANCE[torch.float32]) * scale:
        raise BrokenLawError(f"{broken}: logits of up to {scale:.3g} are {apart:.3g} apart", hint)
