"""`bench` in a pseudo-terminal of 80 x 24: what stands on the screen, and what has scrolled off it."""

import fcntl
import os
import pty
import signal
import struct
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass, field

import pyte

from tests.harness.conftest import end_as_bench

COLUMNS, LINES = 80, 24
_CHUNK = 65536


@dataclass
class TerminalOutput:
    """What a command left: the lines of its screen, those above it, and the exit code.

    `screens` are all different screens that were seen while it ran.
    """

    code: int
    screen: list[str]
    scrolled: list[str]
    screens: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "\n".join([*self.scrolled, *self.screen])


def bench_in_terminal(
    *words: object, interrupt_when: Callable[[str], bool] = lambda _: False, **variables: str
) -> TerminalOutput:
    """Run `bench WORDS` in a copy of this process, whose terminal has 80 x 24 characters.

    `interrupt_when` sees each screen; Ctrl-C is typed the first time that it is true.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    child, terminal = pty.fork()
    if child == 0:
        fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        os.environ.update({"TERM": "xterm-256color", **variables})
        for name in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR"):
            os.environ.pop(name, None)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        end_as_bench(words)
    screen = pyte.HistoryScreen(COLUMNS, LINES, history=100_000)
    stream = pyte.ByteStream(screen)
    screens, interrupted = [""], False
    while True:
        try:
            output = os.read(terminal, _CHUNK)
        except OSError:  # the child has closed its side
            break
        if not output:
            break
        stream.feed(output)
        shown = "\n".join(screen.display)
        if shown != screens[-1]:
            screens.append(shown)
        if not interrupted and interrupt_when(shown):
            interrupted = True
            os.write(terminal, b"\x03")
    os.close(terminal)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    scrolled = ["".join(line[column].data for column in range(COLUMNS)).rstrip() for line in screen.history.top]
    return TerminalOutput(code, [line.rstrip() for line in screen.display], scrolled, screens)
