"""`bench data download`: public data sets from their official addresses, checked, and ready for `bench run`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.options import refuse_empty
from harness.cli.output import OutFolder
from harness.utils.errors import BenchError
from harness.utils.files import shortened

if TYPE_CHECKING:
    from harness.data.download.download import Downloaded
    from harness.data.download.sources import Source

_EXAMPLES = """
Examples:

  bench data download coco

  bench data download coco --what annotations --to /data/coco

  bench data download nocaps --to /data/coco

  bench data download flickr8k

  bench data download coco --mirror https://example.org/coco
"""


def register(group: typer.Typer) -> None:
    """Add the command to `bench data`."""
    group.command("download", epilog=_EXAMPLES)(download)


def download(
    data: Annotated[str, typer.Argument(metavar="DATA", help="coco, flickr8k, flickr30k or nocaps.")],
    what: Annotated[
        str | None,
        typer.Option(
            callback=refuse_empty,
            help="annotations, images, or both with a comma.  [default: both, annotations of Flickr]",
        ),
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to.  [default: ./DATA, of nocaps ./coco]"),
        OutFolder(),
    ] = None,
    mirror: Annotated[
        str | None,
        typer.Option(callback=refuse_empty, metavar="URL", help="A folder with the same files, in place of their own."),
    ] = None,
) -> None:
    """Fetch a data set: Karpathy's splits, COCO's or nocaps's pictures; continue where an earlier command stopped.

    COCO takes 20 GB, and 34 GB on the way. Everything is counted when it is there. Flickr's pictures need a form, which
    the command names.
    """
    from harness.data.download.download import download as fetch_all
    from harness.data.download.sources import find_source
    from harness.utils.files import expanded
    from harness.utils.progress import Reporter

    source = find_source(data)
    parts = _parts(what, source)
    source = source if mirror is None else source.mirrored(mirror)
    folder = expanded(to or source.folder or data)
    with Reporter() as reporter:
        found = fetch_all(data, source, folder, parts, reporter)
    if source.form is not None:
        typer.echo(f"pictures: fill in the form at {source.form}, and put them into {found.images}/")
    for line in _next(data, folder, found):
        typer.echo(line)


def _parts(what: str | None, source: Source) -> list[str]:
    """The parts that are asked for; by default all that can be fetched."""
    from harness.data.download.download import PARTS

    if what is None:
        return list(PARTS if source.form is None else PARTS[:1])
    chosen = [part.strip() for part in what.split(",")]
    if unknown := [part for part in chosen if part not in PARTS]:
        raise BenchError(f"--what {shortened(unknown[0])!a} is no part of a data set", f"choose of: {', '.join(PARTS)}")
    return chosen


def _next(data: str, folder: Path, found: Downloaded) -> list[str]:
    """The commands that use what was fetched, as they can be typed."""
    quoted = [shlex.quote(str(path)) for path in (found.annotations, found.images, folder)]
    if data != "nocaps":
        words = f"{quoted[0]} --images {quoted[1]}"
        run = f"bench run --data {words} --backbone resnet50 --models transformer_base,blind,human"
        return [f"next: bench data verify {words}", f"then: {run}"]
    coco, joined = (shlex.quote(str(folder / f"dataset_{name}.json")) for name in ("coco", "coco_nocaps"))
    lines = [] if (folder / "dataset_coco.json").is_file() else [f"first: bench data download coco --to {quoted[2]}"]
    run = f"bench run --data {joined} --images {quoted[1]} --backbone resnet50 --models transformer_base,blind,human"
    return [*lines, f"next: bench data nocaps {coco} {quoted[0]} --out {joined}", f"then: {run}"]
