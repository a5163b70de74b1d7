"""The verdict of a leaderboard in words, and all pairs of its rows as a square of letters."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from reports.columns import cost_cell, is_all_on_other_machine
from reports.numbers import cost, listed, percent, signed
from reports.tables.table import is_of_whole_split
from results.costs import leaderboard_costs
from results.runs.leaderboard import Group, Row
from results.runs.standings import MARGIN_SHARE, NO_SCORES, OTHER_MACHINE, Comparisons, RankInterval, Verdict

_NAMED = 4
_LEARNT: Final = 500
"""Updates after which models that learn at all are above chance: as many as the preset `quick` trains."""
_LONGER = {
    "still learning": "Still learning",
    "at chance": "At the level of chance",
    "rate near zero": "With a learning rate that had long been near zero",
}
"""How trainings end that a longer one may turn, in words."""
_AS_GIVEN: Final = "tested by paired sign flips over images. A claim about architectures needs several seeds."
_DESCRIBED_PAIRS: Final = 3  # of three models; of more, the table of pairs has the numbers
LETTERS: Final[dict[Verdict, str]] = {"better": "B", "worse": "W", "same": "S", "unknown": "·"}
PAIRS_MEANING: Final = (
    "B: the row is significantly better than the column; W: worse; S: the same within the margin; ·: not significant"
)


def verdict(group: Group) -> tuple[str, ...]:
    """Sentences that say which models are best, or why that cannot be said yet, and what to type."""
    models = group.models
    ranked = [row for row in models if group.is_ranked(row)]
    if not ranked:
        return no_ranks([group])
    leaders = [row for row in ranked if row.ranks[group.metric].best == 1]
    comparisons = group.comparisons
    sentences = []
    if comparisons is not None:
        indices = {index for index in comparisons.rows if group.rows[index] in ranked}
        wins = Counter(pair.first for pair in comparisons.pairs if {pair.first, pair.second} <= indices)
        leader = max(indices, key=lambda index: wins[index])  # by the means of the seeds that are compared
        sentences += [_describe_leader(leader, group, comparisons), _significant_pairs(group, comparisons)]
    sentences += [_cheapest(leaders), _unfinished(ranked)]
    if n_unranked := len(models) - len(ranked):
        reasons = _obstacles([(row, group) for row in models if row not in ranked])
        verb = "has" if n_unranked == 1 else "have"
        sentences.append(f"{n_unranked} of {len(models)} models {verb} no rank: {reasons}.")
    return (*filter(None, sentences), *_advice([group]))


def no_ranks(groups: Sequence[Group]) -> tuple[str, ...]:
    """Why no model of any group has a rank, each model counted once, and what to type; () where one has."""
    unranked = [group for group in groups if group.models]
    if not unranked or any(group.is_ranked(row) for group in unranked for row in group.models):
        return ()
    names = listed(list(dict.fromkeys(group.name for group in unranked)), most=2)
    reasons = _obstacles([(row, group) for group in unranked for row in group.models])
    return (f"No model has a rank on {names}: {reasons}.", *_advice(unranked))


def headline(group: Group) -> str:
    """Which model scores highest, and how sure that is, in one or two sentences."""
    models = group.models
    if not models:
        rows = (*group.rows, *group.references)
        return "; ".join(f"{row.model} scores {_score(row, group)}" for row in rows[:_NAMED]) + "."
    highest = models[0]
    if baselines := _baselines_above_all(models, group):
        return _none_above(baselines, models, group)
    if len(models) == 1:
        return f"{highest.model} scores {_score(highest, group)}."
    first = f"{highest.model} scores highest, {_score(highest, group)}{_lead(models, group)}"
    if group.comparisons is None or not any(map(group.is_ranked, models)):
        return f"{first}. No difference is known to be significant: {_main_obstacle([(row, group) for row in models])}."
    if group.is_ranked(highest):
        index = next(index for index, row in enumerate(group.rows) if row is highest)
        return f"{first}. It is {_compare_with_others(index, group, group.comparisons)}."
    return f"{first}. Whether it is the best is not known: {_main_obstacle([(highest, group)])}."


def best_row(group: Group) -> Row | None:
    """The model that `headline` speaks of; None if there is none."""
    return next(iter(group.models), None)


def cost_of_best(group: Group) -> tuple[tuple[str, str], ...]:
    """The costs of `best_row` that are known, as label and amount."""
    best = best_row(group)
    if best is None:
        return ()
    measured = {*best.costs, *best.stated}
    amounts = []
    for info in leaderboard_costs(measured):
        cell = cost_cell(best, info.name)
        if cell.value is not None:
            amounts.append(("Computation" if info.short_heading == "MAC" else info.label, cell.text))
    return tuple(amounts)


def _baselines_above_all(models: Sequence[Row], group: Group) -> list[Row]:
    """The baselines that no model is significantly better than."""
    names: list[set[str]] = []
    for row in models:
        rank = row.ranks.get(group.metric)
        names.append({test.baseline for test in rank.not_above} if rank is not None else set())
    common = set.intersection(*names)
    return [row for row in (*group.references, *group.rows) if row.model in common]


def _none_above(baselines: Sequence[Row], models: Sequence[Row], group: Group) -> str:
    """That no model is better than these baselines, and whether all are below."""
    highest = models[0]
    names = " and ".join(f"{baseline.model} ({_score(baseline, group)})" for baseline in baselines)
    baselines_text = f"baseline {names}" if len(baselines) == 1 else f"baselines {names}"
    lowest_baseline = min(baseline.mean(group.metric) or 0.0 for baseline in baselines)
    is_below = (highest.mean(group.metric) or 0.0) < lowest_baseline
    if len(models) == 1:
        relation = "below" if is_below else "not significantly above"
        return f"{highest.model} scores {_score(highest, group)}, {relation} the {baselines_text}."
    if is_below:
        return f"All {len(models)} models score below the {baselines_text}: at most {_score(highest, group)}."
    first = f"None of the {len(models)} models is significantly better than the {baselines_text}."
    return f"{first} {highest.model} scores {_score(highest, group)}."


def _lead(models: Sequence[Row], group: Group) -> str:
    """By how much the first of these is above the second."""
    first = models[0].mean(group.metric)
    second = models[1].mean(group.metric)
    if first is None or second is None:
        return ""
    lead = round(100 * first, 1) - round(100 * second, 1)  # of the numbers that are shown
    if lead < 0.05:
        return f", level with {models[1].model}"
    return f", {lead:.1f} above {models[1].model}"


def without_rank(group: Group) -> str:
    """How many models of a group with ranks have none, and why; "" if all have one."""
    models = group.models
    without = [row for row in models if not group.is_ranked(row)]
    if not without or len(without) == len(models):
        return ""
    verb = "has" if len(without) == 1 else "have"
    return f"{len(without)} of {len(models)} models {verb} no rank: {_main_obstacle([(row, group) for row in without])}"


def _score(row: Row, group: Group) -> str:
    mean = row.mean(group.metric)
    return f"no {group.metric}" if mean is None else f"{percent(mean)} {group.metric}"


def _compare_with_others(leader: int, group: Group, comparisons: Comparisons) -> str:
    """Which models a leading one is significantly better than, equivalent to, worse than, or too close to.

    `leader` is its index in the group's rows.
    """
    rows: dict[Verdict, list[Row]] = {}
    for index in comparisons.rows:
        pair = None if index == leader else comparisons.between(leader, index)
        if pair is not None:
            rows.setdefault(pair[1], []).append(group.rows[index])
    parts = []
    if "better" in rows:
        parts.append(f"significantly better than {_counted(rows['better'])}")
    if "same" in rows:
        parts.append(f"the same as {_counted(rows['same'])} within {_margin(comparisons)}")
    if "worse" in rows:
        parts.append(f"worse than {_counted(rows['worse'])}, which had not finished learning")
    if "unknown" in rows:
        parts.append(f"too close to {_counted(rows['unknown'])} to call")
    return "; ".join(parts) or "compared with no other model"


@dataclass(frozen=True, slots=True)
class LongerTraining:
    """The options that train a command's models `times` as long."""

    options: tuple[tuple[str, str], ...]
    times: int


