"""Score a system's captions: every metric, per image, over the split and per domain; with intervals and a signature."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
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
_KEPT_ANSWERS: Final = 200_000  # of METEOR: systems often say the same; they take 80 MB
NOT_ASKED_FOR: Final = {
    "METEOR": "METEOR was not asked for",
    "SPICE": "not run: its models are not installed (bench prefetch spice)",
}

Tokens = dict[int, list[str]]
Ask = Callable[[Mapping[int, Sequence[str]], Mapping[int, str]], Array]
Answered = dict[tuple[str, str], Array]


_OF_ONE_IMAGE: Final = Quantity(None, "of one image: CIDEr-D needs document frequencies of several")


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of one system on one split.

    `scores[domain][metric]` has `OVERALL` and every metric of `results.metrics.METRICS`, and each domain's CIDEr-D with
    the other document frequencies too (`harness.metrics.contract.OTHER_CIDER_D`); one that could not be computed is
    NULL with a reason and has no entry in `per_image[metric][image_id]`. `seconds` is the wall-clock time spent.
    `domains` holds the images of each domain. `statistics` are the input of significance tests: for `OVERALL` a row for
    each of `ids`, for each domain a row for each of its images; empty without any score. `influences[metric][image_id]`
    are those of `influences_by_image` on the scores of `OVERALL`; empty for a single image.
    """

    scores: dict[str, dict[str, Quantity]]
    per_image: dict[str, dict[int, float]]
    seconds: float
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
            metric: replace(quantity, low=found[metric][0], high=found[metric][1]) if metric in found else quantity
            for metric, quantity in quantities.items()
        }
    return replace(evaluation, scores=scores)


