"""Settings of the whole suite, and the models that a law runs over."""

import functools
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from jinja2 import Environment, FileSystemBytecodeCache

# Tiny tensors gain nothing from threads, and on busy cores threads wait for each other. Children inherit this.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("BENCH_JOBS", "1")  # tests run side by side already
# Where byte code is not written, each of some hundred processes would compile torch's modules again: half of its time.
if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
    os.environ["PYTHONPYCACHEPREFIX"] = str(Path(__file__).parents[1] / ".pytest_cache" / "byte_code")

# The same examples every time, and none that fails because a machine is busy.
settings.register_profile("suite", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


@pytest.fixture(scope="session", autouse=True)
def _templates_compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Their compilation is more than half of what a small report takes."""
    from reports.html import rendering

    compiled = FileSystemBytecodeCache(str(tmp_path_factory.mktemp("templates")))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "Environment", functools.partial(Environment, bytecode_cache=compiled))
        yield


@contextmanager
def plugins_forgotten() -> Iterator[None]:
    """Plug-ins that are loaded within are in no run key afterwards, and models that they register in no list."""
    from harness.utils import plugins
    from zoo import registry

    with mock.patch.dict(plugins._loaded), mock.patch.dict(registry._registered):
        yield


@pytest.fixture(autouse=True)
def _plugins_of_one_test() -> Iterator[None]:
    with plugins_forgotten():
        yield


ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("zoo", "harness", "results", "reports", "captionbench")


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the packages, to be changed, without compiled files."""
    folder = tmp_path / "copy"
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


FAST_FILES = (
    "tests/zoo/test_laws.py",
    "tests/zoo/test_registry.py",
    "tests/results/store/test_store.py",
    "tests/harness/config/test_preset.py",
    "tests/harness/metrics/test_ngram_metrics.py",
    "tests/harness/metrics/test_ptb.py",
    "tests/harness/data/test_vocabulary.py",
    "tests/harness/cli/test_hints.py",
    "tests/harness/cli/test_models.py",
)
FAST_ARCHITECTURES = ("cgru", "expansionnet_v2", "image_transformer", "transformer_base", "updown", "aoanet")


def _is_fast_lane(config: pytest.Config) -> bool:
    return config.getoption("markexpr") == "fast"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m fast` does not import the other files."""
    if not _is_fast_lane(config) or not collection_path.name.startswith("test_") or collection_path.is_dir():
        return None
    return collection_path.relative_to(config.rootpath).as_posix() not in FAST_FILES or None


def pytest_itemcollected(item: pytest.Item) -> None:
    """All tests of the fast files are marked."""
    if item.path.relative_to(item.config.rootpath).as_posix() in FAST_FILES:
        item.add_marker(pytest.mark.fast)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `architecture` runs over every registered model that is another one at its tiny size."""
    if "architecture" in metafunc.fixturenames:
        fast = _is_fast_lane(metafunc.config)
        metafunc.parametrize("architecture", FAST_ARCHITECTURES if fast else distinct_architectures())


def distinct_architectures() -> list[str]:
    """One name for all the models that are equal at their tiny sizes: variants of sizes alone share a law's run."""
    import zoo

    distinct: dict[str, str] = {}
    for name in sorted(zoo.list_models(), key=lambda name: ("/" in name, name)):
        card = zoo.model_card(name)
        built = {**card.arguments, **card.tiny}
        distinct.setdefault(repr((card.entry, sorted(built.items()))), name)
    return sorted(distinct.values())
