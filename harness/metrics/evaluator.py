"""Score captions with all metrics: per image, over a split and per domain, with intervals and a signature."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from queue import SimpleQueue
from threading import Lock
from typing import Any, Final, Self

import numpy as np

from harness.data.formats.ids import named
from harness.data.word_tokenizers import tokenize_words
from harness.metrics.bleu import bleu
from harness.metrics.cider import cider_d
from harness.metrics.contract import OTHER_CIDER_D, OVERALL, mean_of, require_same_images
from harness.metrics.java import JavaError, find_java
from harness.metrics.languages import ENGLISH, MeteorLanguage
from harness.metrics.meteor import MeteorSession, meteor, words_of
from harness.metrics.ngrams import Corpus
from harness.metrics.ptb import tokenize_by_image, tokenize_java, tokenize_ptb
from harness.metrics.rouge import rouge_l
from harness.metrics.signature import DEFAULT_SETTINGS as DEFAULT_SETTINGS
from harness.metrics.signature import EvaluationSettings
from harness.metrics.spice import run_spice
from harness.utils.errors import BenchError
from results.metrics import metric_names
from results.records import Quantity
from results.statistics.image_scores import ImageScores
from results.statistics.significance import RESAMPLES, SEED, SUMS, Array, Statistics, bootstrap, pseudo_values

TIMEOUT_S: Final = 180.0
_MAX_CACHED_PAIRS: Final = 200_000  # METEOR's statistics of so many pairs take 80 MB
NOT_RUN: Final = {
    "METEOR": "METEOR was not requested",
    "SPICE": "not run: its models are not installed (bench prefetch spice)",
}
"""Why the metrics that need Java are missing, unless another reason is known."""

Tokens = dict[int, list[str]]
"""Tokenised captions by image id."""
ComputeMeteor = Callable[[Mapping[int, Sequence[str]], Mapping[int, str]], Array]
"""METEOR's statistics (N, 23) of references and captions, see `MeteorSession.statistics`."""
PairStatistics = dict[tuple[str, str], Array]
"""METEOR's statistics (23,) by (caption, reference)."""


