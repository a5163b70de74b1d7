"""Compiled templates are kept where Python keeps byte code, and are made anew where the file is damaged."""

from __future__ import annotations

import sys
from pathlib import Path

import jinja2
import pytest

from reports.html import template_cache
from reports.html.rendering import template_environment

TEMPLATE = "nocaps.html.j2"


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The templates that are compiled, with byte code below `tmp_path`."""
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(template_cache, "_COMPILED", {})
    found: list[str] = []
    plain = jinja2.Environment.compile

    def compile_(self: jinja2.Environment, source: str, name: str, *rest: object) -> object:
        found.append(name)
        return plain(self, source, name, *rest)  # type: ignore[call-overload]

    monkeypatch.setattr(jinja2.Environment, "compile", compile_)
    return found


def test_a_template_is_compiled_once_for_all_processes(compiled: list[str], tmp_path: Path) -> None:
    template_environment([]).get_template(TEMPLATE)
    template_cache._COMPILED.clear()  # as in another process
    template_environment([]).get_template(TEMPLATE)
    assert compiled == [TEMPLATE]
    (file,) = tmp_path.rglob(f"*-{jinja2.__version__}.*")
    file.write_bytes(file.read_bytes()[:-40])
    template_cache._COMPILED.clear()
    template_environment([]).get_template(TEMPLATE)
    assert compiled == [TEMPLATE] * 2


def test_one_process_compiles_once_where_python_writes_no_byte_code(
    compiled: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    for _ in range(2):
        template_environment([]).get_template(TEMPLATE)
    assert compiled == [TEMPLATE]
    assert not any(tmp_path.iterdir())
