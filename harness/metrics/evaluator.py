"""Scores of a system's captions: every metric, per image, over the split and per domain."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from harness.errors import BenchError
from harness.metrics.image_ids import require_same_images
from harness.metrics.java import JavaError, find_java
from harness.metrics.meteor import Array, corpus_score, segment_scores
from harness.metrics.meteor_process import MeteorProcess
from harness.metrics.scorers import BLEU_ORDER, Bleu, cider_d, rouge_l
from harness.metrics.tokenizer import TOKENIZER, tokenize_by_image
from results.records import Quantity

METRICS: Final = ("BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D")
"""Every metric, in the order of display. All are fractions, as coco-caption computes them."""

DF: Final = "split"
"""Where CIDEr-D's document frequencies come from, for signatures: all images of the split, in every domain's score too
(as the nocaps server computes it). CIDEr-D values over different sets of images are not comparable."""

OVERALL: Final = "overall"
"""Key of the scores over all images."""

Tokens = dict[int, list[str]]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Scores of one system on one split.

    `scores[domain][metric]` has `OVERALL` and every metric of `METRICS`; one that could not be computed is NULL with
    the reason and has no entry in `per_image[metric][image_id]`. `seconds` is the time spent by step.
    """

    scores: dict[str, dict[str, Quantity]]
    per_image: dict[str, dict[int, float]]
    tokenizer: str
    seconds: dict[str, float]


class Evaluator:
    """Scores systems one after another with one METEOR process; use it as a context manager.

    Args:
        java: runtime to use; found by `find_java` if not given.
        timeout_s: longest time to wait for the tokenizer, and for each answer of METEOR.

    Nothing is started before it is needed; `warm_up` hides METEOR's start behind other work. References are tokenised
    once. Without a working Java every metric is NULL, since none is defined without the tokenizer; if only METEOR
    fails, only METEOR is.
    """

    def __init__(self, java: Path | None = None, *, timeout_s: float = 180.0) -> None:
        self._asked_java = java
        self._timeout_s = timeout_s
        self._java: Path | None = None
        self._meteor: MeteorProcess | None = None
        self._references: dict[str, Tokens] = {}

    def warm_up(self) -> None:
        """Start METEOR in the background. A Java that does not work is reported by `evaluate`, not here."""
        try:
            self._start_meteor()
        except JavaError:
            return

    def evaluate(
        self,
        references: Mapping[int, Sequence[str]],
        candidates: Mapping[int, str],
        domains: Mapping[int, str] | None = None,
    ) -> Evaluation:
        """Score one caption per image against its references, all as written (tokenised here).

        Args:
            references: by image id, at least one for each.
            candidates: by image id, the same ids; an empty caption is allowed and scores 0.
            domains: image ids to domain names; images without one count in the overall scores only. BLEU and METEOR
                are corpus scores over a domain's images, ROUGE-L and CIDEr-D means of the per-image values.

        Raises:
            BenchError: missing or extra images, an image without references, or nothing to score.
        """
        _check(references, candidates, domains)
        ids = sorted(candidates)
        groups = {OVERALL: ids, **_by_domain(ids, domains or {})}
        seconds: dict[str, float] = {}
        try:
            with _timed(seconds, "tokenizer"):
                java = self._find_java()
                tokenized_references = self._tokenize_references(references, java)
                tokenized = tokenize_by_image(
                    {image_id: [candidates[image_id]] for image_id in ids}, java=java, timeout_s=self._timeout_s
                )
        except JavaError as error:
            missing = dict.fromkeys(METRICS, Quantity(None, str(error)))
            return Evaluation({name: dict(missing) for name in groups}, {}, TOKENIZER, seconds)
        captions = {image_id: texts[0] for image_id, texts in tokenized.items()}
        return self._score(tokenized_references, captions, groups, seconds)

    def close(self) -> None:
        """End METEOR's process; safe to call twice."""
        if self._meteor is not None:
            self._meteor.close()
            self._meteor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _score(
        self, references: Tokens, captions: dict[int, str], groups: dict[str, list[int]], seconds: dict[str, float]
    ) -> Evaluation:
        with ThreadPoolExecutor(1) as pool:
            pending = pool.submit(self._meteor_statistics, references, captions, seconds)
            with _timed(seconds, "BLEU"):
                bleu = Bleu(references, captions)
            with _timed(seconds, "ROUGE-L"):
                means = {"ROUGE-L": rouge_l(references, captions)}
            with _timed(seconds, "CIDEr-D"):
                means["CIDEr-D"] = cider_d(references, captions)
            meteor = pending.result()

        ids = groups[OVERALL]
        bleu_per_image = bleu.score(ids)[1]
        per_image = {f"BLEU-{k + 1}": dict(zip(ids, bleu_per_image[k], strict=True)) for k in range(BLEU_ORDER)}
        if not isinstance(meteor, JavaError):
            per_image["METEOR"] = dict(zip(ids, segment_scores(meteor).tolist(), strict=True))
        per_image |= means

        rows = {image_id: row for row, image_id in enumerate(ids)}
        scores = {}
        for group, members in groups.items():
            values = {f"BLEU-{k + 1}": Quantity(value) for k, value in enumerate(bleu.score(members)[0])}
            for metric, by_image in means.items():
                values[metric] = Quantity(float(np.mean([by_image[image_id] for image_id in members])))
            if isinstance(meteor, JavaError):
                values["METEOR"] = Quantity(None, str(meteor))
            else:
                values["METEOR"] = Quantity(corpus_score(meteor[[rows[image_id] for image_id in members]]))
            scores[group] = {metric: values[metric] for metric in METRICS}
        return Evaluation(scores, per_image, TOKENIZER, seconds)

    def _find_java(self) -> Path:
        if self._java is None:
            self._java = find_java(self._asked_java)
        return self._java

    def _tokenize_references(self, references: Mapping[int, Sequence[str]], java: Path) -> Tokens:
        """From the cache when the same references were tokenised before."""
        content = json.dumps([(image_id, list(references[image_id])) for image_id in sorted(references)])
        key = hashlib.sha256(content.encode()).hexdigest()
        if key not in self._references:
            self._references[key] = tokenize_by_image(references, java=java, timeout_s=self._timeout_s)
        return self._references[key]

    def _start_meteor(self) -> MeteorProcess:
        if self._meteor is None:
            self._meteor = MeteorProcess(self._find_java(), timeout_s=self._timeout_s)
        return self._meteor

    def _meteor_statistics(
        self, references: Tokens, captions: dict[int, str], seconds: dict[str, float]
    ) -> Array | JavaError:
        """(N, 23) statistics in the captions' order, or why there are none; the next system gets a new process then."""
        with _timed(seconds, "METEOR"):
            try:
                return self._start_meteor().statistics(references, captions)
            except JavaError as error:
                self.close()
                return error


def _check(
    references: Mapping[int, Sequence[str]], candidates: Mapping[int, str], domains: Mapping[int, str] | None
) -> None:
    require_same_images(references, candidates)
    if not candidates:
        raise BenchError("there is no caption to score")
    bare = sorted(image_id for image_id, texts in references.items() if not texts)
    if bare:
        shown = ", ".join(map(str, bare[:10]))
        raise BenchError(f"{len(bare)} images have no reference caption ({shown}{', ...' if len(bare) > 10 else ''})")
    if domains and OVERALL in domains.values():
        raise BenchError(f"a domain may not be called {OVERALL!r}: that names the scores over all images")


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
        seconds[step] = time.perf_counter() - started
