"""A stage's dropout at every site of a model, against the rates that the authors' codes have there."""

from typing import Any

import pytest
import torch
from torch import nn

from harness.config.schedule import Schedule, Stage
from harness.training.stage import DropoutRates, PackedDropout, validate_schedule
from harness.utils.errors import BenchError
from zoo import Captioner, create_model, model_card


def build(name: str) -> Captioner:
    return create_model(name, vocab_size=20, visual_dim=8, **model_card(name).tiny)


def stage(**settings: Any) -> Stage:
    return Stage.model_validate(
        {"name": "xe", "epochs": 1, "batch_size": 2, "learning_rate": {"peak": 0.01}} | settings
    )


def rates(model: nn.Module) -> dict[str, float]:
    return {name: module.p for name, module in model.named_modules() if isinstance(module, nn.Dropout)}


def test_a_scale_multiplies_each_site() -> None:
    model = build("aoanet")
    own = rates(model)
    assert {own["context_dropout"], own["output_dropout"], own["embedding.2"], own["region_embedding.2"]} == {0.5}
    assert own["attention.dropout"] == own["refiner.layers.0.mixer.dropout"] == 0.1
    assert own["refiner.layers.0.mixer.gate.dropout"] == 0.3
    DropoutRates(model).apply(stage(dropout_scale=0.5))
    assert rates(model) == pytest.approx({name: rate / 2 for name, rate in own.items()})


def test_a_scale_of_one_is_what_the_model_was_built_with() -> None:
    model = build("updown")
    own = rates(model)
    kept = DropoutRates(model)
    kept.apply(stage(dropout=0.3))
    assert set(rates(model).values()) == {0.3}
    kept.apply(stage(dropout_scale=1.0))
    assert rates(model) == own
    kept.apply(stage(dropout_scale=0.2))
    kept.apply(stage(dropout=None))
    assert rates(model) == own, "scales do not multiply over stages"
    assert set(own.values()) == {0.5}


def test_a_backbone_keeps_its_own_rates() -> None:
    model = build("expansionnet_v2/end-to-end")
    model.get_submodule("backbone").add_module("dropped", nn.Dropout(0.2))
    DropoutRates(model).apply(stage(dropout_scale=0.5))
    assert rates(model.get_submodule("backbone"))["dropped"] == 0.2
    assert set(rates(model.get_submodule("body")).values()) == {0.15}


def test_a_rate_that_reaches_one_is_refused_before_training() -> None:
    model = build("updown")
    schedule = Schedule(name="s", summary="", stages=(stage(dropout_scale=2.0),))
    with pytest.raises(BenchError, match=r"dropout_scale 2 .*0\.5") as caught:
        validate_schedule(model, schedule)
    assert caught.value.hint == "choose a dropout_scale below 2"
    assert set(rates(model).values()) == {0.5}
    validate_schedule(build("transformer_base"), schedule)  # 0.3 twice over is 0.6


def test_packed_masks_drop_at_the_rate_and_keep_the_mean() -> None:
    torch.manual_seed(0)
    x = torch.full((1000, 1001), 3.0, requires_grad=True)
    for rate in (0.1, 0.5):
        dropped = PackedDropout(rate)(x)
        kept = dropped != 0
        assert 1 - kept.float().mean().item() == pytest.approx(rate, abs=0.002)
        assert kept.float().std(0).mean().item() == pytest.approx((rate * (1 - rate)) ** 0.5, abs=0.005)
        assert dropped[kept].unique().tolist() == pytest.approx([3 / (1 - rate)], rel=1e-4)
        neighbours = torch.stack([kept[:, at::4].flatten()[:250_000] for at in range(4)]).float()
        assert torch.corrcoef(neighbours).triu(1).abs().max().item() < 0.01, "four elements of a number"
        (gradient,) = torch.autograd.grad(dropped.sum(), x)
        assert torch.equal(gradient != 0, kept)
        assert torch.equal(gradient * 3, dropped)


def test_packed_masks_follow_the_generator_and_shapes() -> None:
    for shape in ((3,), (2, 3, 5), (0, 4), ()):
        drawn = []
        for _ in range(2):
            torch.manual_seed(1)
            drawn.append(PackedDropout(0.5)(torch.ones(shape)))
        assert drawn[0].shape == shape
        assert torch.equal(*drawn)
    strided = torch.arange(12.0).view(3, 4).t()
    dropped = PackedDropout(0.5)(strided)
    assert torch.equal(dropped, strided * (dropped != 0) * 2)


def test_packed_masks_only_where_they_are_faster() -> None:
    x = torch.ones(4000)
    assert PackedDropout(0.5).eval()(x) is x
    for other in (x.double(), x.bfloat16()):
        torch.manual_seed(2)
        expected = nn.Dropout(0.5)(other)
        torch.manual_seed(2)
        assert torch.equal(PackedDropout(0.5)(other), expected)


def test_a_stage_with_packed_masks_leaves_no_trace() -> None:
    model = build("transformer")
    kept = DropoutRates(model)
    kept.apply(stage(dropout_scale=1.0, dropout_masks="packed"))
    sites = [module for module in model.modules() if isinstance(module, nn.Dropout)]
    assert {type(site) for site in sites} == {PackedDropout}
    kept.apply(stage(dropout=0.3))
    assert {(type(site), site.p) for site in sites} == {(nn.Dropout, 0.3)}
