"""Authors' released checkpoints as stored runs, which `bench caption` uses like any other."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from harness.config.features import FeatureConfig
from harness.config.preset import Decoding
from harness.data.backbones.backbone import open_backbone
from harness.data.images import ImagePreprocessing
from harness.data.vocabulary import Vocabulary
from harness.runner.saved_model import VOCABULARY, WEIGHTS, SavedModel
from harness.training.checkpoint import save_weights
from harness.utils.errors import BenchError
from harness.utils.files import require_file
from harness.utils.hashing import digest
from harness.utils.workspace import Workspace
from results.files import LIMIT_VARIABLE, limit_bytes
from zoo import Pretraining
from zoo.errors import ZooError
from zoo.weights import from_official, read_checkpoint, read_sizes, read_vocabulary
from zoo.weights.official import CONVERTERS

IMPORTABLE = ("expansionnet_v2",)
END_TO_END = "expansionnet_v2/end-to-end"
BACKBONE = "swin_large_patch4_window12_384"
TRAINED_ON = Pretraining(
    data_sets=("ImageNet-22k with labels (Swin-L, its backbone)", "COCO: Karpathy's training split with restval"),
    captions="Five to seven human captions of each of 113,287 images of COCO.",
    captions_of=("COCO",),
    overlap={},
    source="Hu et al., IEEE Big Data 2023, Section IV-A; the authors' repository jchenghu/ExpansionNet_v2",
)
"""What the released checkpoints of ExpansionNet v2 saw; Karpathy's validation and test splits were left out."""
_BACKBONE_TENSORS = "swin_transf."
_BLOCK = 1 << 22


def import_weights(
    name: str,
    checkpoint: Path,
    vocabulary: Path,
    *,
    workspace: Workspace,
    features: FeatureConfig,
    arguments: Mapping[str, Any],
    beam_size: int = 5,
) -> str:
    """Turn a checkpoint of ExpansionNet v2 and its vocabulary into a run; gives its key.

    A checkpoint with the backbone's tensors becomes a model on pixels. One without them sees the features of the
    backbone in `features`. Captions are searched for and ranked as the authors' evaluation does.

    Args:
        name: a name of `IMPORTABLE`.
        features: the backbone; its weights are needed only where the checkpoint has none.
        arguments: of the model, what shapes do not tell where it is not the paper's: `n_heads`, `static_lengths`, and
            `backbone_options` for a checkpoint with a backbone.

    Raises:
        BenchError: the parts do not belong together, or the backbone's weights are missing.
        ZooError: a file cannot be read or holds other tensors; every misfit is named.
    """
    if name not in IMPORTABLE:
        raise BenchError(
            f"no released weights of {name!r} can be made a run",
            f"choose one of: {', '.join(IMPORTABLE)}; zoo.weights.from_official reads those of {', '.join(CONVERTERS)}",
        )
    for file, what in ((checkpoint, "the checkpoint"), (vocabulary, "the vocabulary")):
        require_file(file, what, "name the file that the authors released")
    if vocabulary.stat().st_size > limit_bytes():
        raise BenchError(
            f"the vocabulary {vocabulary} has more than {limit_bytes() / 1e9:g} GB, the most that is read",
            f"name the vocabulary, not the checkpoint; if it is meant, set {LIMIT_VARIABLE} higher",
        )
    state = read_checkpoint(checkpoint)
    words = Vocabulary.of_entries(read_vocabulary(vocabulary), "expansionnet")
    sizes = read_sizes(name, state)
    if sizes["vocab_size"] != len(words):
        raise BenchError(
            f"{checkpoint} has {sizes['vocab_size']} words, but {vocabulary} {len(words)}",
            "give the vocabulary that this checkpoint was trained with",
        )
    if any(key.startswith(_BACKBONE_TENSORS) for key in state):
        model_name, chosen = END_TO_END, {"backbone": features.backbone, **arguments}
        backbone_digest = ""
        preprocessing = ImagePreprocessing(features.image_size or 384, interpolation="bilinear")
    else:
        model_name, chosen = name, dict(arguments)
        preprocessing, backbone_digest = _look_through(features, sizes["visual_dim"])
    model = _build(model_name, state, chosen)
    built_with = {key: value for key, value in sizes.items() if key not in {"vocab_size", "visual_dim"}} | chosen
    identity = [_file_digest(checkpoint), words.digest(), built_with, backbone_digest, beam_size]
    key = f"{name.replace('/', '.')}-imported-{digest(identity, 10)}"
    folder = workspace.run_folder(key)
    words.save(folder / VOCABULARY)
    save_weights(model, folder / WEIGHTS)
    SavedModel(
        model=model_name,
        arguments=built_with,
        visual_dim=sizes["visual_dim"],
        features=features.resolved(),
        backbone_digest=backbone_digest,
        preprocessing=preprocessing,
        decoding=Decoding(beam_size=beam_size, max_len=sizes["max_len"] - 1, count_bos=True, cut_unfinished=True),
        pretraining=TRAINED_ON,
    ).save(folder)
    return key


def _look_through(features: FeatureConfig, dim: int) -> tuple[ImagePreprocessing, str]:
    """Preprocessing and digest of the backbone that gives the features."""
    if features.weights is None:
        raise BenchError(
            "this checkpoint has no backbone: the one that gave its features is needed, with its weights",
            f"add --backbone-weights FILE, of timm's {features.backbone}",
        )
    backbone = open_backbone(
        features.backbone,
        weights=features.weights,
        options=features.options,
        image_size=features.image_size,
        normalisation=features.normalisation,
    )
    if backbone.dim != dim:
        raise BenchError(
            f"the checkpoint sees features of {dim} channels, but {features.backbone} gives {backbone.dim}",
            "add --backbone NAME: the backbone that the checkpoint was trained on",
        )
    return backbone.preprocessing, backbone.digest


def _build(name: str, state: Mapping[str, Tensor], arguments: Mapping[str, Any]) -> Any:
    try:
        return from_official(name, state, **arguments)
    except TypeError as error:
        raise ZooError(f"{name} cannot be built with {dict(arguments)}: {error}", "check --set") from error


def _file_digest(path: Path) -> str:
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()
