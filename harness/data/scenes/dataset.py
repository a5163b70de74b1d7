"""The embedded data set: drawn images of coloured objects in relations, generated on first use, equal on every machine.

It poses the tasks of photographs on a small scale: name objects, colours and sizes, count, and describe relations, with
references by different annotators. It comes as a folder in Karpathy's format, with object boxes, and
with a nocaps-like split (Agrawal et al., "nocaps: novel object captioning at scale", ICCV 2019) whose images are
in-domain (objects of the training split), near-domain (those beside novel ones) or out-domain (novel objects only).
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from harness.data.dataset import Dataset
from harness.data.scenes.drawing import (
    BACKGROUND_COLOURS,
    OBJECT_COLOURS,
    TEXTURE_CONTRAST,
    Colour,
    draw_background,
    draw_object,
    encode_png,
)
from harness.data.scenes.language import describe
from harness.data.scenes.layout import DOMAINS, IMAGE_SIZE, Chance, Scene, compose
from harness.utils.errors import BenchError
from harness.utils.hashing import canonical_json, digest
from harness.utils.json_io import read_json
from harness.utils.progress import Reporter, silent
from harness.utils.workspace import locked

CAPTIONS = 5
_NOISE = 12
_COLOUR_JITTER = 14  # maximum change of an object's colour, per channel and image, of 255; backgrounds: half of it
ANNOTATIONS = "dataset_scenes.json"
VERSION = 1  # raise it with any change to images or captions: results of different versions must not be compared


@dataclass(frozen=True, slots=True)
class ScenesConfig:
    """The parameters of the embedded data set: numbers of images of each split and domain, and a seed."""

    train: int = 1500
    val: int = 150
    test: int = 1000
    nocaps_per_domain: int = 200
    seed: int = 0

    def digest(self) -> str:
        """The name of the generated folder, from these values and the generator's version."""
        return digest({"version": VERSION, **asdict(self)})


SCENES: Final = {"scenes": ScenesConfig(), "scenes-6k": ScenesConfig(train=6000, val=300)}
"""The embedded data sets by name. The larger one has all pictures of the other, and the same to test on."""


def scenes_folder(cache_dir: Path, config: ScenesConfig) -> Path:
    """The folder of the data set, generated or not."""
    return cache_dir / f"scenes-{config.digest()}"


def prepare_scenes(cache_dir: Path, config: ScenesConfig | None = None, reporter: Reporter | None = None) -> Path:
    """The folder of the embedded data set, generated, as a whole and by one process, if it is not there yet."""
    config = config or ScenesConfig()
    folder = scenes_folder(cache_dir, config)
    if folder.is_dir():
        return folder
    partial = cache_dir / f".{folder.name}.partial"
    try:
        with locked(cache_dir / f".{folder.name}.lock", on_wait=lambda: None):
            if not folder.is_dir():
                shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
                _write(partial, config, reporter or silent())
                partial.rename(folder)
    except OSError as error:
        raise BenchError(
            f"the embedded data set cannot be written to {cache_dir}: {error.strerror}",
            hint="choose another place with --workspace DIR",
        ) from error
    return folder


@dataclass(frozen=True, slots=True)
class DrawnScene:
    """A scene with its image: `boxes` are those of its items, in their order, in pixels."""

    scene: Scene
    captions: tuple[str, ...]
    png: bytes
    boxes: list[tuple[int, int, int, int]]


def draw_scene(config: ScenesConfig, split: str, domain: str | None, index: int) -> DrawnScene:
    """Compose, describe and draw one scene, by a random generator of its own, whatever the size of the splits."""
    chance, scene = _composed(config, split, domain, index)
    captions = describe(chance, scene, CAPTIONS)
    png, boxes = _draw(chance, scene, _name(config, split, domain, index))
    return DrawnScene(scene, captions, png, boxes)


def compose_scenes(config: ScenesConfig) -> Iterator[Scene]:
    """The scenes of all images of a data set, in the order of their ids, without drawing them."""
    for plan in planned(config):
        yield _composed(config, *plan)[1]


def config_of(content: object) -> ScenesConfig:
    """What the images of a parsed `dataset_scenes.json` were drawn by; ValueError if not by this version."""
    stated = content.get("config") if isinstance(content, dict) and content.get("version") == VERSION else None
    if not isinstance(stated, dict) or stated.keys() != asdict(ScenesConfig()).keys():
        raise ValueError("they are not scenes that this version drew")
    if any(type(value) is not int for value in stated.values()):
        raise ValueError("their numbers are none")
    return ScenesConfig(**stated)


