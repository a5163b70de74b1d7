"""A stage's dropout: one rate at every site of a model, or a factor of the rates that the model was built with."""

from __future__ import annotations

from torch import nn

from harness.config.schedule import Stage
from harness.utils.errors import BenchError
from zoo.captioner import Captioner, HasBackbone


class DropoutRates:
    """The rates that a model was built with, by site, and what a stage makes of them.

    Args:
        model: as it was built; a backbone within it keeps its own rates in every stage.
    """

    def __init__(self, model: Captioner) -> None:
        self._model = model
        self._built_with = {module: module.p for module in model.modules() if isinstance(module, nn.Dropout)}

    def apply(self, stage: Stage) -> None:
        """Set the rates of a stage; without `dropout` and `dropout_scale`, those that the model was built with.

        Raises:
            BenchError: see `scaled`.
        """
        self.restore()
        if stage.dropout is not None:
            self._model.set_dropout(stage.dropout)
        for module, rate in self.scaled(stage).items():
            module.p = rate

    def restore(self) -> None:
        """Set every rate that the model was built with."""
        for module, built_with in self._built_with.items():
            module.p = built_with

    def scaled(self, stage: Stage) -> dict[nn.Dropout, float]:
        """The rates of a stage with a `dropout_scale`; none for a stage without.

        Raises:
            BenchError: a rate would be 1 or above, which leaves nothing of what it drops from.
        """
        if stage.dropout_scale is None:
            return {}
        captioner = self._model.body if isinstance(self._model, HasBackbone) else self._model
        found = {}
        for name, module in captioner.named_modules():
            if isinstance(module, nn.Dropout):
                found[module] = stage.dropout_scale * self._built_with[module]
                if found[module] >= 1:
                    raise BenchError(
                        f"stage {stage.name!r}: dropout_scale {stage.dropout_scale:g} makes a rate of "
                        f"{found[module]:g} from the model's own {self._built_with[module]:g} ({name}); rates are "
                        "below 1",
                        f"choose a dropout_scale below {1 / self._built_with[module]:g}",
                    )
        return found
