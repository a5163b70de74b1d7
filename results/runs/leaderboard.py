"""The leaderboard: comparable runs grouped by signature and split, and ranked within each group."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from statistics import fmean
from typing import Any, Final

from results.errors import StoreError
from results.metrics import RANKING_METRIC
from results.records import CodeRecord, Quantity, Role, without_code
from results.runs.reading import FINISHED, image_scores, read_runs
from results.runs.run import NO_PART, SYSTEMS, Run, StoredPretraining
from results.runs.scores import OVERALL, Kind
from results.runs.spreads import (
    OtherMachine,
    Phase,
    Spread,
    majority_machine,
    row_costs,
    rows_on_other_hardware,
    spreads,
    with_interval_over_seeds,
)
from results.runs.standings import (
    Comparisons,
    Contender,
    Gain,
    RankingOptions,
    RankInterval,
    baseline_rows,
    comparisons_of,
    contenders_of,
    margin_of,
    rank_on,
    shared_seeds,
)
from results.statistics.learning import Learning, State, mean_learning
from results.statistics.score_matrix import ScoreMatrix
from results.store.store import Store

_MAX_NAMED_FILES = 3
_STATED: Final = (
    ("parameters", "parameters", 1.0, ""),
    ("gmac_beam", "gmac", 1.0, "GMAC"),
    ("train_seconds", "train_hours", 3600.0, "s"),
)
"""A cost, the field of a model card that states it, the factor between them, and the unit."""
_PROCESSING_FIELDS: Final = frozenset({"prompt", "search", "clean", "attn", "prec", "beam", "maxlen", "lenpen"})
"""Fields that say how a system was run here."""


@dataclass(frozen=True, slots=True)
class Row:
    """One model (or reference) of a leaderboard: its finished runs of one configuration, over seeds.

    Attributes:
        seeds, keys: of the runs, in the same order, ascending by seed.
        scores: by metric, over the whole split.
        domains: scores by domain and metric.
        costs: means over the seeds that have them; times, rates and energy only over seeds on the majority machine.
        other_machines: by cost, the seeds that ran on another machine than most runs of the group.
        differs: fields and own values (None: no such field) that distinguish a model's row from other rows of that
            model, or a reference from the signature of its group.
        ranks: by metric; references have none.
        learning: by seed, how training ended.
        by_seed: the score by seed on the metric that sorts.
        outdated: why the row is not of the newest code.
        other_hardware: how the machine or the packages differ from those of most rows.
        unmatched: how its size differs from that of the other models.
        gain: what the next longer training of the same model gained.
        held_out: scores against all references but one, each left out in turn.
        facts: scores of stated facts by domain and metric.
        without_schedule: equal for rows that differ only in their schedule.
        more: scores of `--more-metrics`.
        members: how many models an ensemble has; 1 for a single model.
        stated: costs that the card of a system states, of a training on `stated_hardware`.
    """

    model: str
    role: Role
    seeds: tuple[int, ...]
    keys: tuple[str, ...]
    scores: dict[str, Spread]
    domains: dict[str, dict[str, Spread]]
    costs: dict[str, Quantity]
    code_version: str = ""
    other_machines: dict[str, OtherMachine] = field(default_factory=dict)
    differs: dict[str, str | None] = field(default_factory=dict)
    ranks: dict[str, RankInterval] = field(default_factory=dict)
    learning: dict[int, Learning] = field(default_factory=dict)
    by_seed: dict[int, float] = field(default_factory=dict)
    outdated: str | None = None
    other_hardware: str | None = None
    plugins: tuple[str, ...] = ()
    unmatched: str = ""
    members: int = 1
    gain: Gain | None = None
    pretraining: StoredPretraining | None = None
    held_out: dict[str, Spread] = field(default_factory=dict)
    more: dict[str, Spread] = field(default_factory=dict)
    facts: dict[str, dict[str, Spread]] = field(default_factory=dict)
    without_schedule: object = None
    stated: dict[str, Quantity] = field(default_factory=dict)
    stated_hardware: str = ""

    def mean(self, metric: str) -> float | None:
        spread = self.scores.get(metric)
        return None if spread is None else spread.mean

    @property
    def training_end(self) -> State:
        """How training ended, by the mean learning of all seeds."""
        return mean_learning(self.learning.values()).state

    @property
    def still_learning(self) -> bool:
        return self.training_end == "still learning"

    @property
    def still_gains(self) -> bool:
        """Whether there is a longer training that does not show that gains have ended."""
        return self.gain is not None and not self.gain.finished


@dataclass(frozen=True, slots=True)
class Group:
    """Rows that may be ranked against each other: same data, split, track and signature.

    On the track "systems", rows share only the fields that scores depend on (`Run.table_signature`). Baselines are
    rows or references that the other rows are tested against.

    Attributes:
        rows: sorted by mean `metric`, best first; rows without a score come last.
        references: rows that are never ranked; their signature may differ. A group of references alone has no
            signature.
        separating: fields that differ between this group and others of the same data set and split.
        comparisons: the tests that ranks on `metric` are derived from.
        budget: length of training as a multiple of the preset's epochs.
        budget_series: equal for groups that differ only in their budget.
    """

    dataset: str
    fingerprint: str
    split: str
    track: str
    signature: dict[str, str] = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    references: tuple[Row, ...] = ()
    separating: tuple[str, ...] = ()
    comparisons: Comparisons | None = None
    budget: int = 1
    budget_series: object = None
    metric: str = RANKING_METRIC

    @property
    def fields(self) -> dict[str, str]:
        """All fields that can differ between groups of a split."""
        return {"data": self.fingerprint, "track": self.track, **self.signature}

    def fields_compared_with(self, group: "Group") -> dict[str, str]:
        """Its fields for a comparison with `group`.

        If either has only references, all but the data are taken from `group`, so that only data can differ.
        """
        if self.rows and group.rows:
            return self.fields
        return {**group.fields, "data": self.fingerprint}

    @property
    def scored_part(self) -> tuple[int, int] | None:
        """How many images of its split were scored, and of how many; None where all were.

        The field `subset` has a part such as "test=4982/5000#1a2b3c" for each split of which captions are missing.
        """
        parts = dict(part.partition("=")[::2] for part in self.signature.get("subset", "").split(","))
        scored, slash, images = parts.get(self.split, "").partition("#")[0].partition("/")
        return (int(scored), int(images)) if slash else None

    @property
    def images_left_out(self) -> int:
        """How many images of the data set were left out, for training and scoring alike."""
        for part in self.signature.get("data", "").split(","):
            if part.startswith("skipped:"):
                return int(part.partition(":")[2])
        return 0

    @property
    def models(self) -> list[Row]:
        """Its rows without those that are baselines."""
        ranks = [(row, row.ranks.get(self.metric)) for row in self.rows]
        return [row for row, rank in ranks if rank is None or not rank.is_baseline]

    def is_ranked(self, row: Row) -> bool:
        """Whether a row has a rank on the group's metric."""
        rank = row.ranks.get(self.metric)
        return rank is not None and rank.worst is not None

    @property
    def is_as_given(self) -> bool:
        """Whether rows are systems with one file of captions each, so that tests are over images alone."""
        if self.track != SYSTEMS:
            return False
        if self.comparisons is not None and self.comparisons.rows:
            return not self.comparisons.seeds  # without seeds, the comparisons are over images alone
        return any(len(row.seeds) == 1 for row in self.rows)

    @property
    def name(self) -> str:
        """Data set, split and length of training, with "with rewards" where groups differ in that."""
        name = f"{self.dataset} {self.split}"
        if "reward" in self.separating and "reward" in self.signature:
            name += " with rewards"
        if self.training_steps:
            name += f" after {self.training_steps}"
        return name

    @property
    def training_steps(self) -> str:
        """How long its models were trained, such as "504 updates"; empty if unknown."""
        steps = [row.costs.get("train_steps") for row in self.rows]
        counts = sorted({round(cost.value) for cost in steps if cost and cost.value})
        if not counts:
            return ""
        fewest = counts[0]
        most = counts[-1]
        span = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
        return f"{span} {'update' if most == 1 else 'updates'}"


