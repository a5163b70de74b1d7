"""The forms in which people publish captions of a system, recognised by a file's content.

A form is added by a line of `PREDICTION_FORMATS` and an example in `tests/harness/data/formats/prediction_examples.py`.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.data.formats.content import Content, describe, read_content
from harness.data.formats.match import ID_FIELDS, KEY, Row
from harness.data.formats.table import caption_list, parse_table
from harness.data.formats.text import lines_of
from harness.utils.errors import BenchError
from harness.utils.files import shortened

_LISTS: Final = ("annotations", "imgblobs", "predictions", "results", "captions")
_OF_PEOPLE: Final = ("caption", "captions", "text", "answer")
"""Fields that hold references or a prompt if another field holds the captions of a system."""
_LOGS: Final = "logs"
CAPTION_FIELDS: Final = (
    *("caption", "prediction", "candidate", "text", "pred", "hypothesis", "output", "generated_text", "response"),
    *("generated_caption", "predicted_caption", "pred_caption", "generation", "captions", "answer", "report"),
)
_TABLES: Final = (".csv", ".tsv")
FORMS: Final = 'give [{"image_id": 1, "caption": "a dog"}], {"1": "a dog"}, or a CSV with image_id,caption'


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a file: the fields that could name its image, and its caption."""

    fields: Row
    caption: Any


@dataclass(frozen=True, slots=True)
class PredictionFormat:
    """One form of predictions.

    Attributes:
        name, title, example: what it is called, by people too, and what one entry looks like.
        sniff: why some content has this form; "" if it has not. At most one format is sure of a file.
        read: the entries of content that has it; the second argument is the field of the captions, if a user names it.
        takes_field: whether there are fields, of which a user can name that of the captions.
    """

    name: str
    title: str
    example: str
    sniff: Callable[[Content], str]
    read: Callable[[Content, str | None], list[Entry]]
    takes_field: bool = True


def read_entries(path: Path, caption_field: str | None, format_name: str | None = None) -> list[Entry]:
    """The entries of a file in any known form; BenchError for another form."""
    content = read_content(path)
    if content.is_folder or content.archive:
        raise BenchError(f"{path} holds no captions that are read: it is {describe(content)}", FORMS)
    prediction_format = _find_format(content, format_name)
    if caption_field is not None and not prediction_format.takes_field:
        raise BenchError(f"{path} is {prediction_format.title}: --caption-field does not apply", "leave it out")
    return prediction_format.read(content, caption_field)


def _find_format(content: Content, name: str | None) -> PredictionFormat:
    """The format that recognises the content, or that the user names; COCO's results where none recognises it."""
    by_name = {candidate.name: candidate for candidate in PREDICTION_FORMATS}
    if name is not None:
        if name not in by_name:
            raise BenchError(f"{shortened(name)} is no format of predictions", f"choose one of: {', '.join(by_name)}")
        return by_name[name]
    matching = [candidate for candidate in PREDICTION_FORMATS if candidate.sniff(content)]
    if len(matching) > 1:
        candidates = " and ".join(f"{candidate.name} ({candidate.sniff(content)})" for candidate in matching)
        raise BenchError(f"{content.path} could be {candidates}", f"say which it is: --format {matching[0].name}")
    return matching[0] if matching else by_name["results"]


def _sniff_lmms_eval(content: Content) -> str:
    samples = content.top.get(_LOGS, content.entries)
    first = samples[0] if isinstance(samples, list) and samples and isinstance(samples[0], dict) else {}
    is_sample = isinstance(first.get("doc"), dict) and first.keys() & {"resps", "filtered_resps"}
    return 'its samples have "doc" and "resps"' if is_sample else ""


