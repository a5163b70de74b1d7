"""The verdict of a leaderboard in words, and all pairs of its rows as a square of letters."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import Final

from reports.columns import cost_cell, is_of_other_machine
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
_AS_GIVEN: Final = "by paired sign flips over images; a claim about architectures needs seeds."
LETTERS: Final[dict[Verdict, str]] = {"better": "B", "worse": "W", "same": "S", "unknown": "·"}
PAIRS_MEANING: Final = "B: the row is better than the column; W: worse; S: the same within the margin; ·: not known yet"


def verdict(group: Group) -> tuple[str, ...]:
    """Sentences that say which models are best, or why that cannot be said yet, and what to type."""
    models = group.models
    placed = [row for row in models if group.is_ranked(row)]
    if not placed:
        return no_places([group])
    leaders = [row for row in placed if row.ranks[group.metric].best == 1]
    without, found = len(models) - len(placed), group.comparisons
    sentences = [_cheapest(leaders), _unfinished(placed)]
    if found is not None:
        numbers = {number for number in found.rows if group.rows[number] in placed}
        ahead = Counter(pair.first for pair in found.pairs if {pair.first, pair.second} <= numbers)
        leader = max(numbers, key=lambda number: ahead[number])  # by the means of the seeds that are compared
        sentences = [_nothing_beats(leader, group, found), _told(group, found), *sentences]
    if without:
        why = _obstacles([(row, group) for row in models if row not in placed])
        floors = [row.model for row in group.rows if row not in models]
        besides = f" besides {' and '.join(floors)}" if floors else ""
        verb = "has" if without == 1 else "have"
        sentences.append(f"{without} of {len(models)} models{besides} {verb} no place: {why}.")
    return (*filter(None, sentences), *_advice([group]))


def no_places(groups: Sequence[Group]) -> tuple[str, ...]:
    """Why no model of any group has a place, each model counted once, and what to type; () where one has."""
    without = [group for group in groups if group.models]
    if not without or any(group.is_ranked(row) for group in without for row in group.models):
        return ()
    names = listed(list(dict.fromkeys(group.name for group in without)), most=2)
    why = _obstacles([(row, group) for group in without for row in group.models])
    return (f"No model has a place yet on {names}: {why}.", *_advice(without))


def headline(group: Group) -> str:
    """Which model scores highest, and how sure that is, in one or two sentences."""
    models = group.models
    if not models:
        rows = (*group.rows, *group.references)
        return "; ".join(f"{row.model} scores {_score(row, group)}" for row in rows[:_NAMED]) + "."
    highest = models[0]
    if floors := _floors_above_all(models, group):
        return _none_above(floors, models, group)
    if len(models) == 1:
        return f"{highest.model} scores {_score(highest, group)}."
    first = f"{highest.model} scores highest, {_score(highest, group)}{_lead(models, group)}"
    if group.comparisons is None or not any(map(group.is_ranked, models)):
        return f"{first}. No difference is known to be significant: {_main_obstacle([(row, group) for row in models])}."
    if group.is_ranked(highest):
        return f"{first}. It is {_against_others(highest, group, group.comparisons)}."
    return f"{first}. Whether it is the best is not known: {_main_obstacle([(highest, group)])}."


def best_row(group: Group) -> Row | None:
    """The model that `headline` speaks of; None where there is none."""
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


def _floors_above_all(models: Sequence[Row], group: Group) -> list[Row]:
    """The floors that no model is significantly better than."""
    names: list[set[str]] = []
    for row in models:
        rank = row.ranks.get(group.metric)
        names.append({test.floor for test in rank.not_above} if rank is not None else set())
    common = set.intersection(*names)
    return [row for row in (*group.references, *group.rows) if row.model in common]


def _none_above(floors: Sequence[Row], models: Sequence[Row], group: Group) -> str:
    """That no model is better than these floors, and whether all are below."""
    highest = models[0]
    baselines = "baseline " if len(floors) == 1 else "baselines "
    baselines += " and ".join(f"{floor.model} ({_score(floor, group)})" for floor in floors)
    is_below = (highest.mean(group.metric) or 0.0) < min(floor.mean(group.metric) or 0.0 for floor in floors)
    if len(models) == 1:
        relation = "below" if is_below else "not significantly above"
        return f"{highest.model} scores {_score(highest, group)}, {relation} the {baselines}."
    if is_below:
        return f"All {len(models)} models score below the {baselines}: at most {_score(highest, group)}."
    first = f"None of the {len(models)} models is significantly better than the {baselines}."
    return f"{first} {highest.model} scores {_score(highest, group)}."


def _lead(models: Sequence[Row], group: Group) -> str:
    """By how much the first of these is above the second."""
    first, second = models[0].mean(group.metric), models[1].mean(group.metric)
    if first is None or second is None:
        return ""
    lead = round(100 * first, 1) - round(100 * second, 1)  # of the numbers that are shown
    if lead < 0.05:
        return f", level with {models[1].model}"
    return f", {lead:.1f} above {models[1].model}"


def without_rank(group: Group) -> str:
    """How many models of a group with ranks have none, and why; "" where all have one."""
    models = group.models
    without = [row for row in models if not group.is_ranked(row)]
    if not without or len(without) == len(models):
        return ""
    verb = "has" if len(without) == 1 else "have"
    return f"{len(without)} of {len(models)} models {verb} no rank: {_main_obstacle([(row, group) for row in without])}"


def _score(row: Row, group: Group) -> str:
    mean = row.mean(group.metric)
    return f"no {group.metric}" if mean is None else f"{percent(mean)} {group.metric}"


def _against_others(best: Row, group: Group, found: Comparisons) -> str:
    """What is known of the best ranked model against all other models that could be compared."""
    models = group.models
    leader = next(number for number in found.rows if group.rows[number] is best)
    others = [number for number in found.rows if number != leader and group.rows[number] in models]
    verdicts = Counter[Verdict]()
    for number in others:
        if pair := found.between(leader, number):
            verdicts[pair[1]] += 1
    if len(others) == 1:
        words: dict[Verdict, str] = {
            "better": "significantly better than the other model",
            "same": f"the same as the other model within {percent(found.margin)} points",
            "worse": "worse than the other model, which has no rank",
            "unknown": "too close to the other model to call",
        }
        return next((words[verdict] for verdict in words if verdicts[verdict]), "compared with no other model")
    parts = [f"significantly better than {verdicts['better']} of {len(others)} other models"]
    if verdicts["same"]:
        parts.append(f"the same as {verdicts['same']} within {percent(found.margin)} points")
    if verdicts["worse"]:
        parts.append(f"worse than {verdicts['worse']} without a rank")
    if verdicts["unknown"]:
        parts.append(f"{verdicts['unknown']} {'is' if verdicts['unknown'] == 1 else 'are'} too close to call")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class LongerTraining:
    """The options that train a command's models `times` as long."""

    options: tuple[tuple[str, str], ...]
    times: int


