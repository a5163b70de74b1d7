"""Numbers of presets, schedules and sizes that nobody can train with: refused by name, with what to type next."""

import pytest

from harness.config.load import load_preset
from harness.utils.errors import BenchError
from zoo import ZooError, create_model, list_models, model_card
from zoo.registry import check_sizes

RATE = "schedule.stages.0.learning_rate"


@pytest.mark.parametrize(
    ("setting", "values", "example"),
    [
        (
            "size.d_model",
            ["-5", "0", ".nan", ".inf", "48.5", "48.0", "wide", "true", "~", "9999999"],
            "size.d_model=128",
        ),
        ("size.n_heads", ["0", "-1", "99999"], "size.d_model=128"),
        ("size.dropout", ["1", "-0.1", ".nan"], "size.d_model=128"),
        ("size.n_encoder_layers", ["0", "1.5"], "size.d_model=128"),
        ("decoding.length_penalty", [".nan", ".inf", "1e3", "-11"], "decoding.length_penalty=1.0"),
        ("decoding.beam_size", ["0", "257", ".nan", "2.5"], "decoding.beam_size=3"),
        ("decoding.max_len", ["0", "1001"], "decoding.max_len=20"),
        ("schedule.stages.0.optimiser.betas.0", ["[2, 3]", "[.nan, 0.9]", "[-1, 0.9]", "[1, 0.9]"], "betas=[0.9,0.98]"),
        (f"{RATE}.peak", [".inf", ".nan", "0", "-1", "1e9", "1e400", "0x" + "f" * 1500], f"{RATE}.peak=0.002"),
        (f"{RATE}.warmup_share", ["-1", "1.5", ".inf"], f"{RATE}.warmup_share=0.1333"),
        (f"{RATE}.every_epochs", ["0", "1.0e-300", ".nan"], f"{RATE}.every_epochs=1.0"),
        (f"{RATE}.minimum", [".nan", "-1"], f"{RATE}.minimum=0.0"),
        ("schedule.stages.0.epochs", ["0", "99999999999999999999"], "schedule.stages.0.epochs="),
        ("schedule.stages.0.batch_size", ["0", "99999999"], "schedule.stages.0.batch_size="),
        ("schedule.stages.0.clip_norm", [".nan", ".inf", "0"], "schedule.stages.0.clip_norm=1.0"),
        ("schedule.stages.0.dropout", [".nan", "1", "-1"], "schedule.stages.0.dropout=0.0"),
        ("energy_seconds", [".inf", ".nan", "-1", "1e5"], "energy_seconds=0.0"),
        ("latency_repeats", ["1", "99999999999999999999"], "latency_repeats=50"),
        ("vocabulary.min_count", ["0", ".nan", "9999999999"], "vocabulary.min_count=1"),
    ],
)
def test_settings_out_of_range_name_themselves(setting: str, values: list[str], example: str) -> None:
    for value in values:
        with pytest.raises(BenchError) as caught:
            load_preset("quick-scst", (f"{setting.removesuffix('.0')}={value}",))
        assert setting in str(caught.value)
        assert len(str(caught.value)) < 400
        assert example in (caught.value.hint or "")


def test_heads_that_do_not_divide_the_width_are_told() -> None:
    with pytest.raises(BenchError, match=r"size\.d_model 128 is no multiple of n_heads 3; choose d_model 126 or 129"):
        load_preset("quick-scst", ("size.n_heads=3",))


@pytest.mark.parametrize("wrong", [{"d_model": -5}, {"d_model": float("nan")}, {"n_heads": 0}, {"visual_dim": -1}])
def test_models_refuse_sizes_before_they_are_built(wrong: dict[str, float]) -> None:
    given = {"vocab_size": 9, "visual_dim": 4, **model_card("transformer_base").tiny, **wrong}
    with pytest.raises(ZooError, match=next(iter(wrong))):
        create_model("transformer_base", **given)


def test_sizes_of_all_cards_are_allowed() -> None:
    for name in list_models():
        card = model_card(name)
        for arguments in (card.arguments, {**card.arguments, **card.tiny}, {**card.arguments, **card.small}):
            check_sizes(arguments)
