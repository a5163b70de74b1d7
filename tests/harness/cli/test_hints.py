"""A hint is a command that works with the very file that was refused: each is typed as it stands."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from harness.utils.errors import BenchError
from tests.harness.conftest import bench, bench_ok

CAPTIONS = {number: f"a dog on street number {number}" for number in (391, 77, 12, 640)}
Write = Callable[[str, object], Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write files into the current folder, which has references of the images and their pictures."""
    monkeypatch.chdir(tmp_path)

    def make(name: str, content: object) -> Path:
        path = Path(name)
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    images = [{"id": number, "file_name": f"photo_{number}.jpg"} for number in CAPTIONS]
    annotations = [{"id": n, "image_id": n, "caption": f"{text} today"} for n, text in CAPTIONS.items()]
    make("refs.json", {"images": images, "annotations": annotations})
    Path("photos").mkdir()
    for index, image in enumerate(images):
        Image.new("RGB", (8, 6), (40 * index, 3, 3)).save(Path("photos", str(image["file_name"])))
    return make


def hint_of(*words: object) -> str:
    refused = bench(*words).exception
    assert isinstance(refused, BenchError), refused
    assert refused.hint
    return refused.hint


def options_in(hint: str) -> list[str]:
    """The options that a hint gives: each with its value, where one follows."""
    found = re.findall(r"(--[a-z-]+)(?: ([\w./:]+))?(?=$|[,;:)\s])", hint)
    option, value = found[0]
    return [option, *([value] if value and option not in {"--by-position", "--allow-subset"} else [])]


def entries(**fields: Callable[[int, int], object]) -> list[dict[str, Any]]:
    """A caption of each image with these fields, of its place and its id."""
    return [
        {name: value(place, number) for name, value in fields.items()} | {"caption": text}
        for place, (number, text) in enumerate(CAPTIONS.items())
    ]


NUMBERS = list(CAPTIONS)
PREDICTIONS: dict[str, object] = {
    "without ids": list(CAPTIONS.values()),
    "numbered rows": entries(image_id=lambda place, _: place),
    "two fields of ids": entries(a=lambda _, number: number, b=lambda place, _: NUMBERS[-1 - place]),
    "two fields of captions": [entry | {"prediction": "a dog"} for entry in entries(image_id=lambda _, number: number)],
    "one image missing": entries(image_id=lambda _, number: number)[:-1],
    "one empty caption": [*entries(image_id=lambda _, number: number)[:-1], {"image_id": 640, "caption": ""}],
}


@pytest.mark.parametrize("kind", PREDICTIONS)
def test_hints_for_predictions(kind: str, write: Write) -> None:
    path = write("predictions.json", PREDICTIONS[kind])
    words = ("evaluate", path, "--references", "refs.json", "--no-meteor")
    bench_ok(*words, *options_in(hint_of(*words)))


@pytest.mark.skipif(shutil.which("iconv") is None, reason="no iconv on this machine")
@pytest.mark.parametrize("name", ["predictions.json", "predictions.csv"])
def test_hints_for_encodings(name: str, write: Write) -> None:
    texts = {number: f"{text} at the Café" for number, text in CAPTIONS.items()}
    if name.endswith(".csv"):
        content = "\n".join(["image_id,caption", *(f"{number},{text}" for number, text in texts.items())])
    else:
        content = json.dumps(texts, ensure_ascii=False)
    words = ("evaluate", write(name, content.encode("latin1")), "--references", "refs.json", "--no-meteor")
    command = hint_of(*words).removeprefix("convert it: ").partition(";")[0]
    subprocess.run(command, shell=True, check=True)
    bench_ok("evaluate", f"utf8-{name}", *words[2:])


