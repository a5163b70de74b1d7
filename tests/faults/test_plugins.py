"""Plug-ins whose code prints, exits, or raises what is no `Exception`: failed rows, sentences, never a silent 0."""

import os
import signal
import sys
from pathlib import Path
from types import FunctionType

import pytest

from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.utils.errors import BenchError, ProcessLostError
from harness.utils.plugins import contain_exits, load_plugin
from tests.harness.benchmark.small_runs import SIZES
from tests.harness.conftest import bench, failures_in, run_counts, run_words

PLUGIN = Path(__file__).parents[1] / "harness" / "plugins" / "ending_models.py"
EXIT = "the model's code ended the program: sys.exit(0)"


def test_models_that_would_end_a_run_are_its_failed_rows(tmp_path: Path) -> None:
    data = prepare_scenes(tmp_path / "data", ScenesConfig(train=4, val=2, test=2, nocaps_per_domain=0))
    models = "ending_exitsused,ending_raisesodd,ending_exitsbuilt"
    settings = {f"size.{name}": value for name, value in SIZES.items()} | {"vocabulary.max_len": 8}
    words = run_words(data, tmp_path, models, {**settings, "decoding.max_len": 8})
    done = bench(*words, "--backbone", "filterbank", "--plugin", PLUGIN, env={"BENCH_JAVA": "/no/java"})
    assert done.exit_code == 1, done.output
    assert run_counts(done.stdout).items() >= {"finished": 0, "re-used": 0, "failed": 3}.items()
    assert done.stderr.count(f"--plugin {PLUGIN} printed while it was loaded: loading \N{SNOWMAN}\n") == 1
    assert "Traceback" not in done.stderr + done.stdout
    reasons = {failure.model: str(failure.reason) for failure in failures_in(tmp_path)}
    assert reasons["ending_exitsused"].startswith(EXIT)
    assert reasons["ending_raisesodd"].startswith("the model's code raised Odd")
    assert reasons["ending_exitsbuilt"].startswith("the constructor of ending_exitsbuilt")


def test_what_a_plugin_prints_is_told_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin = tmp_path / "prints.py"
    plugin.write_text("print('hello\\nworld ' * 200)")
    load_plugin(str(plugin))
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "hello world hello" in printed.err
    assert len(printed.err) < 400


@pytest.mark.parametrize("passing", [KeyboardInterrupt(), ValueError("x"), ProcessLostError("gone")])
def test_interrupts_and_errors_pass_the_guard(passing: BaseException) -> None:
    with pytest.raises(type(passing)), contain_exits():
        raise passing


def test_an_exit_by_which_slurm_requeues_a_job_passes_the_guard() -> None:
    theirs = FunctionType((lambda *_: sys.exit(-1)).__code__, {"__name__": "submitit.core.job_environment", "sys": sys})
    before = signal.signal(signal.SIGUSR2, theirs)
    try:
        with pytest.raises(SystemExit), contain_exits():
            os.kill(os.getpid(), signal.SIGUSR2)
    finally:
        signal.signal(signal.SIGUSR2, before)
    with pytest.raises(BenchError), contain_exits():
        sys.exit(-1)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("import sys\nsys.exit(0)", "sys.exit(0)"),
        ("raise SystemExit", "sys.exit(None)"),
        ("class Odd(BaseException): pass\nraise Odd('no')", "Odd at plugin.py, line 2: no"),
        ("x = 1\nx = = 2", "SyntaxError at plugin.py, line 2"),
        ("\nimport no_such_thing.at_all", "no_such_thing"),
        ("from zoo import NoSuch", "ImportError at plugin.py, line 1"),
    ],
)
def test_plugins_that_cannot_be_loaded_say_why(tmp_path: Path, source: str, said: str) -> None:
    plugin = tmp_path / "plugin.py"
    plugin.write_text(source)
    with pytest.raises(BenchError, match="--plugin") as caught:
        load_plugin(str(plugin))
    assert str(plugin) in str(caught.value)
    assert said in str(caught.value)
    assert caught.value.hint


def test_a_plugin_that_is_not_there_is_no_missing_import() -> None:
    for name in ("no/such/file.py", "no_such_thing", "no_such_thing.models"):
        with pytest.raises(BenchError, match=f"--plugin {name}: ") as caught:
            load_plugin(name)
        assert "a .py file" in str(caught.value.hint)


def test_interrupts_pass_through_a_plugin(tmp_path: Path) -> None:
    (tmp_path / "plugin.py").write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        load_plugin(str(tmp_path / "plugin.py"))
