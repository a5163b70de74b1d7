"""What `bench run` takes from its preset, and the leaderboards that it shows on the way."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from harness.cli import run
from harness.cli.inputs import chosen_features
from harness.config.load import load_preset
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace

UNNAMED: dict[str, Any] = {
    "backbone": None,
    "backbone_weights": None,
    "backbone_option": None,
    "image_size": None,
    "normalisation": None,
    "regions": None,
    "region_count": "all",
    "region_bins": 1,
}


def features(data: str = "scenes", preset: str = "quick", **named: Any) -> tuple[str, bool]:
    """The backbone, and whether models see regions."""
    chosen = chosen_features(data, load_preset(preset), **{**UNNAMED, **named})
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


def test_tables_on_the_way_come_at_doubling_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    said, now, shown = io.StringIO(), [0.0], []
    monkeypatch.setattr(run.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(run, "_show", lambda *_, **__: shown.append(now[0]) or tmp_path / "index.html")
    tables = run._FirstTables(Workspace(tmp_path), Reporter(Console(file=said, width=200)), place_unfinished=False)
    first = run._FIRST_TABLE_S
    for now[0] in (0.5 * first, 1.1 * first, 1.9 * first, 2.0 * first, 9.0 * first, 15.0 * first, 16.0 * first):
        tables(ended=3, planned=7)
    now[0] = 100 * first
    tables(ended=7, planned=7)
    assert shown == [1.1 * first, 2.0 * first, 9.0 * first, 16.0 * first], "the last one comes from the command itself"
    assert said.getvalue().count("so far, 3 of 7 runs") == len(shown)


def test_a_table_on_the_way_that_fails_stops_no_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def fail(*_: object, **__: object) -> Path:
        raise OSError(28, "No space left on device")

    said = io.StringIO()
    monkeypatch.setattr(run, "_show", fail)
    tables = run._FirstTables(Workspace(tmp_path), Reporter(Console(file=said, width=200)), place_unfinished=False)
    tables._due = 1e-9
    tables(ended=3, planned=7)
    assert "no leaderboard yet: OSError: [Errno 28] No space left on device" in said.getvalue()
