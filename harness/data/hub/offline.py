"""Use the Hugging Face hub offline when it cannot be reached, instead of a minute of retries."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from huggingface_hub import constants

_CONNECT_TIMEOUT_S = 3.0
_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def hub_is_reachable() -> bool:
    """Whether the hub's host accepts a connection within seconds; behind a proxy it is assumed to."""
    if any(os.environ.get(name) for name in _PROXIES):
        return True
    host = urlsplit(constants.ENDPOINT)
    try:
        socket.create_connection((host.hostname or "", host.port or 443), timeout=_CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True


@contextmanager
def quick_hub() -> Iterator[None]:
    """Put the hub's client into offline mode within a block, if the hub cannot be reached."""
    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not hub_is_reachable()
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before
