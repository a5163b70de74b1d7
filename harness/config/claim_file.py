"""Read the claims of a YAML file, or those that ship (`docs/own_claims.md`)."""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from harness.utils.errors import BenchError
from harness.utils.files import reason, shortened
from harness.utils.yaml_value import load_bounded
from results.comparison.claims import Claim, ClaimFile
from results.files import read_text

_MAX_CHARACTERS: Final = 200_000
_MAX_DEPTH: Final = 10
_HINT: Final = "docs/own_claims.md says what a claim consists of"


def list_claims() -> list[str]:
    """Names of the files of claims that ship."""
    files = resources.files("harness.config.claims").iterdir()
    return sorted(entry.name.removesuffix(".yaml") for entry in files if entry.name.endswith(".yaml"))


def load_claims(name: str) -> tuple[Claim, ...]:
    """The claims of a file, or of one that ships, by its name.

    Raises:
        BenchError: it cannot be read, or holds no claims; the message names the first field that is wrong.
    """
    try:
        if name in list_claims():
            text = (resources.files("harness.config.claims") / f"{name}.yaml").read_text(encoding="utf-8")
        else:
            text = read_text(Path(name))
    except (OSError, ValueError) as error:
        said = reason(error) if isinstance(error, OSError) else str(error)
        raise BenchError(
            f"the claims {shortened(name)} cannot be read: {said}",
            f"name a YAML file, or claims that ship: {', '.join(list_claims())}",
        ) from error
    try:
        if len(text) > _MAX_CHARACTERS:
            raise ValueError(f"it has {len(text):,} characters, and at most {_MAX_CHARACTERS:,} are read")
        return ClaimFile.model_validate(load_bounded(text, _MAX_DEPTH)).claims
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        told = first["msg"].removeprefix("Value error, ")
        raise BenchError(
            f"the claims {shortened(name)}: {shortened(where)}: {told[:1].lower()}{told[1:]}", _HINT
        ) from error
    except ValueError as error:
        raise BenchError(f"the claims {shortened(name)}: {error}", _HINT) from error
