"""Every command that writes, with what it would lose refused before any work."""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from harness.cli.output import check_out, check_out_folder
from harness.cli.outputs import OutFile, OutFolder, Running, paths_in, running
from harness.cli.usage import shown_name

_Force = Annotated[
    bool, typer.Option("--force", help="Replace a text file that is no earlier version of what is written.")
]


def checked(command: Callable[..., None]) -> Callable[..., None]:
    """A command whose marked parameters are checked before it begins, with `--force` where it may replace files.

    Typer reads its signature. A command without marked parameters is given back as it is.
    """
    hints = get_type_hints(command, include_extras=True)
    outputs = {name: mark for name, hint in hints.items() for mark in get_args(hint) if isinstance(mark, OutFile)}
    if not outputs:
        return command
    hints |= {name: _never_empty(hints[name]) for name in outputs}
    parameters = {
        name: parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[name])
        for name, parameter in inspect.signature(command).parameters.items()
    }
    own = {"context": inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)}
    if any(mark.begins is not None for mark in outputs.values()):
        own["force"] = inspect.Parameter("force", inspect.Parameter.KEYWORD_ONLY, annotation=_Force, default=False)
    taken = parameters.keys()
    parameters = parameters | {name: each for name, each in own.items() if name not in taken}

    @functools.wraps(command)
    def run(**given: Any) -> None:
        context = given["context"]
        names = {parameter.name: shown_name(parameter) for parameter in context.command.params}
        typed = {name for name in names if context.get_parameter_source(name).name != "DEFAULT"}
        named = {names[name]: tuple(paths_in(given[name])) for name in names.keys() & {*typed, "workspace"}}
        marks = {names[name]: mark for name, mark in outputs.items()}
        before = running.set(Running(marks, named, given.get("force", False)))
        try:
            for name, mark in outputs.items():
                if given[name] is not None and (mark.only_with is None or given[mark.only_with]):
                    check = check_out_folder if isinstance(mark, OutFolder) else check_out
                    check(given[name], names[name])
            command(**{name: value for name, value in given.items() if name in taken})
        finally:
            running.reset(before)

    run.__signature__ = inspect.Signature(list(parameters.values()))  # type: ignore[attr-defined]
    run.__annotations__ = {name: parameter.annotation for name, parameter in parameters.items()}
    return run


def _never_empty(hint: Any) -> Any:
    """The type of an output, which an unset variable of a script must not turn into the current folder."""
    kind, *marks = get_args(hint)
    marks = [copy.copy(mark) for mark in marks]
    for info in marks:
        if not isinstance(info, OutFile):
            info.parser, info.metavar = _path, info.metavar or "PATH"
    return Annotated[(kind, *marks)]


def _path(value: str | Path) -> Path:
    if not str(value).strip():
        raise typer.BadParameter("it is empty")
    return Path(value)
