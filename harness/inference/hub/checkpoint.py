"""Checks of a checkpoint's folder before its weights are read: an image-to-text model with a processor, and no code."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness.utils.errors import BenchError
from harness.utils.files import require_file
from zoo.errors import first_line

_FETCH = "fetch it again, or name the folder of a complete model: config.json, its processor's files, *.safetensors"


@dataclass(frozen=True)
class Checkpoint:
    """A folder as transformers writes it: `config.json`, weights as safetensors, and the files of a processor.

    Attributes:
        folder: where it lies.
        asked: as the user named it, for messages.
    """

    folder: Path
    asked: str

    def check(self) -> None:
        """Refuse what cannot caption, by its small files alone.

        Raises:
            BenchError: no readable configuration, code of its own, a text-only model or one of another task, no
                processor, no weights.
        """
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        )

        for file in self.folder.glob("*.*"):
            if not file.is_dir():  # the libraries that read them would wait for a pipe
                require_file(file, f"of the model {self.asked}")
        family = self.family
        if family not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
            if family not in CONFIG_MAPPING and "auto_map" in self._config:
                raise self._wants_code()
            if family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
                raise BenchError(f"{self.asked} is a text-only model ({family})", "name a model that takes images")
            raise BenchError(
                f"{self.asked} is no image-to-text model that the installed transformers knows ({family})",
                "name one of another family, or install a newer transformers",
            )
        if not any(self.folder.glob("*.safetensors")):
            raise BenchError(f"{self.asked} has no weights as .safetensors", _FETCH)
        self.processor  # noqa: B018 - reads it

    @property
    def family(self) -> str:
        """`model_type` of the configuration."""
        return str(self._config["model_type"])

    @cached_property
    def _config(self) -> dict[str, Any]:
        path = self.folder / "config.json"
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise BenchError(f"{self.asked} is no usable model: config.json cannot be read", _FETCH) from error
        if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
            raise BenchError(f"{self.asked} is no usable model: config.json names no model_type", _FETCH)
        return config

    @cached_property
    def processor(self) -> Any:
        """The processor: image processor and tokenizer in one.

        Raises:
            BenchError: there is none, it is damaged, or it wants code of its own.
        """
        from transformers import AutoProcessor

        try:
            kind: Any = AutoProcessor
            found: Any = kind.from_pretrained(str(self.folder), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the library may raise anything
            if "trust_remote_code" in str(error):
                raise self._wants_code() from error
            raise BenchError(f"{self.asked} has no usable processor: {first_line(error)}", _FETCH) from error
        if not (hasattr(found, "tokenizer") and hasattr(found, "image_processor")):
            raise BenchError(
                f"{self.asked} has no processor: its files give a {type(found).__name__} alone",
                "add preprocessor_config.json and the tokenizer's files, with processor.save_pretrained(FOLDER)",
            )
        return found

    def _wants_code(self) -> BenchError:
        return BenchError(
            f"{self.asked} wants to run Python code of its own (auto_map), which is never done",
            "name a model that the installed transformers knows by itself",
        )
