"""Read captions of any system, in the forms that people publish; which one a file has is found by its content.

| form | as of |
|---|---|
| `[{"image_id": 1, "caption": "a dog"}]`, whatever keys beside | COCO, nocaps, X-modaler, self-critical's `vis.json` |
| the same with other names of keys (`_IDS`, `_TEXTS`), or below one of `_LISTS` | NeuralTalk, MAGIC and others |
| `{"1": "a dog"}`, `{"1": ["a dog"]}`, `[{"1": "a dog"}]` | M2, BLIP-2, LLaVA, pycocoevalcap |
| `["a dog"]`, in the order of the references | |
| any of these a line | JSON lines |

Images are named by id, as a number or as text, by file name, or by COCO's file names, which end in the id.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from harness.data.formats.references import WHOLE_NUMBER, References, is_image_id, named
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.json_io import read_json_or_lines

_LISTS: Final = ("annotations", "imgblobs", "predictions", "results", "captions")
_IDS: Final = (
    *("image_id", "img_id", "imgid", "cocoid", "id", "image_name", "file_name", "filename"),
    *("img_path", "file_path", "image_path", "image"),
)
_TEXTS: Final = ("caption", "prediction", "candidate", "text", "pred", "hypothesis", "output")
_FORMS: Final = (
    'give [{"image_id": 1, "caption": "a dog"}], {"1": "a dog"}, or a list of captions in the references\' order'
)
_NO_TEXT: Final = "whose caption is no text"
_TWICE: Final = "predicted more than once"
_NO_IMAGE: Final = f"without a {WHOLE_NUMBER} or a file name as their image"
EMPTY: Final = "with an empty caption"
PLACES: Final = "images are taken by their places in the list of references, since no ids name them"
_COCO_NAME: Final = re.compile(r"(?:^|_)(\d{12})$")


@dataclass(frozen=True, slots=True)
class Predictions:
    """One caption by image id, and problem -> its images; `by_place`: they were named by places in the references."""

    captions: dict[int, str]
    problems: dict[str, list[str]]
    by_place: bool = False


def read_predictions(
    path: Path, wanted: Iterable[int] = (), files: Mapping[int, str] | None = None, others: Collection[int] = ()
) -> Predictions:
    """Read one caption of each image, in any of the forms above.

    `wanted` are the ids of the images to caption, in the references' order; ids of other images that count them from 0
    are places in it, unless all are among the `others`, those of another split. BenchError where the file cannot be
    read or has another form; faulty entries are in `problems`.
    """
    order = list(wanted)
    names = _names(order, files or {})
    entries = _entries(path, names)
    unnamed = all(image is None for image, _ in entries)
    if unnamed and len(entries) != len(order):
        raise BenchError(
            f"{path} has {len(entries):,} captions that name no image, for {len(order):,} images",
            f"{_FORMS} of them all",
        )
    ids = list(range(len(order))) if unnamed else [_image(image, names) for image, _ in entries]
    told = set(ids)
    by_place = unnamed or (told == set(range(len(order))) and told != set(order) and not told <= set(others))
    if by_place:
        ids = [order[place] for place in ids if place is not None]
    problems: dict[str, list[str]] = {}
    captions: dict[int, str] = {}
    counts = Counter(ids)
    for number, (image_id, (_, said)) in enumerate(zip(ids, entries, strict=True)):
        caption = _text(said)
        if image_id is None:
            problems.setdefault(_NO_IMAGE, []).append(f"entry {number}")
        elif counts[image_id] > 1:
            problems.setdefault(_TWICE, []).append(str(image_id))
        elif caption is None:
            problems.setdefault(_NO_TEXT, []).append(str(image_id))
        elif not caption.strip():
            problems.setdefault(EMPTY, []).append(str(image_id))
        else:
            captions[image_id] = caption
    if _TWICE in problems:
        problems[_TWICE] = list(dict.fromkeys(problems[_TWICE]))
    return Predictions(captions, problems, by_place)


def read_caption_sets(path: Path) -> dict[int, list[str]]:
    """The captions of each image, several entries or a list of them, in the file's order; BenchError as above."""
    found: dict[int, list[str]] = {}
    for number, (image, said) in enumerate(_entries(path, {})):
        image_id = _image(image, {})
        texts = [_text(each) for each in (said if isinstance(said, list) else [said])]
        if image_id is None or None in texts:
            raise BenchError(f"{path}: entry {number} has no id of an image or no caption", _FORMS)
        found.setdefault(image_id, []).extend(text for text in texts if text is not None)
    return found