def _read_lmms_eval(content: Content, caption_field: str | None) -> list[Entry]:
    """The first response of each sample; the image is named by the sample's document, or else by its number."""
    entries = []
    samples = content.top.get(_LOGS, content.entries)
    if not samples or not all(isinstance(sample, dict) and isinstance(sample.get("doc"), dict) for sample in samples):
        raise BenchError(f'{content.path} has no samples with "doc" and "resps": it is {describe(content)}', FORMS)
    for sample in samples:
        document = scalars(sample["doc"], without=None)
        if not document.keys() & (set(ID_FIELDS) - {"id"}) and "doc_id" in sample:  # an "id" may be of the question
            document = {**document, "doc_id": sample["doc_id"]}
        fields = [caption_field] if caption_field else ["filtered_resps", "resps"]
        entries.append(Entry(document, next((sample[field] for field in fields if field in sample), None)))
    return entries


def _sniff_llava(content: Content) -> str:
    is_answer = {"question_id", "text"} <= content.first.keys() and "caption" not in content.first
    return 'its answers have "question_id" and "text"' if is_answer else ""


def _sniff_vlmevalkit(content: Content) -> str:
    return "its columns are index, ..., prediction" if {"index", "prediction"} <= set(content.headings) else ""


def _sniff_pipeline(content: Content) -> str:
    value = content.value if isinstance(content.value, list) else []
    first = value[0] if value and isinstance(value[0], list) and value[0] else [None]
    return 'its lists have "generated_text"' if isinstance(first[0], dict) and "generated_text" in first[0] else ""


def _sniff_table(content: Content) -> str:
    if _sniff_vlmevalkit(content):
        return ""
    caption_headings = [name for name in content.headings if name in CAPTION_FIELDS]
    is_table = content.table is not None and (caption_headings or content.path.suffix.lower() in _TABLES)
    return f"its columns are {', '.join(content.headings)}"[:80] if is_table else ""


def _sniff_by_image(content: Content) -> str:
    if _sniff_lmms_eval(content):
        return ""
    if content.top and not _listed(content):
        return "its keys are images"
    first = content.first
    is_pair = len(first) == 1 and not first.keys() & {*ID_FIELDS, *CAPTION_FIELDS}
    return "its objects are of an image and a caption" if is_pair else ""


def _read_by_image(content: Content, caption_field: str | None) -> list[Entry]:
    if content.top:
        return [_keyed(key, value, caption_field, content.path) for key, value in content.top.items()]
    return _read_results(content, caption_field)


def _sniff_results(content: Content) -> str:
    """Objects of an image and a caption, perhaps below a key such as "annotations"."""
    if _sniff_lmms_eval(content) or _sniff_llava(content) or _sniff_by_image(content):
        return ""
    first = content.first or (_listed(content) or [None])[0]
    return "it is a list of objects" if isinstance(first, dict) else ""


def _read_results(content: Content, caption_field: str | None) -> list[Entry]:
    path = content.path
    _refuse_several_lists(content)
    items = _listed(content) if content.top else content.value
    if not isinstance(items, list) or not items or all(isinstance(item, int | float | None) for item in items):
        description = "an empty list" if items == [] else describe(content)
        raise BenchError(f"{path} holds no captions of images: it is {description}", FORMS)
    entries = [_entry(item, caption_field, path) for item in items]
    if all(entry.caption is None for entry in entries):
        keys = dict.fromkeys(key for item in items if isinstance(item, dict) for key in item)
        raise BenchError(
            f"{path}: no key holds a caption; its keys are {', '.join(keys)[:200] or 'none'}",
            f"choose one of them with --caption-field, or name the captions {CAPTION_FIELDS[0]!r}: {FORMS}",
        )
    return entries


def _sniff_lines(content: Content) -> str:
    """A caption a line, as a text or as JSON."""
    if content.is_json:
        value = content.value
        are_texts = isinstance(value, list) and bool(value) and all(isinstance(item, str) for item in value)
        return "it is a list of texts" if are_texts else ""
    is_table = _sniff_table(content) or _sniff_vlmevalkit(content)
    return "it is a text" if content.lines and not is_table else ""


def _read_lines(content: Content, caption_field: str | None) -> list[Entry]:  # noqa: ARG001
    captions = content.value if content.is_json else lines_of(content.text)  # a blank one is of an image, too
    if content.is_json and not _sniff_lines(content):
        raise BenchError(f"{content.path} is no list of texts: it is {describe(content)}", FORMS)
    return [Entry({}, caption) for caption in captions]


