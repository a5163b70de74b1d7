"""`bench regress`: the gate that fails when code no longer computes what it did."""

from __future__ import annotations

import json
import math
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from harness.cli.inputs import doing, open_results, progress_aside, warn
from harness.cli.options import ChangeOption, DatabaseOption, PluginOption, WorkspaceOption, refuse_typed
from harness.cli.output import check_folder, check_out, deliver, echo, write_errors
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.workspace import DEFAULT, Workspace
from results.errors import without_passwords

if TYPE_CHECKING:
    from rich.console import Console

    from results.comparison.baseline import Baseline
    from results.comparison.gate import GateResult
    from results.comparison.recording import Judged, Request
    from results.runs.run import Run

EXAMPLES = """
bench regress
bench regress --findings findings
bench regress --update --models updown,transformer_base
bench regress --update --plugin mine.py --models mine
bench regress --against main --models transformer_base
bench regress --train --workspace gate --tolerance CIDEr-D=1
"""
_ENDINGS = ("txt", "md", "json")
_PRESET = "first-steps"


def regress(
    context: typer.Context,
    baseline: Annotated[Path, typer.Option(help="The baseline: a folder of numbers and small weights.")] = Path(
        "baselines/gate"
    ),
    plugin: PluginOption = None,
    update: Annotated[bool, typer.Option("--update", help="Write the baseline instead of judging.")] = False,
    models: Annotated[
        str | None,
        typer.Option(help="With --update or --against: models, separated by commas.  [default: the baseline's]"),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="With --update or --against: first-steps, or gate.")] = None,
    change: ChangeOption = None,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="COMMIT", help="Train that commit and the files as they are, and compare both bit by bit."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, max=100, help="With --against: how many seeds of each model.")] = 2,
    train: Annotated[
        bool, typer.Option("--train", help="Judge the workspace's trained runs too, or keep them with --update.")
    ] = False,
    workspace: WorkspaceOption = DEFAULT,
    db: DatabaseOption = None,
    tolerance: Annotated[
        list[str] | None, typer.Option(help="With --train: METRIC=POINTS that a score may lose.  [default: 0.5]")
    ] = None,
    findings: Annotated[
        Path | None,
        typer.Option(help="Write what it finds into this folder too: findings.txt, .md and .json."),
    ] = None,
) -> None:
    """Judge whether this code still computes what it did, on any machine, or write a baseline with --update.

    It repeats the first steps of training and the captions of small stored weights, and compares them up to rounding,
    in a minute. --train also judges the finished runs of a workspace: bit by bit where that is possible, and by tests
    of scores. Exit code 0: as before; 1: a finding; 2: it could not judge.
    """
    from harness.utils.plugins import load_plugins
    from results.comparison.recording import ENDS, FILE, Recording

    if against is not None and (update or train):
        raise BenchError("--against compares two commits, and needs no baseline", "leave out --update and --train")
    if (models or preset or change) and not (update or against is not None):
        raise BenchError(
            "--models, --preset and --set define a new baseline",
            "leave them out to judge; with --update they replace the baseline",
        )
    if against is not None and (fixed := next((each for each in plugin or () if Path(each).is_absolute()), "")):
        raise BenchError(f"--plugin {fixed} is the same file for every commit", "write its path in the repository")
    if not train:
        refuse_typed(context, ("workspace", "db", "tolerance"), "read with --train alone", "add that, or leave it out")
    if against is None:
        refuse_typed(context, ("seeds",), "read with --against alone", "add that, or leave it out")
    if update:
        refuse_typed(
            context, ("tolerance", "findings"), "--update writes a baseline and does not judge", "leave it out"
        )
    tolerances = _tolerances(tolerance or ())
    for earlier in [] if findings is None else [findings / f"findings.{ending}" for ending in _ENDINGS]:
        check_out(earlier, "--findings", force=True)
        if earlier.is_file():  # else it is read as this commit's, should it not be judged
            earlier.resolve().unlink()
    load_plugins(plugin)
    recorded = (baseline / FILE).is_file()
    request = Recording.read(baseline).request if recorded else None
    judged: Judged | None = None
    ends: GateResult | None = None
    if against is not None:
        _tell(None, _against(against, _asked(request, models, preset or "gate", change, plugin), seeds), findings)
    anew = update and (models or request or not train)
    wanted = _asked(request, models, preset, change, plugin) if anew else None
    if not update and (recorded or not train):
        judged = _judge(baseline, plugin or [])
    if train:
        from results.comparison.baseline import baseline_of, newest_runs, read_baseline, row_of
        from results.comparison.gate import judge
        from results.runs.reading import failures, finished_with_images

        file = baseline / ENDS
        expected = read_baseline(file) if not update or file.exists() else None
        metrics = expected.metrics if expected else ["CIDEr-D"]
        with open_results(workspace, db) as store:
            unfinished, ended = failures(store), finished_with_images(store)
            measured = baseline_of(ended, metrics, unfinished)
        times = Counter((row_of(run), run.seed) for run in ended)
        if several := [run.key for run in newest_runs(ended) if times[row_of(run), run.seed] > 1]:
            warn(
                f"several runs are of one model, seed and conditions, and what finished last counts: {several[0]}",
                "where bench run re-used an earlier one, give it a --workspace of its own, and judge that",
            )
        if unknown := sorted(tolerances.keys() - set(metrics)):
            why = "the baseline has no per-image scores of this metric"
            raise BenchError(f"--tolerance {unknown[0]}: {why}", f"it has: {', '.join(metrics)}")
        if update:
            _update_ends(file, expected, measured, unfinished)
        else:
            assert expected is not None
            ends = judge(expected, measured, unfinished, tolerances)
    if wanted is not None:
        _record_anew(baseline, wanted, request)
    if not update:
        again = ["bench", "regress", "--update", "--baseline", str(baseline), *_options("--plugin", plugin or ())]
        again += ["--train", *(["--workspace", str(workspace)] if db is None else ["--db", db])] if train else []
        _tell(judged, ends, findings, without_passwords(shlex.join(again)))


