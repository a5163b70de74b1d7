"""Plug-ins: modules or files that call `zoo.register_model` when they are imported."""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path

from harness.utils.errors import BenchError, ProcessLostError
from harness.utils.files import shortened
from zoo.registry import registered_cards

_HINT = "give an importable module or a .py file"
_loaded: dict[str, Plugin] = {}


@dataclass(frozen=True, eq=False)
class Plugin:
    """A plug-in of this process.

    Attributes:
        name: the file's name, or the module's.
        module: its name in `sys.modules`.
        path: the file given, or None for a module.
        files: files that its models read, as named to `zoo.register_model`.
    """

    name: str
    module: str
    path: Path | None
    files: tuple[Path, ...] = ()

    @property
    def package(self) -> str:
        """The module's outermost package, or itself."""
        return self.module.partition(".")[0]


def load_plugins(names: Iterable[str] | None) -> None:
    """Import each plug-in; `None` for an option that was not given. Raises as `load_plugin`."""
    for name in names or ():
        load_plugin(name)


def absolute_plugins(names: Iterable[str] | None) -> tuple[str, ...]:
    """Names of plug-ins that other processes, in other folders, can load."""
    return tuple(str(Path(name).absolute()) if name.endswith(".py") else name for name in names or ())


def load_plugin(name: str) -> None:
    """Import a plug-in by module name or by path of a `.py` file; BenchError if it is not there, or its import fails.

    What it prints goes to stderr, once for all workers: stdout holds the command's own answer.
    """
    path = Path(name) if name.endswith(".py") else None
    plugin = (
        Plugin(name, name, None) if path is None else Plugin(path.name, f"bench_plugin_{path.stem}", path.resolve())
    )
    if any(other.module == plugin.module and other.path != plugin.path for other in loaded_plugins()):
        raise BenchError(f"--plugin {name}: another plug-in is named {plugin.name}", "rename one of the two")
    if plugin.path is None and plugin.module in _loaded and plugin.module in sys.modules:
        return  # Python does not import a module twice
    registered = registered_cards().keys()
    printed = io.StringIO()
    _loaded[plugin.module] = plugin
    try:
        with redirect_stdout(printed):
            _import(plugin.module, plugin.path)
    except KeyboardInterrupt:  # the user's, or SIGTERM
        raise
    except SystemExit as error:
        raise BenchError(
            f"--plugin {name}: it ended the program while it was loaded: sys.exit({error.code!r})",
            "put what a script does under `if __name__ == '__main__':`; a plug-in only registers models",
        ) from error
    except BaseException as error:
        raise _load_error(name, plugin.module, error) from error
    own_cards = [card for model, card in registered_cards().items() if model not in registered]
    files = tuple(dict.fromkeys(file for card in own_cards for file in card.files))
    _loaded[plugin.module] = replace(plugin, files=files)
    import multiprocessing  # here, since quick commands import this module

    words = printed.getvalue().split()
    if words and multiprocessing.parent_process() is None:
        sys.stderr.write(f"--plugin {shortened(name)} printed while it was loaded: {shortened(' '.join(words))}\n")


def _load_error(name: str, module: str, error: BaseException) -> BenchError:
    """Why a plug-in could not be loaded: it is not there, it lacks a module of others, or its code failed."""
    location = place_in_plugin(error)
    suffix = "" if location is None else f" at {location}"
    if isinstance(error, SyntaxError):
        suffix = f" at {Path(error.filename or name).name}, line {error.lineno}"
    lacks = error.name if isinstance(error, ModuleNotFoundError) else None
    if lacks is not None and not f"{module}.".startswith(f"{lacks}."):
        return BenchError(
            f"--plugin {name}: it imports {lacks}, which is not installed here{suffix}",
            f"install {lacks} beside captionbench, or put its folder on PYTHONPATH",
        )
    if isinstance(error, ModuleNotFoundError | FileNotFoundError) and location is None:
        return BenchError(f"--plugin {name}: {type(error).__name__}: {error}", _HINT)
    hint = getattr(error, "hint", None) or "put the plug-in's code right; `bench new-model` writes one that works"
    message = error.msg if isinstance(error, SyntaxError) else str(error)
    return BenchError(f"--plugin {name}: {type(error).__name__}{suffix}: {message}", hint)


def place_in_plugin(error: BaseException) -> str | None:
    """File and line of the innermost frame of a plug-in's code that an error, or its cause, went through."""
    packages = {plugin.package for plugin in _loaded.values()}
    folders = {plugin.path.parent for plugin in _loaded.values() if plugin.path is not None}
    cause: BaseException | None = error
    while cause is not None:
        for frame, line in reversed(list(traceback.walk_tb(cause.__traceback__))):
            path = Path(frame.f_code.co_filename)
            if path.name.startswith("<"):  # of no file
                continue
            package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
            if package in packages or path.resolve().parent in folders:
                return f"{path.name}, line {line}"
        cause = cause.__cause__
    return None


def loaded_plugins() -> list[Plugin]:
    """The plug-ins of this process, in the order in which they were loaded."""
    return [plugin for plugin in _loaded.values() if plugin.module in sys.modules]


def _import(name: str, path: Path | None) -> None:
    if path is None:
        importlib.import_module(name)
        return
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)


@contextmanager
def contain_exits() -> Iterator[None]:
    """Make a BenchError of what ends the program from a model's code: sys.exit(), or what is no `Exception`."""
    hint = "let the model's code raise an Exception, as ValueError"
    try:
        yield
    except (Exception, GeneratorExit, KeyboardInterrupt, ProcessLostError):
        raise
    except SystemExit as error:
        if deque(traceback.walk_tb(error.__traceback__), 1)[0][0].f_globals["__name__"].startswith("submitit."):
            raise  # it has put the job back into Slurm's queue
        raise BenchError(f"the model's code ended the program: sys.exit({error.code!r})", hint) from error
    except BaseException as error:
        raise BenchError(f"the model's code raised {type(error).__name__}, no Exception: {error}", hint) from error
