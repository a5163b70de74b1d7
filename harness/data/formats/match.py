"""Match each row of a file with its image: one rule for predictions, sets of captions, scores and submissions.

1. A field names the images if its values are ids or file names of them; the field's own name does not matter.
2. File names go before numbers. If number fields name different images, `cocoid` decides, then `image_id`; without
   either the file is refused, and `--id-field NAME` chooses.
3. A bare number is an id. It is a file name without its suffix only if more rows match that way.
4. Rows are matched by their position only with `--by-position`.

A file that matches nothing is refused: captions scored against the references of other images would still get a score.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.utils.errors import BenchError
from harness.utils.files import shortened

KEY: Final = ""
"""The field of the keys of an object, such as `{"391": "a dog"}`."""
ID_FIELDS: Final = (
    *("image_id", "img_id", "imgid", "cocoid", "id", "image_name", "file_name", "filename"),
    *("img_path", "file_path", "image_path", "image", KEY),
)
"""Fields that are meant to name images: some of their values may name images that are not wanted."""
_ROW_FIELDS: Final = ("index", "doc_id", "question_id")
"""Fields of evaluation harnesses that may name images, or count rows."""
_DECIDING: Final = ("cocoid", "image_id")
_COCO_NAME: Final = re.compile(r"(?:^|_)(\d{12})$")
_MAX_ID: Final = 2**63
_SHOWN_VALUES: Final = 3
_SHOWN_FIELDS: Final = 8

Row = Mapping[str, object]
"""The fields of one row that could name its image: texts and numbers, without the caption."""


@dataclass(frozen=True, slots=True)
class MatchOptions:
    """The user's options for reading a file.

    Attributes:
        id_field: the field that names the images.
        by_position: rows are in the order of the images, where the file does not name these.
        caption_field: the field of the captions.
        format_name: the format of the file, where its content does not tell it.
    """

    id_field: str | None = None
    by_position: bool = False
    caption_field: str | None = None
    format_name: str | None = None


BY_FIELDS: Final = MatchOptions()
"""What names the images is found by the values of the fields."""


@dataclass(frozen=True, slots=True)
class Match:
    """The image id of each row, None if nothing names it; other images than those of the references keep their ids.

    `field` is the one that names the images; None if they were taken by position. `are_files` says that its values
    are file names or texts, and not the numbers of the images.
    """

    ids: list[int | None]
    field: str | None
    are_files: bool = False

    @property
    def by_position(self) -> bool:
        return self.field is None


class ImageNames:
    """The images of the references, looked up by id, file name or label.

    Args:
        order: the ids, in the order in which positions count them.
        files: file names by id, relative to any folder.
        labels: ids as the file of the references has them, where these are texts. The numbers that stand for them are
            ours: no other file can mean them.
        other_files: paths of images that are not wanted, which may have a wanted one's name in another folder.
    """

    def __init__(
        self,
        order: Iterable[int],
        files: Mapping[int, str] | None = None,
        labels: Mapping[int, str] | None = None,
        other_files: Collection[str] = (),
    ) -> None:
        self.order = list(order)
        self._labels = dict(labels or {})
        self._ids = set(self.order)
        self._numbers = self._ids.difference(labels or {})
        names = [(name, image_id) for image_id, file in (files or {}).items() for name in _names_of(file)]
        names += [(name, image_id) for image_id, label in (labels or {}).items() for name in _names_of(label)]
        images_by_name: dict[str, set[int]] = {}
        for name, image_id in names:
            images_by_name.setdefault(name, set()).add(image_id)
        self._other_paths = {file_names(file)[0] for file in other_files}.difference(images_by_name)
        self._by_name = {name: next(iter(images)) for name, images in images_by_name.items() if len(images) == 1}

    def examples(self) -> str:
        """The first few ids as the references' file spells them, for messages."""
        return ", ".join(self._labels.get(image_id, str(image_id)) for image_id in self.order[:_SHOWN_VALUES]) or "none"

    def contain(self, ids: Iterable[int | None]) -> bool:
        """Whether all of these ids are of images of the references."""
        return all(image_id in self._ids for image_id in ids)

    def of_name(self, value: object) -> int | None:
        """The image with this file name, with or without folder, ending and zeros before a number."""
        text = _as_text(value)
        if not text or file_names(text)[0] in self._other_paths:
            return None
        return next((self._by_name[name] for name in _names_of(text) if name in self._by_name), None)

    def of_number(self, value: object) -> int | None:
        """The image with this id, which may be a text of digits; None if there is none."""
        image_id = as_id(value)
        return image_id if image_id in self._numbers else None

    def of_unmatched(self, value: object) -> int | None:
        """The id in the file of another image than the references'; None if a wanted image has the same number."""
        image_id = as_id(value)
        return None if image_id in self._ids else image_id


