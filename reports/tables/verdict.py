"""The verdict of a leaderboard in words, from the same places, intervals and costs that its table shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from reports.tables.columns import is_of_other_machine
from reports.tables.numbers import cost, percent
from reports.tables.pairs import pair_cell
from results.runs.leaderboard import Group, Row
from results.runs.standings import MARGIN_SHARE, NO_SCORES, OTHER_MACHINE, Comparisons, Verdict

_NAMED = 4
_LONGER = {
    "still learning": "Still learning",
    "at chance": "At the level of chance",
    "rate near zero": "With a learning rate that had long been near zero",
}
"""How trainings end that a longer one may turn, in words."""
_SEEDS_FLAG = "--seeds 3"
AS_GIVEN = (
    "Captions of one training each: places and intervals are of these captions, over images alone; a claim about "
    "architectures needs seeds."
)


def verdict(group: Group) -> tuple[str, ...]:
    """Sentences that say which models are best, or why that cannot be said yet, and what to type."""
    models = [row for row in group.rows if not _is_floor(row, group)]
    placed = [row for row in models if _worst(row, group)]
    if not models:
        return ()
    if not placed:
        return (
            f"No model has a place yet on {group.name}: {_listed(models, group)}.",
            *_advice(models, group),
        )
    leaders = [row for row in placed if row.standings[group.metric].best == 1]
    without, found = len(models) - len(placed), group.comparisons
    sentences = [_cheapest(leaders), _unfinished(placed)]
    if found is not None:
        numbers = {number for number in found.rows if group.rows[number] in placed}
        ahead = Counter(pair.first for pair in found.pairs if {pair.first, pair.second} <= numbers)
        leader = max(numbers, key=lambda number: ahead[number])  # by the means of the seeds that are compared
        sentences = [_nothing_beats(leader, group, found), _told(group, found), *sentences]
    if without:
        why = _listed([row for row in models if row not in placed], group)
        floors = [row.model for row in group.rows if row not in models]
        besides = f" besides {' and '.join(floors)}" if floors else ""
        verb = "has" if without == 1 else "have"
        sentences.append(f"{without} of {len(models)} models{besides} {verb} no place: {why}.")
    return (*(sentence for sentence in sentences if sentence), *_advice(models, group))


def needs_longer_training(groups: Sequence[Group]) -> str:
    """Which models had not finished learning, and the options that train them longer; "" where none was."""
    rows = {row.keys: row for group in groups for row in group.rows if row.training_end in _LONGER and not row.gain}
    if not rows:
        return ""
    named: dict[str, dict[str, None]] = {}
    for row in rows.values():
        named.setdefault(_LONGER[row.training_end], {})[row.model] = None
    said = " ".join(f"{end} when the training ended: {', '.join(models)}." for end, models in named.items())
    # Where the rate was near zero, more epochs of the same settings would be spent like the last ones.
    longer = [row for row in rows.values() if row.training_end != "rate near zero"]
    ended = [each for row in longer for each in row.learning.values()]
    epochs = {each.stage: 2 * each.epochs for each in ended if each.epochs is not None}
    if not epochs:
        return said
    options = [f"--set schedule.stages.{stage}.epochs={count}" for stage, count in sorted(epochs.items())]
    if set(epochs) == {0}:  # of one stage alone
        budgets = {group.budget for group in groups for row in group.rows if row.keys in rows}
        options = [f"--budgets {','.join(map(str, sorted(budgets | {2 * budget for budget in budgets})))}"]
    return f"{said} To train twice as long: the same command with {' '.join(options)}"


def _nothing_beats(leader: int, group: Group, found: Comparisons) -> str:
    """What the comparisons with the leading model say: how many are worse, the same, and not known yet."""
    verdicts: dict[Verdict, list[Row]] = {}
    for number in found.rows:
        if number != leader and (pair := found.between(leader, number)):
            verdicts.setdefault(pair[1], []).append(group.rows[number])
    said = []
    if worse := verdicts.get("better", []):
        said.append(f"{_counted(worse)} {'is' if len(worse) == 1 else 'are'} worse")
    if same := verdicts.get("same", []):
        said.append(f"{_counted(same)} {'is' if len(same) == 1 else 'are'} the same within {_margin(found)}")
    if unknown := verdicts.get("unknown", []):
        said.append(f"of {_counted(unknown)} it is not known yet")
    name, seeds = group.rows[leader].model, f"{len(found.seeds)} seeds" if found.seeds else "one training each"
    if ahead := verdicts.get("worse", []):
        other = f"{_named(ahead, 'and')}, which had not finished learning"
        rest = f"; {', '.join(said)}" if said else ""
        return f"Nothing beats {name} on {group.name} ({seeds}) but {other}{rest}."
    return f"Nothing beats {name} on {group.name} ({seeds}): {', '.join(said)}."


def _told(group: Group, found: Comparisons) -> str:
    """How many pairs of the table are decided, and what would decide the easiest of the others."""
    if len(found.pairs) == 1:
        [pair] = found.pairs
        cell = pair_cell(group, pair.first, pair.second)
        return f"The difference, {cell.said}." if cell else ""
    counts = Counter(pair.verdict for pair in found.pairs)
    same = f", {counts['same']} the same within {_margin(found)}" if counts["same"] else ""
    said = f"Of {len(found.pairs)} pairs {counts['better']} are told apart{same}"
    if not counts["unknown"]:
        return f"{said}."
    unknown = [pair for pair in found.pairs if pair.verdict == "unknown"]
    what, more = ("seeds", 2 * len(found.seeds)) if found.seeds else ("images", 2 * found.images)
    needs = [pair.seeds if found.seeds else pair.images for pair in unknown]
    reached = sum(each is not None and each <= more for each in needs)
    return (
        f"{said}, {len(unknown)} are not known yet; {more:,} {what} would probably tell {reached or 'none'} of these."
    )


def _margin(found: Comparisons) -> str:
    of = f" ({100 * MARGIN_SHARE:g} % of {found.margin_of})" if found.margin_of else ""
    return f"{percent(found.margin)} points{of}"


def _counted(rows: Sequence[Row]) -> str:
    """Names of a few rows, or else their number."""
    return _named(rows, "and") if len(rows) <= _NAMED else f"{len(rows)} models"


def _cheapest(leaders: Sequence[Row]) -> str:
    """Which of several best models trains in the least time; "" where machines differ."""
    comparable = [row for row in leaders if not is_of_other_machine(row, "train_seconds")]
    timed = [(cost_.value, row) for row in comparable if (cost_ := row.costs.get("train_seconds")) and cost_.value]
    if len(timed) != len(leaders) or len(timed) < 2:
        return ""
    timed.sort(key=lambda pair: pair[0])
    (least, first), (most, last) = timed[0], timed[-1]
    return f"{first.model} trains in {cost(least, 's')}, {last.model} in {cost(most, 's')}."


def _listed(models: Sequence[Row], group: Group) -> str:
    return ", ".join(_obstacles(models, group)) or "no two models can be compared"


def _unfinished(placed: Sequence[Row]) -> str:
    """What places of models that were still learning are worth."""
    gaining = [row for row in placed if row.still_gains]
    number = sum(row.still_learning and not row.gain for row in placed)
    said = []
    if gaining:
        gains = sorted(100 * row.gain.difference for row in gaining if row.gain)
        gave = " to ".join(dict.fromkeys((f"{gains[0]:.1f}", f"{gains[-1]:.1f}")))
        said.append(f"{len(gaining)} of {len(placed)} placed models still gain by longer training, {gave} points.")
    if number:
        other = f"{number} of {len(placed)} placed models were still learning"
        said.append(f"{other}: longer training may order them otherwise.")
    return " ".join(said)


def _obstacles(rows: Sequence[Row], group: Group) -> list[str]:
    """Why rows of a group have no place, with their number where not all are meant."""
    standings = [row.standings.get(group.metric) for row in rows]
    single = sum(len(row.seeds) == 1 for row in rows)
    below = sum(each is not None and bool(each.not_above) for each in standings)
    learning = sum(row.still_learning and not row.gain for row in rows)
    unknown = sum(not row.still_learning and _is_unknown(row) for row in rows)
    at_chance = sum(row.training_end == "at chance" for row in rows)
    near_zero = sum(row.training_end == "rate near zero" for row in rows)
    everything = len(rows)
    found = []
    if single and not group.is_as_given:
        found.append("one seed" if single == everything else f"{single} with one seed")
    if learning:
        whole = "both" if everything == 2 else f"all {everything}"
        counted = whole if learning == everything else f"{learning} of {everything}"
        found.append("still learning" if everything == 1 else f"{counted} still learning")
    if unknown:
        found.append(f"{unknown} of {everything} with too few validations to say whether they had finished learning")
    if near_zero:
        found.append(f"{near_zero} whose learning rate was near zero for the end of its training")
    if at_chance:
        found.append(f"{at_chance} at the level of chance")
    if below:
        found.append("none above the floor" if below == everything > 1 else f"{below} not above the floor")
    if untested := sum(each is not None and each.reason == NO_SCORES for each in standings):
        found.append(f"{untested} without numbers of single images on {group.metric}")
    if elsewhere := sum(each is not None and each.reason == OTHER_MACHINE for each in standings):
        found.append(f"{elsewhere} made elsewhere than most rows")
    if other := sum(each is not None and (each.reason or "").startswith("other seeds") for each in standings):
        found.append(f"{other} of other seeds than most rows")
    return found


def _advice(models: Sequence[Row], group: Group) -> list[str]:
    """What one seed hides, and the option that shows it."""
    if group.is_as_given:
        return [AS_GIVEN]
    single = [row for row in models if len(row.seeds) == 1]
    if not single:
        return []
    moved = group.reseeding
    advice = f"Places need several seeds: the same command with {_SEEDS_FLAG}."
    if moved is None:
        return [advice]
    ranks = "" if moved.ranks is None else ", which changed no rank"
    if moved.ranks:
        ranks = f", and a model by up to {moved.ranks} {'rank' if moved.ranks == 1 else 'ranks'}"
    rows = "1 model" if moved.rows == 1 else f"{moved.rows} models"
    return [
        f"Other seeds moved {group.metric} of the last {rows} with several seeds here by up to "
        f"{percent(moved.largest)} points (standard deviation {percent(moved.deviation)}){ranks}.",
        advice,
    ]


def _is_unknown(row: Row) -> bool:
    return any(ended.state == "unknown" for ended in row.learning.values())


def _is_floor(row: Row, group: Group) -> bool:
    standing = row.standings.get(group.metric)
    return standing is not None and standing.is_floor


def _worst(row: Row, group: Group) -> int:
    """The row's worst rank, 0 where it has no place."""
    standing = row.standings.get(group.metric)
    return 0 if standing is None or standing.worst is None else standing.worst


def _named(rows: Sequence[Row], word: str) -> str:
    names = [row.model for row in rows]
    if len(names) > _NAMED:
        return f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED} more"
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
