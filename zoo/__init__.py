"""Captioning architectures behind one interface: `zoo.create_model("blind", vocab_size=..., visual_dim=...)`.

What needs torch is resolved on first use, so that `import zoo` and the listing of models import none.
"""

import importlib
from typing import TYPE_CHECKING, Any

from zoo.card import ModelCard, Pretraining
from zoo.errors import ZooError
from zoo.registry import create_model, list_models, model_card, register_model, select_models

if TYPE_CHECKING:
    from zoo.captioner import Captioner, DecodingState, HasBackbone, Memory, Visual, VisualSpec

__all__ = ["ModelCard", "Pretraining", "ZooError", "create_model", "list_models", "model_card", "register_model"]
__all__ += ["Captioner", "DecodingState", "HasBackbone", "Memory", "Visual", "VisualSpec", "select_models"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    return getattr(importlib.import_module("zoo.captioner"), name)
