"""The probe of a model's speed: one call that the machine held up does not decide it."""

from __future__ import annotations

import pytest
import torch

from harness.measure import speed

CPU = torch.device("cpu")


class Clock:
    """A clock that only work moves, by the seconds of each call in turn; the last is repeated."""

    def __init__(self, *calls: float) -> None:
        self.calls = list(calls)
        self.now = 0.0
        self.worked = 0

    def work(self) -> None:
        self.now += self.calls[min(self.worked, len(self.calls) - 1)]
        self.worked += 1


@pytest.mark.parametrize(
    ("calls", "seconds", "worked"),
    [
        ((9.0, 0.5, 0.01), 0.01, 4),  # the warm-up, a call that was held up, and two as they usually are
        ((0.0, 0.0625, 0.0625), 0.0625, 4),
        ((0.0, 2.0), 2.0, 2),  # slow work is not repeated for its median's sake
    ],
)
def test_a_call_that_was_held_up_counts_little(
    monkeypatch: pytest.MonkeyPatch, calls: tuple[float, ...], seconds: float, worked: int
) -> None:
    clock = Clock(*calls)
    monkeypatch.setattr(speed, "_now", lambda _: clock.now)
    assert speed._seconds(clock.work, CPU, 0.15) == pytest.approx(seconds)
    assert clock.worked == worked
