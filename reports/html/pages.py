"""Names of the report's files; no text of a store ever becomes a path."""

from __future__ import annotations

import hashlib
import re

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,120}")
_MODEL = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)?")


def run_page(key: str) -> str:
    """The page of a run; a key that is no plain file name is replaced by its digest."""
    return f"runs/{key if _RUN.fullmatch(key) else _digest(key)}.html"


def model_page(model: str) -> str:
    """The page of a model: `family.variant.html`; a name that the zoo would refuse is replaced by its digest."""
    plain = len(model) <= 120 and _MODEL.fullmatch(model)
    return f"models/{model.replace('/', '.') if plain else _digest(model)}.html"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
