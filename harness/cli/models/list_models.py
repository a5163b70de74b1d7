"""`bench models list`: the architectures that can be compared."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.utils.errors import BenchError


def list_models(
    pattern: Annotated[
        str | None, typer.Argument(help="Shell pattern of names, variants included; quote it for your shell.")
    ] = None,
) -> None:
    """List the models: name, what it is, year of the paper, what it sees. A pattern lists variants too."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from zoo.registry import list_models as names_of
    from zoo.registry import model_card, select_models

    found = names_of(pattern or "*")
    if not found:
        raise BenchError(f"no model matches {pattern!r}", "`bench models` lists them all")
    names = found if pattern else select_models("all")
    table = Table("Model", "What it is", "Year", "Sees", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = table.columns[2].no_wrap = table.columns[3].no_wrap = True
    for name in names:
        card = model_card(name)
        table.add_row(name, escape(card.summary), str(card.year), card.visual)
    console = Console(highlight=False)
    console.print(table)
    console.print(f"{len(names)} model{'s' * (len(names) > 1)}; more on one: bench models show {names[0]}")
    if len(found) > len(names):
        variant = next(name for name in found if "/" in name).partition("/")[0]
        console.print(
            f"{len(found) - len(names)} variants, for example: bench models list '{variant}/*' or '*/pretrained'"
        )
        console.print("bench run takes reference rows too: human, majority, retrieval")
