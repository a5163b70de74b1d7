"""Score captions of any system against references, with warnings about unusual captions."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Self

from harness.config.evaluation import TokenizerName
from harness.data.formats.look import copied_references, odd_captions, refuse_unspaced, without_shared_words
from harness.data.formats.predictions import POSITIONS, Predictions, check_predictions
from harness.data.formats.references import References, first_images
from harness.metrics.evaluator import Evaluator, Report, with_intervals
from harness.metrics.signature import evaluation_signature


@dataclass(frozen=True, slots=True)
class MatchedCaptions:
    """Captions and references of the images that are scored.

    Attributes:
        domains: by image id, where known.
        name: of the references.
        n_requested: number of images that were to be scored; captions may exist for a subset of them.
        by_position: whether captions were matched to images by their order.
        matched_by: the matched fields of predictions and references, such as "image_id = cocoid".
        limit: number of first images to which scoring was limited; None for all.
        notes: captions and images that were left out, and how images were matched.
        doubts: reasons why these may not be captions.
    """

    references: dict[int, tuple[str, ...]]
    captions: dict[int, str]
    domains: dict[int, str]
    name: str
    n_requested: int
    by_position: bool
    matched_by: str
    limit: int | None
    notes: tuple[str, ...]
    doubts: tuple[str, ...]

    def only(self, image_ids: Collection[int], note: str) -> Self:
        """Those of these images, in the same order; `note` says which others are left out."""
        return replace(
            self,
            references={image_id: texts for image_id, texts in self.references.items() if image_id in image_ids},
            captions={image_id: text for image_id, text in self.captions.items() if image_id in image_ids},
            domains={image_id: domain for image_id, domain in self.domains.items() if image_id in image_ids},
            notes=(*self.notes, note),
        )


def match_captions(
    predictions: Predictions,
    references: References,
    *,
    allow_subset: bool,
    limit: int | None = None,
    tokenizer: TokenizerName = "python",
) -> MatchedCaptions:
    """The captions and references of all images that have both.

    Args:
        allow_subset: whether images may lack a caption; otherwise these raise a BenchError.
        limit: use only this many first images of the references; captions of others are ignored.
        tokenizer: used to check whether captions share words with their references.
    """
    if limit is not None:
        beyond_limit = list(references.captions)[limit:]
        references = first_images(references, limit)
        predictions = predictions.without(beyond_limit)
    matched, captions, left_out = check_predictions(predictions, references, allow_subset=allow_subset)
    positions = [POSITIONS] if predictions.by_position else []
    doubts = odd_captions(captions)
    doubts += [copied_references(captions, matched), without_shared_words(captions, matched, tokenizer)]
    return MatchedCaptions(
        matched,
        captions,
        {image_id: domain for image_id, domain in references.domains.items() if image_id in matched},
        references.name,
        len(references.captions),
        predictions.by_position,
        _matched_by(predictions, references),
        limit,
        (*references.notes, *positions, *(f"left out: {note}" for note in left_out)),
        tuple(filter(None, doubts)),
    )


def _matched_by(predictions: Predictions, references: References) -> str:
    """The fields that name an image in both files, such as "image_id = cocoid"."""
    if predictions.id_field is None:
        return "position"
    field = predictions.id_field or "key"
    if predictions.are_files:
        return f"{field} = file name"
    return f"{field} = {references.id_field or 'id'}"


def score_captions(
    matched: MatchedCaptions,
    evaluator: Evaluator,
    external_scores: Mapping[str, Mapping[int, float]] | None = None,
) -> Report:
    """Score captions with all metrics, intervals and a signature; `external_scores` as in `Evaluator.evaluate`."""
    texts = (text for texts in matched.references.values() for text in texts)
    refuse_unspaced(texts, matched.name, evaluator.settings.tokenizer)
    evaluation = evaluator.evaluate(
        matched.references, matched.captions, matched.domains, external_scores=external_scores
    )
    signature = evaluation_signature(
        evaluator.settings,
        matched.references,
        name=matched.name,
        n_requested=matched.n_requested,
        domains=evaluation.domains,
        by_position=matched.by_position,
        limit=matched.limit,
    )
    return Report(signature, with_intervals(evaluation))
