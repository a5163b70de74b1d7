"""Two results side by side on an 80-column terminal, and the words that all formats share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from reports.tables.numbers import DASH, cost_kind, cost_order, printable
from reports.text.differences import cost_line, cost_ratio, interval, p_value, points, ratio
from reports.text.layout import plain_table
from results.comparison.comparison import CaptionChange, Comparison, CostChange, Pair, ScoreChange, Side

MAIN: Final = "CIDEr-D"
SHOWN_COSTS: Final = {
    "parameters": "Params",
    "gmac_beam": "GMAC",
    "train_seconds": "Training",
    "latency_median": "Latency",
    "train_peak_memory_host": "Memory",
}
_REFERENCES: Final = 2  # of each image, on a terminal
_SETTINGS: Final = 8
_WARNING: Final = "Conditions differ, so the differences are not the models' or the code's alone:"


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print what is compared, a warning where conditions differ, scores, costs, and captions that changed most."""
    single = len(comparison.pairs) == 1
    for letter, line in sides(comparison).items():
        console.print(Text(f"{letter}  {line}", style="bold"))
    for line in warnings(comparison):
        console.print(Text(printable(line), style="yellow"))
    if comparison.pairs:
        for table in (_scores(comparison, single), _costs(comparison, single)):
            console.print()
            console.print(table)
        console.print()
    notes = (*scopes(comparison, everything=single), *untested(comparison, everything=single))
    for line in (*notes, *caption_counts(comparison), *left_over(comparison)):
        console.print(Text(printable(line)))
    for change in most_changed(comparison):
        _print_caption(change, console)
    console.print()
    console.print(Text(legend(comparison), style="dim"))


def sides(comparison: Comparison) -> dict[str, str]:
    """What is compared, by letter: the run of a single pair, the code of several."""
    if len(comparison.pairs) == 1:
        pair = comparison.pairs[0]
        return {"A": side_line(pair.before), "B": side_line(pair.after)}
    codes = [
        dict.fromkeys(side.code for side in chosen)
        for chosen in ([pair.before for pair in comparison.pairs], [pair.after for pair in comparison.pairs])
    ]
    return {letter: f"captionbench {printable(', '.join(found))}" for letter, found in zip("AB", codes, strict=True)}


def side_line(side: Side) -> str:
    """Model, seeds, code and key of a side."""
    return printable(f"{_who(side)}, captionbench {side.code}, {' '.join(side.keys)}")


def title(pair: Pair) -> str:
    """What a pair is about: one model, or one against another, with what sets it apart from pairs of its model."""
    same = (pair.before.model, pair.before.seeds) == (pair.after.model, pair.after.seeds)
    who = _who(pair.before) if same else f"{_who(pair.before)} → {_who(pair.after)}"
    return printable(f"{who} ({pair.apart})" if pair.apart else who)


def warnings(comparison: Comparison) -> list[str]:
    """Which conditions, settings and hardware differ: once where they do so in every pair alike."""
    found: dict[tuple[str, ...], list[str]] = {}
    for pair in comparison.pairs:
        lines = [_WARNING, *(f"  {field}" for field in pair.conditions)] if pair.conditions else []
        if pair.settings:
            shown = [f"  {field}" for field in pair.settings[:_SETTINGS]]
            more = len(pair.settings) - len(shown)
            lines += ["Settings differ:", *shown, *([f"  and {more} more"] if more else [])]
        if pair.hardware:
            lines += ["Other hardware, so that times have no ratio:", *(f"  {what}" for what in pair.hardware)]
        if lines:
            found.setdefault(tuple(lines), []).append(title(pair))
    several = len(comparison.pairs) > 1
    return [line for lines, pairs in found.items() for line in (*([f"{', '.join(pairs)}:"] * several), *lines)]


def shown_scores(pair: Pair, everything: bool) -> list[ScoreChange]:
    """The scores of a pair that both sides or one has: all, or the main metric's."""
    known = [score for score in pair.scores if score.before is not None or score.after is not None]
    return [score for score in known if everything or score.metric == MAIN]


def score_cells(score: ScoreChange) -> tuple[str, ...]:
    """Before, after, change, its interval, and p."""
    before, after = (DASH if value is None else points(value) for value in (score.before, score.after))
    change = DASH if score.before is None or score.after is None else points(score.after - score.before, "+")
    if score.test is None:
        return before, after, change, DASH, DASH
    bounds = interval(score.test.low, score.test.high) if score.no_interval is None else DASH
    return before, after, change, bounds, p_value(score.test.adjusted)


def untested(comparison: Comparison, everything: bool) -> list[str]:
    """Why scores that are shown, all or the main metric's, have no test, and why tested ones have no interval."""
    reasons: dict[str, list[str]] = {}
    for pair in comparison.pairs:
        for score in shown_scores(pair, everything):
            if score.test is None:
                why = f"Not tested, {score.reason or 'not measured'}"
            elif score.no_interval:
                why = f"No 95 % interval, {score.no_interval}"
            else:
                continue
            reasons.setdefault(why, []).append(_named(comparison, pair, score, everything))
    return [f"{why}: {', '.join(scores)}" for why, scores in reasons.items()]


