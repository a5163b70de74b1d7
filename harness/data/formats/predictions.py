"""Read captions of any system, and match them with the images of the references.

`harness.data.formats.prediction_formats` has the forms, and `match` says which image each caption is of. A file in
which several fields hold different texts is refused; `--caption-field NAME` chooses.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Self

from harness.data.formats.ids import WHOLE_NUMBER, named
from harness.data.formats.match import BY_FIELDS, KEY, ImageNames, MatchOptions, Row, match_rows
from harness.data.formats.prediction_formats import FORMS, Entry, read_entries, scalars, text_of
from harness.data.formats.references import References, image_name
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.json_io import read_json_or_lines

_NO_TEXT: Final = "whose caption is no text"
_TWICE: Final = "predicted more than once"
_NO_IMAGE: Final = f"without a {WHOLE_NUMBER} or a file name as their image"
EMPTY: Final = "with an empty caption"
POSITIONS: Final = "images are taken by their positions in the list of references (--by-position)"


@dataclass(frozen=True, slots=True)
class Predictions:
    """Captions by image id, and the images of each problem.

    `id_field` is the field that names the images, None if positions do; `are_files` as of `Match`.
    """

    captions: dict[int, str]
    problems: dict[str, list[str]]
    id_field: str | None = KEY
    are_files: bool = False

    @property
    def by_position(self) -> bool:
        return self.id_field is None

    def without(self, image_ids: Collection[int]) -> Self:
        """The captions and problems of all images except these."""
        removed = set(image_ids)
        removed_names = set(map(str, image_ids))
        captions = {image_id: caption for image_id, caption in self.captions.items() if image_id not in removed}
        problems = {}
        for problem, images in self.problems.items():
            remaining = [image for image in images if image not in removed_names]
            if remaining:
                problems[problem] = remaining
        return replace(self, captions=captions, problems=problems)


def read_predictions(
    path: Path,
    order: Iterable[int] = (),
    files: Mapping[int, str] | None = None,
    *,
    labels: Mapping[int, str] | None = None,
    other_files: Collection[str] = (),
    options: MatchOptions = BY_FIELDS,
) -> Predictions:
    """Read one caption of each image, in any of the forms above.

    Args:
        wanted: the ids of the images to caption, in the references' order.
        files, labels: file names, and ids that are texts, by these.
        other_files: paths of images that are not wanted.
        options: how images are named, where the user says it.

    Raises:
        BenchError: the file cannot be read, has another form, or nothing in it names the images. Faulty entries are in
            `problems`.
    """
    entries = read_entries(path, options.caption_field, options.format_name)
    return _predictions(entries, ImageNames(order, files, labels, other_files), path, options)


def predictions_of(
    captions: Mapping[Any, Any], source: Path, references: References, options: MatchOptions = BY_FIELDS
) -> Predictions:
    """Captions in memory, by id or file name, as `read_predictions` reads those of a file; errors name `source`."""
    entries = [Entry({KEY: image_name(key, source)}, caption) for key, caption in captions.items()]
    names = ImageNames(references.captions, references.files, references.labels, references.other_files)
    return _predictions(entries, names, source, options)


def _predictions(entries: Sequence[Entry], names: ImageNames, path: Path, options: MatchOptions) -> Predictions:
    """Captions of the entries that name an image and have one text, and the problems of all others."""
    _refuse_names_in_captions(entries, names, path)
    match = match_rows([entry.fields for entry in entries], names, path, options)
    problems: dict[str, list[str]] = {}
    captions: dict[int, str] = {}
    texts: dict[int, set[str | None]] = {}
    for image_id, entry in zip(match.ids, entries, strict=True):
        if image_id is not None:
            texts.setdefault(image_id, set()).add(text_of(entry.caption))
    for index, (image_id, entry) in enumerate(zip(match.ids, entries, strict=True)):
        caption = text_of(entry.caption)
        if image_id is None:
            problems.setdefault(_NO_IMAGE, []).append(f"entry {index}")
        elif len(texts[image_id]) > 1:
            problems.setdefault(_TWICE, []).append(str(image_id))
        elif caption is None:
            problems.setdefault(_NO_TEXT, []).append(str(image_id))
        elif not caption.strip():
            problems.setdefault(EMPTY, []).append(str(image_id))
        else:
            captions[image_id] = caption
    problems = {problem: list(dict.fromkeys(images)) for problem, images in problems.items()}
    return Predictions(captions, problems, match.field, match.are_files)


def _refuse_names_in_captions(entries: Sequence[Entry], names: ImageNames, path: Path) -> None:
    """BenchError if most captions begin with their images' names, which would be scored as words."""
    matches = [re.match(r"([^\t,:;|#]+)[\t,:;|#]", str(entry.caption)) for entry in entries if not entry.fields]
    texts = [start[1] for start in matches if start]
    named_ids = {image_id for text in texts for image_id in (names.of_name(text), names.of_number(text))} - {None}
    if len(named_ids) > 1 and 2 * len(named_ids) > len(entries):
        raise BenchError(
            f"{path}: its lines begin with names of images, such as {shortened(str(entries[0].caption), 40)}",
            f"give a table with a line of column names, such as image,caption; or {FORMS.removeprefix('give ')}",
        )


