"""Two results side by side: on an 80-column terminal, in Markdown and in JSON."""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from reports.numbers import DASH, amount
from reports.text.grid import Grid, bullets, escape_markdown, indented, interval, p_value, points, ratio
from results.comparison.comparison import CaptionChange, Comparison, CostChange, Pair, PairedTest, ScoreChange, Side
from results.costs import compared_costs, cost_info, cost_order
from results.metrics import depends_on
from results.statistics.architecture import TTest
from results.text import printable

MAIN: Final = "CIDEr-D"
_REFERENCES: Final = 2  # of each image, on a terminal
_SETTINGS: Final = 8
_FEW_DEGREES: Final = 3  # of freedom: with fewer, a correction for 14 tests widens an interval more than threefold
_FEW_TESTS: Final = 3
_ALIKE: Final = 0.05  # of the mean: seeds that differ by less have no range
_WARNING: Final = "Conditions differ, so the differences are not the models' or the code's alone:"


def print_comparison(comparison: Comparison, console: Console, *, all_costs: bool = False) -> None:
    """Print sides, warnings, scores, costs and changed captions; of several pairs the main metric and ratios."""
    single = len(comparison.pairs) == 1
    for letter, line in _sides(comparison).items():
        console.print(Text(f"{letter}  {line}", style="bold"))
    for line in warnings(comparison):
        console.print(Text(printable(line), style="yellow"))
    if comparison.pairs:
        facts = [_facts(comparison.pairs[0])] if single else []
        for grid in (_scores(comparison.pairs, single), *facts, _spent(comparison.pairs, single, all_costs)):
            if grid.rows:
                console.print()
                console.print(grid.rich())
        console.print()
    for line in _notes(comparison, everything=single):
        console.print(Text(printable(line)))
    for change in _most_changed(comparison):
        console.print()
        console.print(Text(_caption_line(change, comparison), style="green" if change.change > 0 else "red"))
        console.print(indented(f"A:  {change.before}", ""))
        console.print(indented(f"B:  {change.after}", ""))
        for reference in change.image.references[:_REFERENCES]:
            console.print(indented(f"    reference: {reference}", "dim"))
    console.print()
    console.print(Text(_legend(comparison, all_costs), style="dim"))


def markdown(comparison: Comparison, *, all_costs: bool = False) -> str:
    """Every pair with all its scores and its costs, then the captions that changed most."""
    parts = [bullets(map(str.strip, warnings(comparison)))]
    for pair in comparison.pairs:
        sides = bullets(f"{letter}: {_side(side)}" for letter, side in (("A", pair.before), ("B", pair.after)))
        grids = (_scores([pair], True), _facts(pair), _spent([pair], True, all_costs))
        tables = "\n".join(grid.markdown() for grid in grids if grid.rows)
        parts.append(f"## {escape_markdown(_title(pair))}\n\n{sides}\n{tables}")
    parts.append(bullets(_notes(comparison, everything=True)))
    for change in _most_changed(comparison):
        captions = (f"A: {change.before}", f"B: {change.after}", *(f"reference: {t}" for t in change.image.references))
        parts.append(f"**{escape_markdown(_caption_line(change, comparison))}**\n\n{bullets(captions)}")
    parts.append(f"{escape_markdown(_legend(comparison, all_costs))}\n")
    return "\n".join(filter(None, parts))


