"""Annotations in the forms that people have become the same data set, and every hint is a command that works."""

import csv
import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from harness.data.formats.references import read_references
from harness.utils.errors import BenchError
from tests.harness.conftest import bench, bench_ok

CAPTIONS = {f"photo_{number}.jpg": [f"a dog number {number}", f"one animal, no {number}"] for number in range(1, 7)}
SPLITS = dict(zip(CAPTIONS, ["train", "train", "train", "val", "test", "test"], strict=True))
WORDS = {"train": "training", "val": "validation", "test": "test"}
Write = Callable[[Path], Path]


def pictures(folder: Path, names: Mapping[str, object] = CAPTIONS) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        Image.new("RGB", (8, 6), (number, 40 * number % 256, 3)).save(folder / name)
    return folder


def rows(folder: Path) -> Path:
    lines = [f'{name},"{text}",{SPLITS[name]}' for name, texts in CAPTIONS.items() for text in texts]
    return write(folder / "captions.csv", "\n".join(["image,caption,split", *lines]))


def kaggle(folder: Path) -> Path:
    rows(folder)
    return (folder / "captions.csv").rename(folder / "captions.txt")


def json_lists(folder: Path) -> Path:
    with (folder / "lists.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["raw", "split", "filename"])
        writer.writerows([json.dumps(texts), SPLITS[name], name] for name, texts in CAPTIONS.items())
    return folder / "lists.csv"


def python_lists(folder: Path) -> Path:
    lines = [f'{name},"{texts}",{WORDS[SPLITS[name]]}' for name, texts in CAPTIONS.items()]
    return write(folder / "lists.csv", "\n".join(["image,caption,split", *lines]))


def tokens(folder: Path) -> Path:
    lines = [f"{name}#{number}\t{text}" for name, texts in CAPTIONS.items() for number, text in enumerate(texts)]
    for part, split in (("train", "train"), ("dev", "val"), ("test", "test")):
        write(folder / f"Flickr_8k.{part}Images.txt", "\n".join(name for name in CAPTIONS if SPLITS[name] == split))
    return write(folder / "Flickr8k.token.txt", "\n".join(lines))


def wide(folder: Path) -> Path:
    lines = [",".join((name, *(f'"{text}"' for text in texts), SPLITS[name])) for name, texts in CAPTIONS.items()]
    return write(folder / "wide.csv", "\n".join(["file_name,caption_0,caption_1,split", *lines]))


def metadata(folder: Path) -> Path:
    lines = [
        json.dumps({"file_name": name, "caption": texts, "split": SPLITS[name]}) for name, texts in CAPTIONS.items()
    ]
    return write(folder / "metadata.jsonl", "\ufeff" + "\n".join(lines)).parent


def stems(folder: Path) -> Path:
    lines = [f'{Path(name).stem},"{text}",{SPLITS[name]}' for name, texts in CAPTIONS.items() for text in texts]
    return write(folder / "stems.csv", "\n".join(["ID,Caption,split", *lines]))


def windows(folder: Path) -> Path:
    lines = [f"{name}\t{text}\t{SPLITS[name]}" for name, texts in CAPTIONS.items() for text in texts]
    return write(folder / "captions.tsv", "\r\n".join(["image\tcaption\tsplit", *lines]), "utf-16")


def by_split(folder: Path) -> Path:
    entries: dict[str, list[object]] = {"training": [], "val": [], "test": []}
    for name, texts in CAPTIONS.items():
        split = {"train": "training"}.get(SPLITS[name], SPLITS[name])
        entries[split].append({"id": name.partition(".")[0], "report": texts, "image_path": [name, f"side/{name}"]})
    return write(folder / "annotation.json", json.dumps(entries))


def write(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def content_of(out: Path) -> dict[str, Any]:
    images = json.loads(out.read_text())["images"]
    return {image["filename"]: ([each["raw"] for each in image["sentences"]], image["split"]) for image in images}


@pytest.mark.parametrize(
    "form",
    [rows, kaggle, json_lists, python_lists, tokens, wide, metadata, stems, windows, by_split],
    ids=lambda form: form.__name__,
)
def test_one_form_says_what_another_does(form: Write, tmp_path: Path) -> None:
    source = form(pictures(tmp_path / "photos"))
    out = tmp_path / "dataset.json"
    bench_ok("data", "convert", source, "--images", tmp_path / "photos", "--out", out)
    assert content_of(out) == {name: (texts, SPLITS[name]) for name, texts in CAPTIONS.items()}


def test_columns_that_differ_are_asked_about(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "photos")
    lines = [json.dumps({"file_name": name, "text": "EXIT", "caption": texts[0]}) for name, texts in CAPTIONS.items()]
    write(folder / "metadata.jsonl", "\n".join(lines))
    words = ["data", "convert", folder, "--split-by", "hash:40/30/30", "--force", "--out", tmp_path / "dataset.json"]
    refused = bench(*words).exception
    assert isinstance(refused, BenchError)
    assert refused.hint is not None
    bench_ok(*words, *shlex.split(refused.hint.partition(": ")[2]))
    assert {texts[0] for texts, _ in content_of(tmp_path / "dataset.json").values()} == {
        t[0] for t in CAPTIONS.values()
    }


def coco(folder: Path, **more: Any) -> Path:
    images = [{"id": n, "file_name": name, **more} for n, name in enumerate(CAPTIONS)]
    annotations = [
        {"id": 10 * n + k, "image_id": n, "caption": text, "tokenized": text.upper(), "is_rejected": k == 1 and n == 0}
        for n, texts in enumerate(CAPTIONS.values())
        for k, text in enumerate(texts)
    ]
    return write(folder / "captions.json", json.dumps({"images": images, "annotations": annotations}))


def test_domains_rejected_captions_and_the_caption_column_of_coco(tmp_path: Path) -> None:
    source, out = coco(pictures(tmp_path / "photos"), domain="near-domain"), tmp_path / "dataset.json"
    words = [
        "data",
        "convert",
        source,
        "--images",
        tmp_path / "photos",
        "--split-by",
        "hash:40/30/30",
        "--force",
        "--out",
        out,
    ]
    said = bench_ok(*words, "--caption-column", "tokenized").output
    images = {image["filename"]: image for image in json.loads(out.read_text())["images"]}
    assert {image["domain"] for image in images.values()} == {"near-domain"}
    assert [each["raw"] for each in images["photo_1.jpg"]["sentences"]] == ["A DOG NUMBER 1"]
    assert "1 captions" in said, "what VizWiz marks as rejected is left out, and said"
    refused = bench(*words, "--caption-column", "nonsense").exception
    assert isinstance(refused, BenchError)
    assert "nonsense" in str(refused)


def test_references_need_no_pictures(tmp_path: Path) -> None:
    by_name = {name: tuple(texts) for name, texts in CAPTIONS.items()}
    forms = [
        write(tmp_path / "a.json", json.dumps(CAPTIONS)),
        write(tmp_path / "b.json", json.dumps({name: [{"caption": t} for t in ts] for name, ts in CAPTIONS.items()})),
        write(tmp_path / "c.json", json.dumps([{"image_id": name, "captions": ts} for name, ts in CAPTIONS.items()])),
        write(
            tmp_path / "d.json",
            json.dumps({"data": [{"image_id": n, "reference_strs": ts} for n, ts in CAPTIONS.items()]}),
        ),
        write(
            tmp_path / "e.csv",
            "\n".join(["image,caption", *(f'{name},"{t}"' for name, ts in CAPTIONS.items() for t in ts)]),
        ),
    ]
    for form in forms:
        references = read_references(form)
        assert {references.labels[number]: texts for number, texts in references.captions.items()} == by_name, form


def test_ids_that_are_texts_name_images(tmp_path: Path) -> None:
    images = [{"id": f"2008_{n:06d}", "file_name": f"2008_{n:06d}.jpg"} for n in range(3)]
    annotations = [{"id": n, "image_id": image["id"], "caption": f"a dog {n}"} for n, image in enumerate(images)]
    path = write(tmp_path / "refs.json", json.dumps({"images": images, "annotations": annotations}))
    references = read_references(path)
    assert references.captions == {n: (f"a dog {n}",) for n in range(3)}
    assert references.labels[2] == "2008_000002"


def test_conversion_and_verification_send_nobody_in_circles(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "photos")
    strange = write(tmp_path / "annotation.json", json.dumps({"first": [{"id": "a", "report": "text"}]}))
    for words in (("verify", strange), ("convert", strange, "--out", tmp_path / "d.json")):
        refused = bench("data", *words, "--images", folder).exception
        assert isinstance(refused, BenchError)
        assert strange.name not in (refused.hint or ""), "no command with this file, which none reads"
    source = rows(folder)
    bench_ok("data", "convert", source, "--images", folder, "--out", tmp_path / "d.json")
    again = bench("data", "convert", tmp_path / "d.json", "--images", folder, "--out", tmp_path / "e.json").exception
    assert isinstance(again, BenchError)
    assert again.hint is not None
    bench_ok(*shlex.split(again.hint[again.hint.index("bench data") :])[1:], "--workspace", tmp_path / "workspace")


def test_an_entry_with_two_pictures_gives_its_first(tmp_path: Path) -> None:
    folder = pictures(tmp_path, ["a.png", "b.png", "c.png", "side.png"])
    entries = {
        "train": [{"id": "A1", "report": "clear lungs", "image_path": ["a.png", "side.png"]}],
        "val": [{"id": "B1", "report": "small effusion", "image_path": ["b.png"]}],
        "test": [
            {"id": "C1", "report": "normal heart", "image_path": "c.png"},
            {"id": "D1", "report": "large heart", "image_path": []},
        ],
    }
    source, out = write(tmp_path / "annotation.json", json.dumps(entries)), tmp_path / "dataset.json"
    words = ["data", "convert", source, "--images", folder, "--force", "--out", out]
    refused = bench(*words).exception
    assert isinstance(refused, BenchError)
    assert "test, entry 1" in str(refused)
    said = bench_ok(*words, "--skip-bad-images").output
    assert content_of(out) == {
        "a.png": (["clear lungs"], "train"),
        "b.png": (["small effusion"], "val"),
        "c.png": (["normal heart"], "test"),
    }
    assert "1 entries have several pictures" in said


def test_reports_by_split_are_references_and_are_converted_before_they_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    source = by_split(pictures(tmp_path / "images")).rename("annotation.json")
    references = read_references(source)
    assert references.labels == {0: "photo_5", 1: "photo_6"}
    assert references.files == {0: "photo_5.jpg", 1: "photo_6.jpg"}
    assert references.captions[1] == tuple(CAPTIONS["photo_6.jpg"])
    assert read_references(source, split="val").labels == {0: "photo_4"}
    assert len(read_references(source, split="train").labels) == 3, "its own word is training"
    with pytest.raises(BenchError, match="no split 'nocaps'"):
        read_references(source, split="nocaps")
    for field, suffix in (("id", ""), ("image_path", ".jpg")):
        captions = [{field: f"photo_{number}{suffix}", "report": f"a dog number {number}"} for number in (6, 5)]
        predictions = write(tmp_path / f"{field}.json", json.dumps(captions))
        out = tmp_path / f"scores_{field}.json"
        bench_ok("evaluate", predictions, "--references", source, "--no-meteor", "--out", out)
        assert json.loads(out.read_text())["scores"]["BLEU-4"] == pytest.approx(1)
    words = ["run", "--data", source, "--images", "images", "--backbone", "filterbank", "--models", "blind"]
    refused = bench(*words, "--workspace", "workspace").exception
    assert isinstance(refused, BenchError)
    assert refused.hint is not None
    bench_ok(*shlex.split(refused.hint[refused.hint.index("bench data") :])[1:])
    bench_ok("data", "verify", "dataset_annotation.json", "--images", "images", "--workspace", "workspace")


def test_one_caption_a_picture_proposes_no_people(tmp_path: Path) -> None:
    folder = pictures(tmp_path / "photos")
    lines = [f'{name},"{texts[0]}",{SPLITS[name]}' for name, texts in CAPTIONS.items()]
    source = write(folder / "captions.csv", "\n".join(["image,caption,split", *lines]))
    said = bench_ok("data", "convert", source, "--images", folder, "--out", tmp_path / "d.json").output
    assert "human" not in said


def test_the_folder_that_kaggle_gives_becomes_a_leaderboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Flickr8k as Kaggle packs it: Images/ and captions.txt; no command is taken from an error."""
    monkeypatch.chdir(tmp_path)
    names = {f"{1000 + number}_ab{number}.jpg": number for number in range(24)}
    pictures(tmp_path / "flickr8k" / "Images", names)
    lines = [f"{name},A dog number {number} runs ." for name, number in names.items()]
    more = [f"{name},One animal of {number} is there ." for name, number in names.items()]
    write(tmp_path / "flickr8k" / "captions.txt", "\n".join(["image,caption", *lines, *more]))
    said = bench_ok("data", "convert", "flickr8k", "--split-by", "hash:40/30/30", "--out", "dataset.json").output
    assert "Kaggle captions.txt: 24 images, 48 captions, no splits" in said
    data = ["dataset.json", "--images", "flickr8k/Images"]
    bench_ok("data", "verify", *data)
    options = ["--backbone", "filterbank", "--preset", "smoke", "--models", "transformer_base,blind,majority"]
    ran = bench_ok("run", "--data", *data, *options, "--set", "schedule.stages.0.epochs=1")
    bench_ok("report")
    assert all(model in ran.output for model in ("transformer_base", "blind", "majority"))


@pytest.mark.parametrize("form", ["image_id", "file", "key"])
def test_numbers_that_name_pictures_are_kept(form: str, tmp_path: Path) -> None:
    numbers = [10, 2, 0, 1]
    folder = pictures(tmp_path / "photos", [f"{number}.jpg" for number in numbers])
    if form == "key":
        source = write(tmp_path / "captions.json", json.dumps({str(n): [f"a dog number {n}"] for n in numbers}))
    else:
        heading = "image_id,file,caption" if form == "image_id" else "image,caption"
        cell = "{0},{0}.jpg" if form == "image_id" else "{0}.jpg"
        lines = [f"{cell.format(number)},a dog number {number}" for number in numbers]
        source = write(tmp_path / "captions.csv", "\n".join([heading, *lines]))
    out = tmp_path / "dataset.json"
    words = ["--images", folder, "--split-by", "hash:40/30/30", "--out", out]
    bench_ok("data", "convert", source, *words, "--format", "by-image" if form == "key" else "table")
    images = json.loads(out.read_text())["images"]
    ids = {image["filename"]: image.get("cocoid", image.get("imgid")) for image in images}
    assert ids == {f"{number}.jpg": number for number in numbers}