def read_caption_sets(
    path: Path,
    order: Iterable[int] = (),
    files: Mapping[int, str] | None = None,
    *,
    labels: Mapping[int, str] | None = None,
    options: MatchOptions = BY_FIELDS,
) -> dict[int, list[str]]:
    """The captions of each image, several entries or a list of them, in the file's order; BenchError as above.

    `options.id_field` may be of another file: it counts where this one has it, too.
    """
    entries = read_entries(path, options.caption_field, options.format_name)
    if not any(options.id_field in entry.fields for entry in entries):
        options = replace(options, id_field=None)
    names = ImageNames(order, files, labels)
    match = match_rows([entry.fields for entry in entries], names, path, options, several=True)
    sets: dict[int, list[str]] = {}
    for index, (image_id, entry) in enumerate(zip(match.ids, entries, strict=True)):
        captions = entry.caption if isinstance(entry.caption, list) else [entry.caption]
        texts = [text_of(caption) for caption in captions]
        if image_id is None or None in texts:
            raise BenchError(f"{path}: entry {index} has no id of an image or no caption", FORMS)
        sets.setdefault(image_id, []).extend(text for text in texts if text is not None)
    return sets


def read_scores(path: Path, name: str) -> list[tuple[Row, float]]:
    """A number for each caption, and the fields that may name its image, in the file's order.

    A list of numbers, numbers by image, objects of an image and of `name`, any of these a line, or what capevalkit
    writes as `per_item`. BenchError if the file cannot be read or has another form, or no number of this name.
    """
    content = read_json_or_lines(path)
    content = content.get("per_item", content) if isinstance(content, dict) else content
    values = content if isinstance(content, list) else [content]
    entries = [({KEY: key}, value) for key, value in content.items()] if isinstance(content, dict) else None
    scores = []
    for index, (fields, value) in enumerate(entries or [({}, value) for value in values]):
        row: Row = {**fields, **scalars(value, without=name)} if isinstance(value, dict) else fields
        score = value.get(name) if isinstance(value, dict) else value
        if not isinstance(score, int | float) or isinstance(score, bool) or not abs(score) < 1e300:  # a float holds it
            raise BenchError(
                f"{path}: entry {index} has no number {shortened(name)}: it is {shortened(str(value), 60)}",
                'give {"1": 0.5} by image, or [0.5, 0.7] in the order of the captions with --by-position',
            )
        scores.append((row, float(score)))
    return scores


