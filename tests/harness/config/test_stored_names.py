"""Presets as runs of them are stored: settings, signatures and arguments do not change, whatever a preset is called."""

from __future__ import annotations

import pytest

from harness.config.load import list_presets, load_preset, preset_digest
from harness.config.preset import Preset
from harness.metrics.signature import EvaluationSettings
from harness.runner.identity.run_key import built_with, keyed_preset
from harness.runner.identity.signature import model_signature
from harness.utils.errors import BenchError
from harness.utils.hashing import digest

MODELS = (
    "aoanet", "cgru", "expansionnet_v1", "expansionnet_v2", "expansionnet_v2/end-to-end", "git/small",
    "image_transformer", "m2", "show_attend_tell", "transformer_base", "updown",
)  # fmt: skip
PINNED = {
    "aoanet-paper": "99c0a5080908",
    "cgru-paper": "1000c5362398",
    "expansionnet-v1-paper": "b0325051a894",
    "expansionnet-v2-paper": "94daa4137d2d",
    "expansionnet-v2-paper-frozen": "54aa1b1a9b15",
    "image-transformer-paper": "fbdf68f695fa",
    "matched-width": "1cbca81bfefa",
    "matched-width-scst": "dbf60ae5a679",
    "noam-paper": "4737bc74858a",
    "quick-scst": "004a0bd09629",
    "small": "0cbf62dad5e3",
    "small-scst": "b1f781cc7c9d",
    "smoke": "8996c22a97d7",
    "updown-paper": "9b624f2bd2d2",
}
"""Of all that runs are stored under, as it was before `paper` became `matched-width`."""


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
    assert as_stored(load_preset(name)) == PINNED[name]


@pytest.mark.parametrize("suffix", ["", "-scst"])
def test_the_old_name_answers_with_the_three_new_ones(suffix: str) -> None:
    with pytest.raises(BenchError, match=f"now 'matched-width{suffix}'") as caught:
        load_preset(f"paper{suffix}")
    for name in ("matched-width", "matched-parameters", "own-size"):
        assert f"{name}{suffix} (" in (caught.value.hint or "")
        assert f"{name}{suffix}" in list_presets()
