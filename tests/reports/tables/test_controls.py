"""Control pairs in words: what was changed, by how much, and beside which differences."""

from __future__ import annotations

from dataclasses import replace

from reports.tables.facts import control_sentences
from results.runs.controls import ControlPair, Controls

SEEDS = ControlPair("m2", "seeds", None, 3.12, -10.04, 16.4, 0.4321, None, (2, 2))
FILTER = ControlPair("m2", "preprocessing", "bicubic", -1.23, None, None, None, "needs seeds: why", (1, 4))


def test_a_model_s_controls_stand_beside_the_table_s_differences() -> None:
    assert control_sentences(Controls((SEEDS, FILTER), 40.21, 8.3)) == (
        "Not the architecture: m2 with other seeds differs by 3.1 points (95 % -10.0 to 16.4, p 0.432, 2 against 2 "
        "seeds); with the resize filter bicubic differs by -1.2 points (no interval, needs seeds: why; 1 against 4 "
        "seeds); the models of this table differ by 40.2 at most, 8.3 in the median.",
    )


def test_every_model_has_a_sentence_and_the_last_the_table() -> None:
    rescaled = replace(FILTER, model="updown", change="rescaled:1.02", low=-2.0, high=-0.02, p=0.0002, reason=None)
    first, second = control_sentences(Controls((SEEDS, rescaled)))
    assert first.endswith("2 against 2 seeds).")
    assert "updown with images scaled by 1.02 first differs by -1.2 points (95 % -2.0 to 0.0, p below 0.001" in second
    assert "this table" not in second, "one model differs from none"


def test_without_controls_nothing_is_said() -> None:
    assert control_sentences(Controls((), 40.0, 8.0)) == ()
