"""Published vision-language models: where their weights are, and their own tokenizer and image processor."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from harness.benchmark.context import RunContext
from harness.benchmark.signature import NOT_APPLICABLE, pretraining_field
from harness.data.hub import HubPreprocessing, WeightsMissing, cached_snapshot, hub_is_reachable, require_files
from harness.data.vocabularies import HubVocabulary
from harness.data.vocabulary import choose_preparation
from harness.utils.errors import BenchError
from harness.utils.files import absolute, expanded
from harness.utils.hashing import digest, sha256_of
from zoo import Captioner, Pretraining, create_model, model_card
from zoo.card import NOT_DOCUMENTED
from zoo.errors import first_line

WEIGHTS_FILES = ("config.json", "*.safetensors", "*.json", "*.txt")


def published_signature(
    conditions: Mapping[str, str], name: str, pretraining: Pretraining, *, trained: bool = False
) -> dict[str, str]:
    """The conditions of published weights: their own processor and tokenizer in place of the run's, and their sizes.

    `trained` says whether the run's schedule trains them further.
    """
    own_fields = {
        "feat": f"pixels[processor of {name}]",
        "vocab": f"tokenizer of {name}",
        "size": f"pretrained:{name}",
        **pretraining_field(pretraining),
    }
    as_they_are = {"schedule": NOT_APPLICABLE, "track": "paper", "recipe": "as-published"}
    return {**conditions, **own_fields, **({} if trained else as_they_are)}


@dataclass(frozen=True, slots=True)
class Pretrained:
    """One pretrained model as it was asked for; `model` is a registered name whose card names a repository."""

    model: str
    where: str

    def pretraining(self) -> Pretraining:
        """What the weights were trained on: the card's statement for its own repository, not documented for another.

        A folder is assumed to hold the card's repository, which the source states.
        """
        card = model_card(self.model)
        if card.pretraining is None or self.where == card.hub:
            return card.pretraining or NOT_DOCUMENTED
        folder = self.local_folder()
        if folder is None:
            return NOT_DOCUMENTED
        source = f"{card.pretraining.source}. Said of {card.hub}; the weights were read from the folder {folder.name}"
        return replace(card.pretraining, source=source)

    def location(self) -> str:
        """The repository, or the absolute path of a folder, which may no longer exist."""
        folder = expanded(self.where)
        return str(absolute(folder)) if folder.is_dir() or folder.is_absolute() else self.where

    def local_folder(self) -> Path | None:
        """The absolute path of a folder, which may no longer exist; None for a repository."""
        location = Path(self.location())
        return location if location.is_absolute() else None

    def name(self) -> str:
        """The repository, or the folder's name."""
        folder = self.local_folder()
        return self.where if folder is None else folder.name

    def open(self, context: RunContext) -> tuple[Captioner, RunContext, dict[str, Any]]:
        """The model in float32, the context with its own tokenizer and image processor, and its arguments.

        WeightsMissing where they are not on this machine, ZooError or BenchError if they are damaged.
        """
        folder = self.folder()
        require_files(folder, f"of the pretrained model {self.model}")
        arguments = {"folder": str(folder), "max_len": context.preset.size["max_len"]}
        model: Any = create_model(self.model, vocab_size=0, visual_dim=0, **arguments)
        model.to(context.compute.device, torch.float32)  # some are published in half precision, and none runs in it
        begin, end = model.begin_and_end()
        preparation = choose_preparation("words", context.evaluation.tokenizer)
        inputs = replace(
            context.inputs,
            vocabulary=HubVocabulary.read(folder, begin, end, preparation),
            preprocessing=HubPreprocessing(folder),
        )
        return model, replace(context, inputs=inputs), arguments

    def folder(self) -> Path:
        """Where the weights lie: the folder itself, or the hub's cache; WeightsMissing where neither is there."""
        local = expanded(self.where)
        if local.is_dir():
            return local.resolve()
        folder = cached_snapshot(self.where, None)
        if folder is None:
            raise WeightsMissing(
                f"the weights of {self.model} are not on this machine ({self.where})",
                f"fetch them: bench prefetch model {self.model}; or name a folder: --pretrained {self.model}=FOLDER",
            )
        return folder


def folder_name(where: str, revision: str | None = None) -> str:
    """A folder's name with a digest of its files' contents; a repository with its commit if known."""
    folder = expanded(where)
    if not folder.is_dir():
        snapshot = cached_snapshot(where, revision)
        commit = revision if snapshot is None else snapshot.name[:12]
        return f"{where}@{commit}" if commit else where
    files = sorted(path for path in folder.glob("*.*") if path.is_file())
    contents = [(path.name, _content_digest(path, path.stat().st_size, path.stat().st_mtime_ns)) for path in files]
    return f"{folder.resolve().name}#{digest(contents, 6)}"


@lru_cache(maxsize=1024)
def _content_digest(path: Path, size: int, modified: int) -> str:  # noqa: ARG001  # a changed file is read again
    """The digest of a file's bytes; weights of gigabytes are read once in a process."""
    return sha256_of(path)


def check_places(places: Mapping[str, str]) -> Mapping[str, str]:
    """Places by model; BenchError if a model has no pretrained weights."""
    for model in places:
        if not model_card(model).hub:
            raise BenchError(
                f"--pretrained {model}: {model} has no pretrained weights",
                "`bench models list '*/pretrained'` shows who has",
            )
    return places


def prefetch_model(model: str, where: str | None) -> Path:
    """Fetch a pretrained model into the hub's cache: weights as safetensors, tokenizer, settings, no code."""
    card = model_card(model)
    if not card.hub:
        raise BenchError(f"{model} has no pretrained weights", "`bench models list '*/pretrained'` shows who has")
    hint = f"name a folder: --pretrained {model}=FOLDER"
    return fetch(where or card.hub, None, WEIGHTS_FILES, hint, f"the usual one is {card.hub}")


def fetch(source: str, revision: str | None, files: Sequence[str], elsewhere: str, usual: str) -> Path:
    """Fetch a repository's files into the hub's cache; BenchError if it does not exist or cannot be reached.

    Args:
        revision: None for its default branch.
        elsewhere, usual: hints where the hub cannot be reached, and where there is no such repository.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    if constants.HF_HUB_OFFLINE:
        raise BenchError(
            "HF_HUB_OFFLINE is set: nothing may be fetched", "unset it, or give a folder to `bench run --pretrained`"
        )
    if not hub_is_reachable():  # the client would try again for a minute
        raise BenchError(f"{source} cannot be fetched: the hub cannot be reached", elsewhere)
    try:
        return Path(snapshot_download(source, revision=revision, allow_patterns=list(files)))
    except (RepositoryNotFoundError, HFValidationError) as error:
        raise BenchError(f"there is no repository {source!r} on the hub", usual) from error
    except (HfHubHTTPError, OSError) as error:
        raise BenchError(
            f"{source} cannot be fetched: {first_line(error)}",
            "try again with a network; what is there already is kept",
        ) from error
