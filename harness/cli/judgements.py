"""`bench judgements`: how far metrics agree with people's ratings of captions."""

from __future__ import annotations

from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.evaluate import NoMeteorOption, ScoresOption, named_files, write_json
from harness.cli.inputs import doing
from harness.cli.options import LanguageOption, TokenizerOption
from harness.cli.output import ForceOption, Out, check_out, echo, format_table
from harness.metrics.signature import EvaluationSettings
from harness.utils.errors import BenchError

if TYPE_CHECKING:
    from results.statistics.estimate import Estimate

EXAMPLES = r"""
bench judgements flickr8k.json
bench judgements flickr8k.json --scores Polos=polos.json --out agreement.json
"""


def judgements(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="How people rated captions; docs/evaluation.md has the forms.")
    ],
    references: Annotated[Path | None, typer.Option(help="Of THumB: its references.")] = None,
    scores: ScoresOption = None,
    out: Annotated[Path | None, Out(help="Write agreement and tests as JSON.")] = None,
    force: ForceOption = False,
    by_position: Annotated[
        bool, typer.Option("--by-position", help="Take scores that name no image in the order of the captions.")
    ] = False,
    tokenizer: TokenizerOption = "python",
    language: LanguageOption = None,
    no_meteor: NoMeteorOption = False,
) -> None:
    """Say how far each metric agrees with people's ratings of captions.

    Exit code 1: a metric could not be computed.
    """
    score_files = named_files(scores)
    check_out(out, force=force, inputs=[file, references, *score_files.values()])
    with doing("Loading the evaluator"):
        from harness.metrics.evaluator import Evaluator
    from harness.data.formats.look import refuse_unspaced
    from harness.metrics.contract import OVERALL
    from harness.metrics.judgements import agreements, read_judgements, scores_in_order
    from results.statistics.agreement import NO_RATINGS, differences

    settings = EvaluationSettings(tokenizer=tokenizer, meteor=not no_meteor, language=language)
    judged = read_judgements(file, references)
    external_scores = {
        name: scores_in_order(path, name, judged, by_position=by_position) for name, path in score_files.items()
    }
    refuse_unspaced(chain.from_iterable(judged.references), file.name, tokenizer)
    with Evaluator(settings=settings) as evaluator:
        scored = evaluator.evaluate(
            dict(enumerate(judged.references)), dict(enumerate(judged.captions)), external_scores=external_scores
        )
    agreement = agreements(judged, scored.per_image)
    if not agreement:
        raise BenchError(f"nothing was scored: {scored.scores[OVERALL]['CIDEr-D'].reason}", "use --tokenizer python")
    measures = list(next(iter(agreement.values())))
    tests = {name: differences({metric: taus[name] for metric, taus in agreement.items()}) for name in measures}
    reasons = {metric: score.reason for metric, score in scored.scores[OVERALL].items() if score.value is None}
    echo(f"{len(judged.captions):,} captions of {len(set(judged.images)):,} images, {file.name}")
    intervals = {}
    rows = []
    for metric, taus in agreement.items():
        intervals[metric] = {name: _interval(tau.estimate) for name, tau in taus.items()}
        rows.append([metric, *(_cell(interval) for interval in intervals[metric].values())])
    echo(format_table(["metric", *(f"{name} [95 %]" for name in measures)], rows, "table"), nl=False)
    first = measures[0]
    values = {metric: value for metric in agreement if (value := agreement[metric][first].estimate.value) is not None}
    if not values:
        echo(f"-: {NO_RATINGS}")
    ranked = sorted(values, key=lambda metric: -values[metric])
    for above, below in pairwise(ranked):
        gap = tests[first].get((above, below)) or tests[first].get((below, above))
        if gap is not None and gap.value is not None:
            echo(f"{above} {100 * abs(gap.value):.1f} above {below}, p {gap.p:.2g}")
    echo(f"times 100, intervals over images; p of {first}, corrected for all pairs of metrics")
    for metric, reason in reasons.items():
        echo(f"{metric}: {reason}")
    content = {
        "agreement": intervals,
        "differences": {
            name: [[*pair, gap.value, gap.p] for pair, gap in gaps.items()] for name, gaps in tests.items()
        },
        "n": len(judged.captions),
        "images": len(set(judged.images)),
        "ratings": len(judged.ratings),
        "reasons": reasons,
    }
    write_json(content, out)
    if reasons.keys() & {"CIDEr-D", *settings.java_metrics}:
        raise typer.Exit(1)


def _interval(tau: Estimate) -> list[float] | None:
    """Value and bounds; None if no two compared captions have different ratings."""
    if tau.value is None or tau.low is None or tau.high is None:
        return None
    return [tau.value, tau.low, tau.high]


def _cell(interval: list[float] | None) -> str:
    if interval is None:
        return "-"
    value, low, high = (100 * amount for amount in interval)
    return f"{value:.1f} [{low:.1f}, {high:.1f}]"
