"""A plugin with two models that must end as failed rows: one raises in its forward pass, one yields NaN."""

from typing import Any

from torch import Tensor

from zoo import Memory, ModelCard, Visual, register_model
from zoo.models.expansionnet import ExpansionNet


class Raises(ExpansionNet):
    """Fails as a faulty layer would."""

    def encode(self, visual: Visual) -> Memory:
        raise RuntimeError(f"shapes do not fit [{visual.batch_size}]")


class YieldsNaN(ExpansionNet):
    """Breaks a law before it trains."""

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        return super().decode(memory, tokens) * float("nan")


def _card(name: str, entry: Any) -> ModelCard:
    return ModelCard(
        name=name,
        entry=entry,
        summary="broken on purpose",
        paper="none",
        year=2026,
        source="this test",
        licence="MIT",
        visual="grid",
        arguments={"encoder": "self_attention", "decoder": "self_attention"},
    )


register_model(_card("broken_raises", Raises))
register_model(_card("broken_nan", YieldsNaN))
