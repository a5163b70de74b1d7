"""Digests of code change with what code does, and cover what a model is made of."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.key import harness_files, model_files, tree_digest
from harness.utils.errors import BenchError
from harness.utils.plugins import load_plugin
from tests.harness.conftest import bench_environment, own_registry
from zoo import ModelCard, list_models, model_card

SOURCE = '''
"""A module."""
import a

def double(x: int) -> int:
    """Twice."""
    return 2 * x  # why
'''


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace("A module.", "Another sentence."),
        SOURCE.replace('    """Twice."""\n', ""),
        SOURCE.replace("  # why", ""),
        SOURCE.replace("2 * x", "(2 *\n            x)"),
        SOURCE + '\n"""A sentence that stands alone."""\n',
    ],
)
def test_sentences_and_layout_change_no_digest(other: str) -> None:
    assert other != SOURCE
    assert tree_digest(other) == tree_digest(SOURCE)


@pytest.mark.parametrize(
    ("before", "after"), [("2 *", "3 *"), ("* x", "+ x"), ("double", "twice"), ("import a", "import b"), ("2", "2.0")]
)
def test_whatever_code_does_changes_the_digest(before: str, after: str) -> None:
    assert tree_digest(SOURCE.replace(before, after)) != tree_digest(SOURCE)


def test_strings_that_are_values_count() -> None:
    assert tree_digest("a = 'x'") != tree_digest("a = 'y'")
    assert tree_digest("f(None)") != tree_digest("f()")


def test_this_tree_digest_is_the_same_on_every_python() -> None:
    assert tree_digest(SOURCE) == "6c13237b"


def test_a_model_is_made_of_what_its_module_imports() -> None:
    files = model_files([model_card("cgru")])
    layers = {f"zoo/layers/{name}.py" for name in ("__init__", "attention", "cache", "lstm")}
    model = {"zoo/models/__init__.py", "zoo/models/cgru.py", "zoo/recurrent.py"}
    assert set(files) == model | layers | {"zoo/captioner.py", "zoo/precision.py"}
    for name in list_models():
        assert any(path.startswith("zoo/models/") for path in model_files([model_card(name)])), name


def test_the_harness_is_all_but_its_command_line() -> None:
    files = harness_files()
    assert {"harness/training/trainer.py", "harness/metrics/cider.py", "zoo/decoding.py"} <= files.keys()
    assert "harness/metrics/ptb.txt" in files
    assert not any(path.startswith("harness/cli/") for path in files)


PLUGIN = """
from tests.harness.conftest import own_registry
from zoo import ModelCard, register_model
from zoo.models.cgru import ConditionalGRU as Cgru
import plugin_blocks

class Mine(Cgru):
    scale = 1

register_model(ModelCard("{name}", Mine, "s", "p", 2026, "s", "MIT", "pooled"))
"""


def test_a_plugins_own_files_belong_to_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "plugin_blocks.py").write_text("WIDTH = 3\n")
    (tmp_path / "plugin_mine.py").write_text(PLUGIN.replace("{name}", "sources_mine"))
    with own_registry():
        load_plugin(str(tmp_path / "plugin_mine.py"))
        before = model_files([model_card("sources_mine")])
    assert {"plugin_mine.py", "plugin_blocks.py", "zoo/models/cgru.py"} <= before.keys()
    (tmp_path / "plugin_blocks.py").write_text("WIDTH = 4  # wider\n")
    del sys.modules["plugin_blocks"]
    with own_registry():
        load_plugin(str(tmp_path / "plugin_mine.py"))
        after = model_files([model_card("sources_mine")])
    assert {path for path in after if after[path] != before[path]} == {"plugin_blocks.py"}
    del sys.modules["plugin_blocks"]


def test_a_class_without_a_file_is_refused() -> None:
    namespace: dict[str, object] = {"__name__": "no_such_module"}
    exec("class Nowhere: pass", namespace)  # noqa: S102
    entry = namespace["Nowhere"]
    with pytest.raises(BenchError, match="defined in no file") as caught:
        model_files([ModelCard("nowhere", entry, "s", "p", 2026, "s", "MIT", "pooled")])  # type: ignore[arg-type]
    assert "--plugin" in (caught.value.hint or "")


LOADED = """
import json, os, sys
import timm, torch, transformers.models.bert.modeling_bert  # once, and not in each process
from harness.key import code_of_model
from zoo import create_model, model_card, select_models

assert not any(name.startswith("zoo.models.") for name in sys.modules)
missing = {}
for name in [*select_models("all"), "expansionnet_v2/end-to-end", "git/small"]:
    reading, writing = os.pipe()
    if not os.fork():
        create_model(name, vocab_size=50, visual_dim=16, **model_card(name).tiny)
        files = [sys.modules[module].__file__ for module in sys.modules if module.split(".")[0] == "zoo"]
        os.write(writing, json.dumps(files).encode())
        os._exit(0)
    os.wait()
    loaded = {file[file.rindex("/zoo/") + 1 :] for file in json.loads(os.read(reading, 1 << 20))}
    other = loaded - code_of_model(name, model_card(name).tiny).files.keys() - {"zoo/registry.py", "zoo/errors.py"}
    # Cards, whose arguments are in the key.
    other = {file for file in other if not file.startswith("zoo/cards/") and file != "zoo/__init__.py"}
    if other:
        missing[name] = sorted(other)
print(json.dumps(missing))
"""


def test_every_module_that_a_model_loads_is_in_its_code() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], env=bench_environment(), check=True, capture_output=True, text=True
    )
    assert json.loads(done.stdout.splitlines()[-1]) == {}
