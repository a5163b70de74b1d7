"""The width at which a model has a number of parameters."""

import pytest
import torch

from harness.config.load import load_preset
from zoo import ModelCard, ZooError, create_model, list_models, registry
from zoo import width as module
from zoo.width import TOLERANCE, count_parameters, match_width

TARGET = 40_000_000
TRAINED = [name for name in list_models() if not name.endswith(("/pretrained", "/finetuned"))]
SIZES = {"vocab_size": 10_000, "visual_dim": 1536}


@pytest.fixture(autouse=True)
def _no_random_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing weights that lie nowhere takes most of the time of making such a model."""
    for name in ("_no_grad_normal_", "_no_grad_uniform_", "_no_grad_trunc_normal_"):
        monkeypatch.setattr(torch.nn.init, name, lambda tensor, *_, **__: tensor)


@pytest.mark.parametrize("name", TRAINED)
def test_every_model_comes_within_two_per_cent(name: str) -> None:
    sizes = SIZES | ({"visual_dim": 1024} if name == "cgru/paper-size" else {})
    widths = match_width(name, TARGET, **sizes, max_len=74)
    assert count_parameters(name, **sizes, max_len=74, **widths) == pytest.approx(TARGET, rel=TOLERANCE)


@pytest.mark.parametrize("name", [name for name in TRAINED if "/" not in name or name.endswith("/small")])
def test_so_does_every_architecture_of_the_default(name: str) -> None:
    preset, sizes = load_preset("quick"), {"vocab_size": 118, "visual_dim": 64}
    target = count_parameters("transformer_base", **sizes, **preset.size)
    arguments = preset.model_arguments(name, **sizes)
    assert count_parameters(name, **sizes, **arguments) == pytest.approx(target, rel=TOLERANCE)


@pytest.mark.parametrize("name", ["transformer_base", "updown", "cgru"])
def test_the_count_is_that_of_the_model_as_built(name: str) -> None:
    widths = match_width(name, 500_000, vocab_size=90, visual_dim=16)
    model = create_model(name, vocab_size=90, visual_dim=16, **widths)
    found = sum(parameter.numel() for parameter in model.parameters())
    assert found == count_parameters(name, vocab_size=90, visual_dim=16, **widths)
    assert found == pytest.approx(500_000, rel=TOLERANCE)


def test_the_search_draws_no_random_numbers_and_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = torch.get_rng_state()
    first = match_width("updown", 3_000_000, vocab_size=500, visual_dim=64)
    assert torch.equal(torch.get_rng_state(), numbers)
    monkeypatch.setattr(module, "create_model", None)
    assert match_width("updown", 3_000_000, vocab_size=500, visual_dim=64) == first


def test_a_model_with_a_backbone_is_matched_without_it() -> None:
    whole = match_width("expansionnet_v2/end-to-end", TARGET, **SIZES)
    assert whole == match_width("expansionnet_v2", TARGET, **SIZES)


def test_a_target_out_of_reach_names_the_model_and_the_nearest_count() -> None:
    with pytest.raises(ZooError, match=r"show_attend_tell .*1,000,000.* [0-9,]+ \(d_model"):
        match_width("show_attend_tell", 1_000_000, **SIZES)


def test_a_model_without_a_width_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def of_one_size(*, vocab_size: int, visual_dim: int) -> None:
        """A constructor whose model has no d_model."""

    card = ModelCard("one_size", of_one_size, "", "", 2026, "", "", "grid")  # type: ignore[arg-type]
    monkeypatch.setattr(registry, "_registered", {**registry._registered, "one_size": card})
    with pytest.raises(ZooError, match="one_size has no argument d_model"):
        match_width("one_size", TARGET, **SIZES)
