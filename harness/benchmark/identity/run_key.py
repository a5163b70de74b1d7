"""The run key: every setting that a score can depend on, and the code that makes it."""

import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any, Final

from harness.benchmark.identity.revision import RESULTS_REVISION
from harness.benchmark.identity.sources import Files, files_digest, harness_files, model_files, plugin_files
from harness.config.features import FeatureConfig
from harness.config.preset import NOT_IN_KEY, Preset
from harness.utils.hashing import digest
from results.records import CODE_FIELDS, CodeRecord
from zoo import ModelCard, list_models, model_card

FEATURES_NOT_IN_KEY: Final[Mapping[str, str]] = {
    "weights": "a place on one machine; the signature's `feat` has the digest of what lies there",
    "sentence_graphs": "a place on one machine; the signature's `sentences` has the digest of what lies there",
    "regions.source": "a place on one machine; the signature's `feat` has the digest of what lies there",
    "graphs": "the signature's `graph` has its settings and the digest of what it names, for models that read a graph",
}
"""Settings of the features that no score depends on, each with the reason."""


def keyed_preset(preset: Preset) -> dict[str, Any]:
    """The part of a preset that is in the run key."""
    return without(preset.model_dump(mode="json"), NOT_IN_KEY)


def keyed_features(features: FeatureConfig) -> dict[str, Any]:
    """The part of the features' configuration that is in the run key."""
    return without(features.model_dump(mode="json"), FEATURES_NOT_IN_KEY)


def built_with(model: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """All arguments that a model is built with; for a model that is a part of it, those of its card too."""
    complete = {**model_card(model).arguments, **arguments}
    return {**complete, **{f"{name} built with": dict(card.arguments) for name, card in _parts(complete).items()}}


def identify(
    model: str, seed: int, settings: Mapping[str, Any], signature: Mapping[str, str], code: CodeRecord
) -> tuple[str, str]:
    """A run's key, which is a folder's name too, and the digest of all that is in it but the code.

    Args:
        settings: everything that may move its score and is not in the signature.
        signature: what its score depends on; the release is no part of the identity, the results revision is.
    """
    conditions = {name: value for name, value in signature.items() if name not in CODE_FIELDS}
    chosen = {"model": model, "seed": seed, "settings": dict(settings), "signature": conditions}
    whole = {**chosen, "code": {"model": code.model, "revision": code.revision}}
    return f"{key_name(model)}-s{seed}-{digest(whole, 10)}", digest(chosen, 16)


def key_name(model: str) -> str:
    """How the keys of a model's runs begin; the name of a folder."""
    return re.sub(r"[^\w.@+-]", ".", model)


@cache
def _harness() -> CodeRecord:
    files = harness_files()
    return CodeRecord(None, files_digest(files), str(RESULTS_REVISION), files)


def code_of(own: Files) -> CodeRecord:
    """The code of a model's files, of every loaded plug-in, which may change any score, and of the harness."""
    found, shared = dict(own), _harness()
    for plugin, files in plugin_files().items():
        found |= {name if found.get(name, said) == said else f"{plugin}: {name}": said for name, said in files.items()}
    return CodeRecord(files_digest(found) if found else None, shared.harness, shared.revision, shared.files | found)


def code_of_hub() -> CodeRecord:
    """The code of a checkpoint of transformers' own interface: the release of that library, and the harness."""
    return code_of({"transformers": version("transformers")})


def code_of_model(model: str, arguments: Mapping[str, Any]) -> CodeRecord:
    """The code of a model built with these arguments, and of the harness."""
    return code_of(_files(model, arguments))


def model_sources(model: str, arguments: Mapping[str, Any]) -> str:
    """A digest of the same sources as they are, refactored or not: for what need not outlive an edit."""
    return files_digest(code_of(_files(model, arguments)).files)


def _files(model: str, arguments: Mapping[str, Any]) -> Files:
    card = model_card(model)
    return model_files([card, *_parts({**card.arguments, **arguments}).values()])


def _parts(arguments: Mapping[str, Any]) -> dict[str, ModelCard]:
    """Registered models that arguments name, by the argument: parts that a model creates."""
    known = set(list_models())
    return {name: model_card(value) for name, value in arguments.items() if isinstance(value, str) and value in known}


def without(settings: Mapping[str, Any], paths: Mapping[str, str]) -> dict[str, Any]:
    """Nested settings less those at dotted paths."""
    found = dict(settings)
    for path in paths:
        name, _, rest = path.partition(".")
        if not rest:
            found.pop(name, None)
        elif isinstance(found.get(name), dict):
            found[name] = without(found[name], {rest: ""})
    return found
