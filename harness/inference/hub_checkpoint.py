"""A checkpoint of the hub before its weights are read: its folder, what it is asked, and how its answers are cleaned.

Prompts are named templates by family (`hub_prompts.yaml`), or a text of the user's own. Rules of cleaning shorten what
a chatty model says; none is used unless it is asked for and signed.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from harness.data.hub import require_files
from harness.utils.errors import BenchError
from harness.utils.files import shortened
from harness.utils.hashing import digest
from zoo.errors import first_sentence

FLASH: Final = "flash_attention_2"
DTYPES: Final = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
ATTENTION: Final = ("eager", "sdpa", FLASH)
_FETCH = "fetch it again, or name the folder of a complete model: config.json, its processor's files, *.safetensors"
_COMPLETE = "add preprocessor_config.json and the tokenizer's files, with processor.save_pretrained(FOLDER)"
_IMAGES = ("preprocessor_config.json", "processor_config.json")
_WORDS = ("tokenizer.json", "tokenizer.model", "sentencepiece.bpe.model", "spiece.model", "vocab.json", "vocab.txt")
SEPARATE: Final = "vision-encoder-decoder"  # whose decoder takes no prompt
_FILE = Path(__file__).with_name("hub_prompts.yaml")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
OWN = "own"
_SENTENCE = re.compile(r".*?[.!?](?=\s|$)")
_QUOTES: Final = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"))


class SeparateProcessors(NamedTuple):
    """An image processor and a tokenizer of one folder that has no processor of both, as ViT-GPT-2's."""

    image_processor: Any
    tokenizer: Any


@dataclass(frozen=True)
class Checkpoint:
    """A folder as transformers writes it: `config.json`, weights as safetensors, and the files of a processor.

    Attributes:
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

        require_files(self.folder, f"of the model {self.asked}")
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
        parts = (self._config, *(part for part in self._config.values() if isinstance(part, dict)))
        if stored := next((part["quantization_config"] for part in parts if "quantization_config" in part), None):
            method = stored.get("quant_method", "unknown") if isinstance(stored, dict) else "unknown"
            raise BenchError(
                f"{self.asked} has quantised weights ({method}), which are not supported",
                "name the model that it was made of, with --hub dtype=bf16 where memory is short",
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
        if (config := _json_of(self.folder / "config.json")) is None:
            raise BenchError(f"{self.asked} is no usable model: config.json cannot be read", _FETCH)
        if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
            raise BenchError(f"{self.asked} is no usable model: config.json names no model_type", _FETCH)
        return config

    @cached_property
    def processor(self) -> Any:
        """The processor: image processor and tokenizer in one.

        Raises:
            BenchError: there is none, it is damaged, or it wants code of its own.
        """
        from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer

        for what, files in (("images", _IMAGES), ("text", _WORDS)):
            if not any((self.folder / name).is_file() for name in files):
                raise BenchError(f"{self.asked} has no processor of {what}: no {' and no '.join(files[:2])}", _COMPLETE)
        try:
            kind: Any = AutoProcessor
            found: Any = kind.from_pretrained(str(self.folder), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the library may raise anything
            if "trust_remote_code" in str(error):
                raise self._wants_code() from error
            damaged = next((file for file in sorted(self.folder.glob("*.json")) if _json_of(file) is None), None)
            why = first_sentence(error) if damaged is None else f"{damaged.name} is no JSON"
            raise BenchError(f"{self.asked} has no usable processor: {why}", _FETCH) from error
        if hasattr(found, "tokenizer") and hasattr(found, "image_processor"):
            return found
        if self.family != SEPARATE:
            raise BenchError(f"{self.asked} has no processor: its files give a {type(found).__name__} alone", _COMPLETE)
        return SeparateProcessors(self._part(AutoImageProcessor), self._part(AutoTokenizer))

    def _part(self, kind: Any) -> Any:
        try:
            return kind.from_pretrained(str(self.folder), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the library may raise anything
            why = first_sentence(error)
            raise BenchError(f"{self.asked} has no usable {kind.__name__.lower()}: {why}", _FETCH) from error

    def unusual_attention(self, asked: str) -> str | None:
        """`asked`, one of `ATTENTION`; None where the network computes attention so by itself.

        The network is made without weights for it, since its parts may differ in what they have.

        Raises:
            BenchError: the network or this machine has no such implementation.
        """
        import torch

        if asked == FLASH:
            # Without its package the library would fetch kernels, which are code, from the hub.
            lacking = None if find_spec("flash_attn") else "the package flash-attn"
            lacking = lacking or (None if torch.cuda.is_available() else "a CUDA device")
            if lacking:
                raise BenchError(f"--hub attention={FLASH} needs {lacking}, which is not here", "leave it out")
        try:
            return None if self._built(asked) == self._built(None) else asked
        except Exception as error:  # the library may raise anything
            raise BenchError(
                f"--hub attention={asked} is not for {self.asked}: {first_sentence(error)}", "leave it out"
            ) from error

    def _built(self, attention: str | None) -> str:
        """What a network without weights computes attention with, asked for this or, for None, for nothing."""
        import torch
        from transformers import AutoConfig, AutoModelForImageTextToText

        config: Any = AutoConfig.from_pretrained(str(self.folder), local_files_only=True, trust_remote_code=False)
        config._attn_implementation = attention  # as `load_network`
        with torch.device("meta"):
            kind: Any = AutoModelForImageTextToText
            network = kind.from_config(config)
        return str(network.config._attn_implementation)

    def _wants_code(self) -> BenchError:
        return BenchError(
            f"{self.asked} wants to run Python code of its own (auto_map), which is never done",
            "name a model that the installed transformers knows by itself",
        )


def _json_of(path: Path) -> Any:
    """The content of a file; None where it holds no JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, and how the family of its model puts it beside the image.

    Attributes:
        name: of the template, or `OWN`.
        text: may be empty.
        layout: with `{prompt}` and, where the processor does not put it in place itself, `{image}`.
        chat: whether a chat template of the processor goes before the layout.
        bare: no text is given at all; the model begins by itself.
    """

    name: str
    text: str
    layout: str
    chat: bool
    bare: bool

    def signature(self) -> str:
        """The name, and a digest of all that the model's own files do not say."""
        return f"{self.name}#{digest([self.text, self.layout, self.chat, self.bare], 6)}"


