"""Captioning architectures behind one interface: `zoo.create_model("blind", vocab_size=..., visual_dim=...)`.

Names are resolved on first use, so that `import zoo` and the listing of models import no torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.captioner import Captioner, DecodingState, HasBackbone, Memory, Visual, VisualSpec
    from zoo.errors import ZooError
    from zoo.registry import (
        ModelCard,
        Pretraining,
        create_model,
        list_models,
        model_card,
        register_model,
        select_models,
    )

__all__ = [
    "Captioner",
    "DecodingState",
    "HasBackbone",
    "Memory",
    "ModelCard",
    "Pretraining",
    "Visual",
    "VisualSpec",
    "ZooError",
    "create_model",
    "list_models",
    "model_card",
    "register_model",
    "select_models",
]

_HOMES = {
    **dict.fromkeys(("Captioner", "DecodingState", "HasBackbone", "Memory", "Visual", "VisualSpec"), "zoo.captioner"),
    **dict.fromkeys(("ModelCard", "Pretraining", "create_model", "list_models", "model_card"), "zoo.registry"),
    **dict.fromkeys(("register_model", "select_models"), "zoo.registry"),
    "ZooError": "zoo.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