_ONE_IMAGE: Final = Quantity(None, "of one image: CIDEr-D needs document frequencies of several")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of one system on one split.

    Attributes:
        scores: by domain, `OVERALL` included, and metric, all of `results.metrics.METRICS`. Domains also have CIDEr-D
            with the other document frequencies (`harness.metrics.contract.OTHER_CIDER_D`). A score that could not be
            computed is None with a reason.
        per_image: by metric and image id; without metrics that could not be computed.
        seconds: wall-clock time of scoring.
        ids: the scored images.
        statistics: input of significance tests, by domain: for `OVERALL` one row for each of `ids`, for a domain one
            row for each of its images. Empty if nothing could be computed.
        domains: the image ids of each domain.
        influences: by metric and image id, see `influences_by_image`, on the scores of `OVERALL`; empty for one image.
    """

    scores: dict[str, dict[str, Quantity]]
    per_image: dict[str, dict[int, float]]
    seconds: float
    ids: tuple[int, ...] = ()
    statistics: dict[str, tuple[Statistics, ...]] = field(default_factory=dict)
    domains: dict[str, list[int]] = field(default_factory=dict)
    influences: dict[str, dict[int, float]] = field(default_factory=dict)


def with_intervals(evaluation: Evaluation) -> Evaluation:
    """The evaluation with the 95 % interval of every score, over all images and over each domain."""
    scores = {}
    for domain, quantities in evaluation.scores.items():
        statistics = evaluation.statistics.get(domain)
        intervals = bootstrap(statistics) if statistics else {}
        scores[domain] = dict(quantities)
        for metric, quantity in quantities.items():
            if metric in intervals:
                low, high = intervals[metric]
                scores[domain][metric] = replace(quantity, low=low, high=high)
    return replace(evaluation, scores=scores)


class Evaluator:
    """Scores systems one after another, or several at a time in threads. Use it as a context manager.

    METEOR takes most of the time; its process starts on first use or in `warm_up`. References are tokenised once.
    Without a working Java, METEOR is None; with the Java tokenizer, every metric is.

    Args:
        settings: the choices that scores depend on.
        meteors: maximum number of METEOR processes. `evaluate` uses one, so as many threads can call it at once.
    """

    def __init__(self, *, settings: EvaluationSettings = DEFAULT_SETTINGS, meteors: int = 1) -> None:
        self.settings = settings
        self._find_java = cache(find_java)
        self._meteor_language = settings.meteor_language or ENGLISH
        self._meteors = [
            MeteorSession(self._find_java, timeout_s=TIMEOUT_S, language=self._meteor_language) for _ in range(meteors)
        ]
        self._idle_meteors: SimpleQueue[MeteorSession] = SimpleQueue()
        for session in self._meteors:
            self._idle_meteors.put(session)
        self._lock = Lock()
        self._references: dict[str, Tokens] = {}
        self._meteor_cache: PairStatistics = {}

    def warm_up(self, references: Sequence[str], captions: Sequence[str]) -> None:
        """Start METEOR in the background for these references, and for captions with the words of these captions.

        If Java does not work, `evaluate` reports it.
        """
        if "METEOR" in self.settings.java_metrics:
            for session in self._meteors:
                session.prepare(references, captions)

    def expect(self, captions: Iterable[str]) -> None:
        """Announce captions that will be scored later, so that METEOR starts only once for all of their words."""
        if "METEOR" in self.settings.java_metrics and self._meteor_language == ENGLISH:
            words = words_of(tokenize_ptb([*dict.fromkeys(captions)]))
            for session in self._meteors:
                session.expect(words)

    def evaluate(
        self,
        references: Mapping[int, Sequence[str]],
        candidates: Mapping[int, str],
        domains: Mapping[int, str] | None = None,
        *,
        external_scores: Mapping[str, Mapping[int, float]] | None = None,
    ) -> Evaluation:
        """Score one caption per image against its references, both not yet tokenised.

        Args:
            references: by image id, at least one for each. They are tokenised in this order, which should be that of
                the annotation file: in rare captions the start of the next one decides whether a final full stop is
                kept.
            candidates: captions by image id, with the same ids. An empty caption scores 0.
            domains: domain names by image id; images without one count in the overall scores only. BLEU and METEOR
                are corpus scores over a domain's images, ROUGE-L and CIDEr-D means over images.
            external_scores: by metric and image id, scores computed elsewhere; their score is the mean over images.

        Raises:
            BenchError: missing or extra images, an image without references, or nothing to score.
        """
        require_same_images(references, candidates)
        if not candidates:
            raise BenchError("there is no caption to score")
        without_references = [str(image_id) for image_id, texts in sorted(references.items()) if not texts]
        if without_references:
            raise BenchError(named(without_references, "with no reference caption"))

        def one_round(reference_tokens: Tokens, caption_tokens: dict[int, str]) -> list[Round]:
            return [Round(reference_tokens, caption_tokens)]

        return self.evaluate_rounds(references, candidates, domains, one_round, external_scores=external_scores)

    def evaluate_rounds(
        self,
        references: Mapping[int, Sequence[str]],
        candidates: Mapping[int, str],
        domains: Mapping[int, str] | None,
        make_rounds: Callable[[Tokens, dict[int, str]], Sequence[Round]],
        *,
        without: Mapping[str, str] | None = None,
        external_scores: Mapping[str, Mapping[int, float]] | None = None,
    ) -> Evaluation:
        """Score several rounds; the score of an image is the mean over its rounds.

        Args:
            references, candidates, domains, external_scores: as in `evaluate`.
            make_rounds: makes rounds on the same images from tokenised references and captions.
            without: METEOR or SPICE, if they are not to be run, and the reason.
        """
        if domains and OVERALL in domains.values():
            raise BenchError(f"a domain may not be called {OVERALL!r}: that names the scores over all images")
        started = time.perf_counter()
        try:
            tokenized_references = self._tokenize_references(references)
            to_tokenize = {image_id: [candidates[image_id]] for image_id in references if image_id in candidates}
            tokenized = tokenize_by_image(to_tokenize, self._tokenize)
        except JavaError as error:
            missing = dict.fromkeys(metric_names(), Quantity(None, str(error)))
            domain_names = (OVERALL, *_by_domain(list(references), domains or {}))
            seconds = time.perf_counter() - started
            return Evaluation({domain: dict(missing) for domain in domain_names}, {}, seconds, tuple(references))
        captions = {image_id: texts[0] for image_id, texts in tokenized.items()}
        rounds = make_rounds(tokenized_references, captions)
        ids = list(rounds[0].references)
        images_of = _by_domain(ids, domains or {})
        all_statistics, reasons = self._statistics(rounds, without or {})
        for metric, by_image in (external_scores or {}).items():
            all_statistics += (mean_of(metric, np.array([by_image[image_id] for image_id in ids])),)
        rows = {image_id: row for row, image_id in enumerate(ids)}
        statistics = {OVERALL: all_statistics}
        for domain, images in images_of.items():
            of_domain = [part.of([rows[image_id] for image_id in images]) for part in all_statistics]
            statistics[domain] = self._with_both_frequencies(of_domain, rounds, images)
        scores = {domain: self._scores(parts, reasons) for domain, parts in statistics.items()}
        for domain, images in {OVERALL: ids, **images_of}.items():
            for metric in self._undefined_cider(domain, len(images), len(ids)):
                scores[domain][metric] = _ONE_IMAGE
        per_image = _scores_by_image(all_statistics, ids)
        metrics_in_order = dict.fromkeys((*metric_names(), *per_image))
        return Evaluation(
            scores,
            {metric: per_image[metric] for metric in metrics_in_order if metric in per_image},
            time.perf_counter() - started,
            tuple(ids),
            statistics,
            images_of,
            influences_by_image(all_statistics, ids),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._meteors:
            session.close()

    def _statistics(
        self, rounds: Sequence[Round], without: Mapping[str, str]
    ) -> tuple[tuple[Statistics, ...], dict[str, str]]:
        """Statistics of every metric that could be computed, and by metric the reasons for those that could not.

        The metrics that need Java run in a second thread.
        """
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(self._java_statistics, rounds, without)
            by_round = [round_statistics(round_) for round_ in rounds]
            with_java, reasons = pending.result()
        by_metric = zip(*by_round, strict=True)
        return (*(mean_of_rounds(of_metric) for of_metric in by_metric), *with_java), reasons

    def _with_both_frequencies(
        self, statistics: Sequence[Statistics], rounds: Sequence[Round], images: Sequence[int]
    ) -> tuple[Statistics, ...]:
        """A domain's statistics with CIDEr-D for both kinds of document frequencies, of all images and of the domain.

        "CIDEr-D" uses the frequencies of the settings' `domain_df`; the other one comes last, with a name of its own.
        """
        all_images = next(part for part in statistics if part.metric.names == ("CIDEr-D",))
        domain_only = mean_of_rounds([_cider(_corpus(round_, images)) for round_ in rounds])
        if self.settings.domain_df == "all":
            chosen = all_images
            other = domain_only
        else:
            chosen = domain_only
            other = all_images
        with_chosen = (chosen if part is all_images else part for part in statistics)
        other_metric = replace(other.metric, names=(OTHER_CIDER_D[self.settings.domain_df],))
        return (*with_chosen, replace(other, metric=other_metric))

    def _undefined_cider(self, domain: str, n_images: int, n_all_images: int) -> list[str]:
        """The names of a domain's CIDEr-D with document frequencies of a single image, which is always 0."""
        other = OTHER_CIDER_D[self.settings.domain_df]
        if domain == OVERALL:
            return ["CIDEr-D"] if n_all_images == 1 else []
        if n_all_images == 1:
            return ["CIDEr-D", other]
        of_domain = other if self.settings.domain_df == "all" else "CIDEr-D"
        return [of_domain] if n_images == 1 else []

    def _scores(self, statistics: Sequence[Statistics], reasons: Mapping[str, str]) -> dict[str, Quantity]:
        """The corpus score of every metric; None with its reason where it could not be computed."""
        scores: dict[str, Quantity] = {}
        for part in statistics:
            for metric, value in part.corpus().items():
                scores[metric] = Quantity(value)
        return {metric: scores.get(metric) or Quantity(None, reasons[metric]) for metric in metric_names()} | scores

    def _tokenize(self, captions: Sequence[str]) -> list[str]:
        """The tokens of each caption by the settings' tokenizer, joined by spaces."""
        name = self.settings.tokenizer
        if name == "python":
            return tokenize_ptb(captions)
        if name == "java":
            return tokenize_java(captions, java=self._find_java(), timeout_s=TIMEOUT_S)
        return tokenize_words(captions, name)

    def _tokenize_references(self, references: Mapping[int, Sequence[str]]) -> Tokens:
        """Tokenised references, from a cache if the same ones were tokenised before."""
        content = json.dumps([(image_id, list(texts)) for image_id, texts in references.items()])
        key = hashlib.sha256(content.encode()).hexdigest()
        with self._lock:
            if key not in self._references:
                self._references[key] = tokenize_by_image(references, self._tokenize)
            return self._references[key]

    def _java_statistics(
        self, rounds: Sequence[Round], without: Mapping[str, str]
    ) -> tuple[list[Statistics], dict[str, str]]:
        """Statistics of METEOR and SPICE where they could be computed, and the reasons where they could not."""
        statistics: list[Statistics] = []
        reasons = {**NOT_RUN, **self.settings.unavailable, **without}
        metrics = self.settings.java_metrics - without.keys()
        if not self.settings.meteor:
            reasons["METEOR"] = NOT_RUN["METEOR"]
        if "METEOR" in metrics:
            language = self._meteor_language
            session = self._idle_meteors.get()
            try:
                by_round = meteor_statistics(rounds, session.statistics, self._meteor_cache, language)
                statistics.append(mean_of_rounds([meteor(part, language) for part in by_round]))
            except JavaError as error:
                reasons["METEOR"] = str(error)
            finally:
                self._idle_meteors.put(session)
        if "SPICE" in metrics:
            try:
                java = self._find_java()
                scores = [run_spice(round_.references, round_.captions, java=java) for round_ in rounds]
                statistics.append(mean_of_rounds([mean_of("SPICE", of_round) for of_round in scores]))
            except JavaError as error:
                reasons["SPICE"] = str(error)
        return statistics, reasons