@dataclass(frozen=True, slots=True)
class _Context:
    """What all groups share.

    Attributes:
        metric: the metric that rows are sorted by.
        tested: all metrics that are tested.
        options: how rows are ranked.
        runs_by_budget: runs by everything but the budget, then by budget, then by model.
        outdated: by key of a run, why it is outdated.
    """

    store: Store
    metric: str
    tested: Sequence[str]
    options: RankingOptions
    runs_by_budget: Mapping[object, Mapping[int, Mapping[object, Sequence[Run]]]]
    outdated: Mapping[str, str]

    def image_scores(self, runs: Iterable[Run], split: str, metric: str) -> ScoreMatrix:
        """Scores by image, of the form whose mean over images is the reported score."""
        with self.store.reading() as connection:
            return image_scores(connection, list(runs), split, metric, of_score=True)


def leaderboard(
    store: Store,
    metric: str = RANKING_METRIC,
    options: RankingOptions = RankingOptions(),
    *,
    runs: Sequence[Run] | None = None,
    every_metric: bool = True,
) -> list[Group]:
    """The groups of every data set, in the order of their first runs; groups of references alone come last.

    Rows that differ in any field of the signature, in the track or in the data's fingerprint never share a group.

    Args:
        metric: sorts the rows of each group.
        runs: the finished runs, if they were read before.
        every_metric: test all metrics; otherwise only `metric` gets ranks, and its intervals over seeds.
    """
    if runs is None:
        with store.reading() as connection:
            runs = read_runs(connection, FINISHED)
    metrics = dict.fromkeys(name for run in runs for split in run.scores.splits for name in run.scores.metrics(split))
    tested = [name for name in metrics if every_metric or name == metric]
    if runs and metric not in metrics:
        raise StoreError(f"no run has a score of {metric!r}", f"choose of {', '.join(metrics)}")
    runs_by_group: dict[tuple[object, str], list[Run]] = {}
    references: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        for split in run.scores.splits:
            if run.role == "model":
                runs_by_group.setdefault((run.comparable, split), []).append(run)
            else:
                references.setdefault((run.fingerprint, split), []).append(run)

    runs_by_budget: dict[object, dict[int, dict[object, list[Run]]]] = {}
    runs_of_split: dict[tuple[str, str], list[Run]] = {}
    for (_, split), members in runs_by_group.items():
        runs_of_split.setdefault((members[0].fingerprint, split), []).extend(members)
        for run in members:
            budgets = runs_by_budget.setdefault((run.budget_series, split), {})
            budgets.setdefault(run.budget, {}).setdefault(_without_schedule(run), []).append(run)
    context = _Context(store, metric, tested, options, runs_by_budget, outdated(runs))
    groups = [
        _group(members, split, references, runs_of_split, context) for (_, split), members in runs_by_group.items()
    ]
    accompanied = {(group.fingerprint, group.split) for group in groups}
    for (fingerprint, split), lone_references in references.items():
        if (fingerprint, split) not in accompanied:
            groups.append(_group_of_references(lone_references, split, context))
    for index, group in enumerate(groups):
        groups_of_split = [other for other in groups if (other.dataset, other.split) == (group.dataset, group.split)]
        fields = [other.fields_compared_with(group) for other in groups_of_split]
        groups[index] = replace(group, separating=tuple(_differences(group.fields, fields)))
    return groups


