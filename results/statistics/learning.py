"""Whether a model had finished learning when its training ended, from its validation scores (`docs/statistics.md`)."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, log, sqrt
from typing import Final, Literal

RISE: Final = 0.01
"""What validation may rise over the last quarter by chance or for good, as a fraction: one point of CIDEr-D."""
LEAST: Final = 3
CHANCE: Final = 0.01
"""A validation CIDEr-D of at most one point is the level of chance: the captions say nothing of their pictures yet."""
IDLE_RATE: Final = 1e-3  # a learning rate below this share of its peak is near zero: next to nothing is learnt
IDLE_SHARE: Final = 0.1
"""How much of a stage may pass so before its end says nothing of what longer training would bring."""

State = Literal["still learning", "finished learning", "stopped early", "rate near zero", "at chance", "unknown"]


@dataclass(frozen=True, slots=True)
class Learning:
    """How the validations of the last stage ended.

    `rise` is the best score of their last quarter less the best before, `error` its standard error, both fractions and
    None where there are too few validations. `fell`: the last score is below the best by more than that error. `stage`
    is the last one's number, from 0, and `epochs` how many were planned for it, None where that is not known.
    """

    state: State
    validations: int
    rise: float | None = None
    error: float | None = None
    fell: bool = False
    stage: int = 0
    epochs: int | None = None


def learning(scores: Sequence[float], *, stopped_early: bool = False, idle: float = 0.0) -> Learning:
    """What a stage's validation scores say, in order; `idle` is the share at a learning rate near zero (`idle_share`).

    Still learning is what rose over the last quarter of its validations by more than `RISE` beyond the standard error
    of that rise: √2 times the deviation of one validation from the curve that fits best and never falls (isotonic
    regression: Barlow, Bartholomew, Bremner and Brunk, 1972). A curve that only rises shows no noise, so that few
    validations rather count as learning. A learning rate that has decayed to nothing ends a rise too.
    """
    count = len(scores)
    if scores and max(scores) <= CHANCE:
        return Learning("at chance", count)
    if count < LEAST:
        return Learning("stopped early" if stopped_early else "unknown", count)
    quarter = ceil(count / 4)
    rise = max(scores[-quarter:]) - max(scores[:-quarter])
    fitted = _never_falling(scores)
    squares = sum((score - level) ** 2 for score, level in zip(scores, fitted, strict=True))
    error = sqrt(2) * sqrt(squares / max(count - len(set(fitted)), 1))  # each level is a parameter
    fell = scores[-1] < max(scores) - error
    state: State = "finished learning"
    if rise - error > RISE and not stopped_early:
        state = "still learning"
    elif idle > IDLE_SHARE:
        state = "rate near zero"
    elif stopped_early:
        state = "stopped early"
    return Learning(state, count, rise, error, fell)


def idle_share(rates: Sequence[float], *, stepwise: bool) -> float:
    """The share of a stage at whose end the learning rate was near zero, from the rates that its epochs ended with.

    Of a rate that fell `stepwise`, by factors, the logarithm is interpolated within an epoch, else itself.
    """
    if not rates:
        return 0.0
    limit = IDLE_RATE * max(rates)
    peak = rates.index(max(rates))
    idle = 0.0
    for before, after in pairwise(rates[peak:]):
        if after < limit:
            first, last = (log(max(before, 1e-300)), log(max(after, 1e-300))) if stepwise else (before, after)
            edge = log(limit) if stepwise else limit
            idle += 1.0 if before <= limit else (edge - last) / (first - last)
    return idle / len(rates)


def mean_learning(seeds: Collection[Learning]) -> Learning:
    """Whether an architecture had finished learning, from trainings with several seeds; `validations` are the fewest.

    Still learning is what rose by more than `RISE` on average beyond the standard error of that mean. One seed of many
    may rise by chance, and of more seeds more do; their mean comes nearer to the architecture's own rise the more there
    are. Where patience ended a training, its rise counts as none. One that cannot say leaves it unknown, and one whose
    rate was near zero leaves it open whether it had finished.
    """
    states = {seed.state for seed in seeds}
    fewest = min((seed.validations for seed in seeds), default=0)
    if not seeds or "unknown" in states:
        return Learning("unknown", fewest)
    if states in ({"at chance"}, {"stopped early"}):
        return Learning(states.pop(), fewest)
    rises = [0.0 if seed.state == "stopped early" else seed.rise or 0.0 for seed in seeds]
    rise = sum(rises) / len(rises)
    error = sqrt(sum((seed.error or 0.0) ** 2 for seed in seeds)) / len(rises)
    finished: State = "rate near zero" if "rate near zero" in states else "finished learning"
    return Learning("still learning" if rise - error > RISE else finished, fewest, rise, error)


def _never_falling(scores: Sequence[float]) -> list[float]:
    """The isotonic regression of the scores, by pooling adjacent violators.

    SciPy's is not used since importing `scipy.optimize` takes longer than the whole of a terminal's leaderboard.
    """
    blocks: list[tuple[float, int]] = []
    for score in scores:
        mean = score
        count = 1
        while blocks and blocks[-1][0] >= mean:
            previous_mean, previous_count = blocks.pop()
            mean = (previous_mean * previous_count + mean * count) / (previous_count + count)
            count = previous_count + count
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]
