"""Memory of a leaderboard and of a comparison: 29 models of 5 seeds, 5,000 images and 8 metrics.

    pytest benchmarks/test_score_memory.py -n 0 -s

As float64 these scores take 46 MB, 6 MB a metric. Each measurement is a process of its own, whose peak memory is given
with what it has after its imports.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.results.many_scores import fill_scores

MEASURE = """
import resource, sys, time
import captionbench, results, scipy.special
import harness.benchmark.compare_results

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

command, database = sys.argv[1:]
imported, started = peak(), time.perf_counter()
if command == "leaderboard":
    with results.open(database) as opened:
        count = len(opened.leaderboard())
else:
    count = len(captionbench.compare(database, database).pairs)
print(count, time.perf_counter() - started, imported, peak())
"""


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("store") / "bench.sqlite"
    fill_scores(file, models=29, seeds=5, images=5_000)
    return file


@pytest.mark.parametrize("command", ["leaderboard", "compare"])
def test_one_metric_is_held_at_once(database: Path, command: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, command, str(database)], capture_output=True, text=True, check=True
    )
    rows, seconds, imported, peak = map(float, done.stdout.split())
    print(f"\n{command}: {seconds:.1f} s, peak {peak:.0f} MiB, of which {imported:.0f} MiB are of imports")
    assert rows == 29
    assert peak - imported < 250