class Evaluator:
    """Scores systems one after another, or several at a time in threads; use it as a context manager.

    METEOR takes most of the time, and is started on first use, or by `warm_up`. References are tokenised once. Without
    a working Java METEOR is NULL; with the Java tokenizer every metric is.

    Args:
        settings: what scores depend on.
        meteors: how many METEOR processes there are at most; `evaluate` uses one, so that many threads may call it.
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
        self._answered: Answered = {}

    def warm_up(self, references: Sequence[str], captions: Sequence[str]) -> None:
        """Start METEOR in the background for these references and for captions of these words, as written.

        `evaluate` reports a Java that does not work.
        """
        if "METEOR" in self.settings.wanted:
            for session in self._meteors:
                session.prepare(references, captions)

    def expect(self, captions: Iterable[str]) -> None:
        """Name captions, as written, that will be scored, so that METEOR is started once for all of their words."""
        if "METEOR" in self.settings.wanted and self._meteor_language == ENGLISH:
            words = words_of(tokenize_ptb([*dict.fromkeys(captions)]))
            for session in self._meteors:
                session.expect(words)

    def evaluate(
        self,
        references: Mapping[int, Sequence[str]],
        candidates: Mapping[int, str],
        domains: Mapping[int, str] | None = None,
        *,
        others: Mapping[str, Mapping[int, float]] | None = None,
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
        require_same_images(references, candidates)
        if not candidates:
            raise BenchError("there is no caption to score")
        if bare := [str(image_id) for image_id, texts in sorted(references.items()) if not texts]:
            raise BenchError(named(bare, "with no reference caption"))
        return self.evaluate_rounds(references, candidates, domains, lambda *tokens: [Round(*tokens)], others=others)

    def evaluate_rounds(
        self,
        references: Mapping[int, Sequence[str]],
        candidates: Mapping[int, str],
        domains: Mapping[int, str] | None,
        make_rounds: Callable[[Tokens, dict[int, str]], Sequence[Round]],
        *,
        without: Mapping[str, str] | None = None,
        others: Mapping[str, Mapping[int, float]] | None = None,
    ) -> Evaluation:
        """The mean over rounds of scoring, built from tokenised references and candidates; arguments as in `evaluate`.

        An image's score is the mean over its rounds. `without` maps METEOR or SPICE to the reason to leave it out.
        """
        if domains and OVERALL in domains.values():
            raise BenchError(f"a domain may not be called {OVERALL!r}: that names the scores over all images")
        started = time.perf_counter()
        try:
            tokenized_references = self._tokenize_references(references)
            said = {image_id: [candidates[image_id]] for image_id in references if image_id in candidates}
            captions = {image_id: texts[0] for image_id, texts in tokenize_by_image(said, self._tokenize).items()}
        except JavaError as error:
            missing = dict.fromkeys(metric_names(), Quantity(None, str(error)))
            named = (OVERALL, *_by_domain(list(references), domains or {}))
            seconds = time.perf_counter() - started
            return Evaluation({group: dict(missing) for group in named}, {}, seconds, tuple(references))
        rounds = make_rounds(tokenized_references, captions)
        ids = list(rounds[0].references)
        groups = {OVERALL: ids, **_by_domain(ids, domains or {})}
        statistics, reasons = self._statistics(rounds, without or {})
        for metric, of in (others or {}).items():
            statistics += (mean_of(metric, np.array([of[image_id] for image_id in ids])),)
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
        scores = {group: self._scores(parts, reasons) for group, parts in by_group.items()}
        for group, members in groups.items():
            scores[group] |= dict.fromkeys(self._without_frequencies(group, len(members), len(ids)), _OF_ONE_IMAGE)
        return Evaluation(
            scores,
            {
                metric: per_image[metric]
                for metric in dict.fromkeys((*metric_names(), *per_image))
                if metric in per_image
            },
            time.perf_counter() - started,
            tuple(ids),
            by_group,
            {group: members for group, members in groups.items() if group != OVERALL},
            influences_by_image(statistics, ids),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._meteors:
            session.close()

    def _statistics(
        self, rounds: Sequence[Round], without: Mapping[str, str]
    ) -> tuple[tuple[Statistics, ...], dict[str, str]]:
        """Statistics of every metric that could be computed, and the reason for each that could not."""
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(self._java_statistics, rounds, without)
            by_round = [round_statistics(round_) for round_ in rounds]
            with_java, reasons = pending.result()
        by_metric = zip(*by_round, strict=True)
        return (*(mean_of_rounds(of_metric) for of_metric in by_metric), *with_java), reasons

    def _with_both_frequencies(
        self, parts: Sequence[Statistics], rounds: Sequence[Round], members: Sequence[int]
    ) -> tuple[Statistics, ...]:
        """A domain's statistics, CIDEr-D with the chosen document frequencies, and last with the others."""
        shared = next(part for part in parts if part.metric.names == ("CIDEr-D",))
        alone = mean_of_rounds([_cider(_corpus(each, members)) for each in rounds])
        chosen, other = (shared, alone) if self.settings.domain_df == "all" else (alone, shared)
        kept = (chosen if part is shared else part for part in parts)
        return (*kept, replace(other, metric=replace(other.metric, names=(OTHER_CIDER_D[self.settings.domain_df],))))

    def _without_frequencies(self, group: str, images: int, of: int) -> list[str]:
        """The names of CIDEr-D whose document frequencies are those of a single image: it is 0 by definition."""
        other = OTHER_CIDER_D[self.settings.domain_df]
        if group == OVERALL:
            return ["CIDEr-D"] if of == 1 else []
        if of == 1:
            return ["CIDEr-D", other]
        alone = other if self.settings.domain_df == "all" else "CIDEr-D"
        return [alone] if images == 1 else []

    def _scores(self, statistics: Sequence[Statistics], reasons: Mapping[str, str]) -> dict[str, Quantity]:
        values = {name: Quantity(value) for each in statistics for name, value in each.corpus().items()}
        return {metric: values.get(metric) or Quantity(None, reasons[metric]) for metric in metric_names()} | values

    def _tokenize(self, captions: Sequence[str]) -> list[str]:
        name = self.settings.tokenizer
        if name == "python":
            return tokenize_ptb(captions)
        if name == "java":
            return tokenize_java(captions, java=self._find_java(), timeout_s=TIMEOUT_S)
        return tokenize_words(captions, name)

    def _tokenize_references(self, references: Mapping[int, Sequence[str]]) -> Tokens:
        """Tokenised references, from the cache if the same ones were tokenised before."""
        content = json.dumps([(image_id, list(texts)) for image_id, texts in references.items()])
        key = hashlib.sha256(content.encode()).hexdigest()
        with self._lock:
            if key not in self._references:
                self._references[key] = tokenize_by_image(references, self._tokenize)
            return self._references[key]

    def _java_statistics(
        self, rounds: Sequence[Round], without: Mapping[str, str]
    ) -> tuple[list[Statistics], dict[str, str]]:
        """Statistics of the metrics that need Java, and reasons for missing ones; restarts METEOR after a failure."""
        found: list[Statistics] = []
        reasons = {**NOT_ASKED_FOR, **self.settings.lacking, **without}
        wanted = self.settings.wanted - without.keys()
        if not self.settings.meteor:
            reasons["METEOR"] = NOT_ASKED_FOR["METEOR"]
        if "METEOR" in wanted:
            language = self._meteor_language
            session = self._idle_meteors.get()
            try:
                answers = meteor_answers(rounds, session.statistics, self._answered, language)
                found.append(mean_of_rounds([meteor(each, language) for each in answers]))
            except JavaError as error:
                reasons["METEOR"] = str(error)
            finally:
                self._idle_meteors.put(session)
        if "SPICE" in wanted:
            try:
                java = self._find_java()
                scores = [run_spice(each.references, each.captions, java=java) for each in rounds]
                found.append(mean_of_rounds([mean_of("SPICE", each) for each in scores]))
            except JavaError as error:
                reasons["SPICE"] = str(error)
        return found, reasons


