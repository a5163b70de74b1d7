"""The results revision: which changes of the harness's code leave results as they were.

`REVISION` is raised with every change after which the same settings may give other captions or scores; `SOURCES` is the
digest of the sources for which it is stated. Finished runs of the same revision are re-used. Sources for which
it is not stated, those of a local edit, have a revision of their own.

`python -m harness.benchmark.identity.revision` writes the digest of the present sources into this file: the statement
that they give the results of `REVISION`.
"""

import re
from functools import cache
from pathlib import Path

from harness.benchmark.identity.sources import files_digest, harness_files

REVISION = 6
SOURCES = "11ffd9de"


@cache
def results_revision() -> str:
    """The revision of the running code: "1", or "1+" and the digest where it is not stated for these sources."""
    found = files_digest(harness_files())
    return str(REVISION) if found == SOURCES else f"{REVISION}+{found}"


if __name__ == "__main__":
    found, file = files_digest(harness_files()), Path(__file__)
    text = re.sub(r'^SOURCES = "\w*"$', f'SOURCES = "{found}"', file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")
    print(f"revision {REVISION}: sources {found}")
