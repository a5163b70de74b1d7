"""The results revision: which changes of the harness's code leave results as they were.

`REVISION` is raised with every change after which the same settings may give other captions or scores; `SOURCES` is the
digest of the sources that this is said of. Finished runs of the same revision are re-used. Sources that nobody has
spoken for, those of a local edit, have a revision of their own.

`python -m harness.runner.identity.revision` writes the digest of the present sources into this file: the statement that
they give the results of `REVISION`.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from harness.runner.identity.sources import files_digest, harness_files

REVISION = 1
SOURCES = "a759f880"


@cache
def results_revision() -> str:
    """The revision of the code that is running: "1", or "1+" and the digest of sources that nobody has spoken for."""
    found = files_digest(harness_files())
    return str(REVISION) if found == SOURCES else f"{REVISION}+{found}"


def state_sources() -> str:
    """Write the digest of the present sources into this file; gives it."""
    found, file = files_digest(harness_files()), Path(__file__)
    text = re.sub(r'^SOURCES = "\w*"$', f'SOURCES = "{found}"', file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")
    return found


if __name__ == "__main__":
    print(f"revision {REVISION}: sources {state_sources()}")
