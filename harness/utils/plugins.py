"""Plug-ins: modules or files that call `zoo.register_model` when they are imported, and what their code may not do.

An audit hook sees which files of its own folder a plug-in opens. What it opens before its digest is asked for is in
that; what it opens for the first time later is refused, since no run key would say what was in it.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import sys
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

from harness.utils.errors import BenchError, ProcessLostError
from harness.utils.files import shortened

_HINT = "give an importable module or a .py file"
_INSTALLED = frozenset({"site-packages", "dist-packages"})
_OTHERS = (Path(sys.prefix), *(Path(__file__).parents[2] / room for room in ("harness", "zoo", "results", "reports")))
"""Folders that are not of a plug-in, even where they lie below its own."""
_loaded: dict[str, Plugin] = {}
_loading: Plugin | None = None
_PROCESS, _exit = os.getpid(), os._exit


@dataclass(slots=True)
class Plugin:
    """A plug-in that this process loads; `opened` has, by path, name, time of change and size of its own files."""

    name: str
    module: str
    folders: tuple[Path, ...]
    opened: dict[str, tuple[str, int, int]] = field(default_factory=dict)
    sealed: bool = False

    @property
    def package(self) -> str:
        """The module's outermost package, or itself."""
        return self.module.partition(".")[0]

    def hear(self, path: str) -> None:
        """Note that a file of its own is opened; BenchError if it changed since, or is new after the digest."""
        for place in map(_source, (Path(path).absolute(), Path(path).resolve())):
            if (name := self._named(place)) is None:
                continue
            state = place.stat() if place.is_file() else None
            known, found = self.opened.get(str(place)), state and (name, state.st_mtime_ns, state.st_size)
            if known is not None and known != found:
                raise BenchError(
                    f"--plugin {self.name}: {name} has changed since it was loaded", "type the same command again"
                )
            if known is None and found:
                if self.sealed:
                    raise BenchError(
                        f"--plugin {self.name}: it opens {name} after the run's key was made, which has to tell of it",
                        f"open it at the top of {self.name}, as the module is imported",
                    )
                self.opened[str(place)] = found
            return

    def _named(self, place: Path) -> str | None:
        """A file's name in the plug-in's own folder; None where it lies elsewhere, or belongs to others there."""
        for folder in self.folders:
            if not place.is_relative_to(folder):
                continue
            within = place.relative_to(folder)
            others = (each for each in _OTHERS if not folder.is_relative_to(each))
            if _INSTALLED.isdisjoint(within.parts) and not any(map(place.is_relative_to, others)):
                package = self.package if folder.name == self.package else ""
                return str(package / within) if within.name else place.name
        return None


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
    global _loading
    path = Path(name)
    printed = io.StringIO()
    module = f"bench_plugin_{path.stem}" if path.suffix == ".py" else name
    plugin = Plugin(path.name if path.suffix == ".py" else name, module, _own_folders(module, path))
    if any(each.module == module and each.folders != plugin.folders for each in loaded_plugins()):
        raise BenchError(f"--plugin {name}: another plug-in is named {plugin.name}", "rename one of the two")
    _loaded[module] = plugin
    os._exit = _exit_by_exception
    try:
        _listen()
        _loading = plugin  # all that is opened is opened for it; later, what its code asks for
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
    finally:
        _loading = None
    import multiprocessing  # here, since quick commands import this module

    if (said := printed.getvalue().split()) and multiprocessing.parent_process() is None:
        sys.stderr.write(f"--plugin {shortened(name)} printed while it was loaded: {shortened(' '.join(said))}\n")


def _load_error(name: str, module: str, error: BaseException) -> BenchError:
    """Why a plug-in could not be loaded: it is not there, it lacks a module of others, or its code failed."""
    place = place_in_plugin(error)
    at = "" if place is None else f" at {place}"
    if isinstance(error, SyntaxError):
        at = f" at {Path(error.filename or name).name}, line {error.lineno}"
    lacks = error.name if isinstance(error, ModuleNotFoundError) else None
    if lacks is not None and not f"{module}.".startswith(f"{lacks}."):
        return BenchError(
            f"--plugin {name}: it imports {lacks}, which is not installed here{at}",
            f"install {lacks} beside captionbench, or put its folder on PYTHONPATH",
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
            if _plugin_of(frame) is not None
        ]
        if frames:
            return frames[-1]
        cause = cause.__cause__
    return None


def _plugin_of(frame: FrameType) -> Plugin | None:
    """The plug-in whose module, or other file of its own, the frame is of."""
    package, file = str(frame.f_globals.get("__name__", "")).partition(".")[0], frame.f_code.co_filename
    return next((each for each in _loaded.values() if each.package == package or file in each.opened), None)


def _calling() -> Plugin | None:
    """The plug-in whose code is at work now, or called what is."""
    frames = (_plugin_of(frame) for frame, _ in traceback.walk_stack(sys._getframe(1)))
    return next((plugin for plugin in frames if plugin is not None), None)


def loaded_plugins() -> list[Plugin]:
    """The plug-ins of this process, in the order in which they were loaded."""
    return [plugin for plugin in _loaded.values() if plugin.module in sys.modules]


def _own_folders(module: str, path: Path) -> tuple[Path, ...]:
    if path.suffix == ".py":
        return path.absolute().parent, path.resolve().parent
    try:
        spec = importlib.util.find_spec(module.partition(".")[0])
    except ValueError:  # no name of a module
        spec = None
    if spec is None:
        return ()
    place = Path(next(iter(spec.submodule_search_locations or ()), None) or spec.origin or "").absolute()
    alone = not spec.submodule_search_locations and place.parent.name not in _INSTALLED
    place = place.parent if alone else place  # what lies beside an installed module is of other packages
    return place, place.resolve()


def _source(place: Path) -> Path:
    """The source of byte code; other files as they are."""
    try:
        return Path(importlib.util.source_from_cache(str(place))) if place.suffix == ".pyc" else place
    except ValueError:
        return place


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    """The audit hook; files that are only written, or emptied first, are no input."""
    if event != "open" or not _loaded:
        return
    path, _, flags = arguments
    if isinstance(path, int) or flags & (os.O_WRONLY | os.O_TRUNC):
        return
    if (plugin := _loading or _calling()) is not None:
        plugin.hear(os.fsdecode(path))


@cache
def _listen() -> None:
    """Once a process: nothing takes an audit hook away again."""
    import safetensors

    opening: Any = safetensors.safe_open

    def safe_open(filename: Any, *arguments: Any, **options: Any) -> Any:
        sys.audit("open", filename, "r", os.O_RDONLY)  # its own code, in Rust, tells no hook
        return opening(filename, *arguments, **options)

    for module in list(sys.modules.values()):
        if vars(module).get("safe_open") is opening:
            module.safe_open = safe_open  # type: ignore[attr-defined]
    sys.addaudithook(_hear)


def _exit_by_exception(status: int) -> NoReturn:
    """In place of `os._exit`: raises SystemExit where a plug-in's code calls it in a process of the benchmark.

    It would end the program with the plug-in's own exit code, 0 too, and leave a run that seems to go on.
    """
    if os.getpid() == _PROCESS and _calling() is not None:
        raise SystemExit(status)
    _exit(status)


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
