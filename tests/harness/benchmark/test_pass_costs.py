"""What passes of a model cost, for estimates: a whole model's counts, and a backbone of its own apart from the rest."""

from __future__ import annotations

import torch

from harness.benchmark.pass_costs import pass_costs
from harness.measure.flops.counting import count_flops
from harness.measure.speed import measure_speed
from tests.harness.measure.conftest import TinyCaptioner
from zoo import create_model, model_card

END_TO_END = "expansionnet_v2/end-to-end"


def test_a_model_on_features_is_counted_as_it_is(tiny: TinyCaptioner) -> None:
    costs, visual = pass_costs(tiny, cells=9, caption_length=5)
    whole = count_flops(tiny, visual, caption_length=5, beam_size=1)
    assert visual.features is not None
    assert visual.features.shape[1] == 9
    assert costs.parameters == sum(parameter.numel() for parameter in tiny.parameters())
    assert costs.backbone == 0
    assert (costs.encoder, costs.start, costs.step) == (whole.encoder.macs, whole.start.macs, whole.step.macs)
    assert costs.caption == whole.teacher_forced.macs - whole.encoder.macs


def test_more_cells_and_words_cost_more(tiny: TinyCaptioner) -> None:
    few, many, longer = (
        pass_costs(tiny, cells=cells, caption_length=words)[0] for cells, words in ((4, 5), (8, 5), (8, 10))
    )
    assert many.encoder == longer.encoder == 2 * few.encoder, "a linear layer over the cells"
    assert longer.caption > many.caption > few.caption


def test_a_models_own_backbone_is_counted_apart() -> None:
    model = create_model(END_TO_END, vocab_size=50, visual_dim=0, **model_card(END_TO_END).tiny).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    costs, visual = pass_costs(model, cells=144, caption_length=5)
    whole = count_flops(model, visual, caption_length=5, beam_size=1)
    assert costs.backbone > 0
    assert costs.encoder > 0
    assert costs.backbone + costs.encoder == whole.encoder.macs
    assert costs.caption == whole.teacher_forced.macs - whole.encoder.macs
    speed = measure_speed(model, visual, costs, 5)
    assert min(speed.training, speed.decoding) > 0
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
