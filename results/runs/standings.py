"""The ranks of a leaderboard's rows: the baselines first, then all pairs of rows over seeds and images, by metric."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from results.runs.run import NO_PART, Run
from results.statistics.architecture import (
    NEEDS_IMAGES,
    Ranking,
    difference_of_means,
    missing,
    of_any_seeds,
    p_of_t,
    rank_models,
)
from results.statistics.estimate import Estimate
from results.statistics.learning import LEAST, mean_learning
from results.statistics.score_matrix import Mask, ScoreMatrix
from results.statistics.significance import Array, holm, image_means, sign_flip_columns

BASELINES: Final = ("majority", "retrieval", "blind")
_SEES_PIXELS: Final = "pixels["
NOT_ABOVE: Final = "not above a baseline"
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
ALONE: Final = "no other row can be compared with it"
OTHER_IMAGES: Final = "scored on other images than the other rows"
NO_SHARED_SEEDS: Final = "other seeds: most rows do not share two seeds (bench run --first-seed, --seeds)"
OTHER_MACHINE: Final = "run on other hardware than most rows, and left out (--same-machine)"
NO_SCORES: Final = "no numbers of single images are stored"
MARGIN_SHARE: Final = 0.02
"""Of the score of people, or else of the best row: differences below count as none, unless a margin is given."""

Rows = Sequence[Sequence[Run]]
Verdict = Literal["better", "worse", "same", "unknown"]


@dataclass(frozen=True, slots=True)
class RankingOptions:
    """How rows are ranked: what `--margin`, in points, `--rank-unconverged` and `--same-machine` ask for."""

    margin: float | None = None
    rank_unconverged: bool = False
    same_machine: bool = False


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
class BaselineTest:
    """The mean of a row less that of a baseline, over seeds and images; one seed on either side is taken as it is.

    The p of the `estimate` is corrected (Holm) for all rows and baselines of the group.
    """

    baseline: str
    estimate: Estimate

    @property
    def above(self) -> bool:
        value = self.estimate.value
        return self.estimate.is_significant and value is not None and value > 0


@dataclass(frozen=True, slots=True)
class RankInterval:
    """The ranks on one metric that a row may have among the rows of its group: `best` to `worst`, 1 the best.

    Both are None with a `reason`: one seed, a training that had not ended, a baseline (`is_baseline`) or a row that is
    not above each of its group's `baselines`. `p_against_best` and `p_against_above` are over seeds and images, after
    Holm's correction for all pairs of compared rows, of the difference from the best row and from the next better one.
    """

    best: int | None = None
    worst: int | None = None
    reason: str | None = None
    p_against_best: float | None = None
    p_against_above: float | None = None
    baselines: tuple[BaselineTest, ...] = ()
    is_baseline: bool = False

    @property
    def not_above(self) -> tuple[BaselineTest, ...]:
        return tuple(test for test in self.baselines if not test.above)


@dataclass(frozen=True, slots=True)
class RowPair:
    """Two rows of a group by their numbers, the first with the higher mean; the `estimate` is first less second.

    Its interval holds for all pairs of the group at once, its p is Holm's. Of an unknown one, `seeds_needed` or
    `images_needed` would probably tell; None where no number does.
    """

    first: int
    second: int
    estimate: Estimate
    verdict: Verdict
    seeds_needed: int | None = None
    images_needed: int | None = None


@dataclass(frozen=True, slots=True)
class Comparisons:
    """All pairs of the rows of a group that can be compared on its metric, and how they were tested.

    Rows without a rank may be among them: a rank must not hang on rows that are left out. Without `seeds`, rows were
    compared by captions as they are. `margin` is a fraction, `margin_of` says of what (None: as asked for). `prior_df`
    is the degrees of freedom that the table adds to each row's own; `bartlett_p` tests whether all deviate alike.
    """

    metric: str
    images: int
    seeds: tuple[int, ...]
    rows: tuple[int, ...]
    pairs: tuple[RowPair, ...]
    margin: float
    margin_of: str | None
    prior_df: float | None
    bartlett_p: float | None
    baseline_tests: int = 0

    def between(self, first: int, second: int) -> tuple[RowPair, Verdict] | None:
        """The pair of two rows, and its verdict seen from the first one."""
        turned: dict[Verdict, Verdict] = {"better": "worse", "worse": "better"}
        for pair in self.pairs:
            if {pair.first, pair.second} == {first, second}:
                return pair, pair.verdict if pair.first == first else turned.get(pair.verdict, pair.verdict)
        return None


def baseline_rows(rows: Rows, references: Rows, other_rows: Rows = ()) -> list[Sequence[Run]]:
    """The baselines of a group, which see what its models see: of its own `rows`, and of rows under equal conditions.

    Of the data set's `references`, retrieval by the group's own features is meant where it ran by these, otherwise by
    any, but none for models that read images: features were learnt from labels that those have not seen. Of the
    `other_rows` of the split, a `blind` one that differs in features alone saw none of them.
    """
    conditions = rows[0][0].table_conditions
    baselines = [runs for runs in rows if runs[0].model in BASELINES]
    of_other_features: list[Sequence[Run]] = []
    reads_images = any(runs[0].signature.get("feat", "").startswith(_SEES_PIXELS) for runs in rows)
    for runs in (*references, *(runs for runs in other_rows if runs[0].model == "blind")):
        fields = runs[0].conditions
        says_nothing = {"track", "v"} if "rev" in fields else {"track"}  # of a results revision any release is
        differing = {name for name in fields if fields[name] not in (NO_PART, conditions.get(name))} - says_nothing
        if runs[0].model not in BASELINES or not differing <= {"feat"}:
            continue
        if not differing or runs[0].model == "blind":
            baselines.append(runs)
        elif not reads_images:
            of_other_features.append(runs)
    found_models = {runs[0].model for runs in baselines}
    return baselines + [runs for runs in of_other_features if runs[0].model not in found_models]


def baseline_tests(rows: Rows, baselines: Rows, image_scores: ScoreMatrix) -> list[tuple[BaselineTest, ...]]:
    """Each row's tests against all baselines of the same images, corrected together.

    Rows that are baselines are not tested. Runs without scores are passed over. Where both have one seed, signs are
    flipped over images, as of any two sets of captions.
    """
    runs_of_rows = [
        [] if runs[0].model in BASELINES else [run.id for run in runs if image_scores.has(run.id)] for runs in rows
    ]
    runs_of_baselines = [(runs[0].model, [run.id for run in runs if image_scores.has(run.id)]) for runs in baselines]
    images = next((image_scores.scored(runs[0]) for runs in runs_of_rows if runs), None)
    if images is None or images.sum() < 2:
        return [()] * len(rows)

    def covers(runs: Sequence[int]) -> bool:
        return bool(runs) and all(np.array_equal(image_scores.scored(run), images) for run in runs)

    scores = [image_scores.of_images(runs, images) if covers(runs) else None for runs in runs_of_rows]
    baseline_scores = [(name, image_scores.of_images(runs, images)) for name, runs in runs_of_baselines if covers(runs)]
    tests = [
        (index, name, of_row, of_baseline)
        for index, of_row in enumerate(scores)
        if of_row is not None
        for name, of_baseline in baseline_scores
    ]
    p_values = [
        float(p_of_t(*difference_of_means(of_any_seeds(of_row), of_any_seeds(of_baseline))))
        for _, _, of_row, of_baseline in tests
    ]
    single = {
        test_index: of_row[0] - of_baseline[0]
        for test_index, (_, _, of_row, of_baseline) in enumerate(tests)
        if len(of_row) == len(of_baseline) == 1
    }
    if single:
        for test_index, p in zip(single, sign_flip_columns(np.array(list(single.values())).T).tolist(), strict=True):
            p_values[test_index] = p
    by_row: list[tuple[BaselineTest, ...]] = [()] * len(rows)
    for (index, name, of_row, of_baseline), p in zip(tests, holm(p_values), strict=True):
        gap = float((of_row.mean(axis=0) - of_baseline.mean(axis=0)).mean())
        by_row[index] += (BaselineTest(name, Estimate(gap, p=p, n=int(images.sum()))),)
    return by_row


@dataclass(frozen=True, slots=True)
class Contender:
    """A row, the baselines that it was tested against, and why it is not compared, or is compared but has no rank."""

    runs: Sequence[Run]
    baselines: tuple[BaselineTest, ...]
    is_baseline: bool
    not_compared: str | None
    not_ranked: str | None

    def rank(
        self,
        best: int | None = None,
        worst: int | None = None,
        *,
        reason: str | None = None,
        p_against_best: float | None = None,
        p_against_above: float | None = None,
    ) -> RankInterval:
        return RankInterval(best, worst, reason, p_against_best, p_against_above, self.baselines, self.is_baseline)


@dataclass(slots=True)
class _Candidate:
    """A contender on one metric: the images of its first run, and its scores (seeds, images), or the reason why not."""

    contender: Contender
    images: Mask
    scores: Array | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class Compared:
    """The rows that were compared, by number, the seeds that they share, and all their pairs."""

    rows: list[int]
    seeds: tuple[int, ...]
    ranking: Ranking


def contenders_of(
    rows: Rows,
    baselines: Rows,
    image_scores: ScoreMatrix,
    options: RankingOptions,
    other_hardware: Mapping[int, str],
    trained_longer: Collection[int] = (),
) -> list[Contender]:
    """The rows as they compete on every metric, by the scores of images on the metric that sorts them.

    `baselines` are as of `baseline_rows`; one at the level of chance is no baseline. Rows in `trained_longer` are
    ranked in any case; `other_hardware` is as of `rows_on_other_hardware`.
    """
    learnt = [runs for runs in baselines if why_unfinished(runs) != AT_CHANCE]
    contenders = []
    for index, (runs, tests) in enumerate(zip(rows, baseline_tests(rows, learnt, image_scores), strict=True)):
        is_baseline = runs[0].model in BASELINES
        unfinished = why_unfinished(runs)
        not_compared = None
        if is_baseline:
            not_compared = "baseline"
        elif not all(test.above for test in tests):
            not_compared = NOT_ABOVE
        elif unfinished == AT_CHANCE:
            not_compared = AT_CHANCE
        elif options.same_machine and index in other_hardware:
            not_compared = OTHER_MACHINE
        not_ranked = None if options.rank_unconverged or index in trained_longer else unfinished
        contenders.append(Contender(runs, tests, is_baseline, not_compared, not_ranked))
    return contenders


def comparisons_of(
    contenders: Sequence[Contender],
    compared: Compared | None,
    image_scores: ScoreMatrix,
    metric: str,
    margin: tuple[float, str | None],
) -> Comparisons | None:
    """All comparisons on the metric that sorts; None where no row was compared or tested against a baseline."""
    baseline_count = sum(len(contender.baselines) for contender in contenders)
    runs = (run.id for contender in contenders for run in contender.runs)
    images = next((int(image_scores.scored(run).sum()) for run in runs if image_scores.has(run)), 0)
    if compared is None:
        if not baseline_count:
            return None
        return Comparisons(metric, images, (), (), (), 0.0, None, None, None, baseline_count)
    rows = compared.rows
    seeds = compared.seeds
    within = margin[0]
    pairs = []
    for pair in compared.ranking.pairs:
        first = rows[pair.first]
        second = rows[pair.second]
        estimate = pair.estimate
        if pair.difference < 0:
            first, second, estimate = second, first, estimate.negated()
        if pair.same_within(within):
            pairs.append(RowPair(first, second, estimate, "same"))
        elif pair.better is not None:
            pairs.append(RowPair(first, second, estimate, "better"))
        else:
            needed = pair.needed(max(len(seeds), 1), images, within)
            pairs.append(RowPair(first, second, estimate, "unknown", *needed))
    prior_df = bartlett_p = None
    if (variances := compared.ranking.variances) is not None:
        prior_df = float(variances.prior_df)
        bartlett_p = float(variances.bartlett_p)
    return Comparisons(metric, images, seeds, tuple(rows), tuple(pairs), *margin, prior_df, bartlett_p, baseline_count)


def margin_of(options: RankingOptions, human: float | None, means: Iterable[float | None]) -> tuple[float, str | None]:
    """Below which difference two rows are the same, a fraction; and of what it is 2 %, None where it was asked for."""
    if options.margin is not None:
        return options.margin / 100, None
    if human is not None:
        return MARGIN_SHARE * human, "human"
    return MARGIN_SHARE * max((mean for mean in means if mean is not None), default=0.0), "the best row"


def why_unfinished(runs: Sequence[Run]) -> str | None:
    """Why a row of these runs cannot be placed by what it had learnt, if it cannot."""
    trained = [run.learning for run in runs if run.learning is not None]
    return _UNFINISHED.get(mean_learning(trained).state) if trained else None


def rank_on(contenders: Sequence[Contender], image_scores: ScoreMatrix) -> tuple[list[RankInterval], Compared | None]:
    """The ranks of rows on one metric, by its scores of images, and what was compared.

    Captions that other systems wrote, which do not share two seeds, are compared as they are, by the mean of a system's
    files.
    """
    admitted = [contender.runs for contender in contenders if contender.not_compared is None]
    seeds = shared_seeds(admitted)
    share_seeds = len(seeds) > 1 and all({run.seed for run in runs}.issuperset(seeds) for runs in admitted)
    as_given = all(contender.runs[0].is_system for contender in contenders) and not share_seeds
    candidates = [_candidate(contender, image_scores, None if as_given else seeds) for contender in contenders]
    scored = [candidate for candidate in candidates if candidate.reason is None]
    for candidate in scored:
        if not np.array_equal(candidate.images, scored[0].images):
            candidate.reason = OTHER_IMAGES
        elif not as_given:
            candidate.reason = _why_other_seeds(candidate.contender.runs, seeds)
    members = [index for index, candidate in enumerate(candidates) if candidate.reason is None]
    for candidate in candidates:
        if candidate.contender.not_compared is None and candidate.contender.not_ranked is not None:
            candidate.reason = candidate.contender.not_ranked
    if len(members) < 2:
        return [candidate.contender.rank(reason=candidate.reason or ALONE) for candidate in candidates], None
    arrays = [scores for index in members if (scores := candidates[index].scores) is not None]
    ranking = rank_models(arrays)
    p_values = {frozenset((pair.first, pair.second)): pair.estimate.p for pair in ranking.pairs}
    ranks = [candidate.contender.rank(reason=candidate.reason) for candidate in candidates]
    order = sorted(range(len(members)), key=lambda member: -float(arrays[member].mean()))
    for position, member in enumerate(order):
        candidate = candidates[members[member]]
        if candidate.reason is None:
            p_against_best = p_against_above = None
            if position:
                p_against_best = p_values[frozenset((member, order[0]))]
                p_against_above = p_values[frozenset((member, order[position - 1]))]
            ranks[members[member]] = candidate.contender.rank(
                *ranking.ranks[member], p_against_best=p_against_best, p_against_above=p_against_above
            )
    return ranks, Compared(members, () if as_given else seeds, ranking)


def _candidate(contender: Contender, image_scores: ScoreMatrix, seeds: Sequence[int] | None) -> _Candidate:
    """A row's scores of these seeds, or with None the mean of all its files; a reason where they cannot be compared."""
    if seeds is None:
        scores, reason = _mean_of_files(contender.runs, image_scores)
    else:
        scores, reason = _scores_of_seeds(contender.runs, image_scores, seeds)
    images = image_scores.scored(contender.runs[0].id)
    return _Candidate(contender, images, scores, contender.not_compared or reason)


