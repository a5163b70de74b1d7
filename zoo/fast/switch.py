"""The one switch between hand-written gradients and those that autograd derives from the plain forms."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

_enabled = True


def custom_backward() -> bool:
    """Whether hand-written gradients are used: while gradients are recorded, outside `plain_forms`.

    Autocast, which needs the gradients of each part, is to be off around them (`zoo.fast.looped.no_autocast`).
    """
    return _enabled and torch.is_grad_enabled()


@contextmanager
def plain_forms() -> Iterator[None]:
    """Have autograd derive all gradients within the block from the plain forms."""
    global _enabled
    before, _enabled = _enabled, False
    try:
        yield
    finally:
        _enabled = before
