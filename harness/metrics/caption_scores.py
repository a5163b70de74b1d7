"""Score captions of any system against references, with what a reader should know about them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

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
        of: number of images that were to be scored, of which a subset may be.
        matched_by: which field of the predictions names the images, by what of the references.
        limit: how many of the first images were to be scored; None for all.
        notes: what was left out, and how images were found.
        doubts: why these may not be captions.
    """

    references: dict[int, tuple[str, ...]]
    captions: dict[int, str]
    domains: dict[int, str]
    name: str
    of: int
    by_position: bool
    matched_by: str
    limit: int | None
    notes: tuple[str, ...]
    doubts: tuple[str, ...]


def match_captions(
    predictions: Predictions,
    references: References,
    *,
    allow_subset: bool,
    limit: int | None = None,
    tokenizer: TokenizerName = "python",
) -> MatchedCaptions:
    """The images that have both; BenchError where some have not and `allow_subset` is not given.

    With a limit, of the first images of the references alone, whatever captions of the others there are. The tokenizer
    tells whether captions share words with their references.
    """
    if limit is not None:
        further = list(references.captions)[limit:]
        references = first_images(references, limit)
        predictions = predictions.without(further)
    chosen, captions, left_out = check_predictions(predictions, references, allow_subset=allow_subset)
    positions = [POSITIONS] if predictions.by_position else []
    doubts = odd_captions(captions)
    doubts += [copied_references(captions, chosen), without_shared_words(captions, chosen, tokenizer)]
    return MatchedCaptions(
        chosen,
        captions,
        {image_id: domain for image_id, domain in references.domains.items() if image_id in chosen},
        references.name,
        len(references.captions),
        predictions.by_position,
        _matched_by(predictions, references),
        limit,
        (*references.notes, *positions, *(f"left out: {note}" for note in left_out)),
        tuple(filter(None, doubts)),
    )


def _matched_by(predictions: Predictions, references: References) -> str:
    """As "image_id = cocoid": what names an image in both files."""
    if predictions.id_field is None:
        return "position"
    field = predictions.id_field or "key"
    if predictions.are_files:
        return f"{field} = file name"
    return f"{field} = {references.id_field or 'id'}"


def score_captions(
    matched: MatchedCaptions,
    evaluator: Evaluator,
    others: Mapping[str, Mapping[int, float]] | None = None,
) -> Report:
    """Every metric with its interval, and the signature; `others` are scores that were computed elsewhere."""
    texts = (text for texts in matched.references.values() for text in texts)
    refuse_unspaced(texts, matched.name, evaluator.settings.tokenizer)
    evaluation = evaluator.evaluate(matched.references, matched.captions, matched.domains, others=others)
    signature = evaluation_signature(
        evaluator.settings,
        matched.references,
        name=matched.name,
        of=matched.of,
        domains=evaluation.domains,
        by_position=matched.by_position,
        limit=matched.limit,
    )
    return Report(signature, with_intervals(evaluation))