def _without_schedule(run: Run) -> object:
    """Model and configuration of a run without its schedule."""
    return run.model, frozenset(item for item in run.variant.items() if not item[0].startswith("preset.schedule."))


def _gain(runs: Sequence[Run], split: str, margin: float, context: _Context) -> Gain | None:
    """How much the mean score rises with more training, over the seeds of these runs that were trained longer, too.

    This is by the next larger budget in which all these seeds have a score; None if there is none. The gain is
    `finished` if at least twice the budget gained no more than the margin.
    """
    budgets = context.runs_by_budget.get((runs[0].budget_series, split), {})
    for next_budget in sorted(budget for budget in budgets if budget > runs[0].budget):
        longer_runs = budgets[next_budget].get(_without_schedule(runs[0]), ())
        seeds = {run.seed for run in runs} & {run.seed for run in longer_runs}
        scores = _values([run for run in runs if run.seed in seeds], split, context.metric)
        longer_scores = _values([run for run in longer_runs if run.seed in seeds], split, context.metric)
        if not seeds or scores.keys() != seeds or longer_scores.keys() != seeds:
            continue
        times = next_budget / runs[0].budget
        gap = fmean(longer_scores.values()) - fmean(scores.values())
        return Gain(next_budget, times, gap, finished=times >= 2 and gap <= margin)
    return None


