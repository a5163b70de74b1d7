"""Ctrl-C and SIGTERM: how they end a process, and how code holds them back until it has come to a good end."""

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Self

ENDING = (signal.SIGINT, signal.SIGTERM)
_HELD = (*ENDING, signal.SIGUSR2)  # the last is how Slurm warns a job of submitit's before its time is over
_Handler = Callable[[int, FrameType | None], object] | int


class Terminated(KeyboardInterrupt):
    """SIGTERM: ends what runs as Ctrl-C does, so that everything is closed on the way."""


def end_on_sigterm() -> None:
    """Have SIGTERM end this process as Ctrl-C does; a second one ends it at once."""
    owner = os.getpid()

    def end(_signal: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getpid() != owner:  # a forked child
            os.kill(os.getpid(), signal.SIGTERM)
        raise Terminated

    signal.signal(signal.SIGTERM, end)


class HeldSignals:
    """Holds Ctrl-C, SIGTERM and SIGUSR2 back until the end of a block, or until they are delivered within it.

    Signals that the process ignores stay ignored. In other threads than the main one nothing is held: signals interrupt
    the main thread alone. A second signal is answered at once, so that nobody has to wait, unless `patient`.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._patient = patient
        self._handlers: dict[int, _Handler] = {}
        self._held: list[int] = []

    def __enter__(self) -> Self:
        in_main = threading.current_thread() is threading.main_thread()
        for signum in _HELD if in_main else ():
            handler = signal.getsignal(signum)
            if handler is not None and handler != signal.SIG_IGN:
                self._handlers[signum] = handler
                signal.signal(signum, self._hold)
        return self

    def __exit__(self, *_: object) -> None:
        for signum, handler in self._handlers.items():
            signal.signal(signum, handler)
        for signum in self._held:
            signal.raise_signal(signum)

    @property
    def pending(self) -> bool:
        """Whether a signal waits."""
        return bool(self._held)

    def deliver(self) -> None:
        """Answer the signals that wait; where that raises nothing, others are held back again."""
        held = self._held
        self._held = []
        for signum in held:
            self._answer(signum)

    def _hold(self, signum: int, _frame: FrameType | None) -> None:
        if self._held and not self._patient:
            self._held.clear()
            self._answer(signum)
        else:
            self._held.append(signum)

    def _answer(self, signum: int) -> None:
        signal.signal(signum, self._handlers[signum])
        signal.raise_signal(signum)
        signal.signal(signum, self._hold)
