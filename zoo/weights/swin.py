"""Names of Swin Transformer's weights (https://github.com/microsoft/Swin-Transformer, MIT) in timm's implementation."""

from __future__ import annotations

import re

_COMPUTED = ("attn_mask", "relative_position_index")
_DOWNSAMPLE = re.compile(r"(?<=layers\.)(\d+)(?=\.downsample\.)")


def timm_name(official: str) -> str | None:
    """timm's name of a tensor, given the authors'; None for what timm computes from the sizes.

    The authors merge patches at the end of a stage, timm at the beginning of the next one.
    """
    if official.endswith(_COMPUTED):
        return None
    return _DOWNSAMPLE.sub(lambda stage: str(int(stage[1]) + 1), official)