@dataclass(frozen=True, slots=True)
class Report:
    """An evaluation with 95 % intervals over images, and its signature."""

    signature: str
    evaluation: Evaluation

    def quantity(self, metric: str, domain: str = OVERALL) -> Quantity:
        """A score, or the reason why it is missing."""
        return self.evaluation.scores[domain][metric]

    def to_json(self, labels: Mapping[int, str] | None = None) -> dict[str, Any]:
        """The content of scores.json: fractions, null for what was not measured, and the reasons.

        `labels` are the ids as the references have them, where these are texts.
        """
        labels = labels or {}
        domains = {
            domain: {metric: found.value for metric, found in self.evaluation.scores[domain].items()}
            | {"n": len(members), "intervals": self._intervals(domain)}
            for domain, members in self.evaluation.domains.items()
        }
        missing = {metric: self.quantity(metric) for metric in metric_names()}
        return {
            "signature": self.signature,
            "scores": {metric: found.value for metric, found in self.evaluation.scores[OVERALL].items()},
            "reasons": {metric: found.reason for metric, found in missing.items() if found.value is None},
            "n": len(self.evaluation.ids),
            "domains": domains,
            "intervals": self._intervals(OVERALL),
            "bootstrap": {"resamples": RESAMPLES, "seed": SEED, "level": 0.95},
            "per_image": _with_labels(self.evaluation.per_image, labels),
            "influences": _with_labels(self.evaluation.influences, labels),
        }

    def image_scores(self, domain: str = OVERALL) -> ImageScores:
        """The scores over all images or over a domain's, with the numbers of single images that tests need."""
        evaluation = self.evaluation
        per_image, influences = evaluation.per_image, evaluation.influences
        if domain != OVERALL:
            ids, statistics = evaluation.domains[domain], evaluation.statistics[domain]
            influences = influences_by_image(statistics, ids)
            per_image = {
                metric: dict(zip(ids, values.tolist(), strict=True))
                for of_metric in statistics
                for metric, values in of_metric.per_image().items()
            }
        scores = evaluation.scores[domain]
        return ImageScores(
            signature=self.signature,
            scores={metric: score.value for metric, score in scores.items() if score.value is not None},
            reasons={metric: score.reason or "" for metric, score in scores.items() if score.value is None},
            per_image=per_image,
            influences=influences,
        )

    def _intervals(self, domain: str) -> dict[str, list[float | None]]:
        scores = self.evaluation.scores[domain]
        return {metric: [found.low, found.high] for metric, found in scores.items() if found.low is not None}


def _with_labels(numbers: Mapping[str, Mapping[int, float]], labels: Mapping[int, str]) -> dict[str, dict[str, float]]:
    """Numbers by metric and image, the images as the references name them."""
    return {
        metric: {labels.get(image_id, str(image_id)): value for image_id, value in by_image.items()}
        for metric, by_image in numbers.items()
    }


@dataclass(frozen=True, slots=True)
class Round:
    """One tokenised caption per image, and its tokenised references, by image id; scores of several are averaged.

    A human caption can only be scored against the other references of its image: for comparison, models are so too.
    """

    references: dict[int, list[str]]
    captions: dict[int, str]


