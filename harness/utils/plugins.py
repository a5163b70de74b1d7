"""Plug-ins: modules or files that call `zoo.register_model` when they are imported, and what their code may not do."""

from __future__ import annotations

import importlib
import importlib.util
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from harness.utils.errors import BenchError, ProcessLostError
from harness.utils.files import shortened


def load_plugins(names: Iterable[str] | None) -> None:
    """Import each plug-in; `None` for an option that was not given. Raises as `load_plugin`."""
    for name in names or ():
        load_plugin(name)


def load_plugin(name: str) -> None:
    """Import a plug-in by module name or by path of a `.py` file.

    What it prints goes to stderr, once for all workers: stdout holds the command's own answer.

    Raises:
        BenchError: it cannot be found, or its import fails.
    """
    path = Path(name)
    printed = io.StringIO()
    try:
        with redirect_stdout(printed):
            _import(name, path)
    except KeyboardInterrupt:  # the user's, or SIGTERM
        raise
    except SystemExit as error:
        raise BenchError(
            f"--plugin {name}: it ended the program while it was loaded: sys.exit({error.code!r})",
            "put what a script does under `if __name__ == '__main__':`; a plug-in only registers models",
        ) from error
    except BaseException as error:
        raise BenchError(
            f"--plugin {name}: {type(error).__name__}: {error}", "give an importable module or a .py file"
        ) from error
    if (said := printed.getvalue().split()) and _is_first():
        sys.stderr.write(f"--plugin {shortened(name)} printed while it was loaded: {shortened(' '.join(said))}\n")


def _is_first() -> bool:
    """Whether no other process of this command started this one."""
    import multiprocessing

    return multiprocessing.parent_process() is None


def _import(name: str, path: Path) -> None:
    if path.suffix == ".py":
        spec = importlib.util.spec_from_file_location(f"bench_plugin_{path.stem}", path)
        if spec is None or spec.loader is None or not path.is_file():
            raise FileNotFoundError(f"no such file: {name}")
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
