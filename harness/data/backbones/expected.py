"""What a backbone's weights were trained to see, where their own files or timm say so, against what was chosen here.

Weights that see other padding or another normalisation than they were trained with give features without an error, and
worse captions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from harness.data.backbones.filterbank import FilterBank
from harness.data.backbones.scenesnet import ScenesNet

_HUB_FILES = frozenset({"model.safetensors", "pytorch_model.bin"})
"""Names of weights that timm's folders on the hub have beside their config.json."""


@dataclass(frozen=True, slots=True)
class _Expected:
    """What one source says: None where it says nothing."""

    source: str
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    same_padding: bool


def preprocessing_doubts(
    name: str, weights: Path | Literal["random"] | None, options: Mapping[str, str], normalisation: str | None
) -> list[str]:
    """Sentences on settings that contradict what is known of the weights, each with the option that changes it.

    Args:
        name, weights, options, normalisation: as `harness.data.backbones.backbone.open_backbone` takes them; a backbone
            that can be opened.
    """
    if name in {FilterBank.name, ScenesNet.name} or weights == "random":
        return []
    import timm

    from harness.data.backbones.timm_backbone import NORMALISATIONS

    expected = _of_hub_folder(weights) or _of_timms_name(name, weights) or _of_tensorflow(name, weights)
    if expected is None:
        return []
    own: Any = timm.get_pretrained_cfg(name)
    chosen = (own.mean, own.std) if normalisation is None else NORMALISATIONS[normalisation]
    shown = name if weights is None else weights.name
    doubts = []
    pads_same = options.get("pad_type", "same" if name.startswith("tf_") else "") == "same"
    if expected.same_padding and not pads_same:
        doubts.append(
            f"{shown}: by {expected.source} images are padded as TensorFlow does, and here as PyTorch does: "
            "add --backbone-option pad_type=same"
        )
    if expected.mean is not None and expected.std is not None and (tuple(expected.mean), tuple(expected.std)) != chosen:
        wanted = next((key for key, value in NORMALISATIONS.items() if value == (expected.mean, expected.std)), None)
        doubts.append(
            f"{shown}: by {expected.source} images have mean {_numbers(expected.mean)} and deviation "
            f"{_numbers(expected.std)}, and here {_numbers(chosen[0])} and {_numbers(chosen[1])}: "
            + (f"add --normalisation {wanted}" if wanted else "no --normalisation has these")
        )
    return doubts


def _of_hub_folder(weights: Path | None) -> _Expected | None:
    """The config.json beside weights in a folder as timm's on the hub."""
    if weights is None or weights.name not in _HUB_FILES:
        return None
    try:
        content = json.loads(weights.with_name("config.json").read_text(encoding="utf-8"))
        described, architecture = content["pretrained_cfg"], str(content["architecture"])
        mean, std = (tuple(float(value) for value in described[key]) for key in ("mean", "std"))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return _Expected("the config.json beside it", mean, std, architecture.startswith("tf_"))


def _of_timms_name(name: str, weights: Path | None) -> _Expected | None:
    """timm's configuration of the weights that timm fetches, or that the file's name or the backbone's tag names."""
    import timm

    if weights is None:
        found = name
    else:
        stem, undated = _plain(weights.stem), _released(weights.stem)
        architectures = {name.partition(".")[0], f"tf_{name.partition('.')[0]}"}
        named = {
            _plain(known): known
            for known in timm.list_pretrained()
            if known.partition(".")[0] in architectures
            and (f"{stem}_".startswith(f"{_plain(known)}_") or undated == _released_name(known))
        }
        found = named[max(named, key=len)] if named else name if "." in name else ""
    config: Any = timm.get_pretrained_cfg(found) if found else None
    if config is None:  # the backbone itself says that there is no such one
        return None
    return _Expected(f"timm's {found}", tuple(config.mean), tuple(config.std), found.startswith("tf_"))


def _of_tensorflow(name: str, weights: Path | None) -> _Expected | None:
    """What timm's models with TensorFlow's weights agree on, for a file of their family that has `tf` in its name."""
    import timm

    family = re.match("[a-z]+", name)
    if weights is None or family is None or "tf" not in _plain(weights.stem).split("_"):
        return None
    relatives = timm.list_pretrained(f"tf_{family[0]}*")
    if not relatives:
        return None
    configs: list[Any] = [timm.get_pretrained_cfg(relative) for relative in relatives]
    seen = {(tuple(config.mean), tuple(config.std)) for config in configs}
    mean, std = seen.pop() if len(seen) == 1 else (None, None)
    return _Expected(f"the tf in its name (TensorFlow's, as timm's {relatives[0]})", mean, std, True)


def _released_name(known: str) -> str:
    """How timm's releases call the file of these weights."""
    import timm

    config: Any = timm.get_pretrained_cfg(known)
    return _released(Path(config.url or "").stem)


def _released(stem: str) -> str:
    """A file's name without the digest at its end."""
    return _plain(re.sub("-[0-9a-f]{8}$", "", stem))


def _plain(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower())


def _numbers(values: tuple[float, ...]) -> str:
    same = len(set(values)) == 1
    return f"{values[0]:g}" if same else "(" + ", ".join(f"{value:.3g}" for value in values) + ")"
