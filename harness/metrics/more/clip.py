"""CLIPScore and RefCLIPScore by a CLIP model of the transformers library, in float32.

Hessel et al., "CLIPScore: A Reference-free Evaluation Metric for Image Captioning", EMNLP 2021, section 3:
CLIP-S(c, v) = 2.5 max(cos(c, v), 0) of a caption's and an image's embedding, every text being put behind "A photo
depicts "; RefCLIP-S is the harmonic mean of CLIP-S and max(max_r cos(c, r), 0) over the references r. The paper's model
is ViT-B/32. Weights are read as safetensors, and no code of theirs is run.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import torch

from harness.data.hub import HubWeights, open_part
from harness.data.images import load_image
from harness.metrics.more.measured import CLIP_NAMES, Measured, mean_measured, not_measured
from harness.utils.errors import BenchError
from harness.utils.json_io import read_json
from results.statistics.significance import Array
from zoo.models.hub import load_network

PROMPT: Final = "A photo depicts "
SCALE: Final = 2.5
NO_IMAGES: Final = "the images are not known: name their folder with --images DIR"
_BATCH: Final = 64
T = TypeVar("T")


class ClipScorer:
    """A CLIP model; embeddings of images and texts are kept, since the captions of many runs are of the same images.

    Raises:
        WeightsMissing: they are not on this machine.
        BenchError: they are of another model, or its tokenizer or image processor cannot be used.
        ZooError: they are damaged.
    """

    def __init__(self, weights: HubWeights, device: torch.device) -> None:
        from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

        folder = weights.folder()
        config = read_json(folder / "config.json")
        family = config.get("model_type") if isinstance(config, dict) else None
        if family != "clip":
            raise BenchError(
                f"{weights.option} {weights.asked} is no CLIP model of transformers ({family})",
                f"name one: {weights.option} openai/clip-vit-large-patch14",
            )
        self.depends_on = f"clip:{weights.name()}"
        network: Any = load_network(CLIPModel, folder)
        self._network = network.to(device, torch.float32).eval()
        self._device = device
        self._tokenizer, self._processor = (
            open_part(
                kind,
                folder,
                f"{weights.option} {weights.asked} has no usable tokenizer and image processor",
                "name the folder of a complete model: preprocessor_config.json and tokenizer.json beside the weights",
            )
            for kind in (AutoTokenizer, AutoImageProcessor)
        )
        self._longest: int = network.config.text_config.max_position_embeddings
        self._texts: dict[str, Array] = {}
        self._images: dict[Path, Array] = {}

    def measure(
        self, captions: Mapping[int, str], references: Mapping[int, Sequence[str]], images: Mapping[int, Path]
    ) -> Measured:
        """Both scores of one caption of each image, RefCLIPScore where all have references; BadImage of a bad file."""
        ids = list(captions)
        if not all(image_id in images for image_id in ids):
            return not_measured(CLIP_NAMES, NO_IMAGES, self.depends_on)
        said = self._embed_texts([captions[image_id] for image_id in ids])
        seen = self._embed_images([images[image_id] for image_id in ids])
        scores = SCALE * np.clip((said * seen).sum(axis=1), 0, None)
        found = mean_measured(CLIP_NAMES[0], scores, ids, self.depends_on)
        if not all(references.get(image_id) for image_id in ids):
            return found | not_measured(CLIP_NAMES[1:], "an image has no reference", self.depends_on)
        closest = np.array([
            max(0.0, float((self._embed_texts(references[image_id]) @ caption).max()))
            for image_id, caption in zip(ids, said, strict=True)
        ])  # fmt: skip
        total = scores + closest
        means = np.divide(2 * scores * closest, total, out=np.zeros_like(total), where=total > 0)
        return found | mean_measured(CLIP_NAMES[1], means, ids, self.depends_on)

    def _embed_texts(self, texts: Sequence[str]) -> Array:
        """Unit vectors (N, D) of texts behind the prompt, cut to the model's length."""

        def embed(part: Sequence[str]) -> torch.Tensor:
            behind = [PROMPT + text for text in part]
            cut = {"padding": True, "truncation": True, "max_length": self._longest, "return_tensors": "pt"}
            tokens = self._tokenizer(behind, **cut).to(self._device)
            chosen = {name: tokens[name] for name in ("input_ids", "attention_mask")}
            projected: torch.Tensor = self._network.text_projection(self._network.text_model(**chosen).pooler_output)
            return projected

        return _units(texts, self._texts, embed)

    def _embed_images(self, files: Sequence[Path]) -> Array:
        """Unit vectors (N, D) of images."""

        def embed(part: Sequence[Path]) -> torch.Tensor:
            pixels = self._processor(images=[load_image(file) for file in part], return_tensors="pt")["pixel_values"]
            seen = self._network.vision_model(pixel_values=pixels.to(self._device))
            projected: torch.Tensor = self._network.visual_projection(seen.pooler_output)
            return projected

        return _units(files, self._images, embed)


def _units(wanted: Sequence[T], known: dict[T, Array], embed: Callable[[Sequence[T]], torch.Tensor]) -> Array:
    """Unit vectors (N, D), of which those that are not `known` yet are computed."""
    new = [each for each in dict.fromkeys(wanted) if each not in known]
    for first in range(0, len(new), _BATCH):
        part = new[first : first + _BATCH]
        with torch.inference_mode():
            units = torch.nn.functional.normalize(embed(part).double(), dim=-1).cpu().numpy()
        known |= zip(part, units, strict=True)
    return np.stack([known[each] for each in wanted])
