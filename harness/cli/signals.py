"""What ends a command from outside its own code: Ctrl-C, SIGTERM, and `sys.exit` of a plug-in.

Ctrl-C and SIGTERM end it with one sentence and the exit code that shells expect: 130 and 143.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from harness.utils.errors import INTERRUPTED, BenchError


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends what runs as Ctrl-C does, so that everything is closed on the way."""


class InterruptibleGroup(TyperGroup):
    """The root command. Typer itself would turn Ctrl-C, and an exit of a model's code, into a silent exit."""

    def make_context(self, *arguments: Any, **named: Any) -> Any:
        try:
            return super().make_context(*arguments, **named)
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(say_interrupted(interrupt)) from interrupt

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(say_interrupted(interrupt)) from interrupt
        except SystemExit as end:
            if not _is_ours(end):
                raise BenchError(
                    f"code outside captionbench ended the program: sys.exit({end.code!r})",
                    "take it out of the plug-in; bench --debug COMMAND ... shows where it is",
                ) from end
            raise


def _is_ours(end: SystemExit) -> bool:
    """Whether it was raised in a file of ours, or where rich and Typer end for want of a reader (`| head`)."""
    frame = end.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    name = "" if frame is None else str(frame.tb_frame.f_globals.get("__name__"))
    return name.partition(".")[0] in {"harness", "reports", "results", "rich", "typer"}


def say_interrupted(interrupt: KeyboardInterrupt) -> int:
    """Say how to continue; gives the exit code."""
    sys.stderr.write(f"{INTERRUPTED}\n")
    return 128 + (signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT)


def end_on_sigterm() -> None:
    """Have SIGTERM end this process as Ctrl-C does; a second one ends it at once.

    Processes that a launcher started keep the system's way: the launcher tells by it which of them ended first.
    """
    owner = os.getpid()

    def end(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getpid() != owner:  # a forked child
            os.kill(os.getpid(), signal.SIGTERM)
        raise Terminated

    signal.signal(signal.SIGTERM, end)
