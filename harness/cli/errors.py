"""How errors are printed: one line, a hint on another, and an exit code; unexpected errors are logged, too."""

import errno
import os
import platform
import re
import shlex
import signal
import sys
import traceback
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer

import harness
from harness.utils.errors import INTERRUPTED, BenchError, wants_traceback
from harness.utils.files import shortened
from harness.utils.plugins import place_in_plugin
from harness.utils.signals import Terminated
from harness.utils.workspace import user_cache
from results.errors import StoreError, without_passwords
from results.text import printable
from zoo.errors import ZooError

BUG_EXIT_CODE = 70  # EX_SOFTWARE of sysexits.h: neither success, nor a finding (1), nor wrong input (2)
UsageError: Any = typer.BadParameter.__mro__[1]
_OTHER_OPTIONS = {
    **dict.fromkeys(("gpu", "gpu_id", "cuda"), "--device cuda:0"),
    **dict.fromkeys(("gpus", "num_gpus", "n_gpus", "nproc_per_node"), "--devices 2"),
    **dict.fromkeys(("model", "arch"), "--models updown"),
    **dict.fromkeys(("dataset", "dataset_path", "data_dir", "data_path"), "--data FOLDER"),
    **dict.fromkeys(("image_dir", "images_dir", "image_folder"), "--images FOLDER"),
    **dict.fromkeys(("seed", "random_seed"), "--first-seed N, or --seeds N for N of them"),
    **dict.fromkeys(("output", "output_dir", "out_dir", "save_dir", "log_dir"), "--workspace FOLDER"),
    **dict.fromkeys(("workers", "num_workers", "parallel"), "--jobs N"),
    **dict.fromkeys(("fp16", "bf16", "amp", "half", "mixed_precision"), "--precision bf16"),
    **dict.fromkeys(("config", "cfg"), "--preset NAME, and --set KEY=VALUE for each change"),
    **dict.fromkeys(("resume", "checkpoint"), "the same command again continues where it stopped"),
    **dict.fromkeys(("force", "overwrite", "rerun", "no_cache"), "--reuse none"),
    **dict.fromkeys(("metric", "metrics"), "every run has all metrics; --more-metrics adds to them"),
    **dict.fromkeys(("wandb", "tensorboard", "logger"), "--log tensorboard"),
    **dict.fromkeys(("features", "feature_dir"), "--regions FOLDER, or --backbone NAME"),
    **dict.fromkeys(("prompt", "dtype"), "--hub KEY=VALUE, as prompt=TEXT or dtype=bf16"),
    "on": "--executor WHERE",
    "place_unfinished": "--rank-unconverged",
}
"""What to type instead of options of other programs, and of captionbench 1."""
_CONTINUE = {"run", "work", "tune", "data"}
_CHOICE = re.compile(r"'([^']*)' is not one of '(.+)'\.")
_NO_COMMAND = re.compile(r"No such command '([^']*)'")
_LONG_VALUE = re.compile(r"[^\s/]{256,}")  # longer than a name can be
_LONGEST = 300  # characters of an error's own message


def print_error(message: BenchError | StoreError | ZooError, error: BaseException) -> None:
    """Print an error and its hint on stderr, after the traceback with --debug; long names are shortened."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    if wants_traceback():
        console.print(printable(_traceback(error)), markup=False, soft_wrap=True)
    for style, kind, text in (("bold red", "error", str(message)), ("bold", "hint", message.hint)):
        if text:
            cut = _LONG_VALUE.sub(lambda value: shortened(value[0]), text)
            console.print(f"[{style}]{kind}:[/] {escape(printable(cut))}", soft_wrap=True)


def print_interrupted(interrupt: KeyboardInterrupt) -> int:
    """Print that the command was interrupted and, if it can be resumed, how; gives the exit code."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "run")
    continues = command in _CONTINUE and "--reuse none" not in " ".join(sys.argv).replace("=", " ")
    sys.stderr.write(f"{INTERRUPTED if continues else INTERRUPTED.partition(';')[0]}\n")
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


@contextmanager
def usage_errors() -> Iterator[None]:
    """Print usage errors, Ctrl-C and `sys.exit` of foreign code in our form; Typer's is a box, or nothing."""
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # Typer prints the help
            raise
        print_error(explain_usage(error), error)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as interrupt:
        raise typer.Exit(print_interrupted(interrupt)) from interrupt
    except SystemExit as end:
        plugin_line = place_in_plugin(end)
        if plugin_line is None and _is_ours(end):
            raise
        location = "" if plugin_line is None else f" at {plugin_line}"
        raise BenchError(
            f"code outside captionbench ended the program{location}: sys.exit({end.code!r})",
            "remove this call from the plug-in; bench --debug COMMAND ... shows where it is",
        ) from end


def _is_ours(end: SystemExit) -> bool:
    """Whether our code raised it, or rich or Typer, which do where nothing reads the output (`| head`)."""
    frames = [frame for frame, _ in traceback.walk_tb(end.__traceback__)]
    name = str(frames[-1].f_globals.get("__name__")) if frames else ""
    return name.partition(".")[0] in {"harness", "reports", "results", "rich", "typer"}