def scores_by_image(
    path: Path,
    name: str,
    image_ids: Iterable[int],
    files: Mapping[int, str] | None = None,
    *,
    labels: Mapping[int, str] | None = None,
    options: MatchOptions = BY_FIELDS,
) -> tuple[dict[int, float], bool]:
    """As `read_scores`, of each of these images, and whether by position; BenchError if one has none.

    `options.id_field` is of the captions: it counts where the scores have it, too.
    """
    order = list(image_ids)
    read = read_scores(path, name)
    if not any(options.id_field in row for row, _ in read):
        options = replace(options, id_field=None)
    match = match_rows([row for row, _ in read], ImageNames(order, files, labels), path, options)
    by_id = [(image_id, value) for image_id, (_, value) in zip(match.ids, read, strict=True) if image_id is not None]
    counts = Counter(image_id for image_id, _ in by_id)
    twice = [str(image_id) for image_id, count in counts.items() if count > 1]
    if twice:
        raise BenchError(f"{path}: {named(twice, f'with more than one number {shortened(name)}')}")
    scores = dict(by_id)
    missing = [str(image_id) for image_id in order if image_id not in scores]
    if missing:
        raise BenchError(f"{path}: {named(missing, f'without a number {shortened(name)}')}")
    return {image_id: scores[image_id] for image_id in order}, match.by_position


def check_predictions(
    predictions: Predictions, references: References, *, allow_subset: bool
) -> tuple[dict[int, tuple[str, ...]], dict[int, str], list[str]]:
    """References and captions of images with both, and notes on the others; BenchError if these may not be left out."""
    reference_captions = references.captions
    if references.left_out & predictions.captions.keys():
        scored = {i: text for i, text in predictions.captions.items() if i not in references.left_out}
        predictions = replace(predictions, captions=scored)
    notes = mismatches(predictions, reference_captions, "without references")
    matched = {image_id: texts for image_id, texts in reference_captions.items() if image_id in predictions.captions}
    if shift := _constant_offset(predictions.captions, reference_captions):
        notes.append(f"every id is {abs(shift):,} {'higher' if shift > 0 else 'lower'} than a reference's")
    if not matched:
        examples = ", ".join(map(str, list(reference_captions)[:3]))
        hint = f"name images by the ids of the references, such as {examples}, or by their files"
        if predictions.problems.keys() & {_TWICE, _NO_TEXT}:
            hint = "give one caption of each image; several go to --more --sets"
        elif not references.other_ids.isdisjoint(predictions.captions):
            hint = "they are images of another split: bench evaluate FILE --references FILE --split SPLIT scores them"
        elif shift:
            merged = "the file that `bench data nocaps` wrote"
            hint = f"score them against {merged}, with --split nocaps; or take the offset off"
        raise BenchError("no image has both a prediction and references: " + "; ".join(notes), hint)
    if notes and not allow_subset:
        raise BenchError(
            "predictions and references do not match: " + "; ".join(notes),
            f"repair the predictions, or score the {len(matched)} images that have both with --allow-subset "
            "(the signature then says so; CIDEr-D of a subset is not comparable with other scores)",
        )
    return matched, {image_id: text for image_id, text in predictions.captions.items() if image_id in matched}, notes


def mismatches(predictions: Predictions, image_ids: Collection[int], unlisted: str) -> list[str]:
    """The problems with captions of these images, each with its first ids; `unlisted` is that of other images."""
    with_problems = {image_id for ids in predictions.problems.values() for image_id in ids}
    missing = [str(i) for i in image_ids if i not in predictions.captions and str(i) not in with_problems]
    extra = [str(i) for i in predictions.captions if i not in image_ids]
    problems = predictions.problems | {"missing": missing, unlisted: extra}
    return [named(ids, problem) for problem, ids in problems.items() if ids]


def _constant_offset(captions: Collection[int], reference_ids: Collection[int]) -> int:
    """By how much all ids are above those of the references, as `bench data nocaps` raises them; else 0."""
    if not 1 < len(captions) == len(reference_ids):
        return 0
    offsets = {
        caption_id - reference_id
        for caption_id, reference_id in zip(sorted(captions), sorted(reference_ids), strict=True)
    }
    return offsets.pop() if len(offsets) == 1 else 0