def _listed(content: Content) -> list[Any] | None:
    """The list below a known key, or the object itself as the only entry; None if it is neither."""
    for name in _LISTS:
        if isinstance(content.top.get(name), list):
            items: list[Any] = content.top[name]
            return _with_file_names(items, content.top.get("images"))
    is_entry = any(name in content.top for name in ID_FIELDS) and any(name in content.top for name in CAPTION_FIELDS)
    return [content.top] if is_entry else None


def _with_file_names(entries: list[Any], images: Any) -> list[Any]:
    """Entries of COCO's form, each with the file of its image, because ids may be valid only in this file."""
    files = {
        image["id"]: image["file_name"]
        for image in (images if isinstance(images, list) else [])
        if isinstance(image, dict)
        and isinstance(image.get("id"), str | int)
        and isinstance(image.get("file_name"), str)
    }
    return [
        {"file_name": files[entry["image_id"]], **entry}
        if isinstance(entry, dict) and isinstance(entry.get("image_id"), str | int) and entry["image_id"] in files
        else entry
        for entry in entries
    ]


def _refuse_several_lists(content: Content) -> None:
    """BenchError if an object has two lists of captions, or one of captions beside one of their images."""
    lists = [name for name in _LISTS if isinstance(content.top.get(name), list)]
    if len(lists) > 1:
        raise BenchError(
            f"{content.path} has several lists that may hold the captions: {', '.join(lists)}",
            "give a file with one of them",
        )
    columns = [name for name, value in content.top.items() if isinstance(value, list) and len(value) > 1]
    lengths = {len(content.top[name]) for name in columns}
    is_texts = [all(isinstance(item, str) for item in content.top[name]) for name in columns]
    caption_lists = [name for name in columns if name in (*CAPTION_FIELDS, *_LISTS)]
    if len(columns) > 1 and len(lengths) == 1 and any(is_texts) and caption_lists:
        raise BenchError(
            f"{content.path} holds lists side by side: {', '.join(columns)}",
            f"give an object for each caption: {FORMS.removeprefix('give ')}",
        )


def _read_table(content: Content, caption_field: str | None) -> list[Entry]:
    """The rows of a table with a heading for the caption; BenchError if a row has another number of cells."""
    if content.is_json:
        raise BenchError(f"{content.path} is no table: it is {describe(content)}", FORMS)
    path = content.path
    table = content.table or parse_table(content.text, content.path)
    headings = [name or "index" for name in table.headings]  # the numbers of rows that pandas writes have no heading
    if twice := [name for name, times in Counter(headings).items() if times > 1]:
        raise BenchError(f"{path} has several columns {', '.join(twice)}", "give each column a heading of its own")
    if _caption_field(dict.fromkeys(headings), caption_field, path) is None:
        raise BenchError(
            f"{path} has no column of captions: its headings are {', '.join(headings)[:200] or 'none'}",
            f"choose one of them with --caption-field, or call the column {CAPTION_FIELDS[0]!r} in its first line",
        )
    entries = []
    for row in table.rows:
        if len(row.cells) != len(headings):
            raise BenchError(
                f"{path}, line {row.line}: {len(row.cells)} cells under {len(headings)} headings",
                "quote cells that hold the delimiter",
            )
        fields = dict(zip(headings, row.cells, strict=True))
        column = _caption_field(fields, caption_field, path) or ""
        entries.append(
            Entry({name: cell for name, cell in fields.items() if name != column and cell.strip()}, fields[column])
        )
    return entries


def _keyed(key: str, value: Any, caption_field: str | None, path: Path) -> Entry:
    """An entry of an object by image, whose value may name the image too."""
    if isinstance(value, dict):
        inner = _entry(value, caption_field, path)
        return Entry({KEY: key, **inner.fields}, inner.caption)
    return Entry({KEY: key}, value)


