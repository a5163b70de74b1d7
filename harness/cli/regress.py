"""`bench regress`: judge code by a recording of what it computed, write one, or compare it with another commit."""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from harness.cli.findings import Findings, deliver_findings, remove_earlier_findings
from harness.cli.inputs import doing, progress_aside
from harness.cli.options import ChangeOption, PluginOption, refuse_typed
from harness.cli.output import check_folder, echo, write_errors
from harness.config.limits import MAX_SEEDS
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace

if TYPE_CHECKING:
    from results.comparison.recording import Request

EXAMPLES = """
bench regress
bench regress --findings findings
bench regress --update --models updown,transformer_base
bench regress --update --plugin mine.py --models mine
bench regress --against main --models transformer_base
"""


def regress(
    context: typer.Context,
    baseline: Annotated[Path, typer.Option(help="The baseline: a folder of numbers and small weights.")] = Path(
        "baselines/gate"
    ),
    plugin: PluginOption = None,
    update: Annotated[bool, typer.Option("--update", help="Write the baseline instead of judging.")] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="COMMIT", help="Train that commit and the files as they are, and compare the scores."),
    ] = None,
    models: Annotated[
        str | None,
        typer.Option(help="With --update or --against: models, separated by commas.", show_default="the baseline's"),
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            help="With --update or --against.", show_default="gate to train, else the baseline's, or first-steps"
        ),
    ] = None,
    change: ChangeOption = None,
    seeds: Annotated[int, typer.Option(min=1, max=MAX_SEEDS, help="With --against: how many seeds of each model.")] = 3,
    metrics: Annotated[
        str, typer.Option(help="With --against: metrics to compare, with commas; each widens the intervals.")
    ] = "CIDEr-D",
    findings: Annotated[
        Path | None,
        typer.Option(help="Write what it finds into this folder too: findings.txt, .md and .json."),
    ] = None,
) -> None:
    """Judge whether this code still computes what its baseline says, up to rounding, on any machine, in a minute.

    It repeats the first steps of training and the captions of small stored weights. --update writes the baseline.
    --against COMMIT trains models by COMMIT and by the files as they are, on this machine, and compares their scores.
    Exit code 0: as before; 1: a finding; 2: it could not judge.
    """
    from harness.config.model_patterns import split_patterns
    from harness.utils.plugins import load_plugins

    if update and against is not None:
        raise BenchError("--update writes a baseline, and --against needs none", "leave one of them out")
    if (models or preset or change) and not update and against is None:
        raise BenchError(
            "--models, --preset and --set define a new baseline",
            "leave them out to judge; with --update they replace the baseline",
        )
    if against is None:
        refuse_typed(context, ("seeds", "metrics"), "read with --against alone", "add that, or leave it out")
    if update:
        refuse_typed(context, ("findings",), "--update writes a baseline and does not judge", "leave it out")
    load_plugins(plugin)
    plugins = tuple(plugin or ())
    changes = tuple(change or ())
    if update:
        recorded = read_request(baseline)
        update_recording(baseline, choose_request(recorded, models, preset, changes, plugins), recorded)
        return
    if findings is not None:
        remove_earlier_findings(findings)
    if against is not None:
        from harness.cli.regress_against import compare_with_commit

        request = choose_request(read_request(baseline), models, preset or "gate", changes, plugins)
        result = compare_with_commit(against, request, seeds, split_patterns(metrics))
        deliver_findings(result, findings)
    else:
        result = judge_code(baseline, plugins)
        deliver_findings(result, findings)
        if result.exit_code:
            words = ["bench", "regress", "--update", "--baseline", str(baseline)]
            for name in plugins:
                words += ["--plugin", name]
            echo(f"If it is meant:\n{shlex.join(words)}")
    sys.exit(result.exit_code)


def read_request(baseline: Path) -> Request | None:
    """The request that a baseline records; None if there is no baseline."""
    from results.comparison.recording import FILE, Recording

    return Recording.read(baseline).request if (baseline / FILE).is_file() else None


def choose_request(
    recorded: Request | None,
    models: str | None,
    preset: str | None,
    changes: tuple[str, ...],
    plugins: tuple[str, ...],
) -> Request:
    """The request of the options, with the recorded one as default."""
    from harness.config.model_patterns import expand_models, split_patterns
    from results.comparison.recording import Request

    if models is not None:
        names = tuple(expand_models(split_patterns(models)))
    elif recorded is not None:
        names = recorded.models
    else:
        raise BenchError("no models are named, and no baseline has any", "add --models NAME,NAME")
    if recorded is not None and preset is None:
        preset = recorded.preset
        changes = changes or recorded.changes
    return Request(models=names, preset=preset or "first-steps", changes=changes, plugins=plugins)


def judge_code(baseline: Path, plugins: tuple[str, ...]) -> Findings:
    """Record what this code computes, and compare it with the baseline."""
    from reports.text import recording as written
    from results.comparison.recording import Recording, judge_recording

    started = time.monotonic()
    expected = Recording.read(baseline)
    plugin_files = {Path(name).name for name in plugins}
    missing = [name for name in expected.request.plugins if Path(name).name not in plugin_files]
    if missing:
        raise BenchError(f"the baseline is of models of the plug-in {missing[0]}", f"add --plugin {missing[0]}")
    with doing("Loading torch"):
        from harness.benchmark.gate import Gate, record
        from harness.utils.processes import on_threads

    with tempfile.TemporaryDirectory() as scratch, on_threads(1), progress_aside() as reporter:
        gate = Gate.open(expected.request, Workspace(Path(scratch)), reporter)
        now = record(gate, baseline, reporter, expected)
    judged = judge_recording(expected, now, time.monotonic() - started)
    return Findings(
        exit_code=1 if judged.findings else 0,
        show=partial(written.print_findings, judged),
        markdown=written.markdown(judged),
        content={"conclusion": written.conclusion(judged), "recording": written.content(judged)},
    )


def update_recording(baseline: Path, request: Request, old: Request | None) -> None:
    """Train small weights, record their captions and the first steps, then write all files of the baseline.

    Only weights of the models of `old` are replaced or removed.
    """
    with doing("Loading torch"):
        from harness.benchmark.gate import Gate, record, train_weights, weights_of, widest_tolerance
        from harness.utils.processes import on_threads
    from results.comparison.recording import FILE

    check_folder(baseline, "--baseline")
    replaced = {weights_of(baseline, model) for model in (old.models if old else ())}
    new_files = {weights_of(baseline, model) for model in request.models} - replaced
    for path in sorted(new_files):
        if path.exists():
            raise BenchError(f"{path} exists and belongs to no baseline", "name another folder: --baseline FOLDER")
    with tempfile.TemporaryDirectory() as scratch, on_threads(1):
        reporter = progress_aside()
        folder = Path(scratch) / "baseline"
        folder.mkdir()
        gate = Gate.open(request, Workspace(Path(scratch)), reporter)
        train_weights(gate, folder, reporter)
        recording = record(gate, folder, reporter)
        (folder / FILE).write_text(recording.text(), encoding="utf-8")
        with write_errors(baseline, "--baseline"):
            for file in (*(weights_of(folder, model) for model in request.models), folder / FILE):
                with replacing(baseline / file.name) as temporary:
                    shutil.copyfile(file, temporary)
            for path in replaced:
                if not (folder / path.name).exists():
                    path.unlink(missing_ok=True)
    for line in widest_tolerance(recording):
        echo(line)
    size = sum(path.stat().st_size for path in baseline.iterdir() if path.is_file())
    echo(f"{baseline}: {', '.join(request.models)}; {len(recording.series)} quantities, {size / 1000:.0f} kB")
