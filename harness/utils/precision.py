"""What torch does for a run: autocast and exact products for its precision, and no compiler."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch


def set_products(device: torch.device, precision: str) -> None:
    """Have a GPU multiply what autocast leaves in float32 as TF32 beside "bf16", and exactly for "fp32".

    Its algorithms of convolutions are not chosen by timing, which would not choose the same ones every time.
    """
    if device.type == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "bf16"
        torch.backends.cudnn.benchmark = False


@contextmanager
def exact_products() -> Iterator[None]:
    """Turn TF32 off on a GPU, so that features do not depend on the precision of the training around them."""
    matmul = torch.backends.cuda.matmul
    cudnn = torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    matmul.allow_tf32 = cudnn.allow_tf32 = False
    try:
        yield
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def autocast(device: torch.device, precision: str) -> AbstractContextManager[object]:
    """Autocast to bfloat16 for "bf16", whatever the weights are kept in; nothing for "fp32"."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()


def never_compiled(*methods: Callable[..., Any]) -> None:
    """Have methods of torch that it keeps out of compiled code run as they are; others are left as they are.

    For what no compiled code calls. Torch imports its compiler otherwise, which takes two seconds of a processor and
    100 MB in every process that trains.
    """
    for method in methods:
        if (plain := getattr(method, "__wrapped__", None)) is not None:
            vars(plain)["__dynamo_disable"] = plain
