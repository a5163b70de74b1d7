"""`bench new-model`: a captioner to begin from, as a file of one's own with its test.

`mine.py` and `test_mine.py` are what it writes, under another name; they are never imported here.
"""

import importlib.util
import keyword
import re
from pathlib import Path
from typing import Annotated

import typer

from harness.cli.output import deliver, echo, write_errors
from harness.utils.errors import BenchError
from harness.utils.files import shortened

EXAMPLES = """
bench new-model mine
bench new-model sparse_gru --out models/
"""
_HINT = "for example: bench new-model mine"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,59}")


def new_model(
    name: Annotated[str, typer.Argument(help="Name of the model: lower-case letters, digits and _.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write into.")] = Path(),
) -> None:
    """Write a small captioner that trains, NAME.py, and its test, test_NAME.py, to make a model of one's own from.

    Nothing is overwritten. What its methods take and give is in docs/own_model.md.
    """
    if not _NAME.fullmatch(name):
        raise BenchError(
            f"NAME {shortened(name)!r} is not lower-case letters, digits and _, beginning with a letter", _HINT
        )
    model = out / f"{name}.py"
    test = out / f"test_{name}.py"
    with write_errors(out):
        for path in (model, test):
            if path.exists():
                raise BenchError(f"{path} exists, and nothing is overwritten", "choose another name, or another --out")
    _check_free(name)
    deliver(named("mine", name), model)
    deliver(named("test_mine", name), test)
    echo(f"{model}: a GRU that attends to the image, to be made your own (docs/own_model.md)")
    echo(f"{test}: the laws that a model must keep")
    echo(f"next: pytest {test}")
    echo(f"then: bench run --models {name},transformer_base --plugin {model}")


def named(stem: str, name: str) -> str:
    """The source of `mine.py` or `test_mine.py` (by `stem`) for a model of this name."""
    source = Path(__file__).with_name(f"{stem}.py").read_text(encoding="utf-8")
    class_name = "".join(part.capitalize() for part in name.split("_"))
    if class_name != "Mine" and re.search(rf"\b{class_name}\b", source):
        raise BenchError(f"NAME {name!r} would hide {class_name}, which the file imports", _HINT)
    return source.replace("mine", name).replace("Mine", class_name)


def _check_free(name: str) -> None:
    """BenchError if Python or the zoo has the name already."""
    from zoo import list_models
    from zoo.registry import RESERVED

    if name in RESERVED:
        raise BenchError(f"NAME {name!r} stands for something else where models are named", _HINT)
    if keyword.iskeyword(name) or importlib.util.find_spec(name) is not None:
        raise BenchError(f"NAME {name!r} is a word or a module of Python, which {name}.py would stand before", _HINT)
    if name in list_models():
        raise BenchError(f"NAME {name!r} is a model of the zoo already", f"for example: bench new-model my_{name}")
