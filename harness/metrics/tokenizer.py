"""The choice of Penn Treebank tokenizer, Python or Java, and tokenisation by image."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

TokenizerName = Literal["python", "java"]

TOKENIZERS: Final[dict[TokenizerName, str]] = {"python": "ptb-python", "java": "ptb-java"}
"""Names of the tokenizers in signatures."""


def tokenize_by_image(
    captions: Mapping[int, Sequence[str]], tokenize: Callable[[Sequence[str]], list[str]]
) -> dict[int, list[str]]:
    """Tokenised captions by image id, in the order given.

    The order matters: the start of the next caption can decide whether a final full stop is kept. Callers keep the
    order of the annotation file, as COCO's own tools do.
    """
    tokens = iter(tokenize([caption for texts in captions.values() for caption in texts]))
    return {image_id: [next(tokens) for _ in texts] for image_id, texts in captions.items()}