def read_scores(path: Path, name: str, names: Mapping[str, int]) -> list[tuple[Any, float]]:
    """A number for each caption, and what names its image, None where nothing does, in the file's order.

    A list of numbers, numbers by image, objects of an image and of `name`, any of these a line, or what capevalkit
    writes as `per_item`. BenchError where the file cannot be read or has another form, or no number of this name.
    """
    content = read_json_or_lines(path)
    content = content.get("per_item", content) if isinstance(content, dict) else content
    listed = content if isinstance(content, list) else [content]
    entries = list(content.items()) if isinstance(content, dict) else [(None, each) for each in listed]
    found = []
    for number, (image, said) in enumerate(entries):
        if isinstance(said, dict):
            image = _named(said, names) if any(key in said for key in _IDS) else image
        value = said.get(name) if isinstance(said, dict) else said
        if not isinstance(value, int | float) or isinstance(value, bool) or not abs(value) < 1e300:  # a float holds it
            raise BenchError(
                f"{path}: entry {number} has no number {shortened(name)}: it is {shortened(str(said), 60)}",
                'give [0.5, 0.7] in the order of the captions, {"1": 0.5} by image, or what capevalkit wrote',
            )
        found.append((image, float(value)))
    return found


def scores_by_image(
    path: Path, name: str, wanted: Iterable[int], files: Mapping[int, str] | None = None
) -> dict[int, float]:
    """As `read_scores`, of each of these images, BenchError if one has none; numbers that name none are in order."""
    order = list(wanted)
    names = _names(order, files or {})
    read = read_scores(path, name, names)
    unnamed = len(read) == len(order) and all(image is None for image, _ in read)
    found = dict(zip(order, (value for _, value in read), strict=True)) if unnamed else {}
    known = [(image_id, value) for image, value in read if (image_id := _image(image, names)) is not None]
    if twice := [str(image_id) for image_id, times in Counter(image_id for image_id, _ in known).items() if times > 1]:
        raise BenchError(f"{path}: {named(twice, f'with more than one number {shortened(name)}')}")
    found |= dict(known)
    if missing := [str(image_id) for image_id in order if image_id not in found]:
        raise BenchError(f"{path}: {named(missing, f'without a number {shortened(name)}')}")
    return {image_id: found[image_id] for image_id in order}


def check_predictions(
    predictions: Predictions, references: References, *, allow_subset: bool
) -> tuple[dict[int, tuple[str, ...]], dict[int, str], list[str]]:
    """References and captions of images with both, and notes on the others; BenchError if these may not be left out."""
    wanted = references.captions
    notes = mismatches(predictions, wanted, "without references")
    both = {image_id: texts for image_id, texts in wanted.items() if image_id in predictions.captions}
    if shift := _constant_offset(predictions.captions, wanted):
        notes.append(f"every id is {abs(shift):,} {'higher' if shift > 0 else 'lower'} than a reference's")
    if not both:
        hint = (
            f"name images by the ids of the references, as {', '.join(map(str, list(wanted)[:3]))}, or by their files"
        )
        if predictions.problems.keys() & {_TWICE, _NO_TEXT}:
            hint = "give one caption of each image; several go to --more --sets"
        elif not references.others.isdisjoint(predictions.captions):
            hint = "they are images of another split: bench evaluate FILE --references FILE --split SPLIT scores them"
        elif shift:
            merged = "the file that `bench data nocaps` wrote"
            hint = f"score them against {merged}, with --split nocaps; or take the offset off"
        raise BenchError("no image has both a prediction and references: " + "; ".join(notes), hint)
    if notes and not allow_subset:
        raise BenchError(
            "predictions and references do not match: " + "; ".join(notes),
            f"repair the predictions, or score the {len(both)} images that have both with --allow-subset "
            "(the signature then says so; CIDEr-D of a subset is not comparable with other scores)",
        )
    return both, {image_id: text for image_id, text in predictions.captions.items() if image_id in both}, notes


