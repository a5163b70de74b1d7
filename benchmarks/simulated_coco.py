"""Draw a data set of COCO's size from random words, and measure what a benchmark does around the training.

    python benchmarks/simulated_coco.py make /tmp/simulated                # 123,287 images; some minutes, 2 GB
    python benchmarks/simulated_coco.py measure /tmp/simulated             # every step, in a process of its own
    python benchmarks/simulated_coco.py measure /tmp/simulated opening vocabulary

The annotations have the form and the size of Karpathy's dataset_coco.json: 616,435 captions of about 10.5 words, with
tokens. All pictures are one drawn JPEG, by hard links. Region features (`--regions` images, 36 regions of 2,048
channels) come as HDF5, as a bottom-up TSV and as a folder of npz. Seconds are of the processor, of one thread, children
included; the memory is the largest resident size.
"""

import argparse
import base64
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

IMAGES, CAPTIONS, WORDS = 123_287, 5, 9_312
SPLITS = {"test": 5_000, "val": 5_000, "restval": 30_504}  # the others are train
REGIONS, CHANNELS = 36, 2_048
PICTURE = (640, 480)
LETTERS = str.maketrans("0123456789abcdef", "ghijklmnopabcdef")  # words of digits would be tokenised slowly
LINKS = 10_000  # pictures that share one file: file systems limit links to a file
ANNOTATIONS, HDF5, TSV, NPZ = "dataset_coco.json", "regions.hdf5", "regions.tsv", "cocobu_att"


def make(folder: Path, images: int, with_regions: int) -> None:
    """Write the annotations, the pictures and the region features."""
    generator = np.random.default_rng(0)
    folder.mkdir(parents=True)
    entries = list(draw_entries(generator, images))
    (folder / ANNOTATIONS).write_text(json.dumps({"dataset": "coco", "images": entries}))
    write_pictures(folder / "images", generator, entries)
    write_regions(folder, generator, [entry["cocoid"] for entry in entries[:with_regions]])
    write_predictions(folder, entries)


