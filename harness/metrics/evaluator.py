"""Score a system's captions: every metric, per image, over the split and per domain; with intervals and a signature."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import numpy as np

from harness.data.formats import named
from harness.metrics.bleu import BLEU
from harness.metrics.cider import cider_d
from harness.metrics.contract import (
    CIDER_D,
    METRICS,
    OTHER_CIDER_D,
    OVERALL,
    SPICE,
    Mean,
    Renamed,
    Statistics,
    require_same_images,
)
from harness.metrics.java import JavaError, find_java
from harness.metrics.meteor import METEOR, MeteorSession
from harness.metrics.ngrams import Corpus
from harness.metrics.ptb import tokenize_by_image, tokenize_java, tokenize_ptb
from harness.metrics.rouge import rouge_l
from harness.metrics.rounds import Answered, Round, mean_of_rounds, meteor_answers
from harness.metrics.signature import TOKENIZERS, EvaluationSettings, Signature, evaluation_signature
from harness.metrics.spice import run_spice
from harness.utils.errors import BenchError
from results.records import Quantity
from results.statistics.significance import RESAMPLES, SEED, SUMS, bootstrap, pseudo_values

DEFAULT_SETTINGS: Final = EvaluationSettings()
TIMEOUT_S: Final = 180.0
"""Longest time to wait for the Java tokenizer, and for each answer of METEOR."""
NOT_ASKED_FOR: Final = {
    "METEOR": "METEOR was not asked for",
    "SPICE": "not run: its models are not installed (bench prefetch spice)",
}

Tokens = dict[int, list[str]]
Progress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of one system on one split.

    `scores[domain][metric]` has `OVERALL` and every metric of `METRICS`, and each domain's CIDEr-D with the other
    document frequencies too (`harness.metrics.contract.OTHER_CIDER_D`); one that could not be computed is NULL with
    a reason and has no entry in `per_image[metric][image_id]`. `seconds` is the time spent by step. `domains` holds
    the images of each domain. `statistics` are the input of significance tests: for `OVERALL` a row for each of `ids`,
    for each domain a row for each of its images; empty without any score. `influences[metric][image_id]` are those of
    `influences_by_image` on the scores of `OVERALL`; empty for a single image.
    """

    scores: dict[str, dict[str, Quantity]]
    per_image: dict[str, dict[int, float]]
    tokenizer: str
    seconds: dict[str, float]
    ids: tuple[int, ...] = ()
    statistics: dict[str, tuple[Statistics, ...]] = field(default_factory=dict)
    domains: dict[str, list[int]] = field(default_factory=dict)
    influences: dict[str, dict[int, float]] = field(default_factory=dict)


def with_intervals(evaluation: Evaluation) -> Evaluation:
    """The evaluation with the 95 % interval of every score, over all images and over each domain's."""
    scores = {}
    for group, quantities in evaluation.scores.items():
        statistics = evaluation.statistics.get(group)
        found = bootstrap(statistics) if statistics else {}
        scores[group] = {
            metric: replace(quantity, low=found[metric].low, high=found[metric].high) if metric in found else quantity
            for metric, quantity in quantities.items()
        }
    return replace(evaluation, scores=scores)


