"""Compiled templates, kept where Python keeps the byte code of modules: compiling them takes longer than most pages."""

from __future__ import annotations

import io
import os
import sys
from importlib.util import cache_from_source
from pathlib import Path

import jinja2
from jinja2.bccache import Bucket

_TEMPLATES = Path(__file__).parent / "templates"
_COMPILED: dict[Path, bytes] = {}
"""By file, for all reports of this process: `bench run` writes one again and again."""


class TemplateCache(jinja2.BytecodeCache):
    """Reads and writes a file for each template in `__pycache__`, or below Python's own prefix; never fails.

    Jinja checks the file's Python version and the digest of the template's source. Where Python may write no byte
    code, or the folder cannot be written, every process compiles templates anew.
    """

    def load_bytecode(self, bucket: Bucket) -> None:
        """Fill the bucket, if the file is there and is of this template."""
        try:
            file = _file(bucket)
            bucket.load_bytecode(io.BytesIO(_COMPILED.get(file) or file.read_bytes()))
        except (OSError, EOFError, ValueError, TypeError):
            bucket.reset()

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write the file beside its place, then move it there."""
        file = _file(bucket)
        code = _COMPILED[file] = bucket.bytecode_to_string()
        if sys.dont_write_bytecode:
            return
        work = file.with_name(f"{file.name}.{os.getpid()}")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            work.write_bytes(code)
            work.replace(file)
        except OSError:
            work.unlink(missing_ok=True)


def _file(bucket: Bucket) -> Path:
    """By the template's digest, which Jinja makes of its name and path; another Jinja compiles otherwise."""
    return Path(cache_from_source(str(_TEMPLATES / f"{bucket.key}-{jinja2.__version__}.py")))
