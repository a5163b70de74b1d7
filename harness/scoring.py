"""Scores of a split's captions: of a run at work, and of a finished one that lacks some."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from harness.conditions import Conditions
from harness.metrics.evaluation import OVERALL
from harness.metrics.evaluator import Evaluator
from harness.metrics.significance import with_intervals
from harness.references import human_captions
from results.records import Cell, SplitResult
from results.rescoring import add_scores, stored_captions
from results.store import Store


def score_split(
    split: str,
    captions: dict[int, str],
    references: Mapping[int, Sequence[str]],
    conditions: Conditions,
    evaluator: Evaluator,
) -> tuple[SplitResult, float]:
    """Scores with their intervals, by domain where the data has some, and the seconds that they took."""
    domains = {
        sample.image_id: sample.domain
        for sample in conditions.evaluated[split]
        if sample.domain is not None and sample.image_id in captions
    }
    evaluation = with_intervals(evaluator.evaluate(references, captions, domains or None))
    return SplitResult(split, captions, evaluation.scores, evaluation.per_image), sum(evaluation.seconds.values())


def add_missing_scores(
    cell: Cell, missing: Mapping[str, Collection[str]], conditions: Conditions, evaluator: Evaluator, store: Store
) -> dict[str, str | None]:
    """Compute the `missing` metrics of each split from the captions that a finished run left, and store them.

    Gives by metric why it is still missing, None where it is not.
    """
    captions, results = stored_captions(store, cell.key), []
    reasons: dict[str, str | None] = {}
    for split, metrics in missing.items():
        samples = conditions.evaluated[split]
        if cell.model == "human":
            references = human_captions(samples, cell.seed)[1]
        else:
            references = {sample.image_id: list(sample.captions) for sample in samples}
        result, _ = score_split(split, captions[split], references, conditions, evaluator)
        scores = {
            domain: {metric: found[metric] for metric in found if metric in metrics}
            for domain, found in result.scores.items()
        }
        per_image = {metric: values for metric, values in result.per_image.items() if metric in metrics}
        results.append(replace(result, scores=scores, per_image=per_image))
        reasons |= {metric: quantity.reason for metric, quantity in scores[OVERALL].items()}
    add_scores(store, cell.key, results)
    return reasons