def longer_training(groups: Sequence[Group]) -> LongerTraining | None:
    """How models that had not finished learning are trained longer; None if there are none, or more of the same
    settings would not help."""
    rows = _unfinished_rows(groups)
    # Where the rate was near zero, more epochs of the same settings would be spent like the last ones.
    longer = [row for row in rows.values() if row.training_end != "rate near zero"]
    ended = [learning for row in longer for learning in row.learning.values()]
    times = max((_times_longer(row) for row in longer), default=2)
    epochs = {learning.stage: times * learning.epochs for learning in ended if learning.epochs is not None}
    if not epochs:
        return None
    if set(epochs) != {0}:
        settings = [f"schedule.stages.{stage}.epochs={count}" for stage, count in sorted(epochs.items())]
        return LongerTraining(tuple(("--set", setting) for setting in settings), times)
    budgets = {group.budget for group in groups for row in group.rows if row.keys in rows}
    longer_budgets = {times * budget for budget in (budgets if times == 2 else [min(budgets)])}
    return LongerTraining((("--budgets", ",".join(map(str, sorted(budgets | longer_budgets)))),), times)


def needs_longer_training(groups: Sequence[Group]) -> str:
    """Which models had not finished learning, and the options that train them longer; "" if none was."""
    models_by_end: dict[str, dict[str, None]] = {}
    for row in _unfinished_rows(groups).values():
        models_by_end.setdefault(_LONGER[row.training_end], {})[row.model] = None
    text = " ".join(f"{end} when the training ended: {', '.join(models)}." for end, models in models_by_end.items())
    longer = longer_training(groups)
    if longer is None:
        return text
    if longer.times == 2:
        text += " To train twice as long"
    else:
        text += f" To train {longer.times} times as long, {_LEARNT} updates or more"
    options = " ".join(f"{option} {value}" for option, value in longer.options)
    return f"{text}: the same command with {options}"


