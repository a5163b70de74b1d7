"""Where files lie that any run of this user may use again: a folder that is safe to delete."""

from __future__ import annotations

import os
from pathlib import Path


def user_cache() -> Path:
    """`$XDG_CACHE_HOME/captionbench`, by default `~/.cache/captionbench`; it need not exist."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "captionbench"
