"""The search space, and a preset with chosen values."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.config.load import PRESETS, load_preset
from harness.config.schedule import Stage
from harness.config.tuning import SearchSpace, TunedValues, default_params, scaled, tuned_preset
from harness.training.stage import DropoutRates
from harness.utils.errors import BenchError
from zoo import create_model, model_card

CONTROLLED = [name for name in PRESETS if load_preset(name).recipe is None]
VALUES = TunedValues(learning_rate=2.5, dropout_scale=0.3, warmup=0.125, clip_norm=0.0)


def unsearched(stage: Stage) -> dict[str, object]:
    """A stage's settings less those that are searched."""
    content = stage.model_dump(exclude={"dropout", "dropout_scale", "clip_norm"})
    return content | {"learning_rate": stage.learning_rate.model_dump(exclude={"peak", "warmup_steps", "warmup_share"})}


@pytest.mark.parametrize("name", CONTROLLED)
def test_no_values_are_the_preset_as_it_is(name: str) -> None:
    preset = load_preset(name)
    assert tuned_preset(preset, TunedValues()) == preset


@pytest.mark.parametrize("name", CONTROLLED)
def test_values_change_every_stage_and_nothing_else(name: str) -> None:
    preset = load_preset(name)
    changed = tuned_preset(preset, VALUES)
    for own, tuned in zip(preset.schedule.stages, changed.schedule.stages, strict=True):
        rate = tuned.learning_rate
        assert rate.peak == pytest.approx(2.5 * own.learning_rate.peak)
        assert (rate.warmup_of(80), tuned.dropout_scale, tuned.clip_norm) == (10, 0.3, None)
        assert tuned.dropout is None, "a rate at every site would exclude the scale that was searched"
        assert Stage.model_validate(tuned.model_dump()) == tuned
        assert unsearched(tuned) == unsearched(own)
    assert changed.model_copy(update={"schedule": preset.schedule}) == preset


@pytest.mark.parametrize("name", CONTROLLED)
def test_the_untuned_preset_has_a_point_in_the_space(name: str) -> None:
    preset, space = load_preset(name), SearchSpace(width=(0.5, 1.0))
    point = default_params(preset, space, [400] * len(preset.schedule.stages))
    last = preset.schedule.stages[-1]
    alone = default_params(preset, SearchSpace(stage=last.name), [400] * len(preset.schedule.stages))
    assert alone["warmup"] == min(last.learning_rate.warmup_of(400) / 400, 0.3)
    for setting, bounds in space.model_dump().items():
        assert point[setting] in bounds or (len(bounds) == 2 and bounds[0] <= point[setting] <= bounds[1]), setting


@given(st.floats(0.05, 4), st.integers(1, 16), st.integers(1, 40))
def test_a_scaled_width_is_a_multiple_of_the_heads(factor: float, heads: int, per_head: int) -> None:
    size = {"d_model": heads * per_head, "d_ff": 64, "n_heads": heads}
    found = scaled(load_preset("smoke").model_copy(update={"size": size}), factor)
    assert found["d_model"] % heads == 0
    assert abs(found["d_model"] - factor * heads * per_head) <= max(heads / 2, heads * (1 - factor * per_head))
    assert found["d_ff"] == max(round(64 * factor), 1)


def test_a_preset_without_sizes_has_no_width_to_search() -> None:
    preset = load_preset("smoke").model_copy(update={"size": {"max_len": 20}})
    with pytest.raises(BenchError, match="d_ff, d_model, n_heads"):
        scaled(preset, 2.0)


@pytest.mark.parametrize(
    ("dropout", "scale", "nearest"), [(0.0, None, 0.0), (0.3, None, 1.0), (None, None, 1.0), (None, 0.8, 0.8)]
)
def test_the_search_begins_at_the_preset_s_dropout(dropout: float | None, scale: float | None, nearest: float) -> None:
    preset = load_preset("smoke", ("schedule.stages.0.dropout=null",))
    [stage] = preset.schedule.stages
    stages = (stage.model_copy(update={"dropout": dropout, "dropout_scale": scale}),)
    preset = preset.model_copy(update={"schedule": preset.schedule.model_copy(update={"stages": stages})})
    assert default_params(preset, SearchSpace(), [400])["dropout_scale"] == nearest


def test_every_model_can_have_the_largest_dropout_scale(architecture: str) -> None:
    with torch.device("meta"):
        model = create_model(architecture, vocab_size=20, visual_dim=8, **model_card(architecture).tiny)
    values = TunedValues(dropout_scale=SearchSpace().dropout_scale[1])
    [stage] = tuned_preset(load_preset("smoke"), values).schedule.stages
    assert max(DropoutRates(model).scaled(stage).values()) < 1


@given(st.floats(0.1, 10), st.floats(0, 1.5))
def test_values_are_kept_to_four_digits(rate: float, dropout: float) -> None:
    found = TunedValues.of_params({"learning_rate": rate, "dropout_scale": dropout})
    assert found.learning_rate == pytest.approx(rate, rel=5e-4)
    assert TunedValues.model_validate_json(found.model_dump_json()) == found