def _asked(
    request: Request | None, models: str | None, preset: str | None, change: list[str] | None, plugin: list[str] | None
) -> Request:
    """What is asked for: where options say nothing, what the baseline has."""
    from harness.config.model_patterns import expand_models, split_patterns
    from results.comparison.recording import Request

    if models is None and request is None:
        raise BenchError("no models are named, and no baseline has any", "add --models NAME,NAME")
    chosen = expand_models(split_patterns(models)) if models is not None else request.models if request else ()
    same = request is not None and preset is None
    return Request(
        models=tuple(chosen),
        preset=preset or (request.preset if request else _PRESET),
        changes=tuple(change or (request.changes if same and request else ())),
        plugins=tuple(plugin or ()),
    )


def _judge(baseline: Path, plugins: Sequence[str]) -> Judged:
    from results.comparison.recording import Recording, judge_recording

    started, expected = time.monotonic(), Recording.read(baseline)
    given = {Path(name).name for name in plugins}
    if missing := [name for name in expected.request.plugins if Path(name).name not in given]:
        raise BenchError(f"the baseline is of models of the plug-in {missing[0]}", f"add --plugin {missing[0]}")
    with doing("Loading torch"):
        from harness.benchmark.gate import Gate, record
        from harness.utils.processes import on_threads

    with tempfile.TemporaryDirectory() as scratch, on_threads(1), progress_aside() as reporter:
        found = record(Gate.open(expected.request, Workspace(Path(scratch)), reporter), baseline, reporter, expected)
    return judge_recording(expected, found, time.monotonic() - started)


def _record_anew(baseline: Path, request: Request, old: Request | None) -> None:
    """Train small weights, record what they say and the first steps, and put each file in place when all are made.

    Weights of the models of `old`, and no others, are replaced or removed.
    """
    with doing("Loading torch"):
        from harness.benchmark.gate import Gate, loosest, record, train_weights, weights_of
        from harness.utils.processes import on_threads
    from results.comparison.recording import FILE

    check_folder(baseline, "--baseline")
    replaced = {weights_of(baseline, model) for model in (old.models if old else ())}
    kept = {weights_of(baseline, model) for model in request.models} - replaced
    if strange := next((path for path in sorted(kept) if path.exists()), None):
        raise BenchError(f"{strange} is there, and no baseline's", "name another folder: --baseline FOLDER")
    with tempfile.TemporaryDirectory() as scratch, on_threads(1):
        reporter, made = progress_aside(), Path(scratch) / "baseline"
        made.mkdir()
        gate = Gate.open(request, Workspace(Path(scratch)), reporter)
        train_weights(gate, made, reporter)
        recording = record(gate, made, reporter)
        (made / FILE).write_text(recording.text(), encoding="utf-8")
        with write_errors(baseline, "--baseline"):
            for new in (*(weights_of(made, model) for model in request.models), made / FILE):
                with replacing(baseline / new.name) as temporary:
                    shutil.copyfile(new, temporary)
            for path in replaced:
                if not (made / path.name).exists():
                    path.unlink(missing_ok=True)
    for line in loosest(recording):
        echo(line)
    size = sum(each.stat().st_size for each in baseline.iterdir() if each.is_file())
    echo(f"{baseline}: {', '.join(request.models)}; {len(recording.series)} quantities, {size / 1000:.0f} kB")


def _options(name: str, values: Sequence[str]) -> list[str]:
    return [word for value in values for word in (name, value)]


