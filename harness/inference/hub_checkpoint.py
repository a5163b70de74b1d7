"""A checkpoint of the hub before its weights are read: its files, its prompt, and how its captions are cleaned.

Prompts are named templates of a family (`hub_prompts.yaml`), or the user's own text. Cleaning rules shorten captions of
models that write more than a caption. They are off by default, and signatures record them.
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
SEPARATE: Final = "vision-encoder-decoder"  # a family whose decoder has no prompt
_FILE = Path(__file__).with_name("hub_prompts.yaml")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
OWN = "own"
_SENTENCE = re.compile(r".*?[.!?](?=\s|$)")
_QUOTES: Final = (('"', '"'), ("'", "'"), ("\u201c", "\u201d"), ("\u2018", "\u2019"))


class SeparateProcessors(NamedTuple):
    """Image processor and tokenizer of a folder without a joint processor, such as ViT-GPT-2's."""

    image_processor: Any
    tokenizer: Any


@dataclass(frozen=True)
class Checkpoint:
    """A folder in the format of transformers: `config.json`, weights as safetensors, and the files of a processor.

    Attributes:
        name: the model's name in messages.
    """

    folder: Path
    name: str

    def check(self) -> None:
        """Check that the model can caption, without reading its weights.

        Raises:
            BenchError: it has no readable configuration, needs code of its own, is a text-only model or one for another
                task, or has no processor or no weights.
        """
        from transformers.models.auto.configuration_auto import CONFIG_MAPPING
        from transformers.models.auto.modeling_auto import (
            MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
            MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES,
        )

        require_files(self.folder, f"of the model {self.name}")
        family = self.family
        if family not in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
            if family not in CONFIG_MAPPING and "auto_map" in self._config:
                raise self._wants_code()
            if family in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
                raise BenchError(f"{self.name} is a text-only model ({family})", "name a model that takes images")
            raise BenchError(
                f"{self.name} is not an image-to-text model of the installed transformers ({family})",
                "name one of another family, or install a newer transformers",
            )
        parts = (self._config, *(part for part in self._config.values() if isinstance(part, dict)))
        if stored := next((part["quantization_config"] for part in parts if "quantization_config" in part), None):
            method = stored.get("quant_method", "unknown") if isinstance(stored, dict) else "unknown"
            raise BenchError(
                f"{self.name} has quantised weights ({method}), which are not supported",
                "name the model before quantisation, with --hub dtype=bf16 if memory is short",
            )
        if not any(self.folder.glob("*.safetensors")):
            raise BenchError(f"{self.name} has no weights as .safetensors", _FETCH)
        self.processor  # noqa: B018 - raises an error if it cannot be read

    @property
    def family(self) -> str:
        """`model_type` of the configuration."""
        return str(self._config["model_type"])

    @cached_property
    def _config(self) -> dict[str, Any]:
        if (config := _json_of(self.folder / "config.json")) is None:
            raise BenchError(f"{self.name} is not a usable model: config.json cannot be read", _FETCH)
        if not isinstance(config, dict) or not isinstance(config.get("model_type"), str):
            raise BenchError(f"{self.name} is not a usable model: config.json has no model_type", _FETCH)
        return config

    @cached_property
    def processor(self) -> Any:
        """The processor, of images and text.

        Raises:
            BenchError: there is none, it is damaged, or it needs code of its own.
        """
        from transformers import AutoImageProcessor, AutoProcessor, AutoTokenizer

        for input_kind, files in (("images", _IMAGES), ("text", _WORDS)):
            if not any((self.folder / name).is_file() for name in files):
                raise BenchError(
                    f"{self.name} has no processor of {input_kind}: no {' and no '.join(files[:2])}", _COMPLETE
                )
        try:
            kind: Any = AutoProcessor
            processor: Any = kind.from_pretrained(str(self.folder), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the library may raise anything
            if "trust_remote_code" in str(error):
                raise self._wants_code() from error
            damaged = next((file for file in sorted(self.folder.glob("*.json")) if _json_of(file) is None), None)
            reason = first_sentence(error) if damaged is None else f"{damaged.name} is no JSON"
            raise BenchError(f"{self.name} has no usable processor: {reason}", _FETCH) from error
        if hasattr(processor, "tokenizer") and hasattr(processor, "image_processor"):
            return processor
        if self.family != SEPARATE:
            raise BenchError(
                f"{self.name} has no processor: its files only contain a {type(processor).__name__}", _COMPLETE
            )
        return SeparateProcessors(self._part(AutoImageProcessor), self._part(AutoTokenizer))

    def _part(self, kind: Any) -> Any:
        try:
            return kind.from_pretrained(str(self.folder), local_files_only=True, trust_remote_code=False)
        except Exception as error:  # the library may raise anything
            reason = first_sentence(error)
            raise BenchError(f"{self.name} has no usable {kind.__name__.lower()}: {reason}", _FETCH) from error

    def unusual_attention(self, attention: str) -> str | None:
        """`attention`, one of `ATTENTION`, or None if it is the network's default.

        The network is built without weights to find out, since its parts may differ in their implementations.

        Raises:
            BenchError: the network or this machine does not support this implementation.
        """
        import torch

        if attention == FLASH:
            # Without its package the library would fetch kernels, which are code, from the hub.
            missing = None if find_spec("flash_attn") else "the package flash-attn"
            missing = missing or (None if torch.cuda.is_available() else "a CUDA device")
            if missing:
                raise BenchError(f"--hub attention={FLASH} needs {missing}, which is not installed", "leave it out")
        try:
            return None if self._built(attention) == self._built(None) else attention
        except Exception as error:  # the library may raise anything
            raise BenchError(
                f"--hub attention={attention} does not work with {self.name}: {first_sentence(error)}", "leave it out"
            ) from error

    def _built(self, attention: str | None) -> str:
        """The implementation of attention of the network, built without weights with this request, or None for none."""
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
            f"{self.name} needs to run Python code from its repository (auto_map), which is not supported",
            "name a model that the installed transformers supports",
        )


