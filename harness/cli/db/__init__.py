"""`bench db`: look into a results database, check and upgrade it, merge another one's runs into it, publish a copy."""

from __future__ import annotations

import typer

from harness.cli.db import check, info, merge, publish, upgrade

_EXAMPLES = """
Examples:

  bench db info

  bench db check

  bench db upgrade --workspace runs/flickr8k

  bench db merge other-machine/bench.sqlite

  bench db publish flickr8k.sqlite --metrics CIDEr-D,BLEU-4

  BENCH_DB=postgresql://me@host/captions bench db info
"""


def register(app: typer.Typer) -> None:
    """Add `bench db` and its subcommands."""
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")
    group.command("info", epilog=_EXAMPLES)(info.info)
    group.command("check", epilog=_EXAMPLES)(check.check)
    group.command("upgrade", epilog=_EXAMPLES)(upgrade.upgrade)
    group.command("merge", epilog=_EXAMPLES)(merge.merge)
    group.command("publish", epilog=_EXAMPLES)(publish.publish)
    app.add_typer(
        group, name="db", help="Look into the results database, check, upgrade or merge it, or publish a copy."
    )
