"""Scores of a split's captions, of running runs and of finished ones that get missing or further metrics."""

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
"""Words that state nothing: they are not reported as words that no rule knows."""


def within(data: BenchmarkData, split: str, captions: Collection[int]) -> BenchmarkData:
    """The data with only these images of the split."""
    samples = tuple(sample for sample in data.evaluated[split] if sample.image_id in captions)
    return replace(data, evaluated={**data.evaluated, split: samples})


def score_split(
    split: str,
    captions: dict[int, str],
    data: BenchmarkData,
    evaluator: Evaluator,
    external_scores: Mapping[str, Mapping[int, float]] | None = None,
    *,
    held_out: bool = False,
) -> tuple[SplitResult, float]:
    """Scores with their intervals, by domain if the data has domains, and the seconds that they took.

    `held_out` adds the scores with each reference left out in turn, as in `score_people`, which takes several times as
    long.
    """
    references = _references(split, data)
    domains = _domains(split, data)
    evaluation = with_intervals(evaluator.evaluate(references, captions, domains, external_scores=external_scores))
    held_out_scores: dict[str, Quantity] = {}
    if held_out:
        # A metric that has just failed is not tried again.
        reasons = {metric: score.reason for metric, score in evaluation.scores[OVERALL].items() if score.reason}
        held_out_scores = _held_out_scores(references, captions, evaluator, reasons)
    return _result(split, captions, evaluation, held_out_scores), evaluation.seconds


def score_people(split: str, data: BenchmarkData, evaluator: Evaluator) -> tuple[SplitResult, float]:
    """The mean scores of each reference against the image's other references, and the seconds that they took.

    Stored captions are the first references. Images with a single reference are left out; BenchError if all are.
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
    """Compute the `missing` metrics of each split from a finished run's captions, and store them.

    Returns by metric the reason if it is still missing, else None. `held_out` as in `score_split`.
    """
    captions = stored_captions(store, spec.key)
    results: list[SplitResult] = []
    reasons: dict[str, str | None] = {}
    for split, metrics in missing.items():
        if spec.model == "human":
            result, _ = score_people(split, data, evaluator)
        else:  # a file of captions may have lacked images
            scored_data = within(data, split, captions[split]) if spec.kind == "captions" else data
            result, _ = score_split(split, captions[split], scored_data, evaluator, held_out=held_out)
        result = _only(result, metrics)
        results.append(result)
        reasons |= {metric: quantity.reason for metric, quantity in result.scores[OVERALL].items()}
    add_scores(store, spec.key, results)
    return reasons


def score_held_out(
    spec: RunSpec, splits: Collection[str], data: BenchmarkData, evaluator: Evaluator, store: Store
) -> None:
    """Score a finished run's captions with each reference left out in turn, and store the scores."""
    captions = stored_captions(store, spec.key)
    scores = {}
    for split in splits:
        scored_data = within(data, split, captions[split]) if spec.kind == "captions" else data
        scores[split] = _held_out_scores(_references(split, scored_data), captions[split], evaluator, {})
    add_held_out_scores(store, spec.key, scores)


def _only(result: SplitResult, metrics: Collection[str]) -> SplitResult:
    """The result with only these metrics."""

    def select(by_metric: Mapping[str, T]) -> dict[str, T]:
        return {metric: value for metric, value in by_metric.items() if metric in metrics}

    return replace(
        result,
        scores={domain: select(scores) for domain, scores in result.scores.items()},
        per_image=select(result.per_image),
        held_out=select(result.held_out),
        influences=select(result.influences),
    )


def _held_out_scores(
    references: Mapping[int, Sequence[str]],
    captions: Mapping[int, str],
    evaluator: Evaluator,
    reasons: Mapping[str, str],
) -> dict[str, Quantity]:
    """Mean scores with each reference left out in turn; metrics in `reasons` are skipped with that reason."""
    if all(len(texts) < 2 for texts in references.values()):
        return dict.fromkeys(metric_names(), Quantity(None, SINGLE))
    skipped = {"SPICE": SPICE_ONCE} if "SPICE" in evaluator.settings.java_metrics else {}
    skipped |= reasons
    return _without_bounds(evaluator.evaluate_rounds(references, captions, None, held_out_rounds, without=skipped))


def _result(split: str, captions: dict[int, str], evaluation: Evaluation, held_out: dict[str, Quantity]) -> SplitResult:
    return SplitResult(
        split,
        captions,
        evaluation.scores,
        evaluation.per_image,
        held_out=held_out,
        influences=evaluation.influences,
    )


