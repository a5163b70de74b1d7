"""What a vision-language model is asked: named templates by family, or a text of the user's own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from harness.utils.errors import BenchError
from harness.utils.hashing import digest

_FILE = Path(__file__).with_name("prompts.yaml")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
OWN = "own"
"""The name of a prompt that is no template."""


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
                f"--prompt {asked}: the family {family} has no template of that name",
                f"it has {', '.join(templates)}; a text of your own has a space or ends with a stop",
            )
    else:
        name = OWN
    text = templates.get(name, asked or "")
    layout, bare = settings["layout"], not text and settings.get("bare_if_empty", False)
    return Prompt(name, text, layout, "{image}" in layout and settings.get("chat", True), bare)


@cache
def _families() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return found
