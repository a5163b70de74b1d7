"""Scores of a split's captions: of a run at work, and of a finished one that lacks some or gets further metrics."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from harness.benchmark.context import BenchmarkData
from harness.data.scenes.dataset import annotations_of, read_scenes
from harness.metrics.chair import KnownObjects, objects_of_scenes
from harness.metrics.contract import OVERALL
from harness.metrics.evaluator import Evaluation, Evaluator, held_out_rounds, with_intervals
from harness.metrics.facts import Expected, expected_words, measure_facts, measure_words
from harness.metrics.more.measure import MoreEvaluator, MoreSettings, ScoredCaptions
from harness.metrics.signature import DEFAULT_SETTINGS, EvaluationSettings
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from results.metrics import metric_names
from results.records import Quantity, RunSpec, SplitResult
from results.runs.facts import PARSED, WORDS
from results.store.rescoring import add_held_out_scores, add_scores, missing_metrics, stored_captions
from results.store.store import Store

T = TypeVar("T")
SPICE_ONCE: Final = "SPICE takes too long to be computed again with each reference left out"
SINGLE: Final = "no image has a second reference"
_NO_FACTS: Final = frozenset({"a", "an", "the", "and", "is", "are", "of"})
"""Words that state nothing, wherever they stand: a rule that does not know them lacks nothing."""


def within(data: BenchmarkData, split: str, captions: Collection[int]) -> BenchmarkData:
    """The data with these images of the split alone."""
    samples = tuple(sample for sample in data.evaluated[split] if sample.image_id in captions)
    return replace(data, evaluated={**data.evaluated, split: samples})


def score_split(
    split: str,
    captions: dict[int, str],
    data: BenchmarkData,
    evaluator: Evaluator,
    others: Mapping[str, Mapping[int, float]] | None = None,
    *,
    held_out: bool = False,
) -> tuple[SplitResult, float]:
    """Scores with their intervals, by domain where the data has some, and the seconds that they took.

    With `held_out` also the scores with each reference left out in turn, as `score_people` scores people: they take
    several times as long.
    """
    references = _references(split, data)
    evaluation = with_intervals(evaluator.evaluate(references, captions, _domains(split, data), external_scores=others))
    without: dict[str, Quantity] = {}
    if held_out:
        # A program that failed just now is not waited for again.
        reasons = {metric: score.reason for metric, score in evaluation.scores[OVERALL].items() if score.reason}
        without = _held_out_scores(references, captions, evaluator, reasons)
    return _result(split, captions, evaluation, without), evaluation.seconds


def score_people(split: str, data: BenchmarkData, evaluator: Evaluator) -> tuple[SplitResult, float]:
    """The references of every image as its captions, each in turn scored against the others: the mean, and the seconds.

    The captions are the first references. Images with a single one are left out; BenchError where all are.
    """
    references = _references(split, data)
    first = {image_id: texts[0] for image_id, texts in references.items() if len(texts) > 1}
    if not first:
        raise BenchError(f"{split}: {SINGLE} to score the first against", "leave human out of --models")
    domains = _domains(split, data)
    evaluation = with_intervals(
        evaluator.evaluate_rounds(references, {}, domains, lambda tokens, _: held_out_rounds(tokens))
    )
    return _result(split, first, evaluation, _without_bounds(evaluation)), evaluation.seconds


def add_missing_scores(
    spec: RunSpec,
    missing: Mapping[str, Collection[str]],
    data: BenchmarkData,
    evaluator: Evaluator,
    store: Store,
    *,
    held_out: bool = False,
) -> dict[str, str | None]:
    """Compute the `missing` metrics of each split from the captions that a finished run left, and store them.

    Gives by metric why it is still missing, None where it is not. `held_out` as of `score_split`.
    """
    captions, results = stored_captions(store, spec.key), []
    reasons: dict[str, str | None] = {}
    for split, metrics in missing.items():
        if spec.model == "human":
            result, _ = score_people(split, data, evaluator)
        else:  # a file of captions may have lacked images
            scored_data = within(data, split, captions[split]) if spec.kind == "captions" else data
            result, _ = score_split(split, captions[split], scored_data, evaluator, held_out=held_out)
        results.append(_only(result, metrics))
        reasons |= {metric: quantity.reason for metric, quantity in results[-1].scores[OVERALL].items()}
    add_scores(store, spec.key, results)
    return reasons


def score_held_out(
    spec: RunSpec, splits: Collection[str], data: BenchmarkData, evaluator: Evaluator, store: Store
) -> None:
    """Score the captions that a finished run left with each reference left out in turn, and store that."""
    captions = stored_captions(store, spec.key)
    scores = {}
    for split in splits:
        scored_data = within(data, split, captions[split]) if spec.kind == "captions" else data
        scores[split] = _held_out_scores(_references(split, scored_data), captions[split], evaluator, {})
    add_held_out_scores(store, spec.key, scores)


def _only(result: SplitResult, metrics: Collection[str]) -> SplitResult:
    """What there is of these metrics."""

    def kept(found: Mapping[str, T]) -> dict[str, T]:
        return {metric: value for metric, value in found.items() if metric in metrics}

    scores = {domain: kept(found) for domain, found in result.scores.items()}
    per_image, held_out, influences = kept(result.per_image), kept(result.held_out), kept(result.influences)
    return replace(result, scores=scores, per_image=per_image, held_out=held_out, influences=influences)


def _held_out_scores(
    references: Mapping[int, Sequence[str]],
    captions: Mapping[int, str],
    evaluator: Evaluator,
    reasons: Mapping[str, str],
) -> dict[str, Quantity]:
    """What captions score with each reference left out in turn, the mean; `reasons` to leave METEOR or SPICE out."""
    if all(len(texts) < 2 for texts in references.values()):
        return dict.fromkeys(metric_names(), Quantity(None, SINGLE))
    without = {"SPICE": SPICE_ONCE} if "SPICE" in evaluator.settings.java_metrics else {}
    without |= reasons
    return _without_bounds(evaluator.evaluate_rounds(references, captions, None, held_out_rounds, without=without))


def _result(split: str, captions: dict[int, str], of: Evaluation, held_out: dict[str, Quantity]) -> SplitResult:
    return SplitResult(split, captions, of.scores, of.per_image, held_out=held_out, influences=of.influences)


def _without_bounds(evaluation: Evaluation) -> dict[str, Quantity]:
    return {metric: replace(score, low=None, high=None) for metric, score in evaluation.scores[OVERALL].items()}


def _references(split: str, data: BenchmarkData) -> dict[int, Sequence[str]]:
    return {sample.image_id: sample.captions for sample in data.evaluated[split]}


def _domains(split: str, data: BenchmarkData) -> dict[int, str] | None:
    return {sample.image_id: sample.domain for sample in data.evaluated[split] if sample.domain is not None} or None


def more_evaluator(
    settings: MoreSettings, data: BenchmarkData, device: str, words: EvaluationSettings = DEFAULT_SETTINGS
) -> MoreEvaluator:
    """What computes them on this data set, in these words; BenchError where a file of objects cannot be used."""
    objects = None if settings.instances else objects_of_scenes(annotations_of(data.dataset))
    return MoreEvaluator(settings, objects, device, words=words)


def add_more_metrics(
    specs: Sequence[RunSpec], evaluator: MoreEvaluator, data: BenchmarkData, store: Store, reporter: Reporter
) -> dict[str, str]:
    """Compute and store what the finished runs lack; gives by stored name why a metric of some run is still lacking."""
    lacking: dict[str, str] = {}
    incomplete = [(spec, missing_metrics(store, spec.key, evaluator.names())) for spec in specs]
    incomplete = [(spec, splits) for spec, splits in incomplete if splits]
    with reporter.task("more metrics", len(incomplete)) as task:
        for spec, splits in incomplete:
            results, captions = [], stored_captions(store, spec.key)
            for split in (split_name for split_name in splits if split_name in data.evaluated):
                said, people = captions[split], spec.model == "human"
                samples = {sample.image_id: sample for sample in data.evaluated[split] if sample.image_id in said}
                everything = {image_id: samples[image_id].captions for image_id in said}
                # Of people the first references against the others, and all of them as a set.
                others = {image_id: texts[1:] if people else texts for image_id, texts in everything.items()}
                files = {image_id: data.dataset.path(sample) for image_id, sample in samples.items()}
                measured = evaluator.measure(ScoredCaptions(said, others, everything if people else {}, files))
                results.append(SplitResult(split, said, {OVERALL: measured.values}, measured.per_image))
                lacking |= evaluator.settings.missing_reasons(measured.values)
            add_scores(store, spec.key, results)
            task.advance(1)
    return lacking


def add_facts(
    specs: Sequence[RunSpec], data: BenchmarkData, store: Store, reporter: Reporter, objects: KnownObjects | None = None
) -> None:
    """Judge the captions of the finished runs that lack it by the scenes they are of; nothing else of them changes.

    Those of photographs are judged by words of the references and, anew wherever they are given, by COCO's `objects`.
    """
    incomplete = {spec.key: splits for spec in specs if (splits := missing_metrics(store, spec.key, {PARSED}))}
    if not incomplete:
        return
    try:
        scenes = read_scenes(annotations_of(data.dataset))
    except BenchError as error:
        reporter.note(f"facts: by words of the references alone: {error}")
        scenes = None
    if scenes is None:
        _add_words(specs, data, store, objects)
        return
    unknown: Counter[str] = Counter()
    for key, splits in incomplete.items():
        captions, results = stored_captions(store, key), []
        for split in (split_name for split_name in splits if split_name in data.evaluated):
            result, words = measure_facts(split, captions[split], scenes, _domains(split, data) or {})
            results.append(result)
            unknown += Counter({word: count for word, count in words.items() if word not in _NO_FACTS})
        add_scores(store, key, results)
    if unknown:
        examples = ", ".join(f"{word} ({count})" for word, count in unknown.most_common(12))
        reporter.log(f"facts: words of captions that no rule knows: {examples}{', ...' if len(unknown) > 12 else ''}")


def _add_words(specs: Sequence[RunSpec], data: BenchmarkData, store: Store, objects: KnownObjects | None) -> None:
    by_image, by = (objects.by_image, objects.label) if objects else ({}, "references")
    expected: dict[tuple[str, int], dict[int, Expected]] = {}
    for spec in specs:
        captions, results = stored_captions(store, spec.key), []
        # People's captions are the first references, judged by the others.
        own = int(spec.model == "human")
        for split in captions if objects else missing_metrics(store, spec.key, {WORDS}):
            if split in data.evaluated:
                if (split, own) not in expected:
                    others = {image_id: texts[own:] for image_id, texts in _references(split, data).items()}
                    expected[split, own] = expected_words(others, by_image)
                domains = _domains(split, data) or {}
                results.append(measure_words(split, captions[split], expected[split, own], domains, by))
        if results:
            add_scores(store, spec.key, results)
