"""`bench prefetch`: fetch what some metrics and models need and cannot be part of the package."""

from typing import Annotated

import typer

from harness.cli.inputs import doing
from harness.cli.output import echo
from harness.utils.errors import BenchError

EXAMPLES = {
    "spice": """
bench prefetch spice
bench prefetch spice --from stanford-corenlp-full-2015-12-09.zip
""",
    "model": """
bench prefetch model git/pretrained
""",
}


def spice(
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE-OR-URL", help="The archive of CoreNLP 3.6.0, if you have it.")
    ] = None,
    sha256: Annotated[
        str | None, typer.Option(help="Checksum that the archive must have. Without it, its known SHA-1 is checked.")
    ] = None,
) -> None:
    """Install the parser models of SPICE (about 500 MB) into the user's cache, after checking them."""
    from harness.metrics.spice import ARCHIVE_URL, prefetch_spice, user_spice
    from harness.utils.progress import Reporter

    with Reporter() as reporter:
        archive_digest = prefetch_spice(source or ARCHIVE_URL, user_spice(), reporter, sha256=sha256)
    echo(f"SPICE is installed in {user_spice()} (archive SHA-256 {archive_digest})")
    echo("Next: bench evaluate PREDICTIONS.json --references REFERENCES.json")


def model(
    name: Annotated[str, typer.Argument(help="A pretrained model, such as git/pretrained, or hf:ORG/NAME.")],
    source: Annotated[str | None, typer.Option("--from", help="Another repository on the Hugging Face Hub.")] = None,
) -> None:
    """Fetch a pretrained model's weights, tokenizer and settings into the hub's cache; no code, no pickles."""
    from harness.benchmark.hub_model import prefetch_hub
    from harness.benchmark.pretrained import prefetch_model
    from harness.data.hub import PREFIX

    if name.startswith(PREFIX):
        if source is not None:
            raise BenchError("--from is for models of the zoo", f"write the repository itself: {PREFIX}{source}")
        with doing(f"Fetching {name}"):
            folder = prefetch_hub(name)
    else:
        with doing(f"Fetching {name}"):
            folder = prefetch_model(name, source)
    echo(f"{name} is in {folder}")
    echo(f"Next: bench run --models {name}{f' --pretrained {name}={source}' if source else ''}")


COMMANDS = {"spice": spice, "model": model}