def _unfinished_rows(groups: Sequence[Group]) -> dict[tuple[str, ...], Row]:
    """The rows, by their runs, of models that had not finished learning and were not trained longer either."""
    return {row.keys: row for group in groups for row in group.rows if row.training_end in _LONGER and not row.gain}


def _times_longer(row: Row) -> int:
    """How many times as long a row is to be trained: twice, or until an untrained model has learnt something."""
    steps = row.costs.get("train_steps")
    at_chance = row.training_end == "at chance" and steps is not None and steps.value
    return max(2, ceil(_LEARNT / at_chance)) if at_chance else 2


def _describe_leader(leader: int, group: Group, comparisons: Comparisons) -> str:
    """Which model leads, by what evidence, and how it compares with the others."""
    if comparisons.seeds:
        evidence = f"{len(comparisons.seeds)} seeds"
    elif all(len(group.rows[index].seeds) == 1 for index in comparisons.rows):
        evidence = "one training each"
    else:
        evidence = "captions as given"
    comparison = _compare_with_others(leader, group, comparisons)
    return f"{group.rows[leader].model} leads on {group.name} ({evidence}): {comparison}."


def _significant_pairs(group: Group, comparisons: Comparisons) -> str:
    """How many differences are significant, and how many seeds or images would settle the easiest of the others."""
    if len(comparisons.pairs) == 1:
        [pair] = comparisons.pairs
        cell = pair_cell(group, pair.first, pair.second)
        note = f"p is of {group.metric} alone; bench compare corrects for every metric that it tests"
        return f"The difference, {cell.text}; {note}." if cell else ""
    counts = Counter(pair.verdict for pair in comparisons.pairs)
    details = ""
    if len(comparisons.pairs) <= _DESCRIBED_PAIRS:
        cells = [pair_cell(group, pair.first, pair.second) for pair in comparisons.pairs]
        details = f" {'; '.join(cell.text for cell in cells if cell)}."
    sentence = f"{counts['better']} of {len(comparisons.pairs)} differences are significant"
    if counts["same"]:
        sentence += f", {counts['same']} equivalent within {_margin(comparisons)}"
    unknown = [pair for pair in comparisons.pairs if pair.verdict == "unknown"]
    if not unknown:
        return f"{sentence}.{details}"
    if comparisons.seeds:
        unit = "seeds"
        count = 2 * len(comparisons.seeds)
        needed = [pair.seeds_needed for pair in unknown]
    else:
        unit = "images"
        count = 2 * comparisons.images
        needed = [pair.images_needed for pair in unknown]
    n_settled = sum(need is not None and need <= count for need in needed) or "none"
    settled = f"{count:,} {unit} would settle {n_settled} of the other {len(unknown)} (80 % power)."
    return f"{sentence}. {settled}{details}"


