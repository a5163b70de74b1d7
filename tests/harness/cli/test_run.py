"""What `bench run` takes from its preset, and the leaderboards that it shows on the way."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.benchmark import benchmark
from harness.benchmark.benchmark import Summary
from harness.cli import run
from harness.cli.inputs import chosen_features
from harness.config.load import load_preset
from harness.utils.errors import BenchError
from tests.harness.conftest import bench_or_raise

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


def test_tables_on_the_way_come_at_doubling_times_and_stop_no_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, now, shown = run._FIRST_TABLE_S, [0.0], []

    def show(*_: object, **__: object) -> Path:
        shown.append(now[0])
        if now[0] < 3 * first:
            raise OSError(28, "No space left on device")
        return tmp_path / "index.html"

    def executed(*given: Any) -> Summary:
        for now[0] in (0.5 * first, 1.1 * first, 1.9 * first, 2.0 * first, 9.0 * first, 15.0 * first, 16.0 * first):
            given[-1](Summary(["planned"] * 7, finished=["ended"] * 3))
        now[0] = 100 * first
        given[-1](Summary(["planned"] * 7, finished=["ended"] * 7))
        return Summary(finished=["ended"] * 7)

    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(run, "_show", show)
    monkeypatch.setattr(benchmark, "run_benchmark", executed)
    code, said = bench_or_raise("run", "--models", "blind", "--preset", "smoke", "--workspace", tmp_path)
    assert code == 0
    assert shown == [1.1 * first, 2.0 * first, 9.0 * first, 16.0 * first, 100 * first], "the last after all runs"
    assert (said.count("so far, 3 of 7 runs"), said.count("No space left on device")) == (4, 2)
