"""Read JSON files, gzipped or plain."""

from __future__ import annotations

import gzip
import json
import zlib
from pathlib import Path
from typing import Any

from harness.utils.errors import BenchError


def read_json(path: Path) -> Any:
    """Parse a JSON file; gzip is recognised by content, not by the file's name.

    Raises:
        BenchError: it cannot be read, or is not JSON.
    """
    try:
        raw = path.read_bytes()
        return json.loads(gzip.decompress(raw) if raw.startswith(b"\x1f\x8b") else raw)
    except (OSError, EOFError, zlib.error) as error:
        raise BenchError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except (ValueError, RecursionError) as error:
        raise BenchError(f"{path} is not valid JSON: {error}") from error
