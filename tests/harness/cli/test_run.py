"""What `bench run` takes from its preset."""

from pathlib import Path
from typing import Any

import pytest

from harness.cli.inputs import chosen_features
from harness.cli.options import RunOptions
from harness.config.load import load_preset
from harness.utils.errors import BenchError


def features(data: str = "scenes", preset: str = "quick", **named: Any) -> tuple[str, bool]:
    """The backbone, and whether models see regions."""
    chosen = chosen_features(RunOptions(data=data, **named), load_preset(preset))
    return chosen.backbone, chosen.regions is not None


def test_default_preset_shows_objects_of_the_embedded_data() -> None:
    assert features() == ("scenesnet", True)
    assert features(preset="smoke") == ("filterbank", False)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ({"backbone": "filterbank"}, ("filterbank", False)),
        ({"regions": "boxes"}, ("filterbank", True)),
        ({"image_size": 96}, ("filterbank", False)),
        ({"backbone_option": ["grid=4"]}, ("filterbank", False)),
    ],
)
def test_options_of_features_replace_all_that_the_preset_names(
    named: dict[str, Any], expected: tuple[str, bool]
) -> None:
    assert features(**named) == expected


def test_other_data_ask_for_a_backbone_as_ever(tmp_path: Path) -> None:
    (tmp_path / "dataset.json").touch()
    with pytest.raises(BenchError, match="needs a backbone"):
        features(data=str(tmp_path))
    assert features(data=str(tmp_path), backbone="resnet18") == ("resnet18", False)