def _entry(entry: Any, caption_field: str | None, path: Path) -> Entry:
    while isinstance(entry, list) and len(entry) == 1:
        [entry] = entry
    if not isinstance(entry, dict):
        return Entry({}, entry)
    name = _caption_field(entry, caption_field, path)
    if name is None and len(entry) == 1 and not entry.keys() & set(ID_FIELDS):
        [(key, value)] = entry.items()
        return Entry({KEY: key}, value)
    metadata = entry.get("metadata")  # of LLaVA's answers
    fields = scalars(metadata, without=None) if isinstance(metadata, dict) else {}
    return Entry({**fields, **scalars(entry, without=name)}, None if name is None else entry[name])


def _caption_field(entry: Mapping[str, Any], field: str | None, path: Path) -> str | None:
    """The field of the caption; BenchError if several hold different texts, and none is chosen."""
    if field is not None:
        return field if field in entry else None
    names = [name for name in CAPTION_FIELDS if name in entry]
    if len(names) > 1:
        names = [name for name in names if not _is_references(name, entry[name])] or names
    _refuse_different_texts(entry, names, path)
    return names[0] if names else None


def _is_references(name: str, value: Any) -> bool:
    """Whether a field holds the references of an image: a list, or a cell with one."""
    texts = caption_list(value) if isinstance(value, str) else value
    return name in _OF_PEOPLE and isinstance(texts, list) and (len(texts) > 1 or name in ("captions", "answer"))


def _refuse_different_texts(entry: Mapping[str, Any], names: Sequence[str], path: Path) -> None:
    """BenchError if several of these fields of an entry hold different texts: the user chooses."""
    texts = {name: (text_of(entry[name]) or str(entry[name] or "")).strip() for name in names}
    if len(set(texts.values())) > 1:
        fields = ", ".join(f"{name} ({shortened(text, 40)})" for name, text in texts.items())
        likeliest = next((name for name in texts if name not in _OF_PEOPLE), next(iter(texts)))
        raise BenchError(
            f"{path}: several fields may hold the captions: {fields}",
            f"say which does: --caption-field {likeliest}",
        )


def scalars(entry: Mapping[str, Any], without: str | None) -> Row:
    """The fields of an entry that are texts or numbers."""
    return {
        key: value
        for key, value in entry.items()
        if key != without and isinstance(value, str | int | float) and not isinstance(value, bool)
    }


def text_of(caption: Any) -> str | None:
    """The caption as a text, also from a list of one or an object; None if there is no single one."""
    if isinstance(caption, list) and len(caption) == 1:
        return text_of(caption[0])
    if isinstance(caption, dict):
        return next((caption[name] for name in CAPTION_FIELDS if isinstance(caption.get(name), str)), None)
    return caption if isinstance(caption, str) else None


PREDICTION_FORMATS: Final = (
    PredictionFormat(
        "results",
        "COCO results",
        '[{"image_id": 1, "caption": "a dog"}], also one a line, with other keys, or below "annotations"',
        _sniff_results,
        _read_results,
    ),
    PredictionFormat(
        "by-image", "captions by image", '{"1": "a dog"} or {"1": ["a dog"]}', _sniff_by_image, _read_by_image
    ),
    PredictionFormat("table", "table of captions", "1,a dog, below image_id,caption", _sniff_table, _read_table),
    PredictionFormat(
        "pipeline", "pipeline of transformers", '[[{"generated_text": "a dog"}]]', _sniff_pipeline, _read_results
    ),
    PredictionFormat(
        "llava-answers", "LLaVA answers", '{"question_id": 1, "text": "a dog"}, one a line', _sniff_llava, _read_results
    ),
    PredictionFormat(
        "lmms-eval",
        "lmms-eval samples",
        '{"doc": {"image_id": 1}, "filtered_resps": ["a dog"]}, one a line',
        _sniff_lmms_eval,
        _read_lmms_eval,
    ),
    PredictionFormat(
        "vlmevalkit",
        "VLMEvalKit table",
        "0, tab, 1.jpg, tab, a dog, below index, image_path, prediction",
        _sniff_vlmevalkit,
        _read_table,
    ),
    PredictionFormat(
        "lines",
        "a caption a line",
        "a dog, by the order of the references (--by-position)",
        _sniff_lines,
        _read_lines,
        takes_field=False,
    ),
)
