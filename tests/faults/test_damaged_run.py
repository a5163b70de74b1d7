"""`bench run` where a finished run is damaged: left out and said, made anew once it is set aside."""

from __future__ import annotations

from pathlib import Path

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from tests.faults.damage import damage, rows
from tests.harness.conftest import TINY, bench, run_words


def test_a_damaged_run_is_left_out_then_made_anew(tmp_path: Path) -> None:
    data = prepare_scenes(tmp_path / "data", ScenesConfig(train=4, val=2, test=3, nocaps_per_domain=1))
    place = tmp_path / "w"
    words = [*run_words(data, place, "retrieval,majority", TINY), "--backbone", "filterbank"]
    assert bench(*words).exit_code == 0
    before = rows(place / "bench.sqlite")
    damage(place / "bench.sqlite", "UPDATE runs SET signature = '{' WHERE model = 'retrieval'")
    damaged = rows(place / "bench.sqlite")

    again = bench(*words)
    said = again.output
    assert again.exit_code == 1, again.exception
    assert said.count("1 run is left out, damaged in the results database: run retrieval-") == 1
    assert "0 finished, 1 re-used, 0 failed, 1 damaged; report:" in said
    assert rows(place / "bench.sqlite")["runs"] == damaged["runs"]

    assert bench("db", "check", "--workspace", place, "--set-aside").exit_code == 0
    anew = bench(*words)
    assert anew.exit_code == 0, anew.output
    assert "1 finished, 1 re-used, 0 failed; report:" in anew.output
    assert "left out" not in anew.output
    after = rows(place / "bench.sqlite")
    assert {name: len(found) for name, found in after.items()} == {name: len(found) for name, found in before.items()}
