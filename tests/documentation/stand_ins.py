"""Tiny files and folders under the names that the documentation uses."""

import gzip
import json
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tests.documentation.pages import ROOT
from tests.harness.conftest import DrawScenes


def write_stand_ins(folder: Path, draw_scenes: DrawScenes) -> None:
    """Everything that a command of README or docs reads, of 34 pictures in all."""
    scenes = draw_scenes(train=24, val=4, test=6, copy_to=folder / "drawn")
    content = json.loads((scenes / "dataset_scenes.json").read_text(encoding="utf-8"))
    images: list[dict[str, Any]] = content["images"]
    shutil.copytree(scenes, folder / "scenes_tiny")
    for place in ("flickr8k/images", "pictures", "photos", "coco", "hub_folder"):
        shutil.copytree(scenes / "images", folder / place)
    _write_karpathy(folder / "dataset_photos.json", images)
    _write_karpathy(folder / "dataset_coco.json", images)
    with gzip.open(folder / "dataset_flickr8k.json.gz", "wt", encoding="utf-8") as file:
        json.dump({"dataset": "flickr8k", "images": images}, file)
    _write_nocaps(folder, images[-2:])
    _write_other_formats(folder, images)
    _write_recipes(folder, images)
    _write_graphs(folder / "graphs.json", images)
    _write_regions(folder / "cocobu_att", folder / "cocobu_box", images)
    for name in ("predictions.json", "ours.json", "theirs.json"):
        _write_predictions(folder / name, images)
    _write_backbone(folder / "mobilenetv2.pth")
    (folder / "baselines").mkdir()
    shutil.copy(ROOT / "baselines" / "flickr8k.sqlite", folder / "baselines")


def _write_karpathy(path: Path, images: Iterable[dict[str, Any]]) -> None:
    path.write_text(json.dumps({"dataset": path.stem.removeprefix("dataset_"), "images": list(images)}))


def _write_nocaps(folder: Path, images: Iterable[dict[str, Any]]) -> None:
    (folder / "pictures" / "nocaps").mkdir()
    told: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    for number, (image, domain) in enumerate(zip(images, ("in-domain", "out-domain"), strict=True)):
        shutil.copy(folder / "pictures" / image["filename"], folder / "pictures" / "nocaps")
        told["images"].append({"id": number, "file_name": image["filename"], "domain": domain})
        told["annotations"] += [{"image_id": number, "caption": each["raw"]} for each in image["sentences"]]
    (folder / "nocaps_val_4500_captions.json").write_text(json.dumps(told))


def _write_other_formats(folder: Path, images: list[dict[str, Any]]) -> None:
    """COCO's captions and instances, a CSV, and an imagefolder's lines."""
    for year, chosen in (("train2017", images[:-6]), ("val2017", images[-6:])):
        named = [{"id": image["imgid"], "file_name": image["filename"], "width": 96, "height": 96} for image in chosen]
        captions = [{"image_id": i["imgid"], "caption": said["raw"]} for i in chosen for said in i["sentences"]]
        boxes = [{"image_id": i["imgid"], "bbox": [1, 2, 3, 4]} for i in chosen]
        for name, told in (("captions", captions), ("instances", boxes)):
            (folder / f"{name}_{year}.json").write_text(json.dumps({"images": named, "annotations": told}))
    chinese = [{"image_id": image["imgid"], "caption": "一个红色的圆在左边"} for image in images[-6:]]
    named = [{"id": image["imgid"], "file_name": image["filename"]} for image in images[-6:]]
    (folder / "captions_zh.json").write_text(json.dumps({"images": named, "annotations": chinese}))
    first = [(image["filename"], image["sentences"][0]["raw"]) for image in images]
    (folder / "photos" / "captions.csv").write_text("".join(f'{a},"{b}"\n' for a, b in [("file", "caption"), *first]))
    lines = [json.dumps({"file_name": name, "text": said}) for name, said in first]
    (folder / "hub_folder" / "metadata.jsonl").write_text("\n".join(lines))


