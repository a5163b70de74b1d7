"""A worker process that only waits."""

import signal
import time
from multiprocessing.synchronize import Event


def wait(ready: Event, stubborn: bool) -> None:
    """Wait for a minute, deaf to SIGTERM if `stubborn`."""
    if stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    ready.set()
    time.sleep(60)
