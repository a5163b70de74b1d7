"""The Penn Treebank tokens that scores are computed on, by the Python tokenizer or by the Java original."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

TokenizerName = Literal["python", "java"]

TOKENIZERS: Final[dict[TokenizerName, str]] = {"python": "ptb-python", "java": "ptb-java"}
"""What signatures call each tokenizer."""


def tokenize_by_image(
    captions: Mapping[int, Sequence[str]], tokenize: Callable[[Sequence[str]], list[str]]
) -> dict[int, list[str]]:
    """Tokenised captions by image id, in the order given.

    The order counts: the start of the next caption can decide about a final full stop. COCO's own tools keep that of
    the annotation file, and so does whoever calls this.
    """
    tokens = iter(tokenize([caption for texts in captions.values() for caption in texts]))
    return {image_id: [next(tokens) for _ in texts] for image_id, texts in captions.items()}