def _margin(comparisons: Comparisons) -> str:
    margin = f"{percent(comparisons.margin)} points"
    if comparisons.margin_of:
        margin += f" ({100 * MARGIN_SHARE:g} % of {comparisons.margin_of})"
    return margin


def _counted(rows: Sequence[Row]) -> str:
    """The names of a few models, or the number of many."""
    return listed([row.model for row in rows]) if len(rows) <= _NAMED else f"{len(rows)} models"


def _cheapest(leaders: Sequence[Row]) -> str:
    """Which of several best models trains in the least time; "" if machines differ."""
    comparable = [row for row in leaders if not is_all_on_other_machine(row, "train_seconds")]
    timed = [(cost_.value, row) for row in comparable if (cost_ := row.costs.get("train_seconds")) and cost_.value]
    if len(timed) != len(leaders) or len(timed) < 2:
        return ""
    timed.sort(key=lambda pair: pair[0])
    (least, first), (most, last) = timed[0], timed[-1]
    return f"{first.model} trains in {cost(least, 's')}, {last.model} in {cost(most, 's')}."


def _unfinished(ranked: Sequence[Row]) -> str:
    """That ranks may change for models that were still learning."""
    gains = sorted(100 * row.gain.difference for row in ranked if row.gain and row.still_gains)
    still_learning = [row for row in ranked if row.still_learning and not row.gain]
    sentences = []
    if gains:
        points = " to ".join(dict.fromkeys((f"{gains[0]:.1f}", f"{gains[-1]:.1f}")))
        sentences.append(f"{len(gains)} of {len(ranked)} ranked models still gain by longer training: {points} points.")
    if still_learning:
        count = f"{len(still_learning)} of {len(ranked)} ranked models"
        sentences.append(f"{count} were still learning: longer training may change their order.")
    return " ".join(sentences)


def _obstacles(rows: Sequence[tuple[Row, Group]]) -> str:
    """Why rows of groups have no rank, with the number of models of which it is so."""
    models = len({row.model for row, _ in rows})
    parts = [_counted_obstacle(names, obstacle, models) for obstacle, names in _models_by_obstacle(rows).items()]
    return ", ".join(parts) or "no two models can be compared"


def _main_obstacle(rows: Sequence[tuple[Row, Group]]) -> str:
    """Why most of these rows have no rank; of several reasons the first."""
    by_obstacle = _models_by_obstacle(rows)
    if not by_obstacle:
        return "no two models can be compared"
    obstacle = max(by_obstacle, key=lambda reason: len(by_obstacle[reason]))
    return _counted_obstacle(by_obstacle[obstacle], obstacle, len({row.model for row, _ in rows}))


def _counted_obstacle(names: set[str], obstacle: str, models: int) -> str:
    """How many of `models` have an obstacle, which begins with a verb: "all 6 were still learning"."""
    if len(names) == 1:
        verb, _, complement = obstacle.partition(" ")
        singular = {"have": "has", "are": "is", "were": "was"}.get(verb, verb)
        subject = "it" if models == 1 else next(iter(names))
        return f"{subject} {singular} {complement}"
    if len(names) < models:
        return f"{len(names)} {obstacle}"
    return f"both {obstacle}" if models == 2 else f"all {models} {obstacle}"


def _models_by_obstacle(rows: Sequence[tuple[Row, Group]]) -> dict[str, set[str]]:
    models: dict[str, set[str]] = {}
    for row, group in rows:
        rank = row.ranks.get(group.metric) or RankInterval()
        has_unknown_end = any(ended.state == "unknown" for ended in row.learning.values())
        obstacles = {
            "have one seed": len(row.seeds) == 1 and not group.is_as_given,
            "were still learning": row.still_learning and not row.gain,
            "have too few validations to say whether they had finished learning": not row.still_learning
            and has_unknown_end,
            "had a learning rate near zero at the end of the training": row.training_end == "rate near zero",
            "are at the level of chance": row.training_end == "at chance",
            "are not significantly better than a baseline": bool(rank.not_above),
            f"have no {group.metric} of single images": rank.reason == NO_SCORES,
            "were computed on other hardware than most rows": rank.reason == OTHER_MACHINE,
            "have other seeds than most rows": (rank.reason or "").startswith("other seeds"),
        }
        for obstacle, applies in obstacles.items():
            if applies:
                models.setdefault(obstacle, set()).add(row.model)
    return models


