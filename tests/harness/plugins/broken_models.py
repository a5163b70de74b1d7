"""A plugin with two models that must end as failed rows: one raises in its forward pass, one yields NaN."""

from dataclasses import replace

from torch import Tensor

from zoo import Memory, Visual, model_card, register_model
from zoo.models.expansionnet import ExpansionNet


class Raises(ExpansionNet):
    """Fails as a faulty layer would."""

    def encode(self, visual: Visual) -> Memory:
        raise RuntimeError(f"shapes do not fit [{visual.batch_size}]")


class YieldsNaN(ExpansionNet):
    """Breaks a law before it trains."""

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        return super().decode(memory, tokens) * float("nan")


register_model(replace(model_card("transformer_base"), name="broken_raises", entry=Raises))
register_model(replace(model_card("transformer_base"), name="broken_nan", entry=YieldsNaN))