def round_statistics(round_: Round) -> list[Statistics]:
    """The statistics of every metric that needs no Java: a new one is called here."""
    corpus = _corpus(round_)
    return [
        bleu(corpus),
        rouge_l(round_.references, round_.captions),
        _cider(corpus),
    ]


def mean_of_rounds(rounds: Sequence[Statistics]) -> Statistics:
    """The statistics of several rounds on the same images, concatenated; their score is the mean over rounds."""
    if len(rounds) == 1:
        return rounds[0]
    metric = rounds[0].metric
    values = np.concatenate([each.values for each in rounds], axis=1)
    return Statistics(replace(metric, score=partial(_mean_score, metric.score, len(rounds))), values)


def _mean_score(score: Callable[[Array], Array], rounds: int, totals: Array) -> Array:
    by_round = score(totals.reshape(*totals.shape[:-1], rounds, -1))
    mean: Array = by_round.mean(axis=-2)
    return mean


def held_out_rounds(references: Mapping[int, Sequence[str]], captions: Mapping[int, str] | None = None) -> list[Round]:
    """One round for each reference of the image with most; round k leaves out reference k modulo the image's number.

    Scores `captions`, or without them the references left out. Images with a single reference are in no round.
    """
    several = {image_id: texts for image_id, texts in references.items() if len(texts) > 1}
    rounds = []
    for number in range(max(map(len, several.values()), default=0)):
        others, said = {}, {}
        for image_id, texts in several.items():
            out = number % len(texts)
            others[image_id] = [*texts[:out], *texts[out + 1 :]]
            said[image_id] = texts[out] if captions is None else captions[image_id]
        rounds.append(Round(others, said))
    return rounds


def meteor_answers(
    rounds: Sequence[Round], ask: Ask, known: Answered, language: MeteorLanguage = ENGLISH
) -> list[Array]:
    """METEOR's (N, 23) statistics of every round; `ask` gets every caption and reference once.

    METEOR takes the best reference, on a tie the first. `known` are answers of calls before, and takes this one's.
    """
    pairs = dict.fromkeys(
        (caption, text)
        for each in rounds
        for image_id, caption in each.captions.items()
        for text in each.references[image_id]
    )
    by_pair = {pair: answer for pair in pairs if (answer := known.get(pair)) is not None}
    new = [pair for pair in pairs if pair not in by_pair]
    if new:
        asked = ask(
            {number: [text] for number, (_, text) in enumerate(new)},
            {number: caption for number, (caption, _) in enumerate(new)},
        )
        by_pair.update(zip(new, asked, strict=True))
    if len(known) > _KEPT_ANSWERS:
        known.clear()
    known.update(by_pair)
    answers = np.stack([by_pair[pair] for pair in pairs])
    numbers = {pair: number for number, pair in enumerate(pairs)}
    scores = meteor(answers, language).per_image()["METEOR"]

    def best(caption: str, texts: Sequence[str]) -> int:
        return max((numbers[caption, text] for text in texts), key=scores.__getitem__)

    return [
        answers[[best(caption, each.references[image_id]) for image_id, caption in each.captions.items()]]
        for each in rounds
    ]


def influences_by_image(statistics: Sequence[Statistics], ids: Sequence[int]) -> dict[str, dict[int, float]]:
    """Those on `SUMS`, by metric and id, to test BLEU and METEOR over images as means are; one image has none."""
    if len(ids) < 2:
        return {}
    return {
        metric: dict(zip(ids, values.tolist(), strict=True))
        for each in statistics
        if set(each.metric.names) <= set(SUMS)
        for metric, values in zip(each.metric.names, pseudo_values(each.values, each.metric.score).T, strict=True)
    }


def _corpus(round_: Round, members: Sequence[int] | None = None) -> Corpus:
    """Statistics of all images of a round, or of some."""
    references = round_.references
    return Corpus.of_texts(references if members is None else {i: references[i] for i in members}, round_.captions)


def _cider(corpus: Corpus) -> Statistics:
    return mean_of("CIDEr-D", cider_d(corpus, corpus.frequencies()))


def _by_domain(ids: list[int], domains: Mapping[int, str]) -> dict[str, list[int]]:
    groups: dict[str, list[int]] = {}
    for image_id in ids:
        if image_id in domains:
            groups.setdefault(domains[image_id], []).append(image_id)
    return dict(sorted(groups.items()))