def draw_entries(generator: np.random.Generator, images: int) -> Iterator[dict[str, Any]]:
    """Entries as Karpathy's file has them; words by Zipf's law, half of them from the image's theme."""
    chances = np.cumsum(1 / np.arange(2, WORDS + 2) ** 1.05)
    chances /= chances[-1]
    splits = [name for name, count in SPLITS.items() for _ in range(count * images // IMAGES)]
    for number in range(images):
        split = splits[number] if number < len(splits) else "train"
        folder = "train2014" if split == "train" else "val2014"
        theme = np.searchsorted(chances, generator.random(14))
        sentences = []
        for caption in range(CAPTIONS):
            length = generator.poisson(3.5) + 7
            from_theme = generator.random(length) < 0.5
            numbers = np.searchsorted(chances, generator.random(length))
            numbers[from_theme] = theme[generator.integers(0, 14, from_theme.sum())]
            tokens = [f"w{word:x}".translate(LETTERS) for word in numbers]
            sentence_id = number * CAPTIONS + caption
            raw = " ".join(tokens).capitalize() + "."
            sentences.append({"tokens": tokens, "raw": raw, "imgid": number, "sentid": sentence_id})
        yield {
            "filepath": folder,
            "sentids": [sentence["sentid"] for sentence in sentences],
            "filename": f"COCO_{folder}_{number + 1:012d}.jpg",
            "imgid": number,
            "split": split,
            "sentences": sentences,
            "cocoid": number + 1,
        }


def write_pictures(folder: Path, generator: np.random.Generator, entries: list[dict[str, Any]]) -> None:
    """A picture of noise for each entry; `LINKS` of them are one file."""
    width, height = PICTURE
    for name in ("train2014", "val2014"):
        (folder / name).mkdir(parents=True)
    for number, entry in enumerate(entries):
        path = folder / entry["filepath"] / entry["filename"]
        if number % LINKS == 0:
            noise = generator.integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
            Image.fromarray(noise).resize(PICTURE).save(path, quality=90)
            first = path
        else:
            path.hardlink_to(first)


def write_regions(folder: Path, generator: np.random.Generator, image_ids: list[int]) -> None:
    """The same regions in three forms."""
    import h5py

    width, height = PICTURE
    (folder / NPZ).mkdir()
    (folder / NPZ.replace("_att", "_box")).mkdir()
    with h5py.File(folder / HDF5, "w") as hdf5, (folder / TSV).open("wb") as tsv:
        for image_id in image_ids:
            features = np.maximum(generator.standard_normal((REGIONS, CHANNELS), dtype=np.float32), 0)
            corners = np.sort(generator.random((REGIONS, 2, 2), dtype=np.float32), axis=1).reshape(REGIONS, 4)
            boxes = corners * np.array([width, height, width, height], dtype=np.float32)
            hdf5[f"{image_id}_features"], hdf5[f"{image_id}_boxes"] = features, boxes
            np.savez_compressed(folder / NPZ / f"{image_id}.npz", feat=features)
            np.save(folder / NPZ.replace("_att", "_box") / f"{image_id}.npy", boxes)
            columns = [str(image_id), str(width), str(height), str(REGIONS)]
            coded = [base64.b64encode(array.tobytes()).decode() for array in (boxes, features)]
            tsv.write("\t".join([*columns, *coded]).encode() + b"\n")


def write_predictions(folder: Path, entries: list[dict[str, Any]]) -> None:
    """Twenty systems' captions of the test split: an image's own references, each with words of another."""
    test = [entry for entry in entries if entry["split"] == "test"]
    references = {
        "images": [{"id": entry["cocoid"]} for entry in test],
        "annotations": [
            {"id": sentence["sentid"], "image_id": entry["cocoid"], "caption": sentence["raw"]}
            for entry in test
            for sentence in entry["sentences"]
        ],
    }
    (folder / "references.json").write_text(json.dumps(references))
    for system in range(20):
        captions = []
        for number, entry in enumerate(test):
            tokens = entry["sentences"][system % CAPTIONS]["tokens"]
            others = test[(number + system + 1) % len(test)]["sentences"][0]["tokens"]
            half = (len(tokens) + system) // 2
            captions.append({"image_id": entry["cocoid"], "caption": " ".join(tokens[:half] + others[half:])})
        (folder / f"system{system:02d}.json").write_text(json.dumps(captions))


def import_all(folder: Path) -> None:  # noqa: ARG001
    """The modules alone, torch among them, which every worker imports."""
    import harness.benchmark.execute  # noqa: F401


def open_data(folder: Path) -> None:
    """Open the data set; the second time, what the first left in the cache is used."""
    from harness.data.opening import open_dataset

    open_dataset(str(folder), cache_dir=folder / "cache")


def find_words(folder: Path) -> Any:
    """Open the data set, and find the words of the training captions: these, the training images and the words."""
    from harness.config.preset import VocabularyConfig
    from harness.data.encoding import build_vocabulary
    from harness.data.opening import open_dataset
    from harness.data.vocabulary import counted_captions

    dataset = open_dataset(str(folder), cache_dir=folder / "cache")
    train = dataset.split("train")
    captions = list(counted_captions(dataset, train, "words"))
    return train, build_vocabulary(captions, VocabularyConfig(min_count=5, max_len=22), "words", folder / "cache")


def make_batches(folder: Path) -> None:
    """All that a worker does with the data before its first step."""
    from harness.data.batches import CaptionBatches
    from harness.data.features import NullSource
    from zoo.captioner import VisualSpec

    train, vocabulary = find_words(folder)
    CaptionBatches(
        train,
        vocabulary,
        NullSource(),
        VisualSpec("none", 0),
        batch_size=32,
        captions_per_image=5,
        seed=0,
        max_len=22,
        cache_dir=folder / "cache",
    )


def find_majority(folder: Path) -> None:
    """The caption of the baseline `majority`."""
    from harness.benchmark.baselines import majority_caption
    from harness.data.opening import open_dataset

    dataset = open_dataset(str(folder), cache_dir=folder / "cache")
    majority_caption(dataset.split("train"))


def plan(folder: Path) -> None:
    """The command that plans all models."""
    words = [
        "--models",
        "all",
        "--data",
        str(folder),
        "--regions",
        str(folder / HDF5),
        "--preset",
        "matched-parameters",
    ]
    bench("plan", *words, "--workspace", str(folder / "workspace"))


def evaluate(count: int) -> Callable[[Path], None]:
    """The command that scores so many systems on the test split."""

    def run(folder: Path) -> None:
        systems = [str(folder / f"system{number:02d}.json") for number in range(count)]
        bench("evaluate", *systems, "--references", str(folder / "references.json"))

    return run


def bench(*words: str) -> None:
    """One command, its output left out."""
    command = [sys.executable, "-m", "harness.cli", *words]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def read_source(name: str) -> Callable[[Path], None]:
    """Read and check the regions of a source as a conversion to the cache does."""

    def run(folder: Path) -> None:
        from harness.config.features import RegionConfig
        from harness.data.dataset import Dataset
        from harness.data.opening import open_dataset
        from harness.data.regions.opening import open_source
        from harness.data.regions.regions import read_regions

        dataset = open_dataset(str(folder), cache_dir=folder / "cache")
        ids = region_ids(folder)
        part = Dataset(
            "part", dataset.root, tuple(s for s in dataset.samples if s.image_id in ids), dataset.fingerprint
        )
        started = time.process_time()
        for _ in read_regions(open_source(folder / name, part), part, config=RegionConfig(source=folder / name)):
            pass
        report_inner(started)

    return run


def read_plainly(name: str) -> Callable[[Path], None]:
    """The same arrays by h5py or numpy alone, in half precision, nothing checked."""

    def run(folder: Path) -> None:
        import h5py

        ids = sorted(region_ids(folder))
        started = time.process_time()
        if name == HDF5:
            with h5py.File(folder / HDF5) as file:
                for image_id in ids:
                    file[f"{image_id}_features"][()].astype(np.float16)
                    file[f"{image_id}_boxes"][()]
        else:
            for image_id in ids:
                with np.load(folder / NPZ / f"{image_id}.npz") as arrays:
                    arrays["feat"].astype(np.float16)
                np.load(folder / NPZ.replace("_att", "_box") / f"{image_id}.npy")
        report_inner(started)

    return run


def region_ids(folder: Path) -> set[int]:
    """The images that have regions."""
    return {int(path.stem) for path in (folder / NPZ).iterdir()}


def report_inner(started: float) -> None:
    """Tell the measuring process the seconds of this part alone."""
    print(f"inner {time.process_time() - started}")


STEPS: dict[str, Callable[[Path], Any]] = {
    "imports": import_all,
    "opening": open_data,
    "opening-again": open_data,
    "vocabulary": find_words,
    "vocabulary-again": find_words,
    "batches": make_batches,
    "batches-again": make_batches,
    "majority": find_majority,
    "plan": plan,
    "evaluate-1": evaluate(1),
    "evaluate-2": evaluate(2),
    "evaluate-20": evaluate(20),
    "hdf5": read_source(HDF5),
    "hdf5-plain": read_plainly(HDF5),
    "npz": read_source(NPZ),
    "npz-plain": read_plainly(NPZ),
    "tsv": read_source(TSV),
}


def measure(folder: Path, steps: list[str]) -> None:
    """Run each step in a process of its own, and print what it took."""
    print(f"{'step':<16}{'clock s':>9}{'CPU s':>9}{'memory GB':>11}")
    for step in steps:
        started, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, __file__, "step", str(folder), step]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        seconds, after = time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
        used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        outputs = dict(line.split() for line in done.stdout.splitlines() if line.startswith(("inner ", "memory ")))
        used = float(outputs.get("inner", used))
        print(f"{step:<16}{seconds:9.1f}{used:9.2f}{float(outputs['memory']):11.2f}", flush=True)


def run_step(folder: Path, step: str) -> None:
    """One step in this process; the last line is the largest memory, of it or of its largest child, in GB."""
    STEPS[step](folder)
    peaks = [resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"memory {max(peaks) / 2**20}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("make", "measure", "step"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("steps", nargs="*", help=f"of {', '.join(STEPS)}")
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--regions", type=int, default=2_000)
    options = parser.parse_args()
    if options.command == "make":
        make(options.folder, options.images, options.regions)
    elif options.command == "measure":
        measure(options.folder, options.steps or list(STEPS))
    else:
        run_step(options.folder, options.steps[0])


if __name__ == "__main__":
    main()
