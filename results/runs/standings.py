"""The places of a leaderboard's rows: the floors first, then all pairs of rows over seeds and images, by metric."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Final, Literal, NamedTuple

import numpy as np

from results.runs.run import NO_PART, ByImage, Run
from results.statistics.architecture import (
    NEEDS_IMAGES,
    Placing,
    difference_of_means,
    missing,
    of_any_seeds,
    p_of_t,
    places,
)
from results.statistics.estimate import ALPHA
from results.statistics.learning import LEAST, mean_learning
from results.statistics.significance import Array, holm, matrix, mean_of_seeds, sign_flip_columns

FLOORS: Final = ("majority", "retrieval", "blind")
_SEES_PIXELS: Final = "pixels["
NOT_ABOVE: Final = "not above the floor"
STILL_LEARNING: Final = "still learning: validation was rising when the training ended"
NEAR_ZERO: Final = "the learning rate was near zero for the end of its training: it may not have finished learning"
AT_CHANCE: Final = "at the level of chance: no validation was above one point of CIDEr-D"
TOO_SHORT: Final = f"fewer than {LEAST} validations: they do not say whether it had finished learning"
_UNFINISHED: Final[dict[str, str]] = {
    "still learning": STILL_LEARNING,
    "rate near zero": NEAR_ZERO,
    "at chance": AT_CHANCE,
    "unknown": TOO_SHORT,
}
ALONE: Final = "no other row has a place to compare it with"
OTHER_IMAGES: Final = "scored on other images than the other rows"
NO_SHARED_SEEDS: Final = "other seeds: most rows do not share two seeds (bench run --first-seed, --seeds)"
OTHER_MACHINE: Final = "made elsewhere than most rows, and left out (--same-machine)"
NO_SCORES: Final = "no numbers of single images are stored"
MARGIN_SHARE: Final = 0.02
"""Of the score of people, or else of the best row: differences below count as none, unless a margin is given."""

Scored = Mapping[str, Mapping[tuple[int, str], ByImage]]
"""By metric, then by run id and split: one number an image, whose mean is the score."""
Rows = Sequence[Sequence[Run]]
Verdict = Literal["better", "worse", "same", "unknown"]


@dataclass(frozen=True, slots=True)
class Judging:
    """How tables are judged: what `--margin`, in points, `--place-unfinished` and `--same-machine` ask for."""

    margin: float | None = None
    place_unfinished: bool = False
    same_machine: bool = False


JUDGED_AS_USUAL: Final = Judging()


@dataclass(frozen=True, slots=True)
class Gain:
    """What a longer training of a row gives: its mean on the group's metric less the row's, a fraction.

    `budget` is the longer one's, `times` the row's; the seeds are those that both have. `finished`: twice the updates
    give no more than the margin.
    """

    budget: int
    times: float
    difference: float
    finished: bool


@dataclass(frozen=True, slots=True)
class FloorTest:
    """A row against a floor, over seeds and images; a row or floor of one seed is taken as it is.

    `difference` is the row's mean less the floor's, `p` two-sided after Holm's correction for all rows and floors of
    the group.
    """

    floor: str
    difference: float
    p: float
    significant: bool

    @property
    def above(self) -> bool:
        return self.significant and self.difference > 0


@dataclass(frozen=True, slots=True)
class Standing:
    """A row's place among the rows of its group on one metric: ranks `best` to `worst`, 1 the best.

    Both are None with a `reason`: one seed, a training that had not ended, a floor (`is_floor`) or a row that is not
    above each of its group's `floors`. `against_best` and `against_above` are p-values over seeds and images, after
    Holm's correction for all pairs of compared rows, of the difference from the best row and from the next better one.
    """

    best: int | None = None
    worst: int | None = None
    reason: str | None = None
    against_best: float | None = None
    against_above: float | None = None
    floors: tuple[FloorTest, ...] = ()
    is_floor: bool = False

    @property
    def not_above(self) -> tuple[FloorTest, ...]:
        return tuple(test for test in self.floors if not test.above)


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """Two rows of a group by their numbers, the first with the higher mean; the difference first less second.

    `low` and `high` hold for all pairs of the group at once, None where images are too few; `p` is Holm's. All are
    fractions. Of an unknown one, `seeds` or `images` are how many would probably tell; None where no number does.
    """

    first: int
    second: int
    difference: float
    low: float | None
    high: float | None
    p: float
    verdict: Verdict
    seeds: int | None = None
    images: int | None = None


@dataclass(frozen=True, slots=True)
class Comparisons:
    """All pairs of the rows of a group that can be compared on its metric, and how they were tested.

    Rows without a place may be among them: a place must not hang on rows that are left out. Without `seeds`, rows were
    compared by captions as they are. `margin` is a fraction, `margin_of` says of what (None: as asked for). `lent` is
    the degrees of freedom that the table lends each row; `deviate_alike` Bartlett's p.
    """

    metric: str
    images: int
    seeds: tuple[int, ...]
    rows: tuple[int, ...]
    pairs: tuple[PairVerdict, ...]
    margin: float
    margin_of: str | None
    lent: float | None
    deviate_alike: float | None
    floor_tests: int = 0

    def between(self, first: int, second: int) -> tuple[PairVerdict, Verdict] | None:
        """The pair of two rows, and its verdict seen from the first one."""
        turned: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}
        for pair in self.pairs:
            if {pair.first, pair.second} == {first, second}:
                return pair, pair.verdict if pair.first == first else turned.get(pair.verdict, pair.verdict)
        return None


def floor_rows(rows: Rows, references: Rows, elsewhere: Rows = ()) -> list[Sequence[Run]]:
    """The floors of a group, which see what its models see: of its own `rows`, and those beside it scored alike.

    Of the data set's `references`, retrieval by the group's own features is meant where it ran by these, otherwise by
    any, but none for models that read images: features were learnt from labels that those have not seen. Of rows
    `elsewhere` on the split, a `blind` one that differs in features alone saw none of them.
    """
    conditions = rows[0][0].table_conditions
    found = [runs for runs in rows if runs[0].model in FLOORS]
    other_features: list[Sequence[Run]] = []
    reads_images = any(runs[0].signature.get("feat", "").startswith(_SEES_PIXELS) for runs in rows)
    for runs in (*references, *(runs for runs in elsewhere if runs[0].model == "blind")):
        own = runs[0].conditions
        says_nothing = {"track", "v"} if "rev" in own else {"track"}  # of a results revision any release is
        differing = {name for name in own if own[name] not in (NO_PART, conditions.get(name))} - says_nothing
        if runs[0].model not in FLOORS or not differing <= {"feat"}:
            continue
        if not differing or runs[0].model == "blind":
            found.append(runs)
        elif not reads_images:
            other_features.append(runs)
    there = {runs[0].model for runs in found}
    return found + [runs for runs in other_features if runs[0].model not in there]


def floor_tests(
    rows: Sequence[Sequence[ByImage]], floors: Sequence[tuple[str, Sequence[ByImage]]]
) -> list[tuple[FloorTest, ...]]:
    """Each row's tests against all floors, corrected together; a row is not tested against floors of other images.

    Rows and floors are their seeds' scores by image; seeds without any are passed over. Where both have one seed, signs
    are flipped over images, as of any two sets of captions.
    """
    scores = [matrix([seed for seed in seeds if seed]) for seeds in rows]
    images = next((set(seed) for seeds in rows for seed in seeds if seed), set())
    levels = [(name, matrix([seed for seed in seeds if seed])) for name, seeds in floors if _covers(seeds, images)]
    tests = [
        (row, name, own, level)
        for row, own in enumerate(scores)
        if own is not None and _covers(rows[row], images) and len(images) > 1
        for name, level in levels
        if level is not None
    ]
    found = [float(p_of_t(*difference_of_means(of_any_seeds(own), of_any_seeds(level)))) for _, _, own, level in tests]
    alone = {at: own[0] - level[0] for at, (_, _, own, level) in enumerate(tests) if len(own) == len(level) == 1}
    if alone:
        for at, p in zip(alone, sign_flip_columns(np.array(list(alone.values())).T).tolist(), strict=True):
            found[at] = p
    against: list[tuple[FloorTest, ...]] = [()] * len(rows)
    for (row, name, own, level), p in zip(tests, holm(found), strict=True):
        gap = float((own.mean(axis=0) - level.mean(axis=0)).mean())
        against[row] += (FloorTest(name, gap, p, significant=p < ALPHA),)
    return against


def _covers(seeds: Sequence[ByImage], images: set[int]) -> bool:
    scored = [seed for seed in seeds if seed]
    return bool(scored) and all(seed.keys() == images for seed in scored)


def standings(
    rows: Rows,
    floors: Rows,
    split: str,
    scored: Scored,
    metric: str,
    judging: Judging,
    margin: tuple[float, str | None],
    elsewhere: Mapping[int, str],
    trained_longer: Collection[int] = (),
) -> tuple[list[dict[str, Standing]], Comparisons | None]:
    """Each row's standing by metric, and all comparisons on `metric`.

    Floors, as of `floor_rows`, are judged on `metric` for all metrics; one at the level of chance is none. Rows in
    `trained_longer` are placed in any case; `elsewhere` is as of `made_elsewhere`.
    """
    is_floor = [runs[0].model in FLOORS for runs in rows]
    unfinished = [why_unfinished(runs) for runs in rows]
    by_run = scored.get(metric, {})
    own = [[by_run.get((run.id, split), {}) for run in runs] for runs in rows]
    learnt = [runs for runs in floors if why_unfinished(runs) != AT_CHANCE]
    levels = [(runs[0].model, [by_run.get((run.id, split), {}) for run in runs]) for runs in learnt]
    against = floor_tests([[] if floor else seeds for floor, seeds in zip(is_floor, own, strict=True)], levels)
    without: dict[int, str] = {}
    for number, tests in enumerate(against):
        if is_floor[number]:
            without[number] = "floor"
        elif not all(test.above for test in tests):
            without[number] = NOT_ABOVE
        elif unfinished[number] == AT_CHANCE:
            without[number] = AT_CHANCE
        elif judging.same_machine and number in elsewhere:
            without[number] = OTHER_MACHINE
    unplaced = {number: why for number, why in enumerate(unfinished) if why and number not in trained_longer}
    unplaced = {} if judging.place_unfinished else unplaced
    found: list[dict[str, Standing]] = [{} for _ in rows]
    comparisons = None
    for name in scored:
        of_metric, compared = _places(rows, split, scored[name], without, unplaced)
        for place, standing in enumerate(of_metric):
            found[place][name] = replace(standing, floors=against[place], is_floor=is_floor[place])
        if name == metric:
            comparisons = compared
    tested = sum(map(len, against))
    if comparisons is None and not tested:
        return found, None
    return found, _comparisons(comparisons, metric, margin, tested, own)


class _Compared(NamedTuple):
    """The rows that were compared, by number, the seeds that they share, and all their pairs."""

    rows: list[int]
    seeds: tuple[int, ...]
    placing: Placing


def _comparisons(
    compared: _Compared | None,
    metric: str,
    margin: tuple[float, str | None],
    tests: int,
    own: Sequence[Sequence[ByImage]],
) -> Comparisons:
    images = next((len(seed) for seeds in own for seed in seeds if seed), 0)
    if compared is None:
        return Comparisons(metric, images, (), (), (), 0.0, None, None, None, tests)
    rows, seeds, (pairs, _, lent) = compared.rows, compared.seeds, compared.placing
    within, found = margin[0], []
    for pair in pairs:
        first, second, gap, low, high = pair.first, pair.second, pair.difference, pair.low, pair.high
        if gap < 0:
            first, second, gap, low, high = second, first, -gap, -high, -low
        verdict: Verdict = "same" if pair.same_within(within) else "unknown" if pair.better is None else "better"
        needs = pair.needed(max(len(seeds), 1), images, within) if verdict == "unknown" else (None, None)
        ends = [end if isfinite(end) else None for end in (low, high)]
        found.append(PairVerdict(rows[first], rows[second], gap, ends[0], ends[1], pair.p, verdict, *needs))
    degrees, alike = (None, None) if lent is None else (float(lent.lent), float(lent.p))
    return Comparisons(metric, images, seeds, tuple(rows), tuple(found), *margin, degrees, alike, tests)


def margin_of(judging: Judging, human: float | None, means: Iterable[float | None]) -> tuple[float, str | None]:
    """Below which difference two rows are the same, a fraction; and of what it is 2 %, None where it was asked for."""
    if judging.margin is not None:
        return judging.margin / 100, None
    if human is not None:
        return MARGIN_SHARE * human, "human"
    return MARGIN_SHARE * max((mean for mean in means if mean is not None), default=0.0), "the best row"


def why_unfinished(runs: Sequence[Run]) -> str | None:
    """Why a row of these runs cannot be placed by what it had learnt, if it cannot."""
    trained = [run.learning for run in runs if run.learning is not None]
    return _UNFINISHED.get(mean_learning(trained).state) if trained else None


def _places(
    rows: Rows,
    split: str,
    by_run: Mapping[tuple[int, str], ByImage],
    without: Mapping[int, str],
    unplaced: Mapping[int, str],
) -> tuple[list[Standing], _Compared | None]:
    """Standings of rows, and what was compared.

    Those in `without` are left out for the reason given; those in `unplaced` are compared, but have no place. Captions
    that other systems wrote, which do not share two seeds, are compared as they are, by the mean of a system's files.
    """
    seeds, reasons = shared_seeds([runs for number, runs in enumerate(rows) if number not in without]), []
    compared = [{run.seed for run in runs} for number, runs in enumerate(rows) if number not in without]
    as_given = all(runs[0].is_system for runs in rows) and not (
        len(seeds) > 1 and all(own.issuperset(seeds) for own in compared)
    )
    scores: list[Array | None] = []
    images = [by_run.get((runs[0].id, split), {}).keys() for runs in rows]
    for number, runs in enumerate(rows):
        every = [by_run.get((run.id, split), {}) for run in runs]
        if as_given:
            own = matrix([mean_of_seeds(every)])
            reason = NO_SCORES if own is None else NEEDS_IMAGES if own.shape[1] < 2 else None
        else:
            own = matrix([scored for run, scored in zip(runs, every, strict=True) if run.seed in seeds])
            whole = matrix(every)
            unscored = OTHER_IMAGES if any(every) and all(every) else NO_SCORES
            reason = unscored if whole is None else missing(whole)
        scores.append(own)
        reasons.append(without.get(number) or reason)
    first = next((number for number, reason in enumerate(reasons) if reason is None), 0)
    for number in (number for number, reason in enumerate(reasons) if reason is None):
        if images[number] != images[first]:
            reasons[number] = OTHER_IMAGES
        elif len(seeds) < 2 and not as_given:
            reasons[number] = NO_SHARED_SEEDS
        elif not as_given and not {run.seed for run in rows[number]}.issuperset(seeds):
            reasons[number] = f"other seeds: places are of seeds {', '.join(map(str, seeds))}, which most rows have"
    members = [number for number, reason in enumerate(reasons) if reason is None]
    reasons = [without.get(number) or unplaced.get(number) or reason for number, reason in enumerate(reasons)]
    if len(members) < 2:
        return [Standing(reason=reason or ALONE) for reason in reasons], None
    arrays = [each for number in members if (each := scores[number]) is not None]
    placing = places(arrays)
    p_values = {frozenset((pair.first, pair.second)): pair.p for pair in placing.pairs}
    found = [Standing(reason=reason) for reason in reasons]
    order = sorted(range(len(members)), key=lambda member: -float(arrays[member].mean()))
    for rank, member in enumerate(order):
        best, above = (p_values[frozenset((member, order[other]))] if rank else None for other in (0, rank - 1))
        if reasons[members[member]] is None:
            found[members[member]] = Standing(*placing.places[member], None, best, above)
    return found, _Compared(members, () if as_given else seeds, placing)


def shared_seeds(rows: Rows) -> tuple[int, ...]:
    """The seeds that most rows of several seeds have, so that neither a row's further seeds nor a gap decide places."""
    several = [{run.seed for run in runs} for runs in rows if len(runs) > 1]
    counts = Counter(seed for seeds in several for seed in seeds)
    return tuple(sorted(seed for seed, count in counts.items() if 2 * count > len(several)))
