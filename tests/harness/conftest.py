"""The `bench` command as tests use it, with a data set and settings that make a run take seconds."""

import functools
import json
import multiprocessing
import multiprocessing.context
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, NoReturn
from unittest import mock

import pytest
import typer
import typer.testing
from PIL import Image
from typer.testing import CliRunner, Result

# Otherwise every `invoke` makes all commands of the program anew, 40 ms; they keep nothing of a call.
typer.testing._get_command = functools.cache(typer.main.get_command)

ROOT = Path(__file__).resolve().parents[2]
TIMEOUT_S = 1200
FORK = multiprocessing.get_context("fork")
# Settings of a run's preset, with which a model trains in a second or two.
TINY = {
    "schedule.stages.0.epochs": 1,
    "schedule.stages.0.batch_size": 16,
    "schedule.stages.0.captions_per_image": 2,
    "schedule.stages.0.validate_every": 1,
    "size.d_model": 16,
    "size.d_ff": 16,
    "size.n_encoder_layers": 1,
    "size.n_decoder_layers": 1,
    "decoding.max_len": 8,  # what is counted by tracing grows with these
    "latency_repeats": 2,
}
WORDS = ("red", "blue", "ball", "cube", "dog")  # of the runs that `make_run` writes
DrawScenes = Callable[..., Path]
MakeRun = Callable[..., Path]


@functools.cache
def command_line() -> typer.Typer:
    from harness.cli.app import build_app

    return build_app()


@functools.cache
def root_command() -> Any:
    """What typer makes of `bench`, its parameters and subcommands: that takes longer than most tests."""
    return typer.main.get_command(command_line())


def bench(*words: object, env: Mapping[str, str] | None = None) -> Result:
    """Run `bench WORDS` in this process; an error is the result's `exception`."""
    return CliRunner().invoke(command_line(), list(map(str, words)), env=env)


