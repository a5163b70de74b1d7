"""One file, or a folder, in each form of annotations: three pictures with captions."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

CAPTIONS = {
    "391.jpg": ["a dog runs", "one dog, running"],
    "77.jpg": ["two girls fly a kite", "a kite is held"],
    "5012.jpg": ["a red bus", "the bus is red"],
}
Fields = dict[str, object]
PAIRS = [(name, text) for name, texts in CAPTIONS.items() for text in texts]


def coco(
    folder: Path, *, of_images: dict[str, object] | None = None, of_captions: dict[str, object] | None = None
) -> Path:
    ids = {name: int(name.removesuffix(".jpg")) for name in CAPTIONS}
    images = [{"id": ids[name], "file_name": name, **(of_images or {})} for name in CAPTIONS]
    annotations = [
        {"id": number, "image_id": ids[name], "caption": text, **(of_captions or {})}
        for number, (name, text) in enumerate(PAIRS)
    ]
    return as_json(folder / "captions.json", {"images": images, "annotations": annotations})


def nocaps(folder: Path) -> Path:
    return coco(folder, of_images={"domain": "near-domain"})


def vizwiz(folder: Path) -> Path:
    return coco(folder, of_captions={"is_rejected": False, "is_precanned": False})


def stair(folder: Path) -> Path:
    return coco(folder, of_captions={"tokenized_caption": "a dog"})


def karpathy(folder: Path) -> Path:
    images = [
        {"imgid": number, "filename": name, "split": "test", "sentences": [{"raw": text} for text in texts]}
        for number, (name, texts) in enumerate(CAPTIONS.items())
    ]
    return as_json(folder / "dataset.json", {"dataset": "three", "images": images})


def flickr_tokens(folder: Path) -> Path:
    lines = [f"{name}#{number}\t{text}" for name, texts in CAPTIONS.items() for number, text in enumerate(texts)]
    return as_text(folder / "Flickr8k.token.txt", lines)


def flickr_results(folder: Path) -> Path:
    lines = [f"{name}| {number}| {text}" for name, texts in CAPTIONS.items() for number, text in enumerate(texts)]
    return as_text(folder / "results.csv", ["image_name| comment_number| comment", *lines])


def kaggle(folder: Path) -> Path:
    return as_text(folder / "captions.txt", ["image,caption", *(f'{name},"{text}"' for name, text in PAIRS)])


def table(folder: Path) -> Path:
    rows = [f"{name}\t{texts[0]}\t{texts[1]}" for name, texts in CAPTIONS.items()]
    return as_text(folder / "wide.tsv", ["file_name\tcaption_0\tcaption_1", *rows])


def imagefolder(folder: Path) -> Path:
    as_text(
        folder / "metadata.jsonl", [json.dumps({"file_name": n, "captions": texts}) for n, texts in CAPTIONS.items()]
    )
    return folder


def pairs(folder: Path) -> Path:
    for name, texts in CAPTIONS.items():
        Image.new("RGB", (4, 4)).save(folder / name)
        as_text((folder / name).with_suffix(".txt"), texts)
    return folder


def parquet(folder: Path) -> Path:
    pq.write_table(_columns(), folder / "three.parquet")
    return folder / "three.parquet"


def datasets_folder(folder: Path) -> Path:
    table = _columns()
    with pa.ipc.new_stream(folder / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    as_json(folder / "dataset_info.json", {})
    as_json(folder / "state.json", {"_data_files": [{"filename": "data-00000-of-00001.arrow"}]})
    return folder


def _columns() -> pa.Table:
    return pa.table({"file_name": list(CAPTIONS), "captions": list(CAPTIONS.values())})


def textcaps(folder: Path) -> Path:
    data = [
        {"image_id": name, "caption_str": text, "reference_strs": texts}
        for name, texts in CAPTIONS.items()
        for text in texts
    ]
    return as_json(folder / "TextCaps.json", {"data": data, "dataset_name": "textcaps"})


def reports(folder: Path) -> Path:
    entries = [{"id": n, "report": texts, "image_path": [n, f"side/{n}"]} for n, texts in CAPTIONS.items()]
    return as_json(folder / "annotation.json", {"train": [], "val": [], "test": entries})


def llava(folder: Path) -> Path:
    entries = [
        {
            "id": str(number),
            "image": name,
            "conversations": [{"from": "human", "value": "<image>\nDescribe."}, {"from": "gpt", "value": text}],
        }
        for number, (name, text) in enumerate(PAIRS)
    ]
    return as_json(folder / "llava.json", entries)


def narratives(folder: Path) -> Path:
    lines = [{"image_id": name, "annotator_id": 7, "caption": text, "voice_recording": "a.ogg"} for name, text in PAIRS]
    return as_text(folder / "narratives.jsonl", list(map(json.dumps, lines)))


def by_image(folder: Path) -> Path:
    return as_json(folder / "gts.json", {name: [{"caption": text} for text in ts] for name, ts in CAPTIONS.items()})


def list_of_captions(folder: Path) -> Path:
    return as_json(folder / "list.json", [{"image_id": name, "caption": text} for name, text in PAIRS])


def conceptual(folder: Path) -> Path:
    return as_text(folder / "Validation_GCC.tsv", [f"{text}\thttps://example.org/{name}" for name, text in PAIRS])


def as_json(path: Path, content: object) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def as_text(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


EXAMPLES: dict[str, Callable[[Path], Path]] = {
    "coco": coco,
    "nocaps": nocaps,
    "vizwiz": vizwiz,
    "stair": stair,
    "karpathy": karpathy,
    "flickr-tokens": flickr_tokens,
    "flickr-results": flickr_results,
    "kaggle": kaggle,
    "table": table,
    "imagefolder": imagefolder,
    "pairs": pairs,
    "parquet": parquet,
    "datasets-folder": datasets_folder,
    "textcaps": textcaps,
    "reports": reports,
    "llava": llava,
    "narratives": narratives,
    "by-image": by_image,
    "list": list_of_captions,
    "conceptual": conceptual,
}
"""What writes an example into an empty folder, by the name of its format."""
