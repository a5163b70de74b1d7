"""The results revision: which changes of the harness's code leave results as they were.

`REVISION` is raised with every change after which the same settings may give other captions or scores; `SOURCES` is the
digest of the sources for which it is stated. Finished runs of the same revision are re-used. Sources for which
it is not stated, those of a local edit, have a revision of their own.

`python -m harness.benchmark.identity.revision` writes the digest of the present sources into this file: the statement
that they give the results of `REVISION`. With `--refactored-since COMMIT` it also states that the sources of models
which changed since that commit give the same results, so that their runs keep their keys.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import zoo
from harness.benchmark.identity.sources import REFACTORS, SPLIT_OFF, files_digest, harness_files, refactors, tree_digest

REVISION = 4
SOURCES = "d6693fd8"


@cache
def results_revision() -> str:
    """The revision of the running code: "1", or "1+" and the digest where it is not stated for these sources."""
    found = files_digest(harness_files())
    return str(REVISION) if found == SOURCES else f"{REVISION}+{found}"


def state_sources() -> str:
    """Write the digest of the present sources into this file; gives it."""
    found, file = files_digest(harness_files()), Path(__file__)
    text = re.sub(r'^SOURCES = "\w*"$', f'SOURCES = "{found}"', file.read_text(encoding="utf-8"), flags=re.MULTILINE)
    file.write_text(text, encoding="utf-8")
    return found


def state_refactors(commit: str) -> dict[str, dict[str, str]]:
    """State that sources in `zoo` which differ from those of a git commit give the same results; gives all statements.

    Only what is stated of present sources is kept. A path that the commit does not have is stated as split off, except
    in `zoo/models`, where it may hold a new model.
    """
    root = Path(zoo.__file__).resolve().parent.parent
    stated: dict[str, dict[str, str]] = {}
    for file in sorted((root / "zoo").rglob("*.py")):
        shown, now = file.relative_to(root).as_posix(), tree_digest(file.read_text(encoding="utf-8"))
        before = subprocess.run(
            ["git", "show", f"{commit}:{shown}"], cwd=root, capture_output=True, text=True, check=False
        )
        if before.returncode == 0:
            origin = tree_digest(before.stdout)
            origin = refactors().get(shown, {}).get(origin, origin)
            if origin != now:
                stated[shown] = {now: origin}
        elif not shown.startswith("zoo/models/"):
            stated[shown] = {now: SPLIT_OFF}
    REFACTORS.write_text(json.dumps(stated, indent=1) + "\n", encoding="utf-8")
    return stated


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--refactored-since":
        print(f"only refactored: {', '.join(state_refactors(sys.argv[2])) or 'nothing'}")
    print(f"revision {REVISION}: sources {state_sources()}")