def _json_of(path: Path) -> Any:
    """The content of a JSON file; None if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt, and how its model's family combines it with the image.

    Attributes:
        name: of the template, or `OWN`.
        text: the prompt, possibly empty.
        layout: a text with `{prompt}`, and with `{image}` if the processor does not insert it.
        chat: whether a chat template of the processor is used instead of the layout.
        bare: whether the model gets no text at all.
    """

    name: str
    text: str
    layout: str
    chat: bool
    bare: bool

    def signature(self) -> str:
        """The name, and a digest of everything that is not in the model's files."""
        return f"{self.name}#{digest([self.text, self.layout, self.chat, self.bare], 6)}"


def choose_prompt(family: str, requested: str | None) -> Prompt:
    """The prompt for a family: its first template, a named template, or the user's own text.

    Args:
        family: `model_type` of the model's configuration.
        requested: a single lower-case word is the name of a template; any other text, even if empty, is a prompt.

    Raises:
        BenchError: the family has no template of that name.
    """
    families = _families()
    settings = families["families"].get(family, families["other"])
    templates: dict[str, str] = settings["templates"]
    if requested is None:
        name = next(iter(templates))
    elif _NAME.fullmatch(requested):
        name = requested
        if name not in templates:
            raise BenchError(
                f"--hub prompt={requested}: the family {family} has no template of that name",
                f"it has {', '.join(templates)}; a text of your own has a space or ends with a stop",
            )
    else:
        name = OWN
    text = templates.get(name, requested or "")
    if text and family == SEPARATE:
        raise BenchError(f"--hub prompt={shortened(text)}: the family {family} has no prompt", "leave it out")
    layout = settings["layout"]
    uses_chat_template = "{image}" in layout and settings.get("chat", True)
    is_bare = not text and settings.get("bare_if_empty", False)
    return Prompt(name, text, layout, uses_chat_template, is_bare)


@cache
def _families() -> dict[str, Any]:
    families: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return families


def _without_prompt(caption: str, prompt: str) -> str:
    """Remove the prompt where the caption begins or ends with it, ignoring case."""
    folded_prompt = prompt.strip().casefold()
    rest = caption.strip()
    lengths = range(1, len(folded_prompt) + 1)  # in the caption it may be shorter: ß is folded to ss
    for length in lengths:
        if rest[:length].casefold() == folded_prompt:
            rest = rest[length:].lstrip(" :,\n")
            break
    for length in lengths:
        if rest[-length:].casefold() == folded_prompt:
            rest = rest[:-length].rstrip()
            break
    return rest


def _without_quotes(caption: str, _: str) -> str:
    """Remove a pair of quotes around the caption."""
    for begin, end in _QUOTES:
        if len(caption) > 1 and caption.startswith(begin) and caption.endswith(end):
            return caption[1:-1].strip()
    return caption


def _first_sentence(caption: str, _: str) -> str:
    """The first sentence of the first line."""
    first_line = caption.strip().partition("\n")[0]
    sentence = _SENTENCE.match(first_line)
    return first_line if sentence is None else sentence[0].strip()


_RULES: Final[dict[str, Callable[[str, str], str]]] = {
    "prompt": _without_prompt,
    "quotes": _without_quotes,
    "first-sentence": _first_sentence,
}
"""Cleaning rules, in the order in which they are always applied."""


def choose_rules(requested: str | None) -> tuple[str, ...]:
    """The rules in a comma-separated list, in the order of their application; none for None.

    Raises:
        BenchError: the list has an unknown rule, or is empty.
    """
    if requested is None:
        return ()
    names = set(filter(None, map(str.strip, requested.split(","))))
    if not names or names - _RULES.keys():
        unknown = ", ".join(sorted(names - _RULES.keys())) or "it names none"
        raise BenchError(
            f"--hub clean: no such rule: {unknown}", f"the rules are {', '.join(_RULES)}, separated by commas"
        )
    return tuple(rule for rule in _RULES if rule in names)


def clean(caption: str, prompt: str, rules: Sequence[str]) -> str:
    """The caption after all rules of `choose_rules`."""
    for rule in rules:
        caption = _RULES[rule](caption, prompt)
    return caption
