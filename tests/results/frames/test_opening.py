"""Opening results as data frames: by folder, file or URL, what is refused, and when pandas is imported."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import results
from results import StoreError

Add = Callable[..., str]


def test_a_database_opens_read_only_by_its_url(url: str, add: Add) -> None:
    add("blind")
    with results.open(url) as opened:
        assert list(opened.scores().model.unique()) == ["blind"]
        with pytest.raises(StoreError, match="opened read-only"):
            opened._store.plan([])


def test_places_without_results_are_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no results in the folder .*: it has no bench\.sqlite") as caught:
        results.open(tmp_path)
    assert f"bench run --models all --workspace {tmp_path}" in (caught.value.hint or "")
    assert caught.value.__notes__ == [caught.value.hint], "a notebook shows notes"
    with pytest.raises(StoreError, match=r"no results database at .*nowhere") as caught:
        results.open(tmp_path / "nowhere")
    assert "bench run" in (caught.value.hint or "")
    assert not list(tmp_path.iterdir())


def test_pandas_waits_until_results_are_opened() -> None:
    program = "import sys, results; print({'pandas', 'sqlalchemy'} & set(sys.modules)); results.open; import pandas"
    program += "; print('open' in dir(results), 'results.frames' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["set()", "True True"]
