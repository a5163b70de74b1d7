"""Captioning architectures behind one interface: `zoo.create_model("blind", vocab_size=..., visual_dim=...)`.

Names are resolved on first use, so that `import zoo` and the listing of models import no torch.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zoo.captioner import Captioner as Captioner
    from zoo.captioner import DecodingState as DecodingState
    from zoo.captioner import HasBackbone as HasBackbone
    from zoo.captioner import Memory as Memory
    from zoo.captioner import Visual as Visual
    from zoo.captioner import VisualSpec as VisualSpec
    from zoo.errors import ZooError as ZooError
    from zoo.registry import ModelCard as ModelCard
    from zoo.registry import Pretraining as Pretraining
    from zoo.registry import create_model as create_model
    from zoo.registry import list_models as list_models
    from zoo.registry import model_card as model_card
    from zoo.registry import register_model as register_model
    from zoo.registry import select_models as select_models

_HOMES = {
    "zoo.captioner": "Captioner DecodingState HasBackbone Memory Visual VisualSpec",
    "zoo.errors": "ZooError",
    "zoo.registry": "ModelCard Pretraining create_model list_models model_card register_model select_models",
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF})