def _advice(groups: Sequence[Group]) -> list[str]:
    """What captions of one training, or single seeds, do not show."""
    notes = [as_given_note(groups), *map(part_of_split_note, groups)]
    advice = list(dict.fromkeys(note for note in notes if note))
    if any(len(row.seeds) == 1 for group in groups if not group.is_as_given for row in group.models):
        advice.append("Ranks need several seeds: the same command with --seeds 3.")
    return advice


def as_given_note(groups: Sequence[Group]) -> str:
    """What captions as they are say, and of which models where others have several files or seeds; "" without any."""
    rows = [row for group in groups if group.is_as_given for row in group.models]
    if not rows:
        return ""
    of_one_training = dict.fromkeys(row.model for row in rows if len(row.seeds) == 1)
    if not of_one_training:
        return f"Ranks are of these captions, {_AS_GIVEN}"
    if all(group.is_as_given for group in groups) and all(len(row.seeds) == 1 for row in rows):
        return f"Captions of one training each: ranks and intervals are of these captions, {_AS_GIVEN}"
    names = listed(list(of_one_training), most=_NAMED)
    return f"{names}: captions of one training each. Ranks and intervals are of these captions, {_AS_GIVEN}"


def part_of_split_note(group: Group) -> str:
    """How many images are missing in the scores, and whether those of references are of all images; or ""."""
    notes = []
    if left_out := group.images_left_out:
        subject = "1 image of the data is" if left_out == 1 else f"{left_out:,} images of the data are"
        notes.append(f"{subject} left out. Do not compare these scores with those of all images.")
    baselines = [row.model for row in group.references if is_of_whole_split(row.differs)]
    if group.scored_part is not None and baselines:
        scored, images = group.scored_part
        verb = "is" if len(baselines) == 1 else "are"
        notes.append(
            f"The captions of {group.name} are of {scored:,} of {images:,} images; {' and '.join(baselines)} {verb} "
            f"scored on all {images:,}. Do not compare these scores with the others."
        )
    return " ".join(notes)


@dataclass(frozen=True, slots=True)
class PairCell:
    """What is known of a row and a column: the letter, the verdict that it stands for, and the numbers behind it."""

    letter: str
    verdict: str
    text: str


PairTable = tuple[tuple[str, tuple[PairCell | None, ...]], ...]


def pair_table(group: Group) -> PairTable | None:
    """Rows and columns of the compared models; None if fewer than three were compared."""
    comparisons = group.comparisons
    if comparisons is None or len(comparisons.rows) < 3:
        return None
    order = sorted(comparisons.rows)
    return tuple((group.rows[row].model, tuple(pair_cell(group, row, column) for column in order)) for row in order)


def pair_cell(group: Group, row: int, column: int) -> PairCell | None:
    """What is known of two rows, by their indices; None if they were not compared."""
    comparisons = group.comparisons
    if comparisons is None or (compared := comparisons.between(row, column)) is None:
        return None
    pair, verdict = compared
    estimate = pair.estimate if pair.first == row else pair.estimate.negated()
    assert estimate.value is not None
    names = f"{group.rows[row].model} less {group.rows[column].model}"
    for_all = " for all pairs at once" if len(comparisons.pairs) > 1 else ""
    bounds = f"too few images for an interval{for_all}"
    if estimate.low is not None and estimate.high is not None:
        bounds = f"{signed(estimate.low)} to {signed(estimate.high)}{for_all}"
    p = "p < 0.001" if estimate.p is not None and estimate.p < 0.001 else f"p {estimate.p:.2g}"
    text = f"{names}: {signed(estimate.value)} ({bounds}, {p})"
    if verdict == "unknown":
        counts = ((pair.seeds_needed, "seeds"), (pair.images_needed, "images"))
        needed = [f"{count:,} {unit}" for count, unit in counts if count]
        if needed:
            text += f"; {' or '.join(needed)} would probably settle it"
        else:
            text += "; no number of seeds or images would settle it"
    return PairCell(LETTERS[verdict], verdict, text)
