"""Cards of the conditional GRU captioner and of its paper's variants."""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model

_TINY: dict[str, Any] = {"d_model": 16, "max_len": 12}
_ROWS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    # name: (summary, arguments, tiny and small ones that the arguments make necessary)
    "cgru": ("Two GRUs, the image as a gate between them, a third as bottleneck", {}, {}),
    "cgru/paper-size": (
        "On 1024-d features alone: 2,460,490 parameters at 5,066 subwords",
        {"only_dim": 1024},
        {"only_dim": None},
    ),
    "cgru/x2": ("Double width, linear bottleneck (equation 9)", {"d_model": 512, "bottleneck": "linear"}, {}),
    "cgru/mha": ("Three heads over a grid of features in place of the gate", {"look": "attention", "n_heads": 3}, {}),
}

for _name, (_summary, _arguments, _anywhere) in _ROWS.items():
    register_model(
        ModelCard(
            name=_name,
            entry="zoo.models.cgru:ConditionalGRU",
            summary=_summary,
            paper=(
                "Delbrouck, Dupont: Bringing back simplicity and lightliness into neural image captioning, 2018 "
                "(arXiv:1810.06245)"
            ),
            year=2018,
            source="https://github.com/jbdel/light_captioning",
            licence="none stated",
            visual="grid" if "look" in _arguments else "pooled",
            arguments={"d_model": 256, "dropout": 0.5, **_arguments},
            tiny={**_TINY, **_anywhere},
            small=_anywhere,
        )
    )
