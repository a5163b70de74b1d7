"""Authors' released checkpoints as stored runs, which `bench caption` uses like any other."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from harness.benchmark.saved_model import VOCABULARY, SavedModel
from harness.config.features import FeatureConfig
from harness.config.limits import MAX_TOKENS
from harness.config.preset import Decoding
from harness.data.backbones.opening import open_backbone
from harness.data.images import ImagePreprocessing
from harness.data.regions.opening import check_exists, needs_backbone
from harness.data.vocabulary import Vocabulary
from harness.training.checkpoint import WEIGHTS, save_weights
from harness.utils.errors import BenchError
from harness.utils.files import require_file
from harness.utils.hashing import digest, sha256_of
from harness.utils.workspace import Workspace
from results.files import LIMIT_VARIABLE, limit_bytes
from zoo import model_card
from zoo.card import ReleasedWeights
from zoo.checkpoints import read_checkpoint, read_vocabulary
from zoo.converter import converter_of, convertible_families, from_official, read_sizes
from zoo.errors import ZooError
from zoo.registry import registered_cards

BACKBONE = "swin_large_patch4_window12_384"


def import_weights(
    name: str,
    checkpoint: Path,
    vocabulary: Path,
    *,
    workspace: Workspace,
    features: FeatureConfig,
    arguments: Mapping[str, Any],
    beam_size: int | None = None,
) -> str:
    """Turn a checkpoint and its vocabulary into a stored run; returns its key.

    A checkpoint with the backbone's tensors becomes a model on pixels. One without them reads the regions in
    `features`, or the features of the backbone there. Captions are decoded as in the authors' evaluation.

    Args:
        features: regions, or the backbone; its weights are needed only if the checkpoint has none.
        arguments: of the model, if they differ from the paper's and cannot be read from shapes: `n_heads`,
            `static_lengths`, and `backbone_options` for a checkpoint with a backbone.

    Raises:
        BenchError: the files do not belong together.
        ZooError: a file holds other tensors; each mismatch is named.
    """
    cards = registered_cards()
    released = cards[name].released if name in cards else None
    if released is None:
        importable = sorted(card.name for card in cards.values() if card.released is not None)
        raise BenchError(
            f"no released weights of {name!r} can be made a run",
            f"choose one of: {', '.join(importable)}; zoo.converter.from_official reads those of "
            f"{', '.join(convertible_families())}",
        )
    for file, role in ((checkpoint, "the checkpoint"), (vocabulary, "the vocabulary")):
        require_file(file, role, "name the file that the authors released")
    if vocabulary.stat().st_size > limit_bytes():
        raise BenchError(
            f"the vocabulary {vocabulary} has more than {limit_bytes() / 1e9:g} GB, the most that is read",
            f"name the vocabulary, not the checkpoint; if it is meant, set {LIMIT_VARIABLE} higher",
        )
    state, words = _read(name, released, read_checkpoint(checkpoint), read_vocabulary(vocabulary))
    sizes = read_sizes(name, state)
    if sizes["vocab_size"] != len(words):
        raise BenchError(
            f"{checkpoint} has {sizes['vocab_size']} words, but {vocabulary} {len(words)}",
            "give the vocabulary that this checkpoint was trained with",
        )
    regions = features.regions
    # `DistributedDataParallel` puts "module." before each name.
    backbone_prefix = released.backbone_tensors
    if backbone_prefix is not None and any(key.removeprefix("module.").startswith(backbone_prefix) for key in state):
        if regions is not None or features.weights is not None or features.options:
            hint = "leave out --regions, --backbone-weights and --backbone-option"
            raise BenchError("the checkpoint holds its backbone, with weights, which sees pixels", hint)
        model_name = f"{name}/end-to-end"
        model_arguments = {"backbone": features.backbone, **arguments}
        backbone_digest = ""
        preprocessing = ImagePreprocessing(features.image_size or 384, interpolation=released.interpolation)
    else:
        model_name = name
        model_arguments = dict(arguments)
        features, preprocessing, backbone_digest = _open_features(name, features, sizes["visual_dim"])
    try:
        model = from_official(model_name, state, **model_arguments)
    except TypeError as error:
        raise ZooError(f"{model_name} cannot be built with {model_arguments}: {error}", "check --set") from error
    decoding = Decoding(
        beam_size=beam_size or released.beam_size,
        max_len=min(released.max_len or MAX_TOKENS, model.max_len - 1),  # without the begin token
        length_penalty=released.length_penalty,
        count_bos=released.count_bos,
        cut_unfinished=released.cut_unfinished,
    )
    built_with = {key: value for key, value in sizes.items() if key not in {"vocab_size", "visual_dim"}}
    built_with |= model_arguments
    identity = [
        sha256_of(checkpoint),
        words.digest(),
        built_with,
        backbone_digest,
        preprocessing.key(),
        decoding.beam_size,
    ]
    if regions is not None:
        identity.append(regions.model_dump(mode="json"))
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
        decoding=decoding,
        pretraining=released.pretraining,
    ).save(folder)
    return key


def _read(
    name: str, released: ReleasedWeights, state: Mapping[str, Tensor], entries: Sequence[str]
) -> tuple[Mapping[str, Tensor], Vocabulary]:
    """The checkpoint with a row for each word and special token of the vocabulary, and this vocabulary."""
    if released.preparation is None:
        state, words = converter_of(name).separate_specials(state, entries)
        return state, Vocabulary(tuple(words))
    return state, Vocabulary.of_entries(entries, released.preparation, released.specials)


def _open_features(name: str, features: FeatureConfig, dim: int) -> tuple[FeatureConfig, ImagePreprocessing, str]:
    """The features that the model reads, with preprocessing and digest of the backbone.

    Region files have their own features; the backbone is then the default, as in a training on them.
    """
    regions = features.regions
    if regions is not None and isinstance(regions.source, Path):
        check_exists(regions.source)
    if regions is not None and not needs_backbone(regions.source):
        if features.weights is not None or features.options or features.image_size is not None:
            raise BenchError(
                f"{regions.source} has features of its own", "leave out the --backbone options and --image-size"
            )
        region_features = FeatureConfig(regions=regions)
        default_backbone = open_backbone(region_features)
        return region_features, default_backbone.preprocessing, default_backbone.digest
    visual = model_card(name).visual
    if visual == "regions+grid" and regions is None:
        raise BenchError(
            f"{name} sees regions and the grid that they are cut from", "add --regions FILE: the file that holds both"
        )
    if features.weights is None:
        hint = f"add --backbone-weights FILE, of timm's {features.backbone}"
        if visual != "pixels":
            hint += ", or --regions FILE with regions and their features"
        raise BenchError(
            "this checkpoint has no backbone: the one that gave its features is needed, with its weights", hint
        )
    backbone = open_backbone(features)
    if backbone.dim != dim:
        raise BenchError(
            f"the checkpoint sees features of {dim} channels, but {features.backbone} gives {backbone.dim}",
            "add --backbone NAME: the backbone that the checkpoint was trained on",
        )
    return features, backbone.preprocessing, backbone.digest