def file_names(text: str) -> tuple[str, ...]:
    """A path's names, most specific first: the path with forward slashes, its last part, and that without suffix."""
    path = text.strip().replace("\\", "/").removeprefix("./")
    name = path.rpartition("/")[2]
    stem, dot, ending = name.rpartition(".")
    return tuple(dict.fromkeys((path, name, stem if dot and stem and ending.isalnum() else name)))


def _names_of(text: str) -> tuple[str, ...]:
    """`file_names`, and for a name of digits the number without leading zeros."""
    names = file_names(text)
    return (*names, str(int(names[-1]))) if re.fullmatch(r"0[0-9]{1,18}", names[-1]) else names


def as_id(value: object) -> int | None:
    """The value as a whole number of 64 bits: a number, a text of digits, or a COCO file name; None for others."""
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, str):
        stem = file_names(value)[-1]
        coco = _COCO_NAME.search(stem)
        text = coco[1] if coco else value.strip().removesuffix(".0")  # pandas writes whole numbers as 391.0
        value = int(text) if re.fullmatch(r"-?[0-9]{1,19}", text) else None
    return value if isinstance(value, int) and -_MAX_ID <= value < _MAX_ID else None


def match_rows(
    rows: Sequence[Row], names: ImageNames, path: Path, options: MatchOptions, *, several: bool = False
) -> Match:
    """Find the image of each row.

    Args:
        several: each image may have several rows, but all of them equally many.

    Raises:
        BenchError: nothing names the images, fields name different ones, or there is no such `id_field`.
    """
    if options.id_field is not None:
        return _by_chosen_field(rows, names, path, options.id_field)
    match = _by_fields(rows, names, path, several=several)
    if match is not None and (not options.by_position or names.contain(match.ids)):
        return match
    if options.by_position:
        return _by_position(rows, names, path)
    raise _nothing_names(rows, names, path)


def _by_chosen_field(rows: Sequence[Row], names: ImageNames, path: Path, field: str) -> Match:
    if not any(field in row for row in rows):
        fields = ", ".join(name for name in _fields(rows) if name != KEY) or "none"
        raise BenchError(f"{path}: --id-field {shortened(field)}: no row has such a field", f"choose one of: {fields}")
    values = [row.get(field) for row in rows]
    by_name = [names.of_name(value) for value in values]
    by_number = [names.of_number(value) for value in values]
    are_names = _count(by_name) > _count(by_number) - (not _are_numbers(values))
    ids = by_name if are_names else by_number
    if not _count(ids):
        raise _nothing_names(rows, names, path)
    return _match(ids, values, names, field)


def _by_fields(rows: Sequence[Row], names: ImageNames, path: Path, *, several: bool) -> Match | None:
    """The match by the field that names the images; None if no field does."""
    by_name: dict[str, list[int | None]] = {}
    by_number: dict[str, list[int | None]] = {}
    for field in _fields(rows):
        values = [row.get(field) for row in rows]
        ids_of_names = [names.of_name(value) for value in values]
        ids = [names.of_number(value) for value in values]
        if _are_numbers(values):
            if _count(ids_of_names) > _count(ids):
                ids = ids_of_names
        elif _is_candidate(field, ids_of_names, several=several):
            by_name[field] = ids_of_names
        counts_rows = None in ids and _counts_rows(values)  # some of which happen to be ids
        if field not in ID_FIELDS and ids != names.order and _counts_in_order(values):
            counts_rows = True  # all of which are ids, but of images in another order
        if not counts_rows and _is_candidate(field, ids, several=several):
            by_number[field] = ids
    if best := _best(by_name, by_number, path):
        field, ids = best
        return _match(ids, [row.get(field) for row in rows], names, field)
    # No image of the references; return the ids nevertheless, so that messages can name the images.
    for field in _fields(rows):
        values = [row.get(field) for row in rows]
        ids = [names.of_unmatched(value) for value in values]
        if field in ID_FIELDS and _count(ids) and not (names.order and _counts_rows(values)):
            return Match(ids, field)
    return None


