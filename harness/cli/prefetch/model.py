"""`bench prefetch model`: a pretrained model's files, into the Hugging Face Hub's cache."""

from __future__ import annotations

from typing import Annotated

import typer

from harness.utils.errors import BenchError


def model(
    name: Annotated[str, typer.Argument(help="A pretrained model, such as git/pretrained, or hf:ORG/NAME.")],
    source: Annotated[str | None, typer.Option("--from", help="Another repository on the Hugging Face Hub.")] = None,
) -> None:
    """Fetch a pretrained model's weights, tokenizer and settings into the hub's cache; no code, no pickles."""
    from harness.benchmark.hub_model import PREFIX, prefetch_hub
    from harness.benchmark.pretrained import prefetch_model

    if name.startswith(PREFIX):
        if source is not None:
            raise BenchError("--from is for models of the zoo", f"write the repository itself: {PREFIX}{source}")
        typer.echo(f"{name} is in {prefetch_hub(name)}")
        typer.echo(f"Next: bench run --models {name}")
        return
    folder = prefetch_model(name, source)
    typer.echo(f"{name} is in {folder}")
    chosen = f" --pretrained {name}={source}" if source else ""
    typer.echo(f"Next: bench run --models {name}{chosen}")