def longer_training(groups: Sequence[Group]) -> LongerTraining | None:
    """How models that had not finished learning are trained longer; None where there are none, or more of the same
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
    more = {times * budget for budget in (budgets if times == 2 else [min(budgets)])}
    return LongerTraining((("--budgets", ",".join(map(str, sorted(budgets | more)))),), times)


def needs_longer_training(groups: Sequence[Group]) -> str:
    """Which models had not finished learning, and the options that train them longer; "" where none was."""
    named: dict[str, dict[str, None]] = {}
    for row in _unfinished_rows(groups).values():
        named.setdefault(_LONGER[row.training_end], {})[row.model] = None
    said = " ".join(f"{end} when the training ended: {', '.join(models)}." for end, models in named.items())
    longer = longer_training(groups)
    if longer is None:
        return said
    if longer.times == 2:
        said += " To train twice as long"
    else:
        said += f" To train {longer.times} times as long, {_LEARNT} updates or more"
    options = " ".join(f"{option} {value}" for option, value in longer.options)
    return f"{said}: the same command with {options}"


def _unfinished_rows(groups: Sequence[Group]) -> dict[tuple[str, ...], Row]:
    """The rows, by their runs, of models that had not finished learning and were not trained longer either."""
    return {row.keys: row for group in groups for row in group.rows if row.training_end in _LONGER and not row.gain}


def _times_longer(row: Row) -> int:
    """How many times as long a row is to be trained: twice, or until an untrained model has learnt something."""
    steps = row.costs.get("train_steps")
    at_chance = row.training_end == "at chance" and steps is not None and steps.value
    return max(2, ceil(_LEARNT / at_chance)) if at_chance else 2


def _nothing_beats(leader: int, group: Group, found: Comparisons) -> str:
    """What the comparisons with the leading model say: how many are worse, the same, and not known yet."""
    verdicts: dict[Verdict, list[Row]] = {}
    for number in found.rows:
        if number != leader and (pair := found.between(leader, number)):
            verdicts.setdefault(pair[1], []).append(group.rows[number])
    said = []
    kinds: dict[Verdict, str] = {"better": "worse", "same": f"the same within {_margin(found)}"}
    for kind, what in kinds.items():
        if rows := verdicts.get(kind):
            said.append(f"{_counted(rows)} {'is' if len(rows) == 1 else 'are'} {what}")
    if unknown := verdicts.get("unknown"):
        said.append(f"of {_counted(unknown)} it is not known yet")
    name = group.rows[leader].model
    if found.seeds:
        seeds = f"{len(found.seeds)} seeds"
    elif all(len(group.rows[number].seeds) == 1 for number in found.rows):
        seeds = "one training each"
    else:
        seeds = "captions as given"
    if ahead := verdicts.get("worse", []):
        other = f"{listed([row.model for row in ahead], most=_NAMED)}, which had not finished learning"
        rest = f"; {', '.join(said)}" if said else ""
        return f"Nothing beats {name} on {group.name} ({seeds}) but {other}{rest}."
    return f"Nothing beats {name} on {group.name} ({seeds}): {', '.join(said)}."


def _told(group: Group, found: Comparisons) -> str:
    """How many pairs of the table are decided, and what would decide the easiest of the others."""
    if len(found.pairs) == 1:
        [pair] = found.pairs
        cell = pair_cell(group, pair.first, pair.second)
        alone = f"p is of {group.metric} alone; bench compare corrects for every metric that it tests"
        return f"The difference, {cell.said}; {alone}." if cell else ""
    counts = Counter(pair.verdict for pair in found.pairs)
    same = f", {counts['same']} the same within {_margin(found)}" if counts["same"] else ""
    said = f"Of {len(found.pairs)} pairs {counts['better']} are told apart{same}"
    if not counts["unknown"]:
        return f"{said}."
    unknown = [pair for pair in found.pairs if pair.verdict == "unknown"]
    what, more = ("seeds", 2 * len(found.seeds)) if found.seeds else ("images", 2 * found.images)
    needs = [pair.seeds_needed if found.seeds else pair.images_needed for pair in unknown]
    reached = sum(each is not None and each <= more for each in needs) or "none"
    return f"{said}, {len(unknown)} not known yet; {more:,} {what} would tell {reached} of these with 80 % power."


def _margin(found: Comparisons) -> str:
    of = f" ({100 * MARGIN_SHARE:g} % of {found.margin_of})" if found.margin_of else ""
    return f"{percent(found.margin)} points{of}"


def _counted(rows: Sequence[Row]) -> str:
    return listed([row.model for row in rows]) if len(rows) <= _NAMED else f"{len(rows)} models"


def _cheapest(leaders: Sequence[Row]) -> str:
    """Which of several best models trains in the least time; "" where machines differ."""
    comparable = [row for row in leaders if not is_of_other_machine(row, "train_seconds")]
    timed = [(cost_.value, row) for row in comparable if (cost_ := row.costs.get("train_seconds")) and cost_.value]
    if len(timed) != len(leaders) or len(timed) < 2:
        return ""
    timed.sort(key=lambda pair: pair[0])
    (least, first), (most, last) = timed[0], timed[-1]
    return f"{first.model} trains in {cost(least, 's')}, {last.model} in {cost(most, 's')}."


def _unfinished(placed: Sequence[Row]) -> str:
    """What places of models that were still learning are worth."""
    gains = sorted(100 * row.gain.difference for row in placed if row.gain and row.still_gains)
    number, said = sum(row.still_learning and not row.gain for row in placed), []
    if gains:
        gave = " to ".join(dict.fromkeys((f"{gains[0]:.1f}", f"{gains[-1]:.1f}")))
        said.append(f"{len(gains)} of {len(placed)} placed models still gain by longer training, {gave} points.")
    if number:
        other = f"{number} of {len(placed)} placed models were still learning"
        said.append(f"{other}: longer training may order them otherwise.")
    return " ".join(said)


def _obstacles(rows: Sequence[tuple[Row, Group]]) -> str:
    """Why rows of groups have no place, with the number of models of which it is so."""
    models = len({row.model for row, _ in rows})
    parts = [_counted_obstacle(names, what, models) for what, names in _models_by_obstacle(rows).items()]
    return ", ".join(parts) or "no two models can be compared"


def _main_obstacle(rows: Sequence[tuple[Row, Group]]) -> str:
    """Why most of these rows have no place; of several reasons the first."""
    by_obstacle = _models_by_obstacle(rows)
    if not by_obstacle:
        return "no two models can be compared"
    what = max(by_obstacle, key=lambda reason: len(by_obstacle[reason]))
    return _counted_obstacle(by_obstacle[what], what, len({row.model for row, _ in rows}))


def _counted_obstacle(names: set[str], what: str, models: int) -> str:
    if len(names) == 1:
        verb, _, rest = what.partition(" ")
        singular = {"have": "has", "are": "is", "were": "was"}.get(verb, verb)
        return f"{'it' if models == 1 else 1} {singular} {rest}"
    if len(names) < models:
        return f"{len(names)} {what}"
    return f"{'both' if models == 2 else f'all {models}'} {what}"


def _models_by_obstacle(rows: Sequence[tuple[Row, Group]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for row, group in rows:
        rank = row.ranks.get(group.metric) or RankInterval()
        holds = {
            "have one seed": len(row.seeds) == 1 and not group.is_as_given,
            "were still learning": row.still_learning and not row.gain,
            "have too few validations to say whether they had finished learning": not row.still_learning
            and any(ended.state == "unknown" for ended in row.learning.values()),
            "had a learning rate near zero at the end of the training": row.training_end == "rate near zero",
            "are at the level of chance": row.training_end == "at chance",
            "are not above the floor": bool(rank.not_above),
            f"have no {group.metric} of single images": rank.reason == NO_SCORES,
            "were computed on other hardware than most rows": rank.reason == OTHER_MACHINE,
            "have other seeds than most rows": (rank.reason or "").startswith("other seeds"),
        }
        for what in (what for what, is_so in holds.items() if is_so):
            found.setdefault(what, set()).add(row.model)
    return found


def _advice(groups: Sequence[Group]) -> list[str]:
    """What captions of one training, or single seeds, do not say."""
    notes = [as_given_note(groups), *map(part_of_split_note, groups)]
    said = list(dict.fromkeys(note for note in notes if note))
    if any(len(row.seeds) == 1 for group in groups if not group.is_as_given for row in group.models):
        said.append("Places need several seeds: the same command with --seeds 3.")
    return said


def as_given_note(groups: Sequence[Group]) -> str:
    """What captions as they are say, and of which models where others have several files or seeds; "" without any."""
    given = [row for group in groups if group.is_as_given for row in group.models]
    if not given:
        return ""
    alone = dict.fromkeys(row.model for row in given if len(row.seeds) == 1)
    if not alone:
        return f"Places are of these captions, {_AS_GIVEN}"
    if all(group.is_as_given for group in groups) and all(len(row.seeds) == 1 for row in given):
        return f"Captions of one training each: places and intervals are of these captions, {_AS_GIVEN}"
    names = listed(list(alone), most=_NAMED)
    return f"{names}: captions of one training each. Intervals and places are of these captions, {_AS_GIVEN}"


def part_of_split_note(group: Group) -> str:
    """That references beside models which were scored on a part of the split were scored on all of it, or ""."""
    parts = group.signature.get("subset", "").split(",")
    sizes = dict(part.partition("#")[0].split("=", 1) for part in parts if "=" in part)
    whole = [row.model for row in group.references if is_of_whole_split(row.differs)]
    if group.split not in sizes or not whole:
        return ""
    scored, images = sizes[group.split].split("/")
    verb = "is" if len(whole) == 1 else "are"
    return (
        f"The captions of {group.name} are of {scored} of {images} images; {' and '.join(whole)} {verb} scored on all "
        f"{images}. Do not compare these scores with the others."
    )


@dataclass(frozen=True, slots=True)
class PairCell:
    """What is known of a row and a column: the letter, the verdict that it stands for, and the numbers behind it."""

    letter: str
    verdict: str
    said: str


Pairs = tuple[tuple[str, tuple[PairCell | None, ...]], ...]


def pair_table(group: Group) -> Pairs | None:
    found = group.comparisons
    if found is None or len(found.rows) < 3:
        return None
    order = sorted(found.rows)
    return tuple((group.rows[one].model, tuple(pair_cell(group, one, other) for other in order)) for one in order)


def pair_cell(group: Group, one: int, other: int) -> PairCell | None:
    """What is known of two rows, by their numbers; None where they were not compared."""
    found = group.comparisons.between(one, other) if group.comparisons else None
    if found is None:
        return None
    pair, verdict = found
    estimate = pair.estimate if pair.first == one else pair.estimate.negated()
    assert estimate.value is not None
    names = f"{group.rows[one].model} less {group.rows[other].model}"
    at_once = " for all pairs at once" if group.comparisons and len(group.comparisons.pairs) > 1 else ""
    bounds = f"too few images for an interval{at_once}"
    if estimate.low is not None and estimate.high is not None:
        bounds = f"{signed(estimate.low)} to {signed(estimate.high)}{at_once}"
    said = f"{names}: {signed(estimate.value)} ({bounds}, p {estimate.p:.2g})"
    if verdict == "unknown":
        counts = ((pair.seeds_needed, "seeds"), (pair.images_needed, "images"))
        needs = [f"{count:,} {what}" for count, what in counts if count]
        said += f"; {' or '.join(needs)} would probably tell" if needs else "; no number of seeds or images would tell"
    return PairCell(LETTERS[verdict], verdict, said)
