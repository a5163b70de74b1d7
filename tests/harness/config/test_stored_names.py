"""Presets as runs of them are stored: settings, signatures and arguments do not change, whatever a preset is called."""

from __future__ import annotations

import pytest

from harness.benchmark.identity.run_key import built_with, keyed_preset
from harness.benchmark.identity.signature import model_signature
from harness.config.load import list_presets, load_preset, preset_digest
from harness.config.preset import Preset
from harness.config.schedule import LearningRate
from harness.metrics.signature import EvaluationSettings
from harness.utils.errors import BenchError
from harness.utils.hashing import digest

MODELS = (
    "aoanet", "cgru", "expansionnet_v1", "expansionnet_v2", "expansionnet_v2/end-to-end", "git/small",
    "image_transformer", "m2", "show_attend_tell", "transformer_base", "updown",
)  # fmt: skip
PINNED = {
    "aoanet-paper": "b8ce9332a2b6",
    "cgru-paper": "9a26a7029f88",
    "expansionnet-v1-paper": "b0325051a894",
    "expansionnet-v2-paper": "94daa4137d2d",
    "expansionnet-v2-paper-frozen": "54aa1b1a9b15",
    "image-transformer-paper": "476f8ce4e221",
    "matched-width": "1cbca81bfefa",
    "matched-width-scst": "dbf60ae5a679",
    "noam-paper": "5860bc4f86f3",
    "quick-scst": "004a0bd09629",
    "small": "0cbf62dad5e3",
    "small-scst": "b1f781cc7c9d",
    "smoke": "8996c22a97d7",
    "updown-paper": "edd0e456b3e4",
}
"""Of all that runs are stored under, as it was before `paper` became `matched-width`."""
SECOND_PASS = "self_critical.gradient=second-pass"
LUO = ("recipe.captions=words", "decoding.banned=[]", "decoding.release_finished=false")


def counted(stage: int, **counts: int) -> tuple[str, ...]:
    """Settings of a stage's learning rate that count steps and epochs, in place of shares of the stage."""
    rate = f"schedule.stages.{stage}.learning_rate"
    replaced = {name: share for share, name in LearningRate.SHARES.items()}
    return tuple(
        f"{rate}.{each}" for name, count in counts.items() for each in (f"{replaced[name]}=null", f"{name}={count}")
    )


SHARED_XE = counted(0, warmup_steps=4000, every_epochs=2)
SINCE_CHANGED = {
    **dict.fromkeys(
        ("aoanet-paper", "image-transformer-paper", "updown-paper"), (f"schedule.stages.1.{SECOND_PASS}", *LUO)
    ),
    "cgru-paper": ("recipe.restval=train", "schedule.stages.1.dropout=null"),
    "expansionnet-v1-paper": (f"schedule.stages.1.{SECOND_PASS}",),
    "expansionnet-v2-paper": (f"schedule.stages.2.{SECOND_PASS}", f"schedule.stages.3.{SECOND_PASS}"),
    "expansionnet-v2-paper-frozen": (f"schedule.stages.1.{SECOND_PASS}",),
    "matched-width": SHARED_XE,
    "matched-width-scst": ("schedule.stages.1.dropout=0.1", *SHARED_XE, *counted(1, warmup_steps=1000)),
    "noam-paper": (
        f"schedule.stages.1.{SECOND_PASS}", *LUO, "recipe.models=[transformer, m2, object_relation_transformer]",
    ),
    "quick-scst": (*counted(0, warmup_steps=40), *counted(1, warmup_steps=30)),
    "small": counted(0, warmup_steps=300),
    "small-scst": (
        "schedule.stages.1.dropout=0.1", *counted(0, warmup_steps=300), *counted(1, warmup_steps=100),
    ),
    "smoke": counted(0, warmup_steps=20),
}  # fmt: skip
"""Presets that were changed since, with the settings that make them what they were."""


def as_stored(preset: Preset) -> str:
    """A digest of all that a preset gives to run keys, signatures and models."""
    conditions = {"data": "d", "nrefs": "5", "features": "f", "vocabulary": "v", "precision": "fp32"}
    signature = model_signature(preset, evaluation=EvaluationSettings(), **conditions)
    models = [model for model in MODELS if preset.recipe is None or preset.recipe.covers(model)]
    arguments = {model: built_with(model, preset.model_arguments(model)) for model in models}
    signed = [signature[name] for name in ("size", "schedule", "track")]
    return digest([keyed_preset(preset), preset_digest(preset), signed, arguments], 12)


@pytest.mark.parametrize("name", PINNED)
def test_stored_runs_of_a_preset_keep_key_and_signature(name: str) -> None:
    as_it_was = load_preset(name, SINCE_CHANGED.get(name, ()))
    assert as_stored(as_it_was) == PINNED[name]
    assert (as_stored(load_preset(name)) == PINNED[name]) == (name not in SINCE_CHANGED)


@pytest.mark.parametrize("suffix", ["", "-scst"])
def test_the_old_name_answers_with_the_three_new_ones(suffix: str) -> None:
    with pytest.raises(BenchError, match=f"now 'matched-width{suffix}'") as caught:
        load_preset(f"paper{suffix}")
    for name in ("matched-width", "matched-parameters", "own-size"):
        assert f"{name}{suffix} (" in (caught.value.hint or "")
        assert f"{name}{suffix}" in list_presets()
