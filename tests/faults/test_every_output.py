"""Every output of every command against all that its other options name: nothing of it is replaced.

Options are asked of the command line itself. A path of a new option must be marked as an output, or listed as an input.
"""

import inspect
from pathlib import Path
from typing import Any, get_args

import pytest

from harness.cli.errors import shown_name
from harness.cli.output import OutFile
from harness.utils.errors import BenchError
from tests.faults.option_values import commands, placed
from tests.harness.conftest import bench

INPUTS = {
    "annotations", "backbone_weights", "captions", "cards", "checkpoint", "data_images", "domains", "images",
    "instances", "judgements", "predictions", "references", "sets", "source", "vocabulary", "workspace",
}  # fmt: skip
"""Parameters that are paths, and not written; a workspace has what `bench` writes under names of its own."""
TEXT = b"kept\n"


def _kinds(command: Any) -> dict[str, tuple[str, OutFile | None]]:
    """Parameters that take texts or paths, by name: which of the two, and how an output is marked."""
    found = {}
    for name, parameter in inspect.signature(command.callback).parameters.items():
        kind, *marks = get_args(parameter.annotation) or (parameter.annotation,)
        held = {kind, *get_args(kind), *(each for inner in get_args(kind) for each in get_args(inner))}
        mark = next((mark for mark in marks if isinstance(mark, OutFile)), None)
        if held & {str, Path}:
            found[name] = ("path" if Path in held else "text", mark)
    return found


def _outputs() -> list[Any]:
    return [
        pytest.param(path, command, name, mark, id=f"{path} {name}")
        for path, command in commands()
        for name, (_, mark) in _kinds(command).items()
        if mark is not None
    ]


def test_every_path_is_known_as_an_input_or_an_output() -> None:
    unknown = {
        f"{path} {name}"
        for path, command in commands()
        for name, (kind, mark) in _kinds(command).items()
        if kind == "path" and mark is None and name not in INPUTS
    }
    assert unknown == set()


@pytest.mark.parametrize(("path", "command", "name", "mark"), _outputs())
def test_no_output_replaces_what_any_other_option_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, command: Any, name: str, mark: OutFile
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "file"
    file.write_bytes(TEXT)
    (tmp_path / "link").symlink_to("file")
    flags = [f"--{each}" for each in (mark.only_with, "force" * (mark.begins is not None)) if each]
    shown = {parameter.name: shown_name(parameter) for parameter in command.params}
    for other in _kinds(command).keys() - {name}:
        words = placed(path, {name: "link", other: "file"})
        result = bench(*words, *flags)
        assert isinstance(result.exception, BenchError), (words, result.stdout)
        assert shown[name] in str(result.exception), words
        assert file.read_bytes() == TEXT, words
        assert (tmp_path / "link").is_symlink()
