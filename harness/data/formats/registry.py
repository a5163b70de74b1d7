"""The formats of annotations that can be read. A file's format is recognised by its content, not by its name.

A format is added by a line of `ANNOTATION_FORMATS` and a file of `tests/harness/data/formats/examples.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from harness.data.formats import (
    caption_tables,
    captions_by_image,
    coco,
    conceptual,
    flickr,
    image_folders,
    karpathy_json,
    parquet,
)
from harness.data.formats.annotations import REJECTED_FIELDS, Annotations, ReadOptions
from harness.data.formats.content import Content, describe, read_content, refuse_archives
from harness.utils.errors import BenchError
from harness.utils.files import shortened


@dataclass(frozen=True, slots=True)
class Format:
    """One format of annotations.

    Attributes:
        name: what `--format` takes.
        title: as people call it.
        example: what one entry looks like.
        sniff: why some content has this form, in a few words; "" if it has not. At most one format is sure of a file.
        read: the annotations of content that has it.
        takes_fields: whether a user can say which field names the images and which the captions.
    """

    name: str
    title: str
    example: str
    sniff: Callable[[Content], str]
    read: Callable[[Content, ReadOptions], Annotations]
    takes_fields: bool = False


ANNOTATION_FORMATS: Final = (
    Format(
        "coco",
        "COCO captions",
        '{"images": [{"id": 1, "file_name": "a.jpg"}], "annotations": [{"image_id": 1, "caption": "a dog"}]}',
        coco.sniff_coco,
        coco.read_coco,
        takes_fields=True,
    ),
    Format(
        "nocaps",
        "nocaps",
        'as coco, with "domain" for each image',
        coco.sniff_nocaps,
        coco.read_coco,
        takes_fields=True,
    ),
    Format(
        "vizwiz",
        "VizWiz-Captions",
        'as coco, with "is_rejected" for each caption',
        coco.sniff_vizwiz,
        coco.read_coco,
        takes_fields=True,
    ),
    Format(
        "stair",
        "STAIR Captions",
        'as coco, with "tokenized_caption" for each caption',
        coco.sniff_stair,
        coco.read_coco,
        takes_fields=True,
    ),
    Format(
        "karpathy",
        "Karpathy's JSON",
        '{"images": [{"filename": "a.jpg", "split": "test", "sentences": [{"raw": "a dog"}]}]}',
        karpathy_json.sniff_karpathy,
        karpathy_json.read_karpathy_json,
    ),
    Format(
        "flickr-tokens",
        "Flickr token file",
        "a.jpg#0, tab, a dog",
        flickr.sniff_tokens,
        flickr.read_tokens,
    ),
    Format(
        "flickr-results",
        "Flickr30k results.csv",
        "a.jpg| 0| a dog, below image_name| comment_number| comment",
        caption_tables.sniff_flickr_results,
        caption_tables.read_caption_table,
        takes_fields=True,
    ),
    Format(
        "kaggle",
        "Kaggle captions.txt",
        "a.jpg,a dog, below image,caption",
        caption_tables.sniff_kaggle,
        caption_tables.read_caption_table,
        takes_fields=True,
    ),
    Format(
        "table",
        "table of captions",
        "a.jpg,a dog,one dog,test, below file,caption_0,caption_1,split",
        caption_tables.sniff_table,
        caption_tables.read_caption_table,
        takes_fields=True,
    ),
    Format(
        "imagefolder",
        "imagefolder of the hub",
        'metadata.csv or metadata.jsonl beside the pictures: {"file_name": "a.jpg", "caption": "a dog"}',
        image_folders.sniff_imagefolder,
        image_folders.read_imagefolder,
        takes_fields=True,
    ),
    Format(
        "pairs",
        "pictures with a text each",
        "a.jpg and a.txt, with a caption a line",
        image_folders.sniff_pairs,
        image_folders.read_pairs,
    ),
    Format(
        "textcaps",
        "TextCaps",
        '{"data": [{"image_id": "f1a6", "caption_str": "a dog", "reference_strs": ["a dog", "one dog"]}]}',
        captions_by_image.sniff_textcaps,
        captions_by_image.read_textcaps,
    ),
    Format(
        "reports",
        "R2Gen annotation.json",
        '{"train": [{"id": "a", "report": "no effusion", "image_path": ["a/0.png", "a/1.png"]}]}',
        captions_by_image.sniff_reports,
        captions_by_image.read_reports,
        takes_fields=True,
    ),
    Format(
        "llava",
        "LLaVA conversations",
        '[{"image": "a.jpg", "conversations": [{"from": "human", ...}, {"from": "gpt", "value": "a dog"}]}]',
        captions_by_image.sniff_llava,
        captions_by_image.read_llava,
    ),
    Format(
        "narratives",
        "Localized Narratives",
        '{"image_id": "1", "annotator_id": 7, "caption": "a dog"}, one a line',
        captions_by_image.sniff_narratives,
        captions_by_image.read_list,
        takes_fields=True,
    ),
    Format(
        "by-image",
        "captions by image",
        '{"a.jpg": ["a dog", "one dog"]}, as of pycocoevalcap and CLIPScore',
        captions_by_image.sniff_by_image,
        captions_by_image.read_by_image,
    ),
    Format(
        "list",
        "list of captions",
        '[{"image_id": 1, "caption": "a dog"}], also one a line',
        captions_by_image.sniff_list,
        captions_by_image.read_list,
        takes_fields=True,
    ),
    Format(
        "conceptual",
        "Conceptual Captions",
        "a dog, tab, https://example.org/a.jpg",
        conceptual.sniff_conceptual,
        conceptual.read_conceptual,
    ),
    Format(
        "parquet",
        "parquet of the hub",
        "data/train-00000-of-00001.parquet with the columns image and caption",
        parquet.sniff_parquet,
        parquet.read_parquet,
        takes_fields=True,
    ),
    Format(
        "datasets-folder",
        "folder of save_to_disk",
        "dataset_dict.json, or state.json and data-00000-of-00001.arrow, with the columns image and caption",
        parquet.sniff_datasets_folder,
        parquet.read_datasets_folder,
        takes_fields=True,
    ),
)


def find_format(content: Content, name: str | None = None, option: str = "--format") -> Format:
    """The format that recognises the content, or that the user names.

    Tables and lists with unknown columns or keys are recognised too: their readers report what is missing.

    Raises:
        BenchError: there is no such format, none or several are sure of the content.
    """
    by_name = {candidate.name: candidate for candidate in ANNOTATION_FORMATS}
    if name is not None:
        if name not in by_name:
            raise BenchError(f"{shortened(name)} is no known format", f"choose one of: {', '.join(by_name)}")
        return by_name[name]
    reasons = {}
    for candidate in ANNOTATION_FORMATS:
        reason = candidate.sniff(content)
        if reason:
            reasons[candidate.name] = reason
    if len(reasons) == 1:
        return by_name[next(iter(reasons))]
    if reasons:
        candidates = " and ".join(f"{name} ({reason})" for name, reason in reasons.items())
        raise BenchError(f"{content.path} could be {candidates}", f"say which it is: {option} {' or '.join(reasons)}")
    if content.table is not None:
        return by_name["table"]
    if content.entries:
        return by_name["list"]
    if karpathy_json.images_of(content.value):
        raise BenchError(
            f"{content.path} lists images without captions",
            "references of a test split are not published: send predictions to its server (bench export submission)",
        )
    refuse_archives(content)
    nearest = by_name[_nearest(content)]
    raise BenchError(
        f"{content.path} is in no known format: it is {describe(content)}",
        f"the nearest is {nearest.name}, {nearest.example}; bench data formats lists all",
    )


def read_annotations(path: Path, options: ReadOptions | None = None, format_name: str | None = None) -> Annotations:
    """Read images and captions of any known format; a folder with a single table is that table.

    Raises:
        BenchError: the file cannot be read, is in no known format, or a field is named that has no effect.
    """
    content = read_content(single_file(path))
    options = options or ReadOptions()
    return read_as(find_format(content, format_name, options.format_option), content, options)


def read_as(annotation_format: Format, content: Content, options: ReadOptions | None = None) -> Annotations:
    """The annotations of content in a format; BenchError if there is no image, or a field that has no effect."""
    options = options or ReadOptions()
    if not annotation_format.takes_fields and (options.image_field is not None or options.caption_field is not None):
        option = "--file-column" if options.image_field is not None else options.caption_option
        raise BenchError(f"{content.path} is {annotation_format.title}: {option} does not apply", "leave it out")
    annotations = annotation_format.read(content, options)
    if annotations.rejected:
        fields = " or ".join(REJECTED_FIELDS)
        count = f"{annotations.rejected:,} captions"
        annotations.notes.append(f"left out: {count} that are marked {fields}, as VizWiz's API does")
    if not annotations.images and not annotations.problems:
        raise BenchError(
            f"{content.path} has no images", f"an entry of {annotation_format.title} is: {annotation_format.example}"
        )
    return annotations


def single_file(path: Path) -> Path:
    """The one table of a folder without metadata, or the path itself."""
    if not path.is_dir() or image_folders.metadata_files(path):
        return path
    for patterns in (("*.csv", "*.tsv"), ("captions.txt",), ("*.token.txt", "*.token")):
        tables = sorted(table for pattern in patterns for table in path.glob(pattern))
        if len(tables) > 1:
            raise BenchError(
                f"{path} holds {', '.join(table.name for table in tables)}", f"give the one that is meant: {tables[0]}"
            )
        if tables:
            return tables[0]
    return path


def _nearest(content: Content) -> str:
    """The name of the format that content of this kind most probably should have."""
    if content.is_folder:
        return "imagefolder"
    if content.top:
        return "karpathy" if "images" in content.top else "by-image"
    return "list" if content.is_json else "table"
