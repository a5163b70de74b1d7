"""The workflow that `bench regress --init` writes: what a repository of one's own needs to judge its pull requests."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Final

import harness

_TEMPLATE: Final = """\
# Written by bench regress --init: judges pull requests against {baseline}.
name: captionbench

on:
  pull_request:
  workflow_dispatch:

permissions:
  contents: read

jobs:
  regress:
    runs-on: ubuntu-latest
    timeout-minutes: 15
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
      - name: Install captionbench, of the release that made the baseline
        run: pip install {requirement}
      - name: Judge this commit
        run: |
          code=0
          {command} --findings findings || code=$?
          cat findings/findings.md >>"$GITHUB_STEP_SUMMARY" || true
          exit "$code"
"""


def workflow(baseline: Path, plugins: Sequence[str]) -> str:
    """The workflow's YAML."""
    words = ["bench", "regress", "--baseline", baseline.as_posix()]
    words += [word for name in plugins for word in ("--plugin", name)]
    return _TEMPLATE.format(baseline=baseline.as_posix(), requirement=requirement(), command=shlex.join(words))


def requirement() -> str:
    """What pip installs the release by that runs now: its commit where it came from a repository."""
    try:
        origin = json.loads(distribution("captionbench").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        origin = {}
    if "vcs_info" in origin:
        place = f"{origin['vcs_info']['vcs']}+{origin['url']}@{origin['vcs_info']['commit_id']}"
        return shlex.quote(f"captionbench @ {place}")
    return f"captionbench=={harness.__version__}"