def as_json(comparison: Comparison) -> str:
    return json.dumps(content(comparison), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def content(comparison: Comparison) -> dict[str, Any]:
    """The comparison for JSON."""
    pairs = [
        {
            **{name: asdict(side) for name, side in (("before", pair.before), ("after", pair.after))},
            "conditions": pair.conditions,
            "settings": pair.settings,
            "scores": [_score_content(score) for score in pair.scores],
            "costs": [asdict(change) for change in pair.costs],
            "hardware": pair.hardware,
            "differing": [asdict(counts) for counts in pair.differing],
            "captions": [asdict(change) for change in pair.captions],
            "caption_seeds": pair.caption_seeds,
            "missing_costs": pair.missing_costs,
            "apart": pair.separating_fields,
            "facts": [_score_content(fact) for fact in pair.facts],
        }
        for pair in comparison.pairs
    ]
    return {**asdict(replace(comparison, pairs=())), "pairs": pairs}


def _score_content(score: ScoreChange) -> dict[str, Any]:
    over_seeds = None if score.test is None else score.test.over_seeds
    return {
        "split": score.split,
        "metric": score.metric,
        "before": score.before,
        "after": score.after,
        "test": None if score.test is None else _test_content(score.test),
        "reason": score.reason,
        "no_interval": score.no_interval,
        "over": score.over,
        "architecture": None if over_seeds is None else _content_over_seeds(over_seeds),
    }


def _test_content(test: PairedTest) -> dict[str, Any]:
    return {
        "before": test.before,
        "after": test.after,
        "difference": test.change.value,
        "low": test.change.low,
        "high": test.change.high,
        "p": test.uncorrected_p,
        "adjusted": test.change.p,
        "images": test.change.n,
    }


def _content_over_seeds(test: TTest) -> dict[str, Any]:
    return {
        "difference": test.estimate.value,
        "error": test.error,
        "degrees": test.degrees,
        "low": test.estimate.low,
        "high": test.estimate.high,
        "p": test.estimate.p,
        "reason": test.estimate.reason or None,
        "seeds": test.seeds,
        "images": test.estimate.n,
    }


def main_costs() -> dict[str, str]:
    """The headings of the costs that are compared first, by name."""
    return {cost.name: "GMAC" if cost.name == "gmac_beam" else cost.short_heading for cost in compared_costs()}


def warnings(comparison: Comparison) -> list[str]:
    """Lines on differing conditions, settings and hardware; equal lines of several pairs are joined."""
    pairs_by_lines: dict[tuple[str, ...], list[str]] = {}
    for pair in comparison.pairs:
        lines = []
        if pair.conditions:
            lines += [_WARNING, *(f"  {field}" for field in pair.conditions)]
        if pair.settings:
            lines += ["Settings differ:", *(f"  {field}" for field in pair.settings[:_SETTINGS])]
            if len(pair.settings) > _SETTINGS:
                lines.append(f"  and {len(pair.settings) - _SETTINGS} more")
        if pair.hardware:
            lines += ["Hardware differs, so times have no ratio:", *(f"  {field}" for field in pair.hardware)]
        if lines:
            pairs_by_lines.setdefault(tuple(lines), []).append(_title(pair))
    warning_lines = []
    for lines_of_pairs, titles in pairs_by_lines.items():
        if len(comparison.pairs) > 1:
            warning_lines.append(f"{', '.join(titles)}:")
        warning_lines += lines_of_pairs
    return warning_lines


def _notes(comparison: Comparison, *, everything: bool) -> list[str]:
    """The scope of the tests, what was not tested, measured or finished, and runs without a counterpart."""
    unpaired = {"A": comparison.only_before, "B": comparison.only_after}
    notes = scopes(comparison, everything) + _few_seeds(comparison, everything) + _untested(comparison, everything)
    if everything:
        notes += _missing_costs(comparison)
    notes += _unfinished(comparison) + _others(comparison) + _significant_facts(comparison)
    notes += caption_counts(comparison)
    return notes + [f"Only in {letter}: {', '.join(runs)}" for letter, runs in unpaired.items() if runs]


def _sides(comparison: Comparison) -> dict[str, str]:
    """The two sides by letter: runs for a single pair, versions of the code for several."""
    sides = {"A": [pair.before for pair in comparison.pairs], "B": [pair.after for pair in comparison.pairs]}
    if len(comparison.pairs) == 1:
        return {letter: _side(side) for letter, [side] in sides.items()}
    codes = {letter: ", ".join(dict.fromkeys(side.code for side in side_list)) for letter, side_list in sides.items()}
    return {letter: f"captionbench {printable(code)}" for letter, code in codes.items()}


def _side(side: Side) -> str:
    trained = "" if side.updates is None else f", {side.updates:,} updates"
    return printable(f"{_who(side)}{trained}, captionbench {side.code}, {' '.join(side.keys)}")


def _title(pair: Pair) -> str:
    same = (pair.before.model, pair.before.seeds) == (pair.after.model, pair.after.seeds)
    name = _who(pair.before) if same else f"{_who(pair.before)} → {_who(pair.after)}"
    return printable(f"{name} ({pair.separating_fields})" if pair.separating_fields else name)


def _shown(pair: Pair, pairs: Sequence[Pair], everything: bool) -> list[ScoreChange]:
    """The scores that at least one side of a pair has: all, or only those of the main metric of all pairs."""
    measured = [score for score in pair.scores if score.before is not None or score.after is not None]
    if everything:
        return measured
    main = _main_metric(pairs)
    return [score for score in measured if score.metric == main]


def _main_metric(pairs: Sequence[Pair]) -> str:
    """The metric of a table of several pairs: CIDEr-D, or the first that was chosen in its place."""
    metrics = dict.fromkeys(score.metric for pair in pairs for score in pair.scores)
    return MAIN if MAIN in metrics else next(iter(metrics), MAIN)


def _cells(score: ScoreChange) -> tuple[str, ...]:
    before, after = (DASH if value is None else points(value) for value in (score.before, score.after))
    change = DASH if score.before is None or score.after is None else points(score.after - score.before, "+")
    estimate = score.estimate
    p = DASH if estimate.p is None else p_value(estimate.p)
    return before, after, change, interval(estimate.low, estimate.high), p


def _untested(comparison: Comparison, everything: bool) -> list[str]:
    """The reasons for shown scores without a test, and for tested ones without an interval."""

    def reason_of(score: ScoreChange) -> str | None:
        if score.test is None:
            return f"Not tested, {score.reason or 'not measured'}"
        return f"No 95 % interval, {score.no_interval}" if score.no_interval else None

    return [f"{reason}: {', '.join(scores)}" for reason, scores in _by_text(comparison, everything, reason_of).items()]


def scopes(comparison: Comparison, everything: bool) -> list[str]:
    """The scope of the tests of shown scores, with the scores' names if scopes differ."""
    scores_by_scope = _by_text(comparison, everything, lambda score: score.over)
    if len(scores_by_scope) == 1:
        return [f"p and 95 %, {scope}" for scope in scores_by_scope]
    return [f"p and 95 %, {scope}: {', '.join(scores)}" for scope, scores in scores_by_scope.items()]


def _few_seeds(comparison: Comparison, everything: bool) -> list[str]:
    """What narrows intervals over two or three seeds, which a correction for several tests makes very wide."""
    fewest = math.inf
    for pair in comparison.pairs:
        for score in _shown(pair, comparison.pairs, everything):
            over_seeds = None if score.test is None else score.test.over_seeds
            if over_seeds is not None and over_seeds.degrees is not None:
                fewest = min(fewest, over_seeds.degrees)
    if comparison.tests < _FEW_TESTS or fewest >= _FEW_DEGREES:
        return []
    return [
        f"Few seeds for {comparison.tests} tests: intervals are very wide. More seeds narrow them, "
        f"or fewer tests: --metrics {MAIN}"
    ]


def _unfinished(comparison: Comparison) -> list[str]:
    """Which models were still learning when their training ended."""
    sides = [side for pair in comparison.pairs for side in (pair.before, pair.after)]
    models = dict.fromkeys(side.model for side in sides if side.state == "still learning")
    return [f"Still learning when the training ended: {', '.join(models)}"] if models else []


def _others(comparison: Comparison) -> list[str]:
    """The pairs of the same models that were not compared, and how to compare them."""
    lines = []
    for before, after in comparison.others:
        trained = "" if before.updates is None else f" after {before.updates:,} updates"
        command = f"bench compare {before.keys[0]} {after.keys[0]}"
        if before.budget != comparison.pairs[0].before.budget:
            command = f"--budget {before.budget}"
        lines.append(f"Not compared: {len(before.seeds)} and {len(after.seeds)} runs{trained} ({command})")
    return lines


def _missing_costs(comparison: Comparison) -> list[str]:
    """The reasons why main costs have no row, with the costs' names."""
    names: dict[str, list[str]] = {}
    for pair in comparison.pairs:
        for info in compared_costs():
            if info.name in pair.missing_costs:
                names.setdefault(pair.missing_costs[info.name], []).append(info.label)
    return [f"Not measured: {', '.join(dict.fromkeys(costs))} ({reason})" for reason, costs in names.items()]


def _by_text(
    comparison: Comparison, everything: bool, text_of: Callable[[ScoreChange], str | None]
) -> dict[str, list[str]]:
    """The names of scores by a text about each; scores without one are left out."""
    names: dict[str, list[str]] = {}
    for pair in comparison.pairs:
        for score in _shown(pair, comparison.pairs, everything):
            text = text_of(score)
            if text is None:
                continue
            parts = []
            if everything:
                parts.append(score.metric)
            if len(comparison.pairs) > 1:
                parts.append(_title(pair))
            names.setdefault(text, []).append(f"{' of '.join(parts)} on {score.split}")
    return names


def caption_counts(comparison: Comparison) -> list[str]:
    """How many captions differ, by pair and split; of several seeds the first that both sides have."""
    lines = []
    for pair in comparison.pairs:
        title = f"{_title(pair)}, " if len(comparison.pairs) > 1 else ""
        seed = ""
        if max(len(pair.before.seeds), len(pair.after.seeds)) > 1:
            seed = f" with seed {pair.caption_seeds[0]}"
        for count in pair.differing:
            lines.append(
                f"{title}{count.split}: {count.captions} of {count.of} captions differ{seed}; "
                f"{count.better} score better, {count.worse} worse"
            )
    return lines


def _most_changed(comparison: Comparison) -> list[CaptionChange]:
    """The captions whose scores changed most, over all pairs."""
    changes = [change for pair in comparison.pairs for change in pair.captions]
    most = max((len(pair.captions) for pair in comparison.pairs), default=0)
    return sorted(changes, key=lambda change: -abs(change.change))[:most]


def _caption_line(change: CaptionChange, comparison: Comparison) -> str:
    """A caption's image and both scores, with the model if several pairs are compared."""
    model = f"{change.model}, " if len(comparison.pairs) > 1 else ""
    scores = f"{points(change.score_before)} → {points(change.score_after)} ({points(change.change, '+')})"
    return printable(f"{model}{change.split} image {change.image.image_id} {change.image.file}: {MAIN} {scores}")


def _legend(comparison: Comparison, all_costs: bool) -> str:
    facts = sum(fact.test is not None for pair in comparison.pairs for fact in pair.facts)
    tests = "1 test" if comparison.tests == 1 else f"{comparison.tests} tests"
    if facts:
        tests += f" of scores, and separately for {facts} of facts"
    costs = "Costs: B divided by A"
    if not all_costs:
        costs += "; --all-costs shows all of them"
    return (
        "Scores times 100. p over images: paired sign-flip test; over seeds and images: t, seeds unpaired. "
        f"95 %: what the same test does not reject. Both with Holm's correction for {tests}; BLEU and METEOR are "
        f"tested by the images' influences on the corpus score, where runs have them. {costs}."
    )


def _who(side: Side) -> str:
    """Model and seeds of a side."""
    return f"{side.model} seed {','.join(map(str, side.seeds))}"


def _scores(pairs: Sequence[Pair], single: bool) -> Grid:
    headings = ("Metric" if single else _main_metric(pairs), "Split", "A", "B", "Change", "95 %", "p (Holm)")
    scores = [(pair, score) for pair in pairs for score in _shown(pair, pairs, single)]
    rows = [(score.metric if single else _title(pair), score.split, *_cells(score)) for pair, score in scores]
    return Grid(headings, rows, 2)


def _facts(pair: Pair) -> Grid:
    rows = [(depends_on(fact.metric), fact.split, *_cells(fact)) for fact in pair.facts]
    return Grid(("F of facts", "Split", "A", "B", "Change", "95 %", "p"), rows, 2)


def _significant_facts(comparison: Comparison) -> list[str]:
    """For each pair and split, the kinds of facts at which a side is significantly better."""
    lines = []
    for pair in comparison.pairs:
        title = f"{_title(pair)}, " if len(comparison.pairs) > 1 else ""
        for split in dict.fromkeys(fact.split for fact in pair.facts if fact.test):
            kinds: dict[str, list[str]] = {"better": [], "worse": []}
            for fact in pair.facts:
                change = fact.estimate
                if fact.split == split and change.is_significant and change.value is not None:
                    kinds["better" if change.value > 0 else "worse"].append(depends_on(fact.metric))
            parts = [f"B is {verdict} at {', '.join(names)}" for verdict, names in kinds.items() if names]
            lines.append(f"{title}facts on {split}: {'; '.join(parts) or 'no significant difference of any kind'}")
    return lines


def _range_of_seeds(change: CostChange) -> str:
    """By how much a cost differs between the seeds of each side, of its mean; "" where by less than a twentieth."""
    sides = ((change.before, change.range_before), (change.after, change.range_after))
    shares = [(greatest - least) / abs(mean) if mean else 0.0 for mean, (least, greatest) in sides]
    if max(shares) <= _ALIKE:
        return ""
    return " → ".join(f"{100 * share:.0f} %" for share in shares)


def _spent(pairs: Sequence[Pair], single: bool, all_costs: bool) -> Grid:
    """The costs of a single pair, all or some; the ratios of some of several."""
    costs = [{change.name: change for change in pair.costs} for pair in pairs]
    if single:
        rows = []
        for name in cost_order(costs[0]) if all_costs else main_costs():
            if name not in costs[0]:
                continue
            change = costs[0][name]
            info = cost_info(change.name, change.unit)
            if info.type == "evaluation":
                continue
            spent = " → ".join(amount(change.name, side, change.unit) for side in (change.before, change.after))
            by = DASH if info.type == "flag" else ratio(change.ratio)
            rows.append((info.label, spent, by, _range_of_seeds(change)))
        if not any(row[-1] for row in rows):
            return Grid(("Cost", "A → B", "B by A"), [row[:-1] for row in rows])
        return Grid(("Cost", "A → B", "B by A", "Range of seeds"), rows)
    ratios_by_pair = []
    for pair, changes in zip(pairs, costs, strict=True):
        ratios = [ratio(changes[name].ratio if name in changes else None) for name in main_costs()]
        ratios_by_pair.append((_title(pair), *ratios))
    return Grid(("B by A", *main_costs().values()), ratios_by_pair)
