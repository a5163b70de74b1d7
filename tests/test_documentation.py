"""What the documentation names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("zoo", "harness", "results", "reports", "tests", "docs", "baselines", "benchmarks")
PAGES = ("docs/architecture.md", "docs/own_model.md", "CONTRIBUTING.md", "README.md")
NAMED = re.compile(rf"`((?:{'|'.join(ROOMS)})/[\w./-]*)`")


@pytest.mark.parametrize("page", PAGES)
def test_every_path_that_a_page_names_exists(page: str) -> None:
    named = NAMED.findall((ROOT / page).read_text(encoding="utf-8"))
    missing = [path for path in named if not (ROOT / path).exists() and path not in EXAMPLES]
    assert named
    assert not missing


def test_the_walk_through_the_rooms_is_short() -> None:
    assert len((ROOT / "docs/architecture.md").read_text(encoding="utf-8").splitlines()) <= 120


EXAMPLES = {"results/store/migrations/versions/v1_1_0.py", "tests/results/assets/v1_0_0.sqlite"}
"""Files of releases to come, which `CONTRIBUTING.md` names as examples."""