def _write_recipes(folder: Path, images: list[dict[str, Any]]) -> None:
    """The data sets of docs/recipes.md in the form that each is downloaded in."""
    pictures = folder / "pictures"
    for place in ("flickr8k_kaggle/Images", "flickr30k/flickr30k_images", "RSICD_images", "iu_xray/images", "paired"):
        shutil.copytree(pictures, folder / place, ignore=shutil.ignore_patterns("nocaps"))
    pairs = [(image["filename"], sentence["raw"]) for image in images for sentence in image["sentences"]]
    kaggle = [f'{name},"{text}"' for name, text in pairs]
    (folder / "flickr8k_kaggle" / "captions.txt").write_text("\n".join(["image,caption", *kaggle]))
    results = [f"{name}| {number}| {text}" for number, (name, text) in enumerate(pairs)]
    (folder / "flickr30k" / "results.csv").write_text("\n".join(["image_name| comment_number| comment", *results]))
    _write_karpathy(folder / "dataset_rsicd.json", images)
    reports: dict[str, list[dict[str, Any]]] = {"train": [], "val": [], "test": []}
    for image in images:
        if image["split"] in reports:
            entry = {"id": image["filename"], "report": image["sentences"][0]["raw"], "image_path": [image["filename"]]}
            reports[image["split"]].append(entry)
        (folder / "paired" / image["filename"]).with_suffix(".txt").write_text(image["sentences"][0]["raw"])
    (folder / "iu_xray" / "annotation.json").write_text(json.dumps(reports))
    (folder / "vizwiz").mkdir()
    for split, chosen in (("train", images[:-6]), ("val", images[-6:])):
        shutil.copytree(pictures, folder / "vizwiz" / split, ignore=shutil.ignore_patterns("nocaps"))
        (folder / "vizwiz" / f"{split}.json").write_text(json.dumps(_coco(chosen, is_rejected=False)))
        stair = folder / f"stair_captions_v1.2_{split}_tokenized.json"
        stair.write_text(json.dumps(_coco(chosen, tokenized_caption="山羊 が いる")))
    for split, chosen in (("train", images[:-10]), ("val", images[-10:-6]), ("test", images[-6:])):
        vietnamese = _coco(chosen)
        for entry in vietnamese["annotations"]:
            entry["caption"] = "một người đàn ông đang đạp xe đạp"
        (folder / f"uitviic_captions_{split}2017.json").write_text(json.dumps(vietnamese))
        _write_parquet(folder / "hub_parquet" / f"{split}-00000-of-00001.parquet", pictures, chosen)
    predictions = [{"image_id": image["imgid"], "caption": image["sentences"][0]["raw"]} for image in images[-6:]]
    (folder / "vizwiz_predictions.json").write_text(json.dumps(predictions))
    by_file = {image["filename"]: image["sentences"][0]["raw"] for image in images}
    (folder / "by_file.json").write_text(json.dumps(by_file))


def _write_parquet(path: Path, pictures: Path, images: Iterable[dict[str, Any]]) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [
        {
            "image": {"bytes": (pictures / image["filename"]).read_bytes(), "path": image["filename"]},
            "captions": [sentence["raw"] for sentence in image["sentences"]],
        }
        for image in images
    ]
    pq.write_table(pa.Table.from_pylist(rows), path)


def _coco(images: Iterable[dict[str, Any]], **of_captions: object) -> dict[str, Any]:
    listed: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    for image in images:
        listed["images"].append({"id": image["imgid"], "file_name": image["filename"]})
        for sentence in image["sentences"]:
            listed["annotations"].append({"image_id": image["imgid"], "caption": sentence["raw"], **of_captions})
    return listed


def _write_regions(arrays: Path, boxes: Path, images: Iterable[dict[str, Any]]) -> None:
    arrays.mkdir()
    boxes.mkdir()
    random = np.random.default_rng(0)
    for image in images:
        np.savez(arrays / f"{image['imgid']}.npz", feat=random.random((3, 8), dtype=np.float32))
        np.save(boxes / f"{image['imgid']}.npy", np.array([[0, 0, 40, 40], [8, 8, 60, 50], [1, 2, 30, 90]], np.float32))


def _write_graphs(path: Path, images: Iterable[dict[str, Any]]) -> None:
    graphs = [
        {"image_id": image["imgid"], "objects": len(image["boxes"]), "attributes": [[0, "red"]]} for image in images
    ]
    path.write_text(json.dumps({"format": "captionbench graphs 1", "graphs": graphs}))


def _write_predictions(path: Path, images: Iterable[dict[str, Any]]) -> None:
    test = (image for image in images if image["split"] == "test")
    path.write_text(json.dumps([{"image_id": i["imgid"], "caption": i["sentences"][0]["raw"]} for i in test]))


def _write_backbone(path: Path) -> None:
    """A MobileNetV2 that was never trained."""
    import timm
    import torch

    torch.manual_seed(0)
    torch.save(timm.create_model("mobilenetv2_100", pretrained=False).state_dict(), path)
