"""The site of the documentation builds without a warning."""

import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.documentation.pages import PAGES, ROOT


@pytest.mark.skipif(find_spec("zensical") is None, reason="zensical is not installed: uv sync --group docs")
def test_the_site_builds_in_strict_mode(tmp_path: Path) -> None:
    docs = shutil.copytree(ROOT / "docs", tmp_path / "docs", ignore=shutil.ignore_patterns("site", ".cache"))
    words = ("build", "--strict", "--config-file", docs / "zensical.toml")
    done = subprocess.run([sys.executable, "-m", "zensical", *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    stems = {Path(page).stem for page in PAGES if page.startswith("docs/")} - {"index"}
    built = {path.parent.name for path in (docs / "site").glob("*/index.html")}
    assert stems <= built