def _composed(config: ScenesConfig, split: str, domain: str | None, index: int) -> tuple[Chance, Scene]:
    """One scene, neither described nor drawn, and its random generator as it then is."""
    chance = Chance(_name(config, split, domain, index))
    return chance, compose(chance, domain or "in-domain")


def _name(config: ScenesConfig, split: str, domain: str | None, index: int) -> str:
    return f"{config.seed}/{split}/{domain}/{index}"


def _write(folder: Path, config: ScenesConfig, reporter: Reporter) -> None:
    (folder / "images").mkdir(parents=True)
    entries = []
    scenes = list(planned(config))
    with reporter.task("Drawing scenes", len(scenes)) as task:
        for image_id, (split, domain, index) in enumerate(scenes):
            drawn = draw_scene(config, split, domain, index)
            entry: dict[str, Any] = {
                "imgid": image_id,
                "filename": f"{image_id:06d}.png",
                "split": split,
                "sentences": [{"raw": caption} for caption in drawn.captions],
                "boxes": drawn.boxes,
            }
            (folder / "images" / entry["filename"]).write_bytes(drawn.png)
            entries.append(entry if domain is None else {**entry, "domain": domain})
            task.advance()
    content = {"dataset": "scenes", "version": VERSION, "config": asdict(config), "images": entries}
    with (folder / ANNOTATIONS).open("w", encoding="utf-8") as file:
        file.write(canonical_json(content))
        file.flush()
        os.fsync(file.fileno())


def planned(config: ScenesConfig) -> Iterator[tuple[str, str | None, int]]:
    """Split, domain and number within them, of each image, in the order of their ids."""
    for split in ("train", "val", "test"):
        for index in range(getattr(config, split)):
            yield split, None, index
    for domain in DOMAINS:
        for index in range(config.nocaps_per_domain):
            yield "nocaps", domain, index


def _draw(chance: Chance, scene: Scene, noise_seed: str) -> tuple[bytes, list[tuple[int, int, int, int]]]:
    """Paint the scene: (PNG, object boxes in the order of the scene's items)."""
    background = _varied(chance, BACKGROUND_COLOURS[scene.background], _COLOUR_JITTER // 2)
    contrast = TEXTURE_CONTRAST if background[0] < 128 else -TEXTURE_CONTRAST
    colours = [background, _shifted(background, contrast)]
    layers = draw_background(IMAGE_SIZE, scene.texture)
    boxes = {}
    for index, item in reversed(list(enumerate(scene.items))):  # objects inside or on others are painted over them
        boxes[index] = draw_object(layers, item.shape, item.x, item.y, item.size, layer=len(colours))
        body = _varied(chance, OBJECT_COLOURS[item.colour], _COLOUR_JITTER)
        colours += [body, (body[0] * 11 // 20, body[1] * 11 // 20, body[2] * 11 // 20)]
    return encode_png(layers, colours, _NOISE, noise_seed), [boxes[index] for index in sorted(boxes)]


def _varied(chance: Chance, colour: Colour, jitter: int) -> Colour:
    red, green, blue = (min(255, max(0, channel + chance.between(-jitter, jitter))) for channel in colour)
    return red, green, blue


def _shifted(colour: Colour, shift: int) -> Colour:
    red, green, blue = (min(255, max(0, channel + shift)) for channel in colour)
    return red, green, blue


def annotations_of(dataset: Dataset) -> Path | None:
    """The annotations beside these images, if each is named as the scene of its id is; None of other data."""
    if any(Path(sample.file).name != f"{sample.image_id:06d}.png" for sample in dataset.samples):
        return None
    folders = (dataset.root, dataset.root.parent)
    return next((folder / ANNOTATIONS for folder in folders if (folder / ANNOTATIONS).is_file()), None)


def read_scenes(file: Path | None) -> dict[int, Scene] | None:
    """The scene of every image, by id, composed again, or None of other data; BenchError if another version drew it."""
    content = None if file is None else read_json(file)
    if not isinstance(content, dict) or content.get("dataset") != "scenes" or "config" not in content:
        return None
    try:
        scenes = dict(enumerate(compose_scenes(config_of(content))))
        box_counts = {entry["imgid"]: len(entry["boxes"]) for entry in content["images"]}
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(
            f"the file of scenes was not written by this generator ({error})", "let `bench run` generate it anew"
        ) from error
    if not box_counts.items() <= {image_id: len(scene.items) for image_id, scene in scenes.items()}.items():
        raise BenchError("the file of scenes was changed after it was generated", "let `bench run` generate it anew")
    return scenes
