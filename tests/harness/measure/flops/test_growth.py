"""How every registered model's parts grow with what they are given, as docs/costs.md says."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch

from harness.measure.flops.counting import count_caption, count_encoder
from harness.measure.flops.tracing import trace, unfused
from harness.measure.inputs import example_visual
from harness.measure.model_modes import eval_mode
from zoo.captioner import Captioner, Visual
from zoo.registry import create_model, model_card

STEP = {
    # Multiply-accumulates of a step as a polynomial of its position: a state that summarises what went before (0),
    # attention over what went before (1), expansion of all that went before by all that went before (2).
    **dict.fromkeys(("adaptive_attention", "aoanet", "att2all", "att2in", "cgru", "gcn_lstm"), 0),
    **dict.fromkeys(("image_transformer", "sgae", "show_attend_tell", "show_tell", "updown", "x_lan"), 0),
    **dict.fromkeys(("blind", "blip", "get", "git", "vit_gpt2", "m2", "object_relation_transformer"), 1),
    **dict.fromkeys(("dlct", "grit", "rstnet", "transformer", "transformer_aoa", "transformer_base"), 1),
    **dict.fromkeys(("puret", "x_transformer"), 1),
    **dict.fromkeys(("expansionnet_v1", "expansionnet_v2"), 2),
    **dict.fromkeys(("expansionnet_v1/baseline", "expansionnet_v1/dynamic-encoder-1"), 1),
    **dict.fromkeys(("expansionnet_v1/static-64", "expansionnet_v2/static-16"), 1),
}
ENCODER = {
    # The same of the encoder and the number of regions: projections and static expansion (1), attention between
    # regions (2), dynamic expansion of all regions by all regions (3).
    **dict.fromkeys(("adaptive_attention", "aoanet/no-refiner", "att2all", "att2in", "cgru"), 1),
    **dict.fromkeys(("gcn_lstm/no-graph", "sgae", "show_attend_tell", "updown"), 1),
    **dict.fromkeys(("expansionnet_v1", "expansionnet_v2", "grit", "x_lan", "x_transformer"), 1),
    **dict.fromkeys(("aoanet", "dlct", "get", "image_transformer", "m2", "object_relation_transformer"), 2),
    **dict.fromkeys(("gcn_lstm", "puret", "rstnet"), 2),
    **dict.fromkeys(("transformer", "transformer_aoa", "transformer_base"), 2),
    **dict.fromkeys(("expansionnet_v1/baseline", "expansionnet_v2/dynamic-16"), 2),
    "expansionnet_v1/dynamic-encoder-1": 3,
}


def degree(values: list[int]) -> int:
    """Of the polynomial through values at consecutive points, two more than it should have."""
    differences, found = np.array(values), 0
    while differences.any():
        differences, found = np.diff(differences), found + 1
    assert len(differences) > 0, "of a higher degree than documented"
    return found - 1


def documented(name: str, by_name: Mapping[str, int]) -> int:
    return by_name.get(name, by_name[name.partition("/")[0]])


def step_macs(model: Captioner, visual: Visual, positions: range) -> list[int]:
    """Of one step alone, after so many others."""
    found = []
    with torch.no_grad(), eval_mode(model), unfused():
        state, token = model.start(model.encode(visual)), torch.ones(1, dtype=torch.long)
        for position in range(positions.stop):
            if position in positions:
                found.append(trace(model, lambda last: model.step(token, last), state).macs)
            _, state = model.step(token, state)
    return found


def test_grows_as_documented(architecture: str) -> None:
    """Steps with their position, encoders with regions, and captions linearly with the beam's width."""
    torch.manual_seed(0)
    model = create_model(architecture, vocab_size=30, visual_dim=8, **model_card(architecture).tiny)
    seen = example_visual(model.visual, length=6)
    steps = documented(architecture, STEP)
    by_position = step_macs(model, seen, range(steps + 2))
    assert degree(by_position) == steps
    assert degree([count_caption(model, seen, 2, width).macs for width in (1, 2, 3)]) == 1
    if model.visual.kind in {"grid", "regions", "regions+grid"}:
        encoder = documented(architecture, ENCODER)
        lengths = [example_visual(model.visual, length=length) for length in range(6, encoder + 8)]
        assert degree([count_encoder(model, visual).macs for visual in lengths]) == encoder
        longer = [step_macs(model, visual, range(1, 2))[0] for visual in lengths[1:3]]
        assert degree([by_position[1], *longer]) == 1