@dataclass(frozen=True, slots=True)
class Report:
    """An evaluation with 95 % intervals over images, and its signature."""

    signature: str
    evaluation: Evaluation

    def quantity(self, metric: str, domain: str = OVERALL) -> Quantity:
        """A score, or the reason why it is missing."""
        return self.evaluation.scores[domain][metric]

    def to_json(self, labels: Mapping[int, str] | None = None) -> dict[str, Any]:
        """The content of scores.json: scores as fractions or null, and the reasons for null.

        `labels` are the texts that the references use as ids, by image id.
        """
        labels = labels or {}
        domains = {}
        for domain, images in self.evaluation.domains.items():
            domains[domain] = self._values(domain) | {"n": len(images), "intervals": self._intervals(domain)}
        quantities = {metric: self.quantity(metric) for metric in metric_names()}
        return {
            "signature": self.signature,
            "scores": self._values(OVERALL),
            "reasons": {metric: quantity.reason for metric, quantity in quantities.items() if quantity.value is None},
            "n": len(self.evaluation.ids),
            "domains": domains,
            "intervals": self._intervals(OVERALL),
            "bootstrap": {"resamples": RESAMPLES, "seed": SEED, "level": 0.95},
            "per_image": _with_labels(self.evaluation.per_image, labels),
            "influences": _with_labels(self.evaluation.influences, labels),
        }

    def image_scores(self, domain: str = OVERALL) -> ImageScores:
        """The scores of a domain with the per-image values that significance tests need."""
        evaluation = self.evaluation
        per_image = evaluation.per_image
        influences = evaluation.influences
        if domain != OVERALL:
            ids = evaluation.domains[domain]
            statistics = evaluation.statistics[domain]
            influences = influences_by_image(statistics, ids)
            per_image = _scores_by_image(statistics, ids)
        scores = evaluation.scores[domain]
        return ImageScores(
            signature=self.signature,
            scores={metric: score.value for metric, score in scores.items() if score.value is not None},
            reasons={metric: score.reason or "" for metric, score in scores.items() if score.value is None},
            per_image=per_image,
            influences=influences,
        )

    def _values(self, domain: str) -> dict[str, Any]:
        return {metric: quantity.value for metric, quantity in self.evaluation.scores[domain].items()}

    def _intervals(self, domain: str) -> dict[str, list[float | None]]:
        scores = self.evaluation.scores[domain]
        return {metric: [score.low, score.high] for metric, score in scores.items() if score.low is not None}


