"""Where `bench` and `python -m harness.cli` start."""

import signal


def main() -> None:
    """Run the command line; Ctrl-C while it is imported ends the process as the system does, without a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from harness.cli.app import main as run

    signal.signal(signal.SIGINT, before)
    run()


if __name__ == "__main__":
    main()