def choose_prompt(family: str, asked: str | None) -> Prompt:
    """The prompt for a family: its first template, the template of a name, or the text that is asked.

    Args:
        family: `model_type` of the model's configuration.
        asked: a single lower-case word is a template's name; everything else, the empty text too, is a prompt.

    Raises:
        BenchError: the family has no template of that name.
    """
    known = _families()
    settings = known["families"].get(family, known["other"])
    templates: dict[str, str] = settings["templates"]
    if asked is None:
        name = next(iter(templates))
    elif _NAME.fullmatch(asked):
        name = asked
        if name not in templates:
            raise BenchError(
                f"--hub prompt={asked}: the family {family} has no template of that name",
                f"it has {', '.join(templates)}; a text of your own has a space or ends with a stop",
            )
    else:
        name = OWN
    text = templates.get(name, asked or "")
    if text and family == SEPARATE:
        raise BenchError(f"--hub prompt={shortened(text)}: the family {family} takes no prompt", "leave it out")
    layout, bare = settings["layout"], not text and settings.get("bare_if_empty", False)
    return Prompt(name, text, layout, "{image}" in layout and settings.get("chat", True), bare)


@cache
def _families() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return found


def _without_prompt(caption: str, prompt: str) -> str:
    """Less the prompt where the caption begins or ends with it, in capitals or not."""
    asked, said = prompt.strip().casefold(), caption.strip()
    lengths = range(1, len(asked) + 1)  # as it was said; a letter like ß is longer in folded case
    if found := next((length for length in lengths if said[:length].casefold() == asked), 0):
        said = said[found:].lstrip(" :,\n")
    if found := next((length for length in lengths if said[-length:].casefold() == asked), 0):
        said = said[:-found].rstrip()
    return said


def _without_quotes(caption: str, _: str) -> str:
    """Less one pair of quotes around the whole."""
    for begin, end in _QUOTES:
        if len(caption) > 1 and caption.startswith(begin) and caption.endswith(end):
            return caption[1:-1].strip()
    return caption


def _first_sentence(caption: str, _: str) -> str:
    """Up to the first stop before a space, within the first line."""
    first = caption.strip().partition("\n")[0]
    found = _SENTENCE.match(first)
    return first if found is None else found[0].strip()


_RULES: Final[dict[str, Callable[[str, str], str]]] = {
    "prompt": _without_prompt,
    "quotes": _without_quotes,
    "first-sentence": _first_sentence,
}
"""In the order in which they are used, whatever the order in which they are asked for."""


def choose_rules(asked: str | None) -> tuple[str, ...]:
    """The rules of a comma-separated list, in their order of use; none for None.

    Raises:
        BenchError: a rule that does not exist, or none at all.
    """
    if asked is None:
        return ()
    words = set(filter(None, map(str.strip, asked.split(","))))
    if not words or words - _RULES.keys():
        unknown = ", ".join(sorted(words - _RULES.keys())) or "it names none"
        raise BenchError(
            f"--hub clean: no such rule: {unknown}", f"the rules are {', '.join(_RULES)}, separated by commas"
        )
    return tuple(rule for rule in _RULES if rule in words)


def clean(caption: str, prompt: str, rules: Sequence[str]) -> str:
    """The caption after all rules of `choose_rules`."""
    for rule in rules:
        caption = _RULES[rule](caption, prompt)
    return caption