def mismatches(predictions: Predictions, wanted: Collection[int], unlisted: str) -> list[str]:
    """What is wrong with captions of these images, each with its first ids; `unlisted` says it of other images."""
    listed = {image_id for ids in predictions.problems.values() for image_id in ids}
    missing = [str(i) for i in wanted if i not in predictions.captions and str(i) not in listed]
    extra = [str(i) for i in predictions.captions if i not in wanted]
    problems = predictions.problems | {"missing": missing, unlisted: extra}
    return [named(ids, what) for what, ids in problems.items() if ids]


def _constant_offset(captions: Collection[int], wanted: Collection[int]) -> int:
    """By how much all ids are above those of the references, as `bench data nocaps` raises them; else 0."""
    if not 1 < len(captions) == len(wanted):
        return 0
    offsets = {one - other for one, other in zip(sorted(captions), sorted(wanted), strict=True)}
    return offsets.pop() if len(offsets) == 1 else 0


def _entries(path: Path, names: Mapping[str, int]) -> list[tuple[Any, Any]]:
    """What names the image of each caption, None where nothing does, and what stands for the caption."""
    content = read_json_or_lines(path)
    if isinstance(content, dict):
        inner = next((content[name] for name in _LISTS if isinstance(content.get(name), list)), None)
        if inner is None and any(name in content for name in _IDS) and any(name in content for name in _TEXTS):
            inner = [content]
        content = list(content.items()) if inner is None else inner
    if not isinstance(content, list) or not content or all(isinstance(each, int | float | None) for each in content):
        found = "an empty list" if content == [] else f"{shortened(str(content), 60)}"
        raise BenchError(f"{path} holds no captions of images: it is {found}", _FORMS)
    return [_entry(each, names) for each in content]


def _entry(entry: Any, names: Mapping[str, int]) -> tuple[Any, Any]:
    if isinstance(entry, tuple):  # of an object by image
        return entry
    if not isinstance(entry, dict):
        return None, entry
    image = _named(entry, names)
    said = next((entry[name] for name in _TEXTS if name in entry), None)
    if image is None and said is None and len(entry) == 1:
        return next(iter(entry.items()))
    return image, said


def _named(entry: Mapping[str, Any], names: Mapping[str, int]) -> Any:
    """What names an entry's image: a file that is known, since ids may count rows; else the first of `_IDS`."""
    given = [entry[key] for key in _IDS if key in entry]
    paths = {each: PurePosixPath(each) for each in given if isinstance(each, str)}
    known = (each for each, path in paths.items() if path.suffix and {str(path), path.name} & names.keys())
    return next(known, given[0] if given else None)


def _text(said: Any) -> str | None:
    """The caption, which may be alone in a list, or in an object; None where there is no single one."""
    if isinstance(said, list) and len(said) == 1:
        return _text(said[0])
    if isinstance(said, dict):
        return next((said[name] for name in _TEXTS if isinstance(said.get(name), str)), None)
    return said if isinstance(said, str) else None


def _names(order: Iterable[int], files: Mapping[int, str]) -> dict[str, int]:
    """Every name of an image that no other has; an id goes before a file's name."""
    paths = {image_id: PurePosixPath(file) for image_id, file in files.items()}
    found = [(name, image_id) for image_id, path in paths.items() for name in {path.stem, path.name, str(path)}]
    times = Counter(name for name, _ in found)
    return {name: image_id for name, image_id in found if times[name] == 1} | {
        str(image_id): image_id for image_id in order
    }


def _image(named_by: Any, names: Mapping[str, int]) -> int | None:
    """The id of an image, whether or not it is wanted."""
    if is_image_id(named_by):
        return named_by
    if not isinstance(named_by, str):
        return None
    path = PurePosixPath(named_by.strip())
    known = next((names[name] for name in (str(path), path.name, path.stem) if name in names), None)
    digits = _COCO_NAME.search(path.stem)
    told = digits[1] if digits else str(path)
    number = int(told) if len(told) < 20 and told.removeprefix("-").isdecimal() else None
    return known if number is None or known is not None else number
