"""Plug-ins: modules or files that call `zoo.register_model` when they are imported, and what their code may not do."""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from types import FrameType

from harness.utils.errors import BenchError, ProcessLostError
from harness.utils.files import shortened

_HINT = "give an importable module or a .py file"
_loaded: set[str] = set()
"""Names of modules, or packages, that plug-ins are."""


def load_plugins(names: Iterable[str] | None) -> None:
    """Import each plug-in; `None` for an option that was not given. Raises as `load_plugin`."""
    for name in names or ():
        load_plugin(name)


def absolute_plugins(names: Iterable[str] | None) -> tuple[str, ...]:
    """Names of plug-ins that other processes, in other folders, can load."""
    return tuple(str(Path(name).absolute()) if name.endswith(".py") else name for name in names or ())


def load_plugin(name: str) -> None:
    """Import a plug-in by module name or by path of a `.py` file.

    What it prints goes to stderr, once for all workers: stdout holds the command's own answer.

    Raises:
        BenchError: it cannot be found, or its import fails.
    """
    path = Path(name)
    printed = io.StringIO()
    module = f"bench_plugin_{path.stem}" if path.suffix == ".py" else name
    _loaded.add(module.partition(".")[0])
    try:
        with redirect_stdout(printed):
            _import(module, path)
    except KeyboardInterrupt:  # the user's, or SIGTERM
        raise
    except SystemExit as error:
        raise BenchError(
            f"--plugin {name}: it ended the program while it was loaded: sys.exit({error.code!r})",
            "put what a script does under `if __name__ == '__main__':`; a plug-in only registers models",
        ) from error
    except BaseException as error:
        raise _load_error(name, module, error) from error
    if (said := printed.getvalue().split()) and _is_first():
        sys.stderr.write(f"--plugin {shortened(name)} printed while it was loaded: {shortened(' '.join(said))}\n")


def _load_error(name: str, module: str, error: BaseException) -> BenchError:
    """Why a plug-in could not be loaded: it is not there, it lacks a module of others, or its code failed."""
    place = place_in_plugin(error)
    at = "" if place is None else f" at {place}"
    if isinstance(error, SyntaxError):
        at = f" at {Path(error.filename or name).name}, line {error.lineno}"
    if (
        isinstance(error, ModuleNotFoundError)
        and error.name is not None
        and not f"{module}.".startswith(f"{error.name}.")
    ):
        return BenchError(
            f"--plugin {name}: it imports {error.name}, which is not installed here{at}",
            f"install {error.name} beside captionbench, or put its folder on PYTHONPATH",
        )
    if isinstance(error, ModuleNotFoundError | FileNotFoundError) and place is None:
        return BenchError(f"--plugin {name}: {type(error).__name__}: {error}", _HINT)
    hint = getattr(error, "hint", None) or "put the plug-in's code right; `bench new-model` writes one that works"
    said = error.msg if isinstance(error, SyntaxError) else str(error)
    return BenchError(f"--plugin {name}: {type(error).__name__}{at}: {said}", hint)


def place_in_plugin(error: BaseException) -> str | None:
    """File and line of the innermost frame of a plug-in's code that an error, or its cause, went through."""
    cause: BaseException | None = error
    while cause is not None:
        frames = [
            f"{Path(frame.f_code.co_filename).name}, line {line}"
            for frame, line in traceback.walk_tb(cause.__traceback__)
            if _is_of_plugin(frame)
        ]
        if frames:
            return frames[-1]
        cause = cause.__cause__
    return None


def _is_of_plugin(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _loaded


def _is_first() -> bool:
    """Whether no other process of this command started this one."""
    import multiprocessing

    return multiprocessing.parent_process() is None


def _import(name: str, path: Path) -> None:
    if path.suffix == ".py":
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None or not path.is_file():
            raise FileNotFoundError(f"no such file: {path}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    else:
        importlib.import_module(name)


@contextmanager
def contain_exits() -> Iterator[None]:
    """Turn what would end the program, raised by a model's code, into an error of that model.

    Raises:
        BenchError: sys.exit() was called, or what was raised is no `Exception`.
    """
    hint = "let the model's code raise an Exception, as ValueError"
    try:
        yield
    except (Exception, GeneratorExit, KeyboardInterrupt, ProcessLostError):
        raise
    except SystemExit as error:
        raise BenchError(f"the model's code ended the program: sys.exit({error.code!r})", hint) from error
    except BaseException as error:
        raise BenchError(f"the model's code raised {type(error).__name__}, no Exception: {error}", hint) from error
