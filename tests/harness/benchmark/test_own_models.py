"""Plug-ins' models before they train: held to the laws, and left as they were."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from harness.benchmark.context import RunContext
from harness.benchmark.run import hold_to_laws
from zoo import Memory, create_model, model_card, register_model, registry
from zoo.laws import BrokenLawError
from zoo.models.show_attend_tell import ShowAttendTell


class Leaks(ShowAttendTell):
    """Its words see the next one."""

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        return super().decode(memory, tokens) + tokens.roll(-1, 1)[..., None].cos() * torch.arange(self.vocab_size)


@pytest.mark.parametrize("entry", [ShowAttendTell, Leaks])
def test_a_model_and_random_numbers_are_as_before(
    small: RunContext, monkeypatch: pytest.MonkeyPatch, entry: type[ShowAttendTell]
) -> None:
    registry.list_models()  # the zoo's own are registered
    monkeypatch.setattr(registry, "_cards", dict(registry._cards))
    register_model(dataclasses.replace(model_card("show_attend_tell"), name="mine", entry=entry))
    sizes = {"vocab_size": len(small.inputs.vocabulary), "visual_dim": small.data.visual_dim}
    model = create_model("mine", **sizes, **model_card("mine").tiny)
    before, weights = torch.get_rng_state(), {name: value.clone() for name, value in model.state_dict().items()}
    hold_to_laws("show_attend_tell", model, small)  # the zoo's own is not asked
    if entry is Leaks:
        with pytest.raises(BrokenLawError, match="later"):
            hold_to_laws("mine", model, small)
    else:
        hold_to_laws("mine", model, small)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