def _best(
    by_name: Mapping[str, list[int | None]], by_number: Mapping[str, list[int | None]], path: Path
) -> tuple[str, list[int | None]] | None:
    """The field that names the images, and their ids: file names, unless numbers agree and name more rows."""
    complete = {field: ids for field, ids in by_number.items() if None not in ids}
    name_field = _agreed(by_name, path)
    if name_field is not None:
        ids = by_name[name_field]
        same = [field for field in complete if _agree(complete[field], ids)]
        if None in ids and same:
            return same[0], complete[same[0]]
        return name_field, ids
    number_field = _agreed(complete or by_number, path)
    return None if number_field is None else (number_field, by_number[number_field])


def _is_candidate(field: str, ids: Sequence[int | None], *, several: bool) -> bool:
    """Whether the values of a field may name images, rather than coincide with some of their numbers."""
    matched = [image_id for image_id in ids if image_id is not None]
    if not matched:
        return False
    if field in ID_FIELDS:
        return True
    counts = Counter(matched)
    if several:
        return len(matched) == len(ids) and len(set(counts.values())) == 1
    return len(matched) == len(ids) == len(counts) > 1


def _agreed(candidates: Mapping[str, Sequence[int | None]], path: Path) -> str | None:
    """The candidate to use; BenchError if candidates name different images and none is in `_DECIDING`."""
    fields = list(candidates)
    if not fields:
        return None
    if all(_agree(candidates[fields[0]], candidates[field]) for field in fields[1:]):
        return max(fields, key=lambda field: _count(candidates[field]))
    decisive = next((field for field in _DECIDING if field in candidates), None)
    if decisive is not None:
        return decisive
    descriptions = " and ".join(_described(field) for field in fields[:_SHOWN_FIELDS])
    raise BenchError(
        f"{path}: {descriptions} name different images of the references",
        f"choose the one that names the images: --id-field {_likeliest(candidates)}",
    )


def _likeliest(candidates: Mapping[str, Sequence[int | None]]) -> str:
    """The field to propose in an error's hint: one that does not count the rows, if there is one."""
    fields = [field for field in candidates if field != KEY]
    return next((field for field in fields if not _counts_in_order(candidates[field])), fields[0])


def _agree(ids: Sequence[int | None], other_ids: Sequence[int | None]) -> bool:
    return all(a == b for a, b in zip(ids, other_ids, strict=True) if a is not None and b is not None)


def _match(ids: Sequence[int | None], values: Sequence[object], names: ImageNames, field: str) -> Match:
    """The match by the values of a field; images outside the references keep the ids that the file has."""
    pairs = list(zip(ids, values, strict=True))
    are_files = any(image_id is not None and names.of_number(value) != image_id for image_id, value in pairs)
    with_unwanted = [names.of_unmatched(value) if image_id is None else image_id for image_id, value in pairs]
    return Match(with_unwanted, field, are_files)


def _are_numbers(values: Sequence[object]) -> bool:
    """Whether all values that are not None are bare numbers or texts of them."""
    texts = [_as_text(value) for value in values if value is not None]
    return all(text is not None and re.fullmatch(r"\s*-?[0-9]+(?:\.0)?\s*", text) for text in texts)