def _without_bounds(evaluation: Evaluation) -> dict[str, Quantity]:
    return {metric: replace(score, low=None, high=None) for metric, score in evaluation.scores[OVERALL].items()}


def _references(split: str, data: BenchmarkData) -> dict[int, Sequence[str]]:
    return {sample.image_id: sample.captions for sample in data.evaluated[split]}


def _domains(split: str, data: BenchmarkData) -> dict[int, str] | None:
    return {sample.image_id: sample.domain for sample in data.evaluated[split] if sample.domain is not None} or None


def more_evaluator(
    settings: MoreSettings, data: BenchmarkData, device: str, words: EvaluationSettings = DEFAULT_SETTINGS
) -> MoreEvaluator:
    """The evaluator of further metrics on this data set; BenchError if a file of objects cannot be used.

    `words` has the tokenizer and language.
    """
    objects = None if settings.instances else objects_of_scenes(annotations_of(data.dataset))
    return MoreEvaluator(settings, objects, device, words=words)


def add_more_metrics(
    specs: Sequence[RunSpec], evaluator: MoreEvaluator, data: BenchmarkData, store: Store, reporter: Reporter
) -> dict[str, str]:
    """Compute and store the missing further metrics of finished runs; returns the reasons of those still missing."""
    reasons: dict[str, str] = {}
    incomplete = [(spec, missing_metrics(store, spec.key, evaluator.names())) for spec in specs]
    incomplete = [(spec, splits) for spec, splits in incomplete if splits]
    with reporter.task("more metrics", len(incomplete)) as task:
        for spec, splits in incomplete:
            results: list[SplitResult] = []
            by_split = stored_captions(store, spec.key)
            is_human = spec.model == "human"
            for split in splits:
                if split not in data.evaluated:
                    continue
                captions = by_split[split]
                samples = {sample.image_id: sample for sample in data.evaluated[split] if sample.image_id in captions}
                references = {image_id: samples[image_id].captions for image_id in captions}
                caption_sets: dict[int, tuple[str, ...]] = {}
                if is_human:  # the captions are the first references; all of them are the set of captions
                    caption_sets = references
                    references = {image_id: texts[1:] for image_id, texts in references.items()}
                files = {image_id: data.dataset.path(sample) for image_id, sample in samples.items()}
                measured = evaluator.measure(ScoredCaptions(captions, references, caption_sets, files))
                results.append(SplitResult(split, captions, {OVERALL: measured.values}, measured.per_image))
                reasons |= evaluator.settings.missing_reasons(measured.values)
            add_scores(store, spec.key, results)
            task.advance(1)
    return reasons


def add_facts(
    specs: Sequence[RunSpec], data: BenchmarkData, store: Store, reporter: Reporter, objects: KnownObjects | None = None
) -> None:
    """Compute and store the correctness of facts for finished runs that lack it, from the scenes of their images.

    Captions of photographs are compared with the words of references and, again whenever given, with COCO's `objects`.
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
        captions = stored_captions(store, key)
        results: list[SplitResult] = []
        for split in splits:
            if split not in data.evaluated:
                continue
            result, words = measure_facts(split, captions[split], scenes, _domains(split, data) or {})
            results.append(result)
            unknown += Counter({word: count for word, count in words.items() if word not in _NO_FACTS})
        add_scores(store, key, results)
    if unknown:
        examples = ", ".join(f"{word} ({count})" for word, count in unknown.most_common(12))
        if len(unknown) > 12:
            examples += ", ..."
        reporter.log(f"facts: words of captions that no rule knows: {examples}")


def _add_words(specs: Sequence[RunSpec], data: BenchmarkData, store: Store, objects: KnownObjects | None) -> None:
    """Compute and store the correctness of words for captions of photographs."""
    objects_by_image = objects.by_image if objects else {}
    source = objects.label if objects else "references"
    expected: dict[tuple[str, int], dict[int, Expected]] = {}  # by split and first reference
    for spec in specs:
        captions = stored_captions(store, spec.key)
        results: list[SplitResult] = []
        # Captions of the row human are the first references; they are compared with the others.
        first_reference = 1 if spec.model == "human" else 0
        for split in captions if objects else missing_metrics(store, spec.key, {WORDS}):
            if split not in data.evaluated:
                continue
            key = (split, first_reference)
            if key not in expected:
                references = {image_id: texts[first_reference:] for image_id, texts in _references(split, data).items()}
                expected[key] = expected_words(references, objects_by_image)
            domains = _domains(split, data) or {}
            results.append(measure_words(split, captions[split], expected[key], domains, source))
        if results:
            add_scores(store, spec.key, results)
