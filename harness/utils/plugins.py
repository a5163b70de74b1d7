"""Plug-ins: modules or files that call `zoo.register_model` when they are imported."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable
from pathlib import Path

from harness.utils.errors import BenchError


def load_plugins(names: Iterable[str] | None) -> None:
    """Import each plug-in; `None` for an option that was not given. Raises as `load_plugin`."""
    for name in names or ():
        load_plugin(name)


def load_plugin(name: str) -> None:
    """Import a plug-in by module name or by path of a `.py` file.

    Raises:
        BenchError: it cannot be found, or its import fails.
    """
    path = Path(name)
    try:
        if path.suffix == ".py":
            spec = importlib.util.spec_from_file_location(f"bench_plugin_{path.stem}", path)
            if spec is None or spec.loader is None or not path.is_file():
                raise FileNotFoundError(f"no such file: {name}")
            module = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = module
            spec.loader.exec_module(module)
        else:
            importlib.import_module(name)
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