class Evaluator:
    """Scores systems one after another with one METEOR process; use it as a context manager.

    Args:
        settings: every choice that may change a score. METEOR is what needs Java and most of the time.

    Processes are started on first use; `warm_up` starts METEOR in the background. References are tokenised once.
    Without a working Java METEOR is NULL; with the Java tokenizer every metric is.
    """

    def __init__(self, *, settings: EvaluationSettings = DEFAULT_SETTINGS) -> None:
        self.settings = settings
        self._java: Path | None = None
        self._meteor = MeteorSession(self._find_java, timeout_s=TIMEOUT_S)
        self._references: dict[str, Tokens] = {}
        self._answered: Answered = {}

    def warm_up(self, captions: Sequence[str]) -> None:
        """Start METEOR in the background for the words of `captions`; other words make it restart.

        A Java that does not work is reported by `evaluate`, not here.
        """
        if self.settings.meteor:
            self._meteor.prepare(captions)

    def evaluate(
        self,
        references: Mapping[int, Sequence[str]],
        candidates: Mapping[int, str],
        domains: Mapping[int, str] | None = None,
        *,
        others: Mapping[str, Mapping[int, float]] | None = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """Score one caption per image against its references, all as written (tokenised here).

        Args:
            references: by image id, at least one for each. Their order is that of tokenisation, as of an annotation
                file; in rare captions the start of the next one decides whether a final full stop is kept.
            candidates: by image id, the same ids; an empty caption is allowed and scores 0.
            domains: image ids to domain names; images without one count in the overall scores only. BLEU and METEOR
                are corpus scores over a domain's images, ROUGE-L and CIDEr-D means of the per-image values.
            others: scores of each image by metrics that were computed elsewhere; they are means too.

        Raises:
            BenchError: missing or extra images, an image without references, or nothing to score.
        """
        _check(references, candidates)
        return self.evaluate_rounds(
            references, candidates, domains, lambda *tokens: [Round(*tokens)], others=others, progress=progress
        )

    def evaluate_rounds(
        self,
        references: Mapping[int, Sequence[str]],
        candidates: Mapping[int, str],
        domains: Mapping[int, str] | None,
        make_rounds: Callable[[Tokens, dict[int, str]], Sequence[Round]],
        *,
        without: Mapping[str, str] | None = None,
        others: Mapping[str, Mapping[int, float]] | None = None,
        progress: Progress | None = None,
    ) -> Evaluation:
        """The mean over rounds of scoring, built from tokenised references and candidates; arguments as in `evaluate`.

        An image's score is the mean over its rounds. `without` maps METEOR or SPICE to the reason to leave it out.
        """
        if domains and OVERALL in domains.values():
            raise BenchError(f"a domain may not be called {OVERALL!r}: that names the scores over all images")
        seconds: dict[str, float] = {}
        name = TOKENIZERS[self.settings.tokenizer]
        try:
            with _timed(seconds, "tokenizer"):
                tokenized_references = self._tokenize_references(references)
                said = {image_id: [candidates[image_id]] for image_id in references if image_id in candidates}
                captions = {image_id: texts[0] for image_id, texts in tokenize_by_image(said, self._tokenize).items()}
        except JavaError as error:
            missing = dict.fromkeys(METRICS, Quantity(None, str(error)))
            named = (OVERALL, *_by_domain(list(references), domains or {}))
            return Evaluation({group: dict(missing) for group in named}, {}, name, seconds, tuple(references))
        rounds = make_rounds(tokenized_references, captions)
        ids = list(rounds[0].references)
        groups = {OVERALL: ids, **_by_domain(ids, domains or {})}
        statistics, reasons = self._statistics(rounds, without or {}, seconds, progress)
        for metric, of in (others or {}).items():
            statistics += (Mean(metric).statistics(np.array([of[image_id] for image_id in ids])),)
        rows = {image_id: row for row, image_id in enumerate(ids)}
        by_group = {OVERALL: statistics}
        for domain, members in groups.items():
            if domain != OVERALL:
                parts = [each.of([rows[image_id] for image_id in members]) for each in statistics]
                by_group[domain] = self._with_both_frequencies(parts, rounds, members)
        per_image = {
            metric: dict(zip(ids, values.tolist(), strict=True))
            for each in statistics
            for metric, values in each.per_image().items()
        }
        return Evaluation(
            {group: self._scores(parts, reasons) for group, parts in by_group.items()},
            {metric: per_image[metric] for metric in dict.fromkeys((*METRICS, *per_image)) if metric in per_image},
            name,
            seconds,
            tuple(ids),
            by_group,
            {group: members for group, members in groups.items() if group != OVERALL},
            influences_by_image(statistics, ids),
        )

    def close(self) -> None:
        """End METEOR's process; safe to call twice."""
        self._meteor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _statistics(
        self, rounds: Sequence[Round], without: Mapping[str, str], seconds: dict[str, float], progress: Progress | None
    ) -> tuple[tuple[Statistics, ...], dict[str, str]]:
        """Statistics of every metric that could be computed, and the reason for each that could not."""
        bleu, rouge, cider = [], [], []
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(self._java_statistics, rounds, without, seconds, progress)
            for each in rounds:
                with _timed(seconds, "BLEU"):
                    corpus = _corpus(each)
                    bleu.append(BLEU.statistics(corpus))
                with _timed(seconds, "CIDEr-D"):
                    cider.append(_cider(corpus))
                with _timed(seconds, "ROUGE-L"):
                    rouge.append(rouge_l(each.references, each.captions))
            more, reasons = pending.result()
        return (*map(mean_of_rounds, (bleu, rouge, cider)), *more), reasons

    def _with_both_frequencies(
        self, parts: Sequence[Statistics], rounds: Sequence[Round], members: Sequence[int]
    ) -> tuple[Statistics, ...]:
        """A domain's statistics, CIDEr-D with the chosen document frequencies, and last with the others."""
        shared = next(part for part in parts if part.metric.names == CIDER_D.names)
        alone = mean_of_rounds([_cider(_corpus(each, members)) for each in rounds])
        chosen, other = (shared, alone) if self.settings.domain_df == "all" else (alone, shared)
        kept = (chosen if part is shared else part for part in parts)
        return (*kept, replace(other, metric=Renamed(other.metric, OTHER_CIDER_D[self.settings.domain_df])))

    def _scores(self, statistics: Sequence[Statistics], reasons: Mapping[str, str]) -> dict[str, Quantity]:
        values = {name: value for each in statistics for name, value in each.corpus().items()}
        scores = {
            metric: Quantity(values[metric]) if metric in values else Quantity(None, reasons[metric])
            for metric in METRICS
        }
        return scores | {metric: Quantity(value) for metric, value in values.items() if metric not in scores}

    def _find_java(self) -> Path:
        if self._java is None:
            self._java = find_java()
        return self._java

    def _tokenize(self, captions: Sequence[str]) -> list[str]:
        if self.settings.tokenizer == "python":
            return tokenize_ptb(captions)
        return tokenize_java(captions, java=self._find_java(), timeout_s=TIMEOUT_S)

    def _tokenize_references(self, references: Mapping[int, Sequence[str]]) -> Tokens:
        """Tokenised references, from the cache if the same ones were tokenised before."""
        content = json.dumps([(image_id, list(texts)) for image_id, texts in references.items()])
        key = hashlib.sha256(content.encode()).hexdigest()
        if key not in self._references:
            self._references[key] = tokenize_by_image(references, self._tokenize)
        return self._references[key]

    def _java_statistics(
        self, rounds: Sequence[Round], without: Mapping[str, str], seconds: dict[str, float], progress: Progress | None
    ) -> tuple[list[Statistics], dict[str, str]]:
        """Statistics of the metrics that need Java, and reasons for missing ones; restarts METEOR after a failure."""
        found: list[Statistics] = []
        reasons = {**NOT_ASKED_FOR, **without}
        if self.settings.meteor and "METEOR" not in without:
            with _timed(seconds, "METEOR"):
                try:
                    ask = partial(self._meteor.statistics, progress=progress)
                    answers = meteor_answers(rounds, ask, self._answered)
                    found.append(mean_of_rounds([METEOR.statistics(each) for each in answers]))
                except JavaError as error:
                    reasons["METEOR"] = str(error)
        if self.settings.spice and "SPICE" not in without:
            with _timed(seconds, "SPICE"):
                try:
                    java = self._find_java()
                    scores = [run_spice(each.references, each.captions, java=java) for each in rounds]
                    found.append(mean_of_rounds([SPICE.statistics(each) for each in scores]))
                except JavaError as error:
                    reasons["SPICE"] = str(error)
        return found, reasons


@dataclass(frozen=True, slots=True)
class Report:
    """An evaluation with 95 % intervals over images, and its signature."""

    signature: Signature
    evaluation: Evaluation

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
            "scores": {metric: found.value for metric, found in self.evaluation.scores[OVERALL].items()},
            "reasons": {metric: found.reason for metric, found in missing.items() if found.value is None},
            "n": len(self.evaluation.ids),
            "domains": domains,
            "intervals": self._intervals(OVERALL),
            "bootstrap": {"resamples": RESAMPLES, "seed": SEED, "level": 0.95},
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
    evaluator: Evaluator | None = None,
    *,
    name: str = "references",
    of: int | None = None,
    domains: Mapping[int, str] | None = None,
    others: Mapping[str, Mapping[int, float]] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Score one caption per image; references, candidates and errors as `Evaluator.evaluate`.

    Args:
        evaluator: is left open, so that systems share a METEOR process; None: one of the default settings.
        of: number of images in the reference file, if only a subset is scored.
    """
    if evaluator is None:
        with Evaluator() as own:
            return evaluate(
                references, candidates, own, name=name, of=of, domains=domains, others=others, progress=progress
            )
    evaluation = evaluator.evaluate(references, candidates, domains, others=others, progress=progress)
    signature = evaluation_signature(evaluator.settings, references, name=name, of=of, domains=evaluation.domains)
    return Report(signature, with_intervals(evaluation))


def influences_by_image(statistics: Sequence[Statistics], ids: Sequence[int]) -> dict[str, dict[int, float]]:
    """Those on `SUMS`, by metric and id, so that BLEU and METEOR are tested over images as means are.

    `ids` are of the rows of the statistics. A single image has none.
    """
    if len(ids) < 2:
        return {}
    return {
        metric: dict(zip(ids, values.tolist(), strict=True))
        for each in statistics
        if set(each.metric.names) <= set(SUMS)
        for metric, values in zip(each.metric.names, pseudo_values(each.values, each.metric.score).T, strict=True)
    }


def _check(references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> None:
    require_same_images(references, candidates)
    if not candidates:
        raise BenchError("there is no caption to score")
    if bare := [str(image_id) for image_id, texts in sorted(references.items()) if not texts]:
        raise BenchError(named(bare, "with no reference caption"))


def _corpus(round_: Round, members: Sequence[int] | None = None) -> Corpus:
    """Statistics of all images of a round, or of some."""
    references = round_.references
    return Corpus.of_texts(references if members is None else {i: references[i] for i in members}, round_.captions)


def _cider(corpus: Corpus) -> Statistics:
    return CIDER_D.statistics(cider_d(corpus, corpus.frequencies()))


def _by_domain(ids: list[int], domains: Mapping[int, str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for image_id in ids:
        if image_id in domains:
            groups.setdefault(domains[image_id], []).append(image_id)
    return dict(sorted(groups.items()))


@contextmanager
def _timed(seconds: dict[str, float], step: str) -> Iterator[None]:
    started = time.perf_counter()
    try:
        yield
    finally:
        seconds[step] = seconds.get(step, 0.0) + time.perf_counter() - started
