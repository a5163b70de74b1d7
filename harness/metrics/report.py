"""Evaluation report of one system: scores, intervals, domains and the signature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.metrics.evaluation import METRICS, OVERALL, Evaluation, with_intervals
from harness.metrics.evaluator import DEFAULT_SETTINGS, Evaluator, Progress
from harness.metrics.signature import EvaluationSettings, Signature, evaluation_signature
from results.records import Quantity
from results.statistics.significance import RESAMPLES, SEED


@dataclass(frozen=True, slots=True)
class Report:
    """An evaluation with 95 % intervals over images, and its signature."""

    signature: Signature
    evaluation: Evaluation
    resamples: int
    seed: int

    def quantity(self, metric: str, domain: str = OVERALL) -> Quantity:
        """A score, or the reason why it is missing."""
        return self.evaluation.scores[domain][metric]

    def to_json(self) -> dict[str, Any]:
        """The content of scores.json: fractions, null for what was not measured, and the reasons."""
        domains = {
            domain: {metric: found.value for metric, found in self.evaluation.scores[domain].items()}
            | {"n": len(members), "intervals": self._intervals(domain)}
            for domain, members in self.evaluation.domains.items()
        }
        missing = {metric: self.quantity(metric) for metric in METRICS}
        return {
            "signature": self.signature.short(),
            "scores": {metric: self.quantity(metric).value for metric in METRICS},
            "reasons": {metric: found.reason for metric, found in missing.items() if found.value is None},
            "n": len(self.evaluation.ids),
            "domains": domains,
            "intervals": self._intervals(OVERALL),
            "bootstrap": {"resamples": self.resamples, "seed": self.seed, "level": 0.95},
            "per_image": {
                metric: {str(image_id): value for image_id, value in values.items()}
                for metric, values in self.evaluation.per_image.items()
            },
        }

    def _intervals(self, domain: str) -> dict[str, list[float | None]]:
        scores = self.evaluation.scores[domain]
        return {metric: [found.low, found.high] for metric, found in scores.items() if found.low is not None}


def evaluate(
    references: Mapping[int, Sequence[str]],
    candidates: Mapping[int, str],
    *,
    domains: Mapping[int, str] | None = None,
    settings: EvaluationSettings = DEFAULT_SETTINGS,
    name: str = "references",
    of: int | None = None,
    java: Path | None = None,
    evaluator: Evaluator | None = None,
    resamples: int = RESAMPLES,
    seed: int = SEED,
    progress: Progress | None = None,
) -> Report:
    """Score one caption per image.

    Args:
        references: captions by image id, as written; their order is that of tokenisation.
        candidates: one caption for each of the same ids.
        domains: image ids to domain names, for scores per domain.
        settings: every choice that may change a score.
        name: name of the references in the signature.
        of: number of images in the reference file, if only a subset is scored.
        java: the runtime for METEOR, SPICE and the Java tokenizer; found if not given.
        evaluator: an evaluator to use and leave open, so that systems share a METEOR process; its settings apply.
        resamples, seed: of the bootstrap.
        progress: called with (done, total) images of METEOR.

    Raises:
        BenchError: the ids differ, an image has no reference, or there is nothing to score.
    """
    if evaluator is None:
        with Evaluator(java, settings=settings) as own:
            evaluation = own.evaluate(references, candidates, domains, progress=progress)
    else:
        settings = evaluator.settings
        evaluation = evaluator.evaluate(references, candidates, domains, progress=progress)
    signature = evaluation_signature(settings, references, name=name, of=of, domains=evaluation.domains)
    return Report(signature, with_intervals(evaluation, resamples=resamples, seed=seed), resamples, seed)
