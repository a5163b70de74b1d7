"""The objects that the images of the embedded data set show, from its generator, and the nouns that name them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harness.data.scenes.dataset import compose_scenes, config_of
from harness.data.scenes.language import nouns, plurals
from harness.data.scenes.layout import SEEN, UNSEEN
from harness.utils.errors import BenchError


def is_scenes(content: object) -> bool:
    """Whether a parsed JSON file is the embedded data set's."""
    return isinstance(content, dict) and content.get("dataset") == "scenes" and "config" in content


def scene_objects(content: Mapping[str, Any]) -> dict[int, frozenset[str]]:
    """The shapes of every image of `dataset_scenes.json`, by image id: composed again, without drawing.

    Raises:
        BenchError: the file was written by another generator, or was changed since.
    """
    try:
        scenes = list(compose_scenes(config_of(content)))
        found = {entry["imgid"]: len(entry["boxes"]) for entry in content["images"]}
    except (KeyError, TypeError, ValueError) as error:
        raise BenchError(
            f"the file of scenes was not written by this generator ({error})", "let `bench run` generate it anew"
        ) from error
    if found != {image_id: len(scene.items) for image_id, scene in enumerate(scenes)}:
        raise BenchError("the file of scenes was changed after it was generated", "let `bench run` generate it anew")
    return {image_id: frozenset(item.shape for item in scene.items) for image_id, scene in enumerate(scenes)}


def scene_nouns() -> tuple[dict[str, tuple[str, ...]], Mapping[str, str]]:
    """The nouns of every shape, and the plurals that no rule gives."""
    return {shape: nouns(shape) for shape in (*SEEN, *UNSEEN)}, plurals()
