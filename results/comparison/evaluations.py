"""Evaluations of captions side by side, without a store: every score with its paired test over images."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from results.comparison.changes import MetricChange, with_smallest_change
from results.comparison.comparison import ScoreChange, UntestedScore, with_corrected_intervals
from results.signature import parse_signature
from results.statistics.estimate import Estimate
from results.statistics.image_scores import ImageScores
from results.statistics.significance import PairedScores

NO_INFLUENCES: Final = "the scores were written without the influences of single images on it"
_OF_ONE_METRIC: Final = {"METEOR": "meteor", "SPICE": "spice"}
_NO_CONDITIONS: Final = ("domains", *_OF_ONE_METRIC.values())
"""Fields of a signature on which no other score over all images depends."""


def differing_conditions(before: str, after: str) -> dict[str, tuple[str, str]]:
    """The fields in which two signatures differ and on which every score depends, with both values."""
    fields = [_conditions(signature) for signature in (before, after)]
    names = dict.fromkeys([*fields[0], *fields[1]])
    values = {name: (fields[0].get(name, "none"), fields[1].get(name, "none")) for name in names}
    return {
        name: (value_before, value_after)
        for name, (value_before, value_after) in values.items()
        if value_before != value_after
    }


def _conditions(signature: str) -> dict[str, str]:
    fields = {name: value for name, value in parse_signature(signature).items() if name not in _NO_CONDITIONS}
    if "refs" in fields:
        fields["refs"] = fields["refs"].partition("#")[2]  # a file's name is no condition
    return fields


def compare_scores(
    before: ImageScores, systems: Mapping[str, ImageScores], metrics: Sequence[str], *, images: str
) -> list[MetricChange]:
    """The changes of these metrics from `before` to each system, all tests corrected together.

    All are scores of the same images under the same conditions; `images` names these.
    """
    changes: list[MetricChange] = []
    to_test: dict[int, tuple[ScoreChange, PairedScores]] = {}
    for name, after in systems.items():
        for metric in metrics:
            reason = _why_missing(before, after, metric)
            score = ScoreChange(images, metric, before.scores.get(metric), after.scores.get(metric), reason=reason)
            estimate = score.estimate
            if reason is None:
                numbers = before.numbers(metric), after.numbers(metric)
                if numbers[0] is None or numbers[1] is None:
                    difference = after.scores[metric] - before.scores[metric]
                    estimate = Estimate(difference, n=len(after.per_image[metric]), reason=NO_INFLUENCES)
                else:
                    to_test[len(changes)] = score, PairedScores.from_captions(numbers[0], numbers[1])
            changes.append(MetricChange(name, images, metric, score.before, score.after, estimate))
    tested = with_corrected_intervals([UntestedScore.from_scores(*pair) for pair in to_test.values()])
    for (index, (_, paired)), score in zip(to_test.items(), tested, strict=True):
        change = replace(changes[index], estimate=score.estimate, over=score.over)
        changes[index] = with_smallest_change(change, paired, len(to_test))
    return changes


def _why_missing(before: ImageScores, after: ImageScores, metric: str) -> str | None:
    """Why two scores of a metric cannot be compared; None where they can."""
    for scores in (before, after):
        if metric not in scores.scores:
            return scores.reasons.get(metric, "not measured")
    if field := _OF_ONE_METRIC.get(metric):
        setting_before, setting_after = (parse_signature(scores.signature)[field] for scores in (before, after))
        if setting_before != setting_after:
            return f"computed with other settings: {setting_before} and {setting_after}"
    return None
