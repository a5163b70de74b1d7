"""Vocabularies in which the number 0 is begin, end and padding at once, as in X-LAN, X-Transformer and PureT.

Words have the numbers 1 .. V there, and embedding and logits V + 1 rows. Here each special token has a number of its
own: padding 0, begin 1, end 2, unknown word 3, then the other words in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from zoo.errors import ZooError
from zoo.weights.x_linear import without_prefix

UNKNOWN = "UNK"
"""The authors' name of the unknown word, which is one of the words."""
NEVER = -1e4
"""Logit of what no caption holds: its probability is exactly 0 in every floating-point type."""
_ROWS = {
    "puret": ("decoder.word_embed.weight", "decoder.generator"),
    "x_lan": ("word_embed.0.weight", "logit"),
    "x_transformer": ("decoder.embed_tokens.weight", "decoder.generator"),
}
"""By family, the embedding and the layer of the logits."""
FAMILIES = frozenset(_ROWS)


def separate_specials(
    family: str, state_dict: Mapping[str, Tensor], words: Sequence[str]
) -> tuple[dict[str, Tensor], list[str]]:
    """Give begin, end and padding rows of their own; also gives the words from number 4 on.

    Begin is embedded as 0 was, and the end has its logit. Padding and begin are never generated; nor is the unknown
    word, where the authors' words have none.

    Args:
        family: one of `FAMILIES`.
        state_dict: the authors' tensors.
        words: the authors', from number 1 on.

    Raises:
        ZooError: a tensor is missing, or there are not as many words as rows after the first.
    """
    official = without_prefix(state_dict)
    embedding, output = _ROWS[family]
    names = (embedding, f"{output}.weight", f"{output}.bias")
    if missing := [name for name in names if name not in official]:
        raise ZooError(f"this is not a state dict of {family}: {', '.join(missing)} missing")
    if any(len(official[name]) != len(words) + 1 for name in names):
        raise ZooError(
            f"the checkpoint has {len(official[names[1]]) - 1} words after the number 0, but the vocabulary "
            f"{len(words)}",
            "give the vocabulary that this checkpoint was trained with, without an entry for the number 0",
        )
    numbers = {word: number for number, word in enumerate(words, 1)}
    unknown = numbers.pop(UNKNOWN, None)
    rows = torch.tensor([0, 0, 0, unknown or 0, *numbers.values()])
    separate = official | {name: official[name][rows] for name in names}
    silent = [0, 1] if unknown else [0, 1, 3]
    separate[names[1]][silent] = 0.0
    separate[names[2]][silent] = NEVER
    return separate, list(numbers)