def _values(runs: Sequence[Run], split: str, metric: str) -> dict[int, float]:
    """The scores of runs that have one, by seed."""
    scores = {run.seed: run.scores.get(split, metric) for run in runs}
    return {seed: score.value for seed, score in scores.items() if score is not None and score.value is not None}


def rows_of(runs: Iterable[Run]) -> list[list[Run]]:
    """The runs of each row, ascending by seed: same conditions, model and configuration, whatever the seed.

    Dependent runs are left out, and colliding seeds renumbered (`_independent`).
    """
    rows: dict[object, list[Run]] = {}
    for run in runs:
        rows.setdefault((run.comparable, run.role, run.model, frozenset(run.variant.items())), []).append(run)
    return [_independent(sorted(members, key=lambda run: run.seed)) for members in rows.values()]


def _independent(runs: Sequence[Run]) -> list[Run]:
    """The runs of a row without those that share a model, or a file of captions, with an earlier one.

    Seeds that collide are renumbered, since every command numbers its files and ensembles from 0. Of a system that was
    run here from a checkpoint, only the last run counts.
    """
    if runs[0].is_system and runs[0].kind != "captions":
        return [max(runs, key=lambda run: run.id)]
    independent: list[Run] = []
    used_sources: set[str] = set()
    for run in runs:
        # The members of an ensemble, the digest of a file of captions, or the run itself.
        sources = set(run.config.get("members") or [run.card.get("sha256", run.key)])
        if used_sources.isdisjoint(sources):
            used_sources |= sources
            seed = max(run.seed, independent[-1].seed + 1) if independent else run.seed
            independent.append(run if seed == run.seed else replace(run, seed=seed))
    return independent


