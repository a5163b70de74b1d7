"""BERTScore by the bert-score package, with a given model, without idf weights and without rescaling.

Zhang et al., "BERTScore: Evaluating Text Generation with BERT", ICLR 2020: each token of the caption is matched with
the most similar of a reference and the other way round, by the cosine of their contextual embeddings; F1 of both, the
best of all references. The package matches and weighs; weights are read here, as safetensors and without their code.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from harness.data.hub import HubWeights, open_part
from harness.metrics.more.measured import BERT_NAME, Measured, mean_measured, not_measured
from harness.utils.errors import BenchError
from zoo.models.hub import load_network

_NO_LIMIT: Final = 1_000_000  # tokens; tokenizers without a limit report a larger number


class BertScorer:
    """A BERT-like encoder, up to the layer that bert-score recommends for its name, or else the last.

    Raises:
        WeightsMissing: the weights are not on this machine.
        BenchError: the package is not installed, or the model is of another kind.
        ZooError: the weights are damaged.
    """

    def __init__(self, weights: HubWeights, device: torch.device) -> None:
        try:
            from bert_score import utils
        except ImportError as error:
            raise BenchError(
                "BERTScore needs the bert-score package, which is not installed",
                "install it: uv sync --inexact --extra bert",
            ) from error
        from transformers import AutoModel, AutoTokenizer

        self._library = utils
        self._device = device
        folder = weights.folder()
        network: Any = load_network(AutoModel, folder, unused="pooler")  # type: ignore[arg-type]
        body = getattr(network, "encoder", None) or getattr(network, "transformer", None)
        layers = getattr(body, "layer", None)
        if body is None or not isinstance(layers, nn.ModuleList):
            raise BenchError(
                f"{weights.option} {weights.display_name} is not an encoder like BERT ({network.config.model_type})",
                f"name one: {weights.option} FacebookAI/roberta-large",
            )
        name = weights.display_name.partition("@")[0].rpartition("/")[2]
        layer = min(utils.model2layers.get(name, len(layers)), len(layers))
        body.layer = nn.ModuleList(layers[:layer])
        self._network = network.to(device, torch.float32).eval()
        self._tokenizer = open_part(
            AutoTokenizer,
            folder,
            f"{weights.option} {weights.display_name} has no usable tokenizer",
            "name the folder of a complete model: tokenizer.json beside the weights",
        )
        if self._tokenizer.model_max_length > _NO_LIMIT:  # the package would pass it on as the maximum length
            self._tokenizer.model_max_length = network.config.max_position_embeddings - 2  # RoBERTa's start at 2
        self.depends_on = f"bert:{weights.name()}, layer {layer}"

    def measure(self, captions: Mapping[int, str], references: Mapping[int, Sequence[str]]) -> Measured:
        """The mean F1 of one caption per image; an empty caption scores 0. None if an image has no reference."""
        ids = list(captions)
        texts = {image_id: [text for text in references.get(image_id, ()) if text.strip()] for image_id in ids}
        if not all(texts.values()):
            return not_measured([BERT_NAME], "an image has no reference", self.depends_on)
        scores = dict.fromkeys(ids, 0.0)
        pairs = [(image_id, text) for image_id in ids if captions[image_id].strip() for text in texts[image_id]]
        if pairs:
            weights: dict[int, float] = defaultdict(lambda: 1.0)
            weights |= {self._tokenizer.sep_token_id: 0.0, self._tokenizer.cls_token_id: 0.0}
            reference_texts = [text for _, text in pairs]
            caption_texts = [captions[image_id] for image_id, _ in pairs]
            results = self._library.bert_cos_score_idf(
                self._network, reference_texts, caption_texts, self._tokenizer, weights, device=str(self._device)
            )
            for (image_id, _), f1 in zip(pairs, results[:, 2], strict=True):
                scores[image_id] = max(scores[image_id], float(f1))
        return mean_measured(BERT_NAME, np.array(list(scores.values())), ids, self.depends_on)
