"""`bench models`: which architectures can be compared, and where each comes from."""

from typing import Annotated

import typer

from harness.utils.errors import BenchError

EXAMPLES = {
    "list": """
bench models list 'expansionnet_v2/*'
""",
    "show": """
bench models show expansionnet_v2
""",
}


def models(context: typer.Context) -> None:
    """List the architectures that can be compared, or show one of them."""
    if context.invoked_subcommand is None:
        list_models()


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

    matching = names_of(pattern or "*")
    if not matching:
        raise BenchError(f"no model matches {pattern!r}", "`bench models` lists them all")
    names = matching if pattern else select_models("all")
    table = Table("Model", "What it is", "Year", "Sees", box=box.SIMPLE_HEAD, pad_edge=False)
    table.columns[0].no_wrap = table.columns[2].no_wrap = table.columns[3].no_wrap = True
    for name in names:
        card = model_card(name)
        table.add_row(name, escape(card.summary), str(card.year), card.visual)
    console = Console(highlight=False)
    console.print(table)
    count = "1 model" if len(names) == 1 else f"{len(names)} models"
    console.print(f"{count}; details of one: bench models show {names[0]}")
    if len(matching) > len(names):
        variant = next(name for name in matching if "/" in name).partition("/")[0]
        console.print(
            f"{len(matching) - len(names)} variants, for example: bench models list '{variant}/*' or '*/pretrained'"
        )
        console.print("bench run takes reference rows too: human, majority, retrieval")


_VISUAL_KINDS = {
    "grid": "the cells of a backbone's feature map",
    "regions": "image regions with their boxes",
    "regions+grid": "image regions with their boxes, and the cells of the feature map that they are cut from",
    "pooled": "one feature vector an image",
    "pixels": "the image itself",
    "none": "nothing",
}


def show(name: Annotated[str, typer.Argument(help="A model's name, as `bench models` lists it.")]) -> None:
    """Show one model: paper, source, licence, what it sees, and the arguments of its preset."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from zoo.registry import model_card

    card = model_card(name)
    entry = card.entry if isinstance(card.entry, str) else f"{card.entry.__module__}:{card.entry.__qualname__}"
    console = Console(highlight=False)
    console.print(f"[bold]{escape(card.name)}[/]: {escape(card.summary)}\n")
    facts_by_label = {
        "paper": card.paper,
        "year": str(card.year),
        "source": card.source,
        "licence": f"{card.licence} (the authors' code)",
        "sees": f"{card.visual}: {_VISUAL_KINDS[card.visual]}",
    }
    if card.graph != "none":
        facts_by_label["reads"] = f"a scene graph beside them, as {card.graph} (--graphs)"
    facts_by_label["code here"] = entry
    if (pretraining := card.pretraining) is not None:
        facts_by_label |= {
            "pretrained on": "; ".join(pretraining.data_sets) or "not documented",
            "captions seen": pretraining.captions,
        }
        facts_by_label |= {f"images of {name}": why for name, why in pretraining.overlap.items()} | {
            "stated in": pretraining.source
        }
    facts = Table.grid(padding=(0, 2))
    for label, value in facts_by_label.items():
        facts.add_row(f"[dim]{label}[/]", escape(value))
    console.print(facts)
    if card.arguments:
        console.print("\nArguments of the preset (each can be overridden in zoo.create_model):")
    arguments = Table.grid(padding=(0, 2))
    for argument, value in card.arguments.items():
        arguments.add_row(f"  {escape(argument)}", escape(repr(value)))
    console.print(arguments)


COMMANDS = {"list": list_models, "show": show}
ALONE = models