def _mean_of_files(runs: Sequence[Run], image_scores: ScoreMatrix) -> tuple[Array | None, str | None]:
    """The mean over files of each image that all of them have, as of one seed."""
    files = [run.id for run in runs]
    images = image_scores.common(files)
    if not images.any():
        return None, NO_SCORES
    scores = image_means(image_scores.of_images(files, images))[None]
    return scores, NEEDS_IMAGES if scores.shape[1] < 2 else None


def _scores_of_seeds(
    runs: Sequence[Run], image_scores: ScoreMatrix, seeds: Sequence[int]
) -> tuple[Array | None, str | None]:
    """The scores of the runs with these seeds; the reason is of all runs, whatever their seeds."""
    all_scores = image_scores.of_runs([run.id for run in runs])
    if all_scores is None:
        return None, OTHER_IMAGES if all(image_scores.has(run.id) for run in runs) else NO_SCORES
    return image_scores.of_runs([run.id for run in runs if run.seed in seeds]), missing(all_scores)


def _why_other_seeds(runs: Sequence[Run], seeds: Sequence[int]) -> str | None:
    """Why a row cannot be compared by the seeds that most rows have, if it cannot."""
    if len(seeds) < 2:
        return NO_SHARED_SEEDS
    if not {run.seed for run in runs}.issuperset(seeds):
        return f"other seeds: places are of seeds {', '.join(map(str, seeds))}, which most rows have"
    return None


def shared_seeds(rows: Rows) -> tuple[int, ...]:
    """The seeds that most rows of several seeds have, so that neither a row's further seeds nor a gap decide places."""
    several = [{run.seed for run in runs} for runs in rows if len(runs) > 1]
    counts = Counter(seed for seeds in several for seed in seeds)
    return tuple(sorted(seed for seed, count in counts.items() if 2 * count > len(several)))