def _group(
    members: Sequence[Run],
    split: str,
    all_references: Mapping[tuple[str, str], Sequence[Run]],
    runs_of_split: Mapping[tuple[str, str], Sequence[Run]],
    context: _Context,
) -> Group:
    """The group of runs that may be ranked against each other.

    Args:
        all_references: runs of references by data and split.
        runs_of_split: runs of all models by data and split.
    """
    first = members[0]
    rows = _sorted_rows(members, split, context.metric)
    machines = majority_machine(run.environment for run in members)
    reference_runs = _one_run_each(all_references.get((first.fingerprint, split), ()), first.table_conditions)
    reference_rows = _sorted_rows(reference_runs, split, context.metric)
    other_rows = rows_of(run for run in runs_of_split[first.fingerprint, split] if run.comparable != first.comparable)
    baselines = baseline_rows(rows, rows_of(reference_runs), other_rows)

    means = [_mean(runs, split, context.metric) for runs in rows]
    human = next((_mean(runs, split, context.metric) for runs in reference_rows if runs[0].model == "human"), None)
    margin = margin_of(context.options, human, means)
    gains = [_gain(runs, split, margin[0], context) for runs in rows]
    trained_longer = {index for index, gain in enumerate(gains) if gain is not None}
    table = _Table(rows, reference_rows, baselines, split, margin, trained_longer)
    tests = _test_table(table, context)

    other_hardware = rows_on_other_hardware(rows)
    group_rows = []
    for index, (runs, gain) in enumerate(zip(rows, gains, strict=True)):
        variants_of_model = [other[0].variant for other in rows if other[0].model == runs[0].model]
        differs = _differences(runs[0].variant, variants_of_model)
        if first.is_system:
            differs |= _conditions_of_system(runs[0], rows)
        row = _row(runs, split, tests.scores[index], differs, context, machines)
        ranks = {metric: tests.ranks[metric][index] for metric in context.tested}
        group_rows.append(replace(row, ranks=ranks, other_hardware=other_hardware.get(index), gain=gain))
    return Group(
        dataset=first.dataset,
        fingerprint=first.fingerprint,
        split=split,
        track=first.table_track,
        signature=first.table_signature,
        rows=tuple(group_rows),
        references=_references(reference_runs, table, tests, first.table_conditions, context),
        comparisons=tests.comparisons,
        budget=first.budget,
        budget_series=first.budget_series,
        metric=context.metric,
    )


def _group_of_references(runs: Sequence[Run], split: str, context: _Context) -> Group:
    """A group of references, for data without any model."""
    first = runs[0]
    reference_runs = _one_run_each(runs, {})
    table = _Table(
        rows=[],
        references=_sorted_rows(reference_runs, split, context.metric),
        baselines=[],
        split=split,
        margin=(0.0, None),
        trained_longer=set(),
    )
    rows = _references(reference_runs, table, _test_table(table, context), {}, context)
    return Group(first.dataset, first.fingerprint, split, first.track, references=rows, metric=context.metric)


@dataclass(frozen=True, slots=True)
class _Table:
    """The runs of a group's rows, references and baselines, before they are tested together.

    Attributes:
        rows: the runs of each row, best row first.
        references: the runs of each reference, best first.
        baselines: the runs of each baseline that rows are tested against.
        margin: the difference below which rows are the same, and what it is a share of.
        trained_longer: indices of rows that have a longer training in another group.
    """

    rows: list[list[Run]]
    references: list[list[Run]]
    baselines: Sequence[Sequence[Run]]
    split: str
    margin: tuple[float, str | None]
    trained_longer: set[int]


@dataclass(slots=True)
class _Tests:
    """The results of testing a table on the scores of its images.

    Attributes:
        scores: by metric, for each row and then for each reference.
        ranks: by metric, for each row.
    """

    scores: list[dict[str, Spread]]
    contenders: list[Contender] = field(default_factory=list)
    ranks: dict[str, list[RankInterval]] = field(default_factory=dict)
    comparisons: Comparisons | None = None


def _test_table(table: _Table, context: _Context) -> _Tests:
    """Test a table metric by metric, so that the image scores of only one are in memory."""
    all_rows = [*table.rows, *table.references]
    tests = _Tests([spreads({run.seed: run.scores.metrics(table.split) for run in runs}) for runs in all_rows])
    # The metric that sorts comes first: it decides which rows compete on the others.
    for metric in dict.fromkeys((context.metric, *context.tested)):
        _test_metric(table, tests, metric, context)
    return tests