def bench_or_raise(*words: object, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """The exit code of `bench WORDS` and its standard output, with errors of usage; others are raised."""
    result = _raised(bench(*words, env=env))
    return result.exit_code, result.output if result.exit_code else result.stdout


def bench_ok(*words: object, env: Mapping[str, str] | None = None) -> Result:
    """As `bench`, of a command that ends well; errors are raised."""
    done = _raised(bench(*words, env=env))
    assert done.exit_code == 0, done.output
    return done


def _raised(result: Result) -> Result:
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@contextmanager
def own_registry() -> Iterator[None]:
    """What plug-ins register, the next command does not see, as in a process of its own."""
    from zoo import registry

    try:
        with mock.patch.dict(registry._registered):
            yield
    finally:
        for name in [name for name in sys.modules if name.startswith("bench_plugin_")]:
            del sys.modules[name]


def bench_command(*words: object) -> list[str]:
    """The command that runs `bench WORDS` in a process of its own."""
    return [sys.executable, "-m", "harness.cli", *map(str, words)]


def bench_environment(**variables: str) -> dict[str, str]:
    """This process's environment and more, in which the source tree is importable from any folder."""
    return {**os.environ, "PYTHONPATH": str(ROOT), **variables}


def bench_process(*words: object, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `bench WORDS` as a user does, in a process of its own with these environment variables."""
    return subprocess.run(
        bench_command(*words), env=bench_environment(**variables), capture_output=True, text=True, timeout=TIMEOUT_S
    )


def bench_forked(
    *words: object, on_line: Callable[[str], int | None] = lambda _: None, **variables: str
) -> subprocess.CompletedProcess[str]:
    """As `bench_process`, in a copy of this process: the imports of a new one take longer than a tiny run.

    `on_line` hears each line of standard output, and may name a signal that the command is sent.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    reads, writes = os.pipe()
    with TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            os.dup2(writes, 1)
            os.dup2(err.fileno(), 2)
            os.close(reads)
            os.close(writes)
            os.environ.update(variables)
            end_as_bench(words)
        os.close(writes)
        said = []
        with open(reads) as out:  # noqa: PTH123  # to the end of the last process that writes there
            for line in out:
                said.append(line)
                if (number := on_line(line)) is not None:
                    os.kill(child, number)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        err.seek(0)
        return subprocess.CompletedProcess([*map(str, words)], code, "".join(said), err.read())


def end_as_bench(words: Iterable[object]) -> NoReturn:
    """Be `bench WORDS` from here on, and end with its exit code."""
    from harness.cli.app import main
    from harness.utils import plugins

    plugins._loaded.clear()  # as in a new process
    for name in [name for name in sys.modules if name.startswith("bench_plugin_")]:
        del sys.modules[name]
    code: Any = 1
    try:
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        sys.argv = ["bench", *map(str, words)]
        main()
    except SystemExit as end:
        code = end.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code or 0)


def run_words(data: Path, workspace: Path, models: str, settings: Mapping[str, object]) -> list[object]:
    """The words of a `bench run` of one seed on the CPU with the changes of `settings`."""
    where = ("--models", models, "--data", data, "--workspace", workspace, "--device", "cpu", "--seeds", 1)
    return ["run", *where, *set_options(settings)]


def groups_in(workspace: Path) -> list[Any]:
    """The groups of comparable rows of a workspace."""
    from results import Store
    from results.runs.leaderboard import leaderboard

    with Store(workspace / "bench.sqlite", read_only=True) as store:
        return leaderboard(store)


def run_counts(output: str) -> dict[str, int]:
    """How many runs ended how, as a command that executes runs says at its end."""
    counts = dict.fromkeys(("finished", "re-used", "failed", "skipped"), 0)
    return counts | {
        how: int(count) for count, how in re.findall(r"\b(\d+) (?:runs? )?(finished|re-used|failed|skipped)\b", output)
    }


def tables_of(workspace: Path) -> str:
    """All tables of a workspace, as `bench report --terminal` prints them in 80 columns."""
    return bench_ok("report", "--terminal", "--workspace", workspace, env={"COLUMNS": "80"}).stdout


def failures_in(workspace: Path) -> list[Any]:
    """The runs of a workspace that failed."""
    from results import Store
    from results.runs.reading import failures

    with Store(workspace / "bench.sqlite", read_only=True) as store:
        return failures(store)


def set_options(settings: Mapping[str, object]) -> list[str]:
    """`--set KEY=VALUE` for each setting."""
    return [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]


def heavy_packages_of_each(
    lines: Iterable[Iterable[object]], packages: Iterable[str], folder: Path
) -> list[tuple[int, set[str]]]:
    """Run each `bench WORDS` in `folder`, in a process of its own; exit codes, and which packages it imported."""
    program = (
        "import json, os, sys\n"
        "from harness.cli.app import main\n"
        "for words in json.load(sys.stdin):\n"
        "    sys.argv[1:], code = words, 0\n"
        "    if os.fork():\n"
        "        os.wait()\n"
        "        continue\n"
        "    try:\n        main()\n"
        "    except SystemExit as end:\n        code = end.code or 0\n"
        f"    found = [name for name in {tuple(packages)!r} if name in sys.modules]\n"
        "    sys.stdout.flush()\n"
        "    print('\\n=>', code, *found, '<=', flush=True)\n"
        "    os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps([[*map(str, words)] for words in lines]),
        cwd=folder, env=bench_environment(), capture_output=True, text=True, timeout=TIMEOUT_S, check=True,
    )  # fmt: skip
    told = [part.partition(" <=")[0].split() for part in done.stdout.split("\n=>")[1:]]
    return [(int(code), set(found)) for code, *found in told]


@pytest.fixture(scope="session")
def draw_scenes(tmp_path_factory: pytest.TempPathFactory) -> DrawScenes:
    """`draw_scenes(train=24, val=4, test=6)` gives a Karpathy folder of drawn pictures; only read it."""
    cache = tmp_path_factory.mktemp("scenes")

    def draw(*, train: int, val: int, test: int, nocaps_per_domain: int = 0, copy_to: Path | None = None) -> Path:
        from harness.data.scenes.dataset import ScenesConfig, prepare_scenes

        config = ScenesConfig(train=train, val=val, test=test, nocaps_per_domain=nocaps_per_domain)
        return prepare_scenes(copy_to or cache, config)

    return draw


@pytest.fixture(scope="session")
def data(draw_scenes: DrawScenes) -> Path:
    """Of a few scenes; only read it."""
    return draw_scenes(train=24, val=4, test=6)


@pytest.fixture(scope="session")
def llava(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with random weights; only read it."""
    from tests.harness.inference.hub_families import write_family

    return write_family("llava", tmp_path_factory.mktemp("hub") / "llava")


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    """A red and a blue picture."""
    paths = [tmp_path / f"{colour}.png" for colour in ("red", "blue")]
    for path in paths:
        Image.new("RGB", (40, 30), path.stem).save(path)
    return paths


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """Write a run with random weights, as a finished `bench run` leaves it; gives its folder."""
    import torch

    from harness.benchmark.saved_model import SavedModel
    from harness.config.features import FeatureConfig
    from harness.config.preset import Decoding
    from harness.data.backbones.opening import open_backbone
    from harness.data.vocabulary import Vocabulary
    from harness.training.checkpoint import save_weights
    from zoo import create_model, model_card

    def make(model: str = "transformer_base", features: FeatureConfig | None = None, key: str = "run-s0") -> Path:
        torch.manual_seed(1)
        folder = tmp_path / "workspace" / "runs" / key
        config = features or FeatureConfig(backbone="filterbank", options={"grid": "2"})
        backbone = open_backbone(config)
        arguments = dict(model_card(model).tiny)
        built = create_model(model, vocab_size=4 + len(WORDS), visual_dim=backbone.dim, **arguments)
        Vocabulary(WORDS).save(folder / "vocabulary.json")
        save_weights(built, folder / "best.safetensors")
        SavedModel(
            model=model,
            arguments=arguments,
            visual_dim=backbone.dim,
            features=config,
            backbone_digest=backbone.digest,
            preprocessing=backbone.preprocessing,
            decoding=Decoding(beam_size=2, max_len=6),
        ).save(folder)
        return folder

    return make


@pytest.fixture
def forked_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Worker processes are copies of the one that starts them: the imports of a new one take seconds.

    They are started one after another: filelock refuses to let two threads fork at once.
    """
    start, one_fork = FORK.Process.start, threading.Lock()

    def start_alone(process: multiprocessing.context.ForkProcess) -> None:
        with one_fork:
            start(process)

    monkeypatch.setattr(multiprocessing, "get_context", lambda _: FORK)
    monkeypatch.setattr(FORK.Process, "start", start_alone)


@pytest.fixture(scope="session")
def _computed() -> dict[Any, Any]:
    """Features, counts, tokens and draws that a test of this process has computed."""
    return {}


@pytest.fixture(scope="module")
def quick_runs(_computed: dict[Any, Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """Runs of a module compute what is always the same once, and neither write a report nor count whole captions.

    They have METEOR, whose Java takes seconds, the report, and counts of captions as long and searches as wide as those
    of the run, whose tracing is most of a tiny run, where the module says so, by `WHOLE_RUNS = True`.
    """
    from harness.benchmark import costs as run_costs
    from harness.benchmark import gate, services
    from harness.data.backbones.filterbank import FilterBank
    from harness.measure import captioning_costs
    from harness.measure import flops as counting
    from harness.metrics import evaluator
    from harness.metrics.evaluator import DEFAULT_SETTINGS, EvaluationSettings, Evaluator
    from reports.html import report
    from results.statistics import significance

    describe, read, write = FilterBank.__call__, counting.read_json, counting.write_text
    flops, caption = counting.count_flops, counting.count_caption
    write_report, cost = report.write_report, run_costs.pass_costs
    tokenize, draw = evaluator.tokenize_ptb, significance.draws

    def once(place: Any, compute: Callable[[], Any]) -> Any:
        if place not in _computed:
            _computed[place] = compute()
        return _computed[place]

    def described(bank: FilterBank, pixels: Any) -> Any:
        place = (bank.grid, tuple(pixels.shape), pixels.numpy().tobytes())
        return once(place, lambda: describe(bank, pixels)).clone()

    def costs(model: Any, **sizes: int) -> Any:
        place = (repr(model), [part.shape for part in model.parameters()], sizes)
        return once(repr(place), lambda: cost(model, **sizes))

    def tokens(captions: Sequence[str]) -> list[str]:
        return list(once(("tokens", *captions), lambda: tokenize(captions)))

    def draws(images: int, **how: int) -> Any:
        return once(("draws", images, *sorted(how.items())), lambda: list(draw(images, **how)))

    def read_count(path: Path) -> Any:
        return json.loads(_computed[path.name]) if path.name in _computed else read(path)

    def write_count(path: Path, text: str) -> None:
        _computed[path.name] = text
        write(path, text)

    def of_one_word(model: Any, visual: Any, **_: int) -> Any:
        return flops(model, visual, caption_length=1)

    def without_meteor(settings: EvaluationSettings = DEFAULT_SETTINGS) -> Evaluator:
        return Evaluator(settings=replace(settings, meteor=False))

    def unless_of_a_run(store: Any, folder: Path, *given: Any, **options: Any) -> Path:
        return folder / "index.html" if options else write_report(store, folder, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FilterBank, "__call__", described)
        patch.setattr(run_costs, "pass_costs", costs)
        patch.setattr(evaluator, "tokenize_ptb", tokens)
        patch.setattr(significance, "draws", draws)
        patch.setattr(counting, "read_json", read_count)
        patch.setattr(counting, "write_text", write_count)
        if not getattr(request.module, "WHOLE_RUNS", False):
            for room in (gate, services):
                patch.setattr(room, "Evaluator", without_meteor)
            for room in (counting, captioning_costs):
                patch.setattr(room, "count_flops", of_one_word)
                patch.setattr(room, "count_caption", lambda model, visual, *_: caption(model, visual, 1))
            patch.setattr(report, "write_report", unless_of_a_run)
        yield
