"""End worker processes together with their parent process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import wait


def exit_with_parent() -> None:
    """End this process as soon as its parent is gone, and leave Ctrl-C to the parent.

    To be called first in a process started by `multiprocessing`.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
