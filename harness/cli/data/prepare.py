"""`bench data prepare`: generate the embedded data set ahead of its first use."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from harness.cli.data.splits import describe_splits
from harness.cli.options import WorkspaceOption
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace

_EXAMPLES = """
Examples:

  bench data prepare scenes

  bench data prepare scenes --workspace /scratch/bench
"""


def register(group: typer.Typer) -> None:
    """Add the command to `bench data`."""
    group.command("prepare", epilog=_EXAMPLES)(prepare)


def prepare(
    data: Annotated[str, typer.Argument(metavar="DATA", help="What to generate: 'scenes'.")] = "scenes",
    workspace: WorkspaceOption = DEFAULT,
) -> None:
    """Generate the embedded data set ahead of its first use."""
    from harness.data.opening import SCENES, open_dataset

    if data != SCENES:
        raise BenchError(f"{data} cannot be generated, only {SCENES}", hint=f"bench data prepare {SCENES}")
    place = Workspace(workspace)
    place.create()
    started = time.monotonic()
    dataset = open_dataset(data, cache_dir=place.cache)
    splits = describe_splits(sample.split for sample in dataset.samples)
    typer.echo(f"{dataset.root}: {splits}; data set #{dataset.fingerprint[:8]}, {time.monotonic() - started:.1f} s")