def scopes(comparison: Comparison, everything: bool) -> list[str]:
    """What the tests of scores that are shown are over, with the scores' names where it is not the same for all."""
    found: dict[str, list[str]] = {}
    for pair in comparison.pairs:
        for score in shown_scores(pair, everything):
            if score.over is not None:
                found.setdefault(score.over, []).append(_named(comparison, pair, score, everything))
    several = len(found) > 1
    return [f"p and 95 %, {over}" + f": {', '.join(scores)}" * several for over, scores in found.items()]


def _named(comparison: Comparison, pair: Pair, score: ScoreChange, everything: bool) -> str:
    parts = [score.metric] * everything + [title(pair)] * (len(comparison.pairs) > 1)
    return f"{' of '.join(parts)} on {score.split}"


def costs(pair: Pair) -> list[CostChange]:
    """The costs of a pair in the order they are always shown."""
    by_name = {change.name: change for change in pair.costs}
    return [by_name[name] for name in cost_order(by_name)]


def cost_label(change: CostChange) -> str:
    """What a cost is called."""
    return cost_kind(change.name, change.unit).label


def left_over(comparison: Comparison) -> list[str]:
    """Runs that have no counterpart."""
    sides = {"A": comparison.only_before, "B": comparison.only_after}
    return [f"Only in {letter}: {', '.join(runs)}" for letter, runs in sides.items() if runs]


def caption_counts(comparison: Comparison) -> list[str]:
    """How many captions differ, by pair and split; of several seeds the first that both sides have."""
    several = len(comparison.pairs) > 1
    return [
        f"{f'{title(pair)}, ' * several}{each.split}: {each.captions} of {each.of} captions differ"
        f"{f' with seed {pair.caption_seeds[0]}' * (max(len(pair.before.seeds), len(pair.after.seeds)) > 1)}; "
        f"{each.better} score better, {each.worse} worse"
        for pair in comparison.pairs
        for each in pair.differing
    ]


def most_changed(comparison: Comparison) -> list[CaptionChange]:
    """The captions that changed most, over all pairs; as many as one pair holds."""
    found = [change for pair in comparison.pairs for change in pair.captions]
    most = max((len(pair.captions) for pair in comparison.pairs), default=0)
    return sorted(found, key=lambda change: -abs(change.change))[:most]


def caption_line(change: CaptionChange) -> str:
    """Which image of which model, and how its score changed."""
    scores = f"{points(change.score_before)} → {points(change.score_after)} ({points(change.change, '+')})"
    return printable(
        f"{change.model}, {change.split} image {change.image.image_id} {change.image.file}: {MAIN} {scores}"
    )


def legend(comparison: Comparison) -> str:
    """How to read the numbers."""
    return (
        "Scores times 100. p over images: paired sign-flip test, 95 %: bootstrap interval of the change; over seeds "
        f"and images: t, seeds unpaired. Holm's correction for {comparison.tests} tests; BLEU and METEOR are tested by "
        "the images' influences on the corpus score, where runs have them. Costs: B by A."
    )


def _who(side: Side) -> str:
    return f"{side.model} seed {','.join(map(str, side.seeds))}"


def _scores(comparison: Comparison, single: bool) -> Table:
    numbers = ("A", "B", "Change", "95 %", "p")
    table = plain_table(("Metric" if single else MAIN, "Split"), numbers)
    for pair in comparison.pairs:
        for score in shown_scores(pair, everything=single):
            name = score.metric if single else title(pair)
            table.add_row(Text(printable(name)), printable(score.split), *score_cells(score))
    return table


def _costs(comparison: Comparison, single: bool) -> Table:
    """Every cost of a single pair, the ratios of some of several."""
    if single:
        table = plain_table(("Cost",), ("A → B", "B by A"))
        for change in costs(comparison.pairs[0]):
            table.add_row(cost_label(change), cost_line(change).replace("\u202f", " "), cost_ratio(change))
        return table
    table = plain_table(("B by A",), SHOWN_COSTS.values())
    for pair in comparison.pairs:
        ratios = {change.name: ratio(change.ratio) for change in pair.costs}
        table.add_row(Text(title(pair)), *(ratios.get(name) or DASH for name in SHOWN_COSTS))
    return table


def _print_caption(change: CaptionChange, console: Console) -> None:
    console.print()
    console.print(Text(caption_line(change), style="green" if change.change > 0 else "red"))
    for head, text in _lines(change):
        console.print(
            Padding(Text(f"{head}  {printable(text)}", style="dim" if head == "  " else ""), (0, 0, 0, 2), expand=False)
        )


def _lines(change: CaptionChange) -> Iterator[tuple[str, str]]:
    yield "A:", change.before
    yield "B:", change.after
    for reference in change.image.references[:_REFERENCES]:
        yield "  ", reference
