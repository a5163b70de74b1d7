"""Runs of the benchmark that are killed at a moment, and what is stored of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from results import Store
from results.runs.gallery import gallery
from results.runs.leaderboard import Row, leaderboard
from results.runs.reading import one_run
from tests.harness.conftest import TIMEOUT_S, bench_environment

PLUGINS = Path(__file__).parents[1] / "plugins"
# Commands in processes of their own, which import what takes seconds together; what they print goes to stderr.
FORKED = """
import json, os, sys
import torch._dynamo
import harness.benchmark.benchmark
from harness.cli.app import main
from harness.benchmark.identity.revision import results_revision

results_revision()
for words, variables in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        os.dup2(2, 1)
        os.environ.update(variables)
        sys.argv = ["bench", *words]
        sys.exit(main())
    print(os.waitpid(child, 0)[1], flush=True)
"""


def killed_at(moment: str) -> tuple[list[object], dict[str, str]]:
    """The words and the environment of a `bench run` that kills itself at this moment."""
    return ["--plugin", PLUGINS / "killer.py"], {"BENCH_TEST_KILL_AT": moment}


def ends_of(commands: Iterable[tuple[Iterable[object], dict[str, str]]]) -> tuple[list[int], str]:
    """Run `bench WORDS` with more environment variables one after another; how each ended, and what all said."""
    told = json.dumps([([*map(str, words)], variables) for words, variables in commands])
    done = subprocess.run(
        [sys.executable, "-c", FORKED],
        input=told, env=bench_environment(), capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    return [os.waitstatus_to_exitcode(int(status)) for status in done.stdout.split()], done.stderr


def rows(workspace: Path) -> dict[str, Row]:
    """The test split's rows by model, references included."""
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        groups = [group for group in leaderboard(store) if group.split == "test"]
        assert len(groups) == 1
        return {row.model: row for row in (*groups[0].rows, *groups[0].references)}


def scores_and_captions(workspace: Path) -> tuple[dict[str, dict[str, float | None]], list[object]]:
    """All that must not depend on kills; keys do, on the plug-in that kills."""
    with Store(workspace / "bench.sqlite", read_only=True) as store:
        [dataset] = {group.dataset for group in leaderboard(store)}
        pictures = [
            replace(item, captions=tuple(replace(caption, key="") for caption in item.captions))
            for split in ("test", "nocaps")
            for item in gallery(store, dataset, split)
        ]
        everything = [
            {name: spread.mean for name, spread in row.scores.items()}
            for group in leaderboard(store)
            for row in (*group.rows, *group.references)
        ]
        curves = [
            (epoch.train_loss, epoch.val_cider) for row in rows(workspace).values() for key in row.keys
            for epoch in one_run(store, key).epochs
        ]  # fmt: skip
        return {str(number): scores for number, scores in enumerate(everything)}, [pictures, curves]