def _with_labels(values: Mapping[str, Mapping[int, float]], labels: Mapping[int, str]) -> dict[str, dict[str, float]]:
    """Values by metric and image, where images are named as in the references."""
    return {
        metric: {labels.get(image_id, str(image_id)): value for image_id, value in by_image.items()}
        for metric, by_image in values.items()
    }


def _scores_by_image(statistics: Sequence[Statistics], ids: Sequence[int]) -> dict[str, dict[int, float]]:
    """The scores of single images, by metric and image id."""
    scores = {}
    for part in statistics:
        for metric, values in part.per_image().items():
            scores[metric] = dict(zip(ids, values.tolist(), strict=True))
    return scores


@dataclass(frozen=True, slots=True)
class Round:
    """One tokenised caption per image and its tokenised references, by image id.

    There are several rounds where references are held out: a human caption can only be scored against the other
    references of its image, and for comparison models are scored in the same way.
    """

    references: dict[int, list[str]]
    captions: dict[int, str]


def round_statistics(round_: Round) -> list[Statistics]:
    """The statistics of every metric that needs no Java. Add a new metric here."""
    corpus = _corpus(round_)
    return [
        bleu(corpus),
        rouge_l(round_.references, round_.captions),
        _cider(corpus),
    ]


def mean_of_rounds(rounds: Sequence[Statistics]) -> Statistics:
    """Concatenate a metric's statistics of several rounds on the same images; their score is the mean over rounds."""
    if len(rounds) == 1:
        return rounds[0]
    metric = rounds[0].metric
    values = np.concatenate([part.values for part in rounds], axis=1)
    return Statistics(replace(metric, score=partial(_mean_score, metric.score, len(rounds))), values)


