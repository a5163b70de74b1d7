"""What ends a command from outside its own code: Ctrl-C, SIGTERM, and `sys.exit` of a plug-in.

Ctrl-C and SIGTERM end it with one sentence and the exit code that shells expect: 130 and 143.
"""

from __future__ import annotations

import signal
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from harness.utils.errors import INTERRUPTED, BenchError
from harness.utils.plugins import place_in_plugin
from harness.utils.signals import Terminated


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
            place = place_in_plugin(end)
            if place is not None or not _is_ours(end):
                at = "" if place is None else f" at {place}"
                raise BenchError(
                    f"code outside captionbench ended the program{at}: sys.exit({end.code!r})",
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
