"""Where `bench` and `python -m harness.cli` start."""

from __future__ import annotations

import signal


def main() -> None:
    """Import the command line and run it.

    While it is imported, Ctrl-C ends the process as the system does: a traceback would be all that could be said of it.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from harness.cli.app import main as run

    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