def _mean_score(score: Callable[[Array], Array], n_rounds: int, totals: Array) -> Array:
    """The mean over rounds of `score`, from the concatenated sums of all rounds."""
    by_round = score(totals.reshape(*totals.shape[:-1], n_rounds, -1))
    mean: Array = by_round.mean(axis=-2)
    return mean


def held_out_rounds(references: Mapping[int, Sequence[str]], captions: Mapping[int, str] | None = None) -> list[Round]:
    """Rounds in which each reference of an image is held out; images with a single reference are left out.

    There are as many rounds as the largest number of references; round k holds out reference k modulo the image's
    number of references. `captions` are scored against the other references, or without them the held-out reference.
    """
    several = {image_id: texts for image_id, texts in references.items() if len(texts) > 1}
    rounds = []
    for index in range(max(map(len, several.values()), default=0)):
        other_references = {}
        scored = {}
        for image_id, texts in several.items():
            held_out = index % len(texts)
            other_references[image_id] = [*texts[:held_out], *texts[held_out + 1 :]]
            scored[image_id] = texts[held_out] if captions is None else captions[image_id]
        rounds.append(Round(other_references, scored))
    return rounds


def meteor_statistics(
    rounds: Sequence[Round], compute: ComputeMeteor, cache: PairStatistics, language: MeteorLanguage = ENGLISH
) -> list[Array]:
    """METEOR's statistics (N, 23) of every round, each caption with its best reference, on a tie the first.

    Args:
        compute: is called once with all pairs of caption and reference that are not in the cache.
        cache: is updated with all pairs of the rounds.
    """
    pairs = list(dict.fromkeys(_caption_reference_pairs(rounds)))
    by_pair = {pair: cache[pair] for pair in pairs if pair in cache}
    new = [pair for pair in pairs if pair not in by_pair]
    if new:
        captions = {index: caption for index, (caption, _) in enumerate(new)}
        references = {index: [reference] for index, (_, reference) in enumerate(new)}
        by_pair.update(zip(new, compute(references, captions), strict=True))
    if len(cache) > _MAX_CACHED_PAIRS:
        cache.clear()
    cache.update(by_pair)
    statistics = np.stack([by_pair[pair] for pair in pairs])
    row_of = {pair: row for row, pair in enumerate(pairs)}
    scores = meteor(statistics, language).per_image()["METEOR"]

    def best_row(caption: str, references: Sequence[str]) -> int:
        return max((row_of[caption, reference] for reference in references), key=scores.__getitem__)

    by_round = []
    for round_ in rounds:
        rows = [best_row(caption, round_.references[image_id]) for image_id, caption in round_.captions.items()]
        by_round.append(statistics[rows])
    return by_round