@pytest.mark.parametrize("kind", ["file,words", "picture,caption", "file,text,caption"])
def test_hints_for_columns(kind: str, write: Write) -> None:
    headings = kind.split(",")
    rows = []
    for number, text in CAPTIONS.items():
        cells = {"file": f"photo_{number}.jpg", "picture": f"photo_{number}.jpg", "text": "EXIT"}
        rows.append(",".join(cells.get(name, text) for name in headings))
    path = write("table.csv", "\n".join([kind, *rows]))
    words = ("data", "convert", path, "--images", "photos", "--split-by", "hash:50/25/25", "--out", "d.json")
    option, column = options_in(hint_of(*words))
    wanted = {"file,words": "words", "picture,caption": "picture", "file,text,caption": "caption"}[kind]
    assert column in headings
    out = bench(*words, option, wanted)
    assert out.exit_code == 0 or "leaves no picture" in str(out.exception)


def test_a_table_without_headings_gets_some(write: Write) -> None:
    rows = [f"{text}, seen\tphoto_{number}.jpg" for number, text in CAPTIONS.items()]
    path = write("table.tsv", "\n".join(rows))
    words = ("data", "convert", path, "--images", "photos", "--split-by", "hash:100/0/0", "--out", "d.json")
    subprocess.run(hint_of(*words).partition(": ")[2], shell=True, check=True)
    bench_ok("data", "convert", "named.tsv", *words[3:])


def test_karpathys_file_is_verified_instead_of_converted(write: Write) -> None:
    images = [
        {"imgid": number, "filename": f"photo_{number}.jpg", "split": "test", "sentences": [{"raw": text}]}
        for number, text in CAPTIONS.items()
    ]
    path = write("dataset.json", {"images": images})
    hint = hint_of("data", "convert", path, "--images", "photos", "--out", "d.json")
    bench_ok(*shlex.split(hint[hint.index("bench ") :])[1:], "--workspace", "workspace")


@pytest.mark.parametrize("name", ["captions.csv", "captions.tsv", "metadata.jsonl", "captions.json"])
@pytest.mark.parametrize("command", [("data", "verify"), ("run", "--backbone", "filterbank", "--data")])
def test_what_is_not_karpathys_is_converted(name: str, command: tuple[str, ...], write: Write) -> None:
    """A table, an imagefolder's lines and captions by image, as they stand."""
    by_file = {f"photo_{number}.jpg": text for number, text in CAPTIONS.items()}
    parted = dict(zip(by_file.items(), ("train", "val", "val", "test"), strict=True))
    delimiter = "\t" if name.endswith(".tsv") else ","
    rows = [delimiter.join([file, text, split]) for (file, text), split in parted.items()]
    lines = [json.dumps({"file_name": file, "caption": text, "split": split}) for (file, text), split in parted.items()]
    entries: dict[str, list[object]] = {split: [] for split in ("train", "val", "test")}
    for (file, text), split in parted.items():
        entries[split].append({"image": file, "caption": text})
    content = {
        "metadata.jsonl": "\n".join(lines),
        "captions.json": json.dumps(entries),
    }.get(name, "\n".join([delimiter.join(["file", "caption", "split"]), *rows]))
    path = write(name, content)
    hint = hint_of(*command, path, "--images", "photos")
    bench_ok(*shlex.split(hint[hint.index("bench ") :])[1:])
    [converted] = Path().glob("dataset_*.json")
    bench_ok("data", "verify", converted, "--images", "photos", "--workspace", "workspace")


def test_references_without_pictures_are_scored_instead_of_converted(write: Write) -> None:
    rows = [f"photo_{number}.jpg,{text}" for number, text in CAPTIONS.items()]
    path = write("table.csv", "\n".join(["file,caption", *rows]))
    hint = hint_of("data", "convert", path, "--images", "nowhere", "--out", "d.json")
    assert "bench evaluate --references" in hint
    captions = write("predictions.json", {f"photo_{number}.jpg": text for number, text in CAPTIONS.items()})
    bench_ok("evaluate", captions, "--references", path, "--no-meteor")
