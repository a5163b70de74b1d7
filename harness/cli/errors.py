"""How errors are said: one line, what to type next on another, and an exit code; what no command expects is logged."""

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
_ELSEWHERE = {
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
"""What to type for options of other programs, and of captionbench 1."""
_CONTINUE = {"run", "work", "tune", "data"}
_CHOICE = re.compile(r"'([^']*)' is not one of '(.+)'\.")
_NO_COMMAND = re.compile(r"No such command '([^']*)'")
_LONG_VALUE = re.compile(r"[^\s/]{256,}")  # longer than a name can be
_LONGEST = 300  # characters of an error's own message


def say_error(message: BenchError | StoreError | ZooError, error: BaseException) -> None:
    """Print an error and what to do next on stderr, with --debug the traceback first; long names are cut."""
    from rich.console import Console
    from rich.markup import escape

    console = Console(stderr=True, highlight=False)
    if wants_traceback():
        console.print(printable(_traceback(error)), markup=False, soft_wrap=True)
    for style, kind, text in (("bold red", "error", str(message)), ("bold", "hint", message.hint)):
        if text:
            cut = _LONG_VALUE.sub(lambda value: shortened(value[0]), text)
            console.print(f"[{style}]{kind}:[/] {escape(printable(cut))}", soft_wrap=True)


def say_interrupted(interrupt: KeyboardInterrupt) -> int:
    """Say how to continue, where the command that was typed does; gives the exit code."""
    command = next((word for word in sys.argv[1:] if not word.startswith("-")), "run")
    continues = command in _CONTINUE and "--reuse none" not in " ".join(sys.argv).replace("=", " ")
    sys.stderr.write(f"{INTERRUPTED if continues else INTERRUPTED.partition(';')[0]}\n")
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


@contextmanager
def said_as_ours() -> Iterator[None]:
    """Say errors of usage, Ctrl-C and ends by other code ourselves: Typer would draw a box, or end without a word."""
    try:
        yield
    except UsageError as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # a command without words shows its help
            raise
        say_error(explained_usage(error), error)
        raise typer.Exit(error.exit_code) from error
    except KeyboardInterrupt as interrupt:
        raise typer.Exit(say_interrupted(interrupt)) from interrupt
    except SystemExit as end:
        place = place_in_plugin(end)
        if place is None and _is_ours(end):
            raise
        at = "" if place is None else f" at {place}"
        raise BenchError(
            f"code outside captionbench ended the program{at}: sys.exit({end.code!r})",
            "take it out of the plug-in; bench --debug COMMAND ... shows where it is",
        ) from end


def _is_ours(end: SystemExit) -> bool:
    """Whether it was raised in a file of ours, or where rich and Typer end for want of a reader (`| head`)."""
    frames = [frame for frame, _ in traceback.walk_tb(end.__traceback__)]
    name = str(frames[-1].f_globals.get("__name__")) if frames else ""
    return name.partition(".")[0] in {"harness", "reports", "results", "rich", "typer"}


def explained(error: BaseException, words: Sequence[str]) -> tuple[BenchError, int]:
    """The one message for an error that no command expects, and the exit code; `words` are the command line.

    A plug-in's errors, the system's, and too little memory, are the user's to put right; what else is a bug is logged.
    """
    again = f"`{_typed_again(['--debug', *(word for word in words if word != '--debug')])}` shows where it happened"
    if (place := place_in_plugin(error)) is not None:
        return BenchError(f"the plug-in's code failed at {place}: {_described(error)}", again), 2
    if isinstance(error, OSError) and error.errno is not None:
        return _explained_system(error, again), 2
    if isinstance(error, MemoryError):
        hint = "try smaller sizes, batches or beams, or fewer --jobs"
        return BenchError("there is not enough memory for this command", f"{hint}; {again}"), 2
    if isinstance(error, RecursionError):
        hint = "look for a file or value with hundreds of brackets inside each other"
        return BenchError("something given to this command is nested too deeply", f"{hint}; {again}"), 2
    log = _write_log(error, words)
    where = f"the traceback is in {log}" if log else "no log could be written"
    return BenchError(
        f"this is a bug in captionbench: {_described(error)}",
        f"the command was `{_typed_again(words)}`; {where}: report both; {again}",
    ), BUG_EXIT_CODE


def _explained_system(error: OSError, again: str) -> BenchError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        place = f" (at {error.filename})" if error.filename else ""
        return BenchError(f"the disk is full{place}", "free some space, then repeat the command")
    if error.errno == errno.ENAMETOOLONG:
        name, most = shortened(os.fsdecode(error.filename or "")), "the name of a file or folder has at most 255 bytes"
        return BenchError(f"the name {name} is longer than the system takes", f"check what was typed; {most}")
    reason = error.strerror or os.strerror(error.errno or 0)
    return BenchError(
        f"{error.filename or 'the system refused'}: {reason}", f"check the file and its permissions; {again}"
    )


def _described(error: BaseException) -> str:
    """The class of an error and what it says, on one line."""
    said = " ".join(str(error).split())
    said = said if len(said) <= _LONGEST else said[:_LONGEST] + " ..."
    return f"{type(error).__name__}: {said}".removesuffix(": ")


def _write_log(error: BaseException, words: Sequence[str]) -> Path | None:
    """Write the traceback, command and versions below the user's cache or the temporary files; None where it cannot."""
    import tempfile

    now = datetime.now(UTC)
    made_by = f"captionbench {harness.__version__}, Python {platform.python_version()}, {platform.platform()}"
    lines = [made_by, f"{now:%Y-%m-%d %H:%M:%S} UTC", _typed_again(words), "", _traceback(error)]
    for folder in (user_cache() / "logs", Path(tempfile.gettempdir())):
        log = folder / f"bench-{now:%Y%m%d-%H%M%S}-{os.getpid()}.log"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with log.open("x", encoding="utf-8", errors="replace") as file:  # never into what is there already
                file.write("\n".join(lines))
            return log
        except OSError:
            continue
    return None


def _traceback(error: BaseException) -> str:
    return without_passwords("".join(traceback.format_exception(error)))


def _typed_again(words: Sequence[str]) -> str:
    return without_passwords(shlex.join(["bench", *words]))


def explained_usage(error: Any) -> BenchError:
    """What is wrong with what was typed, as Click says it, and what to type next."""
    from difflib import get_close_matches

    command = "bench"
    if error.ctx is not None:  # as it is typed, however the program was started
        command += str(error.ctx.command_path).removeprefix(str(error.ctx.find_root().info_name))
    said = error.format_message().replace("Value error, ", "").replace("Input should be", "it must be")
    said = " ".join(said.partition(", unable to parse")[0].split())
    option = getattr(error, "option_name", None) if "No such option" in said else None
    known = {name for each in error.ctx.command.params for name in each.opts} if error.ctx is not None else set()
    meant = _meant(str(option), known, error.ctx.find_root().command.words) if option else None
    if meant is not None:
        said = error.message
    elif (choice := _CHOICE.search(said)) and (near := get_close_matches(choice[1], choice[2].split("', '"), 1, 0.35)):
        meant = f"type {shown_name(error.param)} {near[0]}"
    elif strange := _NO_COMMAND.match(said):
        said, commands = strange[0], error.ctx.command.commands
        near = get_close_matches(strange[1], commands, 1, 0.65)
        meant = f"type {command} {near[0] if near else f'show {strange[1]}'}" if near or "show" in commands else None
    elif "unexpected extra argument" in said and "--models" in known:
        meant = f"models are named by --models: {command} --models NAME,NAME"
    return BenchError(said, meant or f"`{command} --help` shows what it takes")


def _meant(option: str, known: Collection[str], words: Sequence[str]) -> str | None:
    """What to type for an option of other programs beside the `known` ones; `words` may have its value."""
    meant = _ELSEWHERE.get(option.lstrip("-").replace("-", "_"))
    if meant is not None and (not meant.startswith("--") or meant.partition(" ")[0] in known):
        return f"type {meant}" if meant.startswith("--") else meant
    if "--set" not in known:
        return None

    from harness.config.load import nearest_settings

    near = nearest_settings(option)
    behind = [after for word, after in pairwise(words) if word == option and not after.startswith("--")]
    behind += [word.partition("=")[2] for word in words if word.startswith(f"{option}=")]
    value = next(iter(behind), "VALUE")
    return "type " + " or ".join(f"--set {path}={shlex.quote(value)}" for path in near) if near else None


def shown_name(parameter: Any) -> str:
    """An option's first long name, or an argument's in capitals."""
    if not parameter.opts[0].startswith("-"):
        return str(parameter.metavar or parameter.name.upper())
    return str(next((name for name in parameter.opts if name.startswith("--")), parameter.opts[0]))