def _caption_reference_pairs(rounds: Sequence[Round]) -> Iterator[tuple[str, str]]:
    """Every caption with each reference of its image."""
    for round_ in rounds:
        for image_id, caption in round_.captions.items():
            for reference in round_.references[image_id]:
                yield caption, reference


def influences_by_image(statistics: Sequence[Statistics], ids: Sequence[int]) -> dict[str, dict[int, float]]:
    """The influence of each image on corpus scores (`SUMS`), by metric and image id; empty for a single image.

    With these, BLEU and METEOR can be tested like means over images.
    """
    if len(ids) < 2:
        return {}
    influences = {}
    for part in statistics:
        if set(part.metric.names) <= set(SUMS):
            by_metric = pseudo_values(part.values, part.metric.score).T
            for metric, values in zip(part.metric.names, by_metric, strict=True):
                influences[metric] = dict(zip(ids, values.tolist(), strict=True))
    return influences


def _corpus(round_: Round, images: Sequence[int] | None = None) -> Corpus:
    """The n-gram counts of a round, for all of its images or for `images`."""
    references = round_.references
    if images is not None:
        references = {image_id: references[image_id] for image_id in images}
    return Corpus.of_texts(references, round_.captions)


def _cider(corpus: Corpus) -> Statistics:
    """CIDEr-D with the document frequencies of the corpus."""
    return mean_of("CIDEr-D", cider_d(corpus, corpus.frequencies()))


def _by_domain(ids: list[int], domains: Mapping[int, str]) -> dict[str, list[int]]:
    """The image ids of each domain; domains are sorted by name."""
    images_of: dict[str, list[int]] = {}
    for image_id in ids:
        if image_id in domains:
            images_of.setdefault(domains[image_id], []).append(image_id)
    return dict(sorted(images_of.items()))
