"""`bench prefetch spice`: the parser models of SPICE, into the user's cache."""

from __future__ import annotations

from typing import Annotated

import typer


def spice(
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE-OR-URL", help="The archive of CoreNLP 3.6.0, if you have it.")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(help="Checksum that the archive must have. Without it, its known SHA-1 is checked.")
    ] = None,
) -> None:
    """Install the parser models of SPICE (about 500 MB) into the user's cache, after checking them."""
    from harness.metrics.spice.install import ARCHIVE_URL, prefetch_spice
    from harness.metrics.spice.process import user_spice
    from harness.utils.progress import Reporter

    with Reporter() as reporter, reporter.task("archive (MB)", 0) as task:
        found = prefetch_spice(
            source or ARCHIVE_URL, user_spice(), sha256=sha256, progress=lambda done, _: task.reach(done >> 20)
        )
    typer.echo(f"SPICE is installed in {user_spice()} (archive SHA-256 {found})")
    typer.echo("Next: bench evaluate PREDICTIONS.json --references REFERENCES.json")
