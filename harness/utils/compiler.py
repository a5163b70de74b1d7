"""Torch without its compiler, whose import takes two seconds of a processor and 100 MB in every process that trains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def never_compiled(*methods: Callable[..., Any]) -> None:
    """Have methods of torch that it keeps out of compiled code run as they are: torch imports its compiler otherwise.

    For what no compiled code calls. Methods that torch does not keep out are left as they are.
    """
    for method in methods:
        if (plain := getattr(method, "__wrapped__", None)) is not None:
            vars(plain)["__dynamo_disable"] = plain