def _test_metric(table: _Table, tests: _Tests, metric: str, context: _Context) -> None:
    """Test a table on one metric and add the results to `tests`."""
    all_rows = [*table.rows, *table.references]
    read_rows = [*all_rows, *table.baselines] if metric == context.metric else all_rows
    image_scores = context.image_scores(chain.from_iterable(read_rows), table.split, metric)
    for runs, scores in zip(all_rows, tests.scores, strict=True):
        if metric in scores and scores[metric].n > 1:
            measured = [run.id for run in runs if _values([run], table.split, metric)]
            scores[metric] = with_interval_over_seeds(scores[metric], metric, image_scores.of_runs(measured))
    if metric == context.metric:
        seeds = shared_seeds(table.rows)
        compared_runs = [[run for run in runs if run.seed in seeds] or runs for runs in table.rows]
        tests.contenders = contenders_of(
            table.rows,
            table.baselines,
            image_scores,
            context.options,
            rows_on_other_hardware(compared_runs),
            table.trained_longer,
        )
    tests.ranks[metric], compared = rank_on(tests.contenders, image_scores)
    if metric == context.metric:
        tests.comparisons = comparisons_of(tests.contenders, compared, image_scores, metric, table.margin)


def _conditions_of_system(run: Run, rows: Iterable[Sequence[Run]]) -> dict[str, str | None]:
    """The fields of processing in which systems that were run here differ.

    A file of captions that does not name its images has only `ids`: how they were matched.
    """
    variant = run.variant
    conditions: dict[str, str | None] = {}
    if run.kind != "captions":
        # Only names are compared: the digest behind the name of a template differs between families of models.
        variants = [variant, *(other[0].variant for other in rows if other[0].kind != "captions")]
        without_digests = [{field: value.partition("#")[0] for field, value in fields.items()} for fields in variants]
        for field_name in _differences(without_digests[0], without_digests[1:]):
            if field_name in _PROCESSING_FIELDS:
                conditions[field_name] = variant.get(field_name)
    if "ids" in variant:
        conditions["ids"] = variant["ids"]
    return conditions


def _references(
    runs: Sequence[Run], table: _Table, tests: _Tests, conditions: Mapping[str, str], context: _Context
) -> tuple[Row, ...]:
    """The rows of references, which name how they differ from the `conditions` of the group, if it has any."""
    compared = [conditions] if conditions else []
    machines = majority_machine(run.environment for run in runs)
    rows = []
    for row, scores in zip(table.references, tests.scores[len(table.rows) :], strict=True):
        differs = _differences(row[0].conditions, compared)
        if conditions and conditions["track"] == SYSTEMS:  # references have other tracks and most other fields
            differs = {
                name: value
                for name, value in differs.items()
                if name in conditions or (value not in (NO_PART, None) and name in {"heldout", "feat"})
            }
            differs.pop("track", None)
        if "rev" in conditions:
            differs.pop("v", None)  # releases of one results revision are comparable
        rows.append(_row(row, table.split, scores, differs, context, machines))
    return tuple(rows)


def _one_run_each(runs: Sequence[Run], conditions: Mapping[str, str]) -> list[Run]:
    """One run of each reference, seed and conditions: the last given of the group's revision, or else the last."""
    by_reference: dict[object, list[Run]] = {}
    for run in runs:
        other_conditions = frozenset(without_code(run.conditions).items())
        by_reference.setdefault((run.model, run.seed, other_conditions), []).append(run)
    revision = conditions.get("rev")
    chosen = []
    for candidates in by_reference.values():
        of_revision = [run for run in candidates if revision is not None and run.signature.get("rev") == revision]
        chosen.append((of_revision or candidates)[-1])
    return chosen


