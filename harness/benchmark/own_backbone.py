"""Features of the backbone that a model owns, for stages that leave it as it is.

Between end-to-end stages the backbone is another one, so that its features are extracted anew, as ExpansionNet v2 does
between its steps B and C; the cache is keyed by the weights, so that an interrupted stage finds it again.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from harness.benchmark.context import RunContext
from harness.data.backbones.backbone import Backbone, TrainableBackbone
from harness.data.feature_cache import extract_features
from harness.data.features import Features
from harness.data.images import ImagePreprocessing
from harness.utils.progress import Reporter
from zoo import Captioner, HasBackbone, Visual, VisualSpec
from zoo.models.end_to_end import grid_tokens


class CachedBackboneSource:
    """What the backbone of a model on pixels gave, for that model."""

    def __init__(self, features: Features) -> None:
        self._features = features

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:  # noqa: ARG002  # it asks for pixels
        """Grid features of the images, in the order asked for."""
        return self._features.visual(image_ids, VisualSpec("grid", self._features.dim))


def cache_own_features(model: Captioner, context: RunContext, reporter: Reporter) -> Path:
    """The folder with the features of the model's backbone in its present state, extracted or re-used.

    With the run's own weights they are the run's, which other models share; otherwise they are of the images to train
    and validate with alone.
    """
    assert isinstance(model, HasBackbone)
    data = context.data
    backbone = data.backbone
    skip = set(data.skipped)
    trained_weights = model.backbone.state_dict()
    original_weights = backbone.state_dict() if isinstance(backbone, TrainableBackbone) else None
    if original_weights is None or not all(
        torch.equal(value.cpu(), original_weights[name].cpu()) for name, value in trained_weights.items()
    ):
        backbone = TunedBackbone(model.backbone, data.backbone)
        needed = {sample.image_id for sample in (*data.train, *data.val)}
        skip = {sample.image_id for sample in data.dataset.samples} - needed
    return extract_features(
        data.dataset, backbone, cache_dir=data.cache, skip=skip, device=str(context.compute.device), reporter=reporter
    ).folder


class TunedBackbone:
    """A model's backbone after a stage that trained it, as a `Backbone`."""

    def __init__(self, network: nn.Module, origin: Backbone) -> None:
        digest = hashlib.sha256(f"tuned {origin.digest}".encode())
        for name, value in sorted(network.state_dict().items()):
            digest.update(name.encode())
            digest.update(value.detach().cpu().contiguous().numpy().tobytes())
        self.network = network
        self.origin = origin
        self.digest = digest.hexdigest()
        self.preprocessing: ImagePreprocessing = origin.preprocessing
        self.name = f"{origin.name}, tuned"
        self.dim = origin.dim
        self.grid = origin.grid

    def describe(self) -> str:
        return f"{self.origin.describe()}, tuned#{self.digest[:8]}"

    @torch.inference_mode()
    def __call__(self, pixels: Tensor) -> Tensor:
        was_training = self.network.training
        self.network.eval()
        tokens = grid_tokens(self.network, pixels).float()
        self.network.train(was_training)
        return tokens
