"""CLIPScore and RefCLIPScore by a CLIP model of the transformers library, in float32.

Hessel et al., "CLIPScore: A Reference-free Evaluation Metric for Image Captioning", EMNLP 2021, section 3:
CLIP-S(c, v) = 2.5 max(cos(c, v), 0) of a caption's and an image's embedding, where every text follows "A photo depicts
"; RefCLIP-S is the harmonic mean of CLIP-S and max(max_r cos(c, r), 0) over the references r. The paper's model is
ViT-B/32. Weights are read as safetensors, and no code is executed.
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
    """A CLIP model with a cache of embeddings, since many runs caption the same images.

    Raises:
        WeightsMissing: the weights are not on this machine.
        BenchError: the weights are of another model, or its tokenizer or image processor cannot be used.
        ZooError: the weights are damaged.
    """

    def __init__(self, weights: HubWeights, device: torch.device) -> None:
        from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

        folder = weights.folder()
        config = read_json(folder / "config.json")
        family = config.get("model_type") if isinstance(config, dict) else None
        if family != "clip":
            raise BenchError(
                f"{weights.option} {weights.display_name} is not a CLIP model of transformers ({family})",
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
                f"{weights.option} {weights.display_name} has no usable tokenizer and image processor",
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
        """Both scores of one caption per image; RefCLIPScore only if all have references. BadImage for a bad file."""
        ids = list(captions)
        if not all(image_id in images for image_id in ids):
            return not_measured(CLIP_NAMES, NO_IMAGES, self.depends_on)
        caption_vectors = self._embed_texts([captions[image_id] for image_id in ids])
        image_vectors = self._embed_images([images[image_id] for image_id in ids])
        scores = SCALE * np.clip((caption_vectors * image_vectors).sum(axis=1), 0, None)
        measured = mean_measured(CLIP_NAMES[0], scores, ids, self.depends_on)
        if not all(references.get(image_id) for image_id in ids):
            return measured | not_measured(CLIP_NAMES[1:], "an image has no reference", self.depends_on)
        closest = np.array([
            max(0.0, float((self._embed_texts(references[image_id]) @ caption).max()))
            for image_id, caption in zip(ids, caption_vectors, strict=True)
        ])  # fmt: skip
        total = scores + closest
        means = np.divide(2 * scores * closest, total, out=np.zeros_like(total), where=total > 0)
        return measured | mean_measured(CLIP_NAMES[1], means, ids, self.depends_on)

    def _embed_texts(self, texts: Sequence[str]) -> Array:
        """Unit vectors (N, D) of texts after the prompt, truncated to the model's length."""

        def embed(part: Sequence[str]) -> torch.Tensor:
            prompted = [PROMPT + text for text in part]
            options = {"padding": True, "truncation": True, "max_length": self._longest, "return_tensors": "pt"}
            tokens = self._tokenizer(prompted, **options).to(self._device)
            model_inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
            projected: torch.Tensor = self._network.text_projection(
                self._network.text_model(**model_inputs).pooler_output
            )
            return projected

        return _units(texts, self._texts, embed)

    def _embed_images(self, files: Sequence[Path]) -> Array:
        """Unit vectors (N, D) of images."""

        def embed(part: Sequence[Path]) -> torch.Tensor:
            pixels = self._processor(images=[load_image(file) for file in part], return_tensors="pt")["pixel_values"]
            output = self._network.vision_model(pixel_values=pixels.to(self._device))
            projected: torch.Tensor = self._network.visual_projection(output.pooler_output)
            return projected

        return _units(files, self._images, embed)


def _units(items: Sequence[T], cache: dict[T, Array], embed: Callable[[Sequence[T]], torch.Tensor]) -> Array:
    """Unit vectors (N, D) of items; those not in the cache are computed and added to it."""
    new = [item for item in dict.fromkeys(items) if item not in cache]
    for first in range(0, len(new), _BATCH):
        part = new[first : first + _BATCH]
        with torch.inference_mode():
            units = torch.nn.functional.normalize(embed(part).double(), dim=-1).cpu().numpy()
        cache |= zip(part, units, strict=True)
    return np.stack([cache[item] for item in items])