def _row(
    runs: Sequence[Run],
    split: str,
    scores: dict[str, Spread],
    differs: dict[str, str | None],
    context: _Context,
    machines: Mapping[Phase, str],
) -> Row:
    """The row of these runs, which differ only in their seed."""
    domains = list(dict.fromkeys(domain for run in runs for domain in run.scores.domains(split)))

    def over_seeds(domain: str = OVERALL, kind: Kind = "usual") -> dict[str, Spread]:
        return spreads({run.seed: run.scores.metrics(split, domain, kind) for run in runs})

    costs, other_machines = row_costs(runs, machines)
    return Row(
        model=runs[0].model,
        role=runs[0].role,
        seeds=tuple(run.seed for run in runs),
        keys=tuple(run.key for run in runs),
        scores=scores,
        domains={domain: over_seeds(domain) for domain in domains if domain != OVERALL},
        costs=costs,
        other_machines=other_machines,
        code_version=runs[0].code_version,
        differs=differs,
        outdated=context.outdated.get(runs[-1].key),
        plugins=_plugins(runs[0]),
        unmatched=str(runs[0].config.get("unmatched", "")),
        members=len(runs[0].config.get("members") or [runs[0].key]),
        pretraining=runs[0].pretraining,
        held_out=spreads({run.seed: run.held_out.metrics(split) for run in runs}),
        more=over_seeds(kind="further"),
        facts={domain: over_seeds(domain, "fact") for domain in runs[0].scores.domains(split, "fact")},
        learning={run.seed: run.learning for run in runs if run.learning is not None},
        by_seed=_values(runs, split, context.metric),
        without_schedule=_without_schedule(runs[0]),
        stated=_stated_costs(runs[0].card),
        stated_hardware=runs[0].card.get("hardware") or "",
    )


def _stated_costs(card: Mapping[str, Any]) -> dict[str, Quantity]:
    """The costs that the card of a system states, by their names here."""
    stated = {}
    for name, field_name, factor, unit in _STATED:
        value = card.get(field_name)
        if value is not None:
            stated[name] = Quantity(factor * value, unit=unit)
    return stated


def _sorted_rows(runs: Iterable[Run], split: str, metric: str) -> list[list[Run]]:
    """The rows by mean score, best first; those without one last."""

    def order(row: Sequence[Run]) -> tuple[bool, float, str]:
        mean = _mean(row, split, metric)
        return mean is None, -(mean or 0.0), row[0].model

    return sorted(rows_of(runs), key=order)


def _mean(runs: Sequence[Run], split: str, metric: str) -> float | None:
    values = _values(runs, split, metric)
    return fmean(values.values()) if values else None


def _differences(own: Mapping[str, str], others: Sequence[Mapping[str, str]]) -> dict[str, str | None]:
    """The fields in which any of `others` differs from `own`, with the own value; None: no such field."""
    names = dict.fromkeys(name for fields in (own, *others) for name in fields)
    return {name: own.get(name) for name in names if any(other.get(name) != own.get(name) for other in others)}


def _plugins(run: Run) -> tuple[str, ...]:
    return tuple(run.environment.get("plugins") or ())


def outdated(runs: Sequence[Run]) -> dict[str, str]:
    """Why runs are outdated, by key.

    A run is outdated if it did not record its code, if the last run has another results revision, or if the last run of
    its model with the same plug-ins has other code of the model.
    """
    last_of_model: dict[object, CodeRecord] = {}
    last: CodeRecord | None = None
    reasons = {}
    for run in sorted(runs, key=lambda run: run.ended):
        if run.code is not None:
            last = run.code
            last_of_model[run.model, _plugins(run)] = run.code
    for run in runs:
        if run.code is None or last is None:
            reasons[run.key] = f"captionbench {run.code_version} made it, which did not record its code"
        elif run.code.revision != last.revision:
            reasons[run.key] = f"of results revision {run.code.revision}, the newest is {last.revision}"
        elif run.code.model != last_of_model[run.model, _plugins(run)].model:
            # Changes of the harness are covered by the revision.
            files = run.code.changed_files(last_of_model[run.model, _plugins(run)])
            changed = [path for path in files if not path.startswith("harness/")]
            suffix = f" and {len(changed) - _MAX_NAMED_FILES} more" if len(changed) > _MAX_NAMED_FILES else ""
            reasons[run.key] = f"made before {', '.join(changed[:_MAX_NAMED_FILES])}{suffix} changed"
    return reasons