def _against(commit: str, request: Request, seeds: int) -> GateResult:
    """Train a commit and this tree by the same command on this machine, and judge the second by the first."""
    from results.comparison.baseline import baseline_of
    from results.comparison.gate import judge
    from results.runs.reading import failures, finished_with_images

    with tempfile.TemporaryDirectory() as scratch:
        tree, sides = Path(scratch) / "tree", {}
        alone = {name: value for name, value in os.environ.items() if name != "BENCH_DB"}
        _git("worktree", "add", "--detach", str(tree), commit)
        try:
            for name, place in {"before": tree, "after": Path.cwd()}.items():
                words = ["run", "--preset", request.preset, "--seeds", str(seeds), "--models", ",".join(request.models)]
                words += _options("--set", request.changes) + _options("--plugin", request.plugins)
                where = commit if place is tree else "this tree"
                echo(f"{name}: bench {shlex.join(words)}, in {where}", err=True)
                command = [sys.executable, "-m", "harness.cli", *words, "--workspace", str(Path(scratch) / name)]
                with doing(f"Training {name}"):
                    ended = subprocess.run(command, cwd=place, env=alone, capture_output=True, text=True, check=False)
                if not (Path(scratch) / name / "bench.sqlite").is_file():
                    said = (ended.stderr or ended.stdout).strip().splitlines()[-3:]
                    raise BenchError(f"{name}: bench run ended with {ended.returncode}: {' '.join(said)}")
                with open_results(Path(scratch) / name, None) as store:
                    sides[name] = baseline_of(finished_with_images(store), ["CIDEr-D"]), failures(store)
        finally:
            with suppress(BenchError):
                _git("worktree", "remove", "--force", str(tree))
    expected, failed = sides["before"]
    if expected is None:
        reason = next((each.reason or each.status for each in failed), "no run")
        raise BenchError(f"{commit} has nothing to compare with: {reason}", "name a commit whose runs finish")
    found, sha = judge(expected, *sides["after"]), _git("rev-parse", "--short", commit + "^{commit}")
    return replace(found, before=f"{sha} by {found.before}", after="this tree")


def _git(*words: str) -> str:
    try:
        return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()
    except OSError as error:
        raise BenchError(f"git cannot be started: {error.strerror}", "install git") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.strip().splitlines()[-1:] or ["it failed"]
        raise BenchError(f"git {words[0]}: {said[0]}", "name a commit of this repository: --against main") from error


def _tell(judged: Judged | None, ends: GateResult | None, folder: Path | None, again: str = "") -> NoReturn:
    """Print and write the findings, and end with the exit code; `again` is the command for a change that is meant."""
    from rich.console import Console

    from reports.text import recording, regression

    code = 1 if judged is not None and judged.findings else 0
    if ends is not None:
        code = 1 if 1 in (code, ends.exit_code) else ends.exit_code
    both: dict[str, tuple[Any, Any]] = {"recording": (recording, judged), "ends": (regression, ends)}
    parts = [part for part in both.values() if part[1] is not None]

    def show(console: Console) -> None:
        for words, found in parts:
            words.print_findings(found, console)

    if folder is not None:
        content = {"exit_code": code, "conclusion": " ".join(words.conclusion(found) for words, found in parts)}
        content |= {name: found and words.content(found) for name, (words, found) in both.items()}
        files: tuple[str | Callable[[Console], None], ...] = (
            show,
            "\n".join(words.markdown(found) for words, found in parts),
            json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n",
        )
        for ending, text in zip(_ENDINGS, files, strict=True):
            deliver(text, folder / f"findings.{ending}", "--findings")
    show(Console(highlight=False))
    meant = (judged is not None and judged.findings) or (ends is not None and regression.may_be_meant(ends))
    if meant and again:
        echo(f"If it is meant:\n{again}")
    sys.exit(code)


def _tolerances(given: Sequence[str]) -> dict[str, float]:
    found = {}
    for text in given:
        metric, _, number = text.partition("=")
        try:
            points = float(number)
        except ValueError:
            points = math.nan
        if not metric or not math.isfinite(points) or points < 0:
            raise BenchError(
                f"--tolerance {text!r} is not METRIC=POINTS",
                "write points of the metric times 100, for example CIDEr-D=0.5",
            )
        found[metric] = points
    return found


def _update_ends(path: Path, old: Baseline | None, new: Baseline | None, unfinished: Sequence[Run]) -> None:
    """Keep what the trained runs gave, unless that would lose what the old baseline expects."""
    from results.comparison.baseline import compare_baselines, write_out

    if new is None:
        raise BenchError(
            "no run has finished here: a baseline would be empty", "make some with: bench run --preset gate --seeds 5"
        )
    added, lost, changed = compare_baselines(old, new) if old else (list(new.runs), [], [])
    if lost:
        why = {(each.role, each.model, each.seed): each.reason or each.status for each in unfinished}
        named = ", ".join(f"{run.name} ({why.get(run.who, 'not measured')})" for run in lost)
        raise BenchError(f"the baseline {path} would lose what it expects: {named}", f"measure it, or move {path} away")
    text = write_out(new)
    deliver(text, path, "--baseline")
    for run in added:
        echo(f"added: {run.name}")
    for run, fields in changed:
        echo(f"other conditions: {run.name}: {'; '.join(fields)}")
    for each in (run for run in unfinished if (run.role, run.model, run.seed) not in {held.who for held in new.runs}):
        echo(f"not in it: {each.model} seed {each.seed}: {each.status}")
    echo(f"{path}: {len(new.runs)} runs, {len(text.encode()) / 1000:.0f} kB")
