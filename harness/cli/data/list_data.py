"""`bench data list`: what can follow `--data`."""

from __future__ import annotations

import typer

from harness.cli.options import WorkspaceOption
from harness.utils.workspace import DEFAULT, Workspace

_EXAMPLES = """
Examples:

  bench data list

  bench data list --workspace /scratch/bench
"""
_OWN_DATA = """\
FOLDER       your own: COCO, Flickr8k or Flickr30k in Karpathy's format.
             FOLDER/dataset*.json or .json.gz, and FOLDER/images/ (or the
             pictures beside it, also under the folders that "filepath" names).
             restval counts as train.
FILE         such an annotation file itself; --images DIR names the
             folder of the pictures, if it is not beside it.
             bench data convert makes one of COCO's captions, of a CSV,
             or of a folder with metadata.jsonl;
             bench data download fetches coco, flickr8k, flickr30k, nocaps."""


def register(group: typer.Typer) -> None:
    """Add the command to `bench data`."""
    group.command("list", epilog=_EXAMPLES)(list_data)


def list_data(workspace: WorkspaceOption = DEFAULT) -> None:
    """List what can follow --data."""
    from harness.data.scenes.dataset import ScenesConfig, scenes_folder

    config = ScenesConfig()
    there = scenes_folder(Workspace(workspace).cache, config).is_dir()
    typer.echo(
        "scenes       embedded: drawn objects in relations, with boxes; no download.\n"
        f"             train {config.train}, val {config.val}, test {config.test}, "
        f"nocaps 3 x {config.nocaps_per_domain} images, {config.captions} captions each;\n"
        f"             {'drawn already' if there else 'drawn on first use, in seconds'}."
    )
    typer.echo(_OWN_DATA)
    typer.echo("\nNext: bench data verify FOLDER, then bench run --data FOLDER --backbone NAME")