def _by_position(rows: Sequence[Row], names: ImageNames, path: Path) -> Match:
    """Each row's image by its position, or by a field that counts the rows; BenchError if fields name images."""
    if len(rows) != len(names.order):
        raise BenchError(
            f"{path}: --by-position: it has {len(rows):,} captions, for {len(names.order):,} images",
            "give one caption of each image, in the order of the references",
        )
    for field in (*ID_FIELDS, *_ROW_FIELDS):
        values = [row.get(field) for row in rows]
        if _counts_rows(values):
            numbers = [as_id(value) for value in values]
            first = min(number for number in numbers if number is not None)
            return Match([names.order[number - first] for number in numbers if number is not None], None)
    if partial_field := _partly_named(rows, names):
        raise BenchError(
            f"{path}: --by-position would ignore {_described(partial_field)} "
            f"({_examples(rows, partial_field)}), which names images",
            f"leave --by-position out, and add --id-field {shortened(partial_field)}",
        )
    other_field = _other_ids(rows)
    if other_field is not None:
        raise BenchError(
            f"{path}: --by-position would ignore {_described(other_field)} "
            f"({_examples(rows, other_field)}) of other images",
            "give the ids or file names of the references there, or take the field out of the file",
        )
    return Match(list(names.order), None)


def _other_ids(rows: Sequence[Row]) -> str | None:
    """A field for image names, other than "id", which may be of the caption, that does not count the rows."""
    for field in (*ID_FIELDS, *_ROW_FIELDS):
        values = [row.get(field) for row in rows]
        if field != "id" and None not in values and not _counts_rows(values):
            return field
    return None


def _partly_named(rows: Sequence[Row], names: ImageNames) -> str | None:
    """A field of file names of which more than half, but not all, match images; None if there is none."""
    for field in _fields(rows):
        values = [row.get(field) for row in rows]
        if not _are_numbers(values) and 2 * _count([names.of_name(value) for value in values]) > len(rows):
            return field
    return None


def _counts_rows(values: Sequence[object]) -> bool:
    """Whether these are the numbers from 0 or from 1 on, each once and in any order."""
    numbers = [as_id(value) for value in values]
    return bool(numbers) and sorted(n for n in numbers if n is not None) in (
        list(range(len(numbers))),
        list(range(1, len(numbers) + 1)),
    )


def _counts_in_order(values: Sequence[object]) -> bool:
    """Whether these are 0, 1, 2 ... or 1, 2, 3 ... in this order."""
    numbers = [as_id(value) for value in values]
    return numbers in (list(range(len(numbers))), list(range(1, len(numbers) + 1)))


def _nothing_names(rows: Sequence[Row], names: ImageNames, path: Path) -> BenchError:
    fields = [f"{_described(field)} ({_examples(rows, field)})" for field in _fields(rows)[:_SHOWN_FIELDS]]
    description = f"its fields are {', '.join(fields)}" if fields else "its captions name no image"
    expected = names.examples()
    message = f"{path}: nothing names the {len(names.order):,} images of the references ({expected}): {description}"
    if partial_field := _partly_named(rows, names):
        return BenchError(
            f"{message}; {_described(partial_field)} names some of them",
            f"if it names the image: --id-field {shortened(partial_field)}",
        )
    if len(rows) == len(names.order) and _other_ids(rows) is None:
        return BenchError(message, "where the captions are in the order of the references, add --by-position")
    return BenchError(
        f"{message}; it has {len(rows):,} captions",
        f'name the image of each caption by its id ({expected}) or its file: [{{"image_id": 1, "caption": "a dog"}}]',
    )


def _fields(rows: Sequence[Row]) -> list[str]:
    return list(dict.fromkeys(field for row in rows for field in row))


def _described(field: str | None) -> str:
    return "the key" if field == KEY else f'"{field}"'


def _examples(rows: Sequence[Row], field: str) -> str:
    values = dict.fromkeys(str(row[field]) for row in rows if field in row)
    return ", ".join(shortened(value, 40) for value in list(values)[:_SHOWN_VALUES])


def _count(ids: Sequence[int | None]) -> int:
    return sum(image_id is not None for image_id in ids)


def _as_text(value: object) -> str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return str(value) if isinstance(value, str | int) else None