def explain(error: BaseException, words: Sequence[str]) -> tuple[BenchError, int]:
    """The message and exit code for an error that no command expects; `words` are the command line.

    The user can correct errors of a plug-in or the system, and too little memory. All others are bugs, and logged.
    """
    rerun_hint = (
        f"`{_command_line(['--debug', *(word for word in words if word != '--debug')])}` shows where it happened"
    )
    if (plugin_line := place_in_plugin(error)) is not None:
        return BenchError(f"the plug-in's code failed at {plugin_line}: {_described(error)}", rerun_hint), 2
    if isinstance(error, OSError) and error.errno is not None:
        return _explain_system(error, rerun_hint), 2
    if isinstance(error, MemoryError):
        hint = "try smaller sizes, batches or beams, or fewer --jobs"
        return BenchError("there is not enough memory for this command", f"{hint}; {rerun_hint}"), 2
    if isinstance(error, RecursionError):
        hint = "look for a file or value with hundreds of brackets inside each other"
        return BenchError("something given to this command is nested too deeply", f"{hint}; {rerun_hint}"), 2
    log = _write_log(error, words)
    where = f"the traceback is in {log}" if log else "no log could be written"
    return BenchError(
        f"this is a bug in captionbench: {_described(error)}",
        f"the command was `{_command_line(words)}`; {where}: report both; {rerun_hint}",
    ), BUG_EXIT_CODE


def _explain_system(error: OSError, rerun_hint: str) -> BenchError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        suffix = f" (at {error.filename})" if error.filename else ""
        return BenchError(f"the disk is full{suffix}", "free some space, then repeat the command")
    if error.errno == errno.ENAMETOOLONG:
        name = shortened(os.fsdecode(error.filename or ""))
        return BenchError(
            f"the name {name} is too long for the system",
            "check what was typed; the name of a file or folder has at most 255 bytes",
        )
    reason = error.strerror or os.strerror(error.errno or 0)
    return BenchError(
        f"{error.filename or 'the system refused'}: {reason}", f"check the file and its permissions; {rerun_hint}"
    )


def _described(error: BaseException) -> str:
    """The class and message of an error, on one line."""
    message = " ".join(str(error).split())
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]} ..."
    return f"{type(error).__name__}: {message}".removesuffix(": ")


def _write_log(error: BaseException, words: Sequence[str]) -> Path | None:
    """Write traceback, command and versions to the user's cache or the temporary folder; None if neither works."""
    import tempfile

    now = datetime.now(UTC)
    versions = f"captionbench {harness.__version__}, Python {platform.python_version()}, {platform.platform()}"
    lines = [versions, f"{now:%Y-%m-%d %H:%M:%S} UTC", _command_line(words), "", _traceback(error)]
    for folder in (user_cache() / "logs", Path(tempfile.gettempdir())):
        log = folder / f"bench-{now:%Y%m%d-%H%M%S}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with log.open(
                "x", encoding="utf-8", errors="replace"
            ) as file:  # "x": an existing file is never overwritten
                file.write("\n".join(lines))
            return log
        except OSError:
            continue
    return None


def _traceback(error: BaseException) -> str:
    return without_passwords("".join(traceback.format_exception(error)))


def _command_line(words: Sequence[str]) -> str:
    return without_passwords(shlex.join(["bench", *words]))


def explain_usage(error: Any) -> BenchError:
    """Click's message for a wrong command line, and what to type instead."""
    from difflib import get_close_matches

    command = "bench"
    if error.ctx is not None:  # as it is typed, however the program was started
        command += str(error.ctx.command_path).removeprefix(str(error.ctx.find_root().info_name))
    message = error.format_message().replace("Value error, ", "").replace("Input should be", "it must be")
    message = " ".join(message.partition(", unable to parse")[0].split())
    options: set[str] = set()
    if error.ctx is not None:
        for parameter in error.ctx.command.params:
            options.update(parameter.opts)
    unknown_option = getattr(error, "option_name", None) if "No such option" in message else None
    hint = None
    if unknown_option:
        hint = _hint_for_option(unknown_option, options, error.ctx.find_root().command.words)
    if hint is not None:
        message = error.message
    elif (choice := _CHOICE.search(message)) and (
        near := get_close_matches(choice[1], choice[2].split("', '"), 1, 0.35)
    ):
        hint = f"type {shown_name(error.param)} {near[0]}"
    elif no_command := _NO_COMMAND.match(message):
        message = no_command[0]
        commands = error.ctx.command.commands
        if near := get_close_matches(no_command[1], commands, 1, 0.65):
            hint = f"type {command} {near[0]}"
        elif "show" in commands:
            hint = f"type {command} show {no_command[1]}"
    elif "unexpected extra argument" in message and "--models" in options:
        hint = f"models are named by --models: {command} --models NAME,NAME"
    return BenchError(message, hint or f"`{command} --help` shows its options")


def _hint_for_option(option: str, known: Collection[str], words: Sequence[str]) -> str | None:
    """What to type instead of an unknown option, if the command has it.

    Args:
        option: as it was typed.
        known: the command's options.
        words: the command line, which may have the option's value.
    """
    instead = _OTHER_OPTIONS.get(option.lstrip("-").replace("-", "_"))
    if instead is not None:
        if not instead.startswith("--"):
            return instead
        if instead.partition(" ")[0] in known:
            return f"type {instead}"
    if "--set" not in known:
        return None

    from harness.config.load import nearest_settings

    paths = nearest_settings(option)
    if not paths:
        return None
    values = [after for word, after in pairwise(words) if word == option and not after.startswith("--")]
    values += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    value = next(iter(values), "VALUE")
    return "type " + " or ".join(f"--set {path}={shlex.quote(value)}" for path in paths)


def shown_name(parameter: Any) -> str:
    """An option's first long name, or an argument's in capitals."""
    if not parameter.opts[0].startswith("-"):
        return str(parameter.metavar or parameter.name.upper())
    return str(next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0]))
