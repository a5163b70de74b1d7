"""The processes that train one model together, through torch.distributed.

Each training has process groups of its own, so that a training that fails on one rank ends on all of them, and the next
one begins with new groups (`harness.training.peers`).

`DistributedDataParallel` is not used. It averages the processes' gradients, but a batch's loss is a mean over words, of
which the shares of a batch hold unequal numbers, and it hooks onto `forward` alone, where objectives also encode and
step. Gradients, weighed by words, are summed after the backward pass instead, so that N devices make the step that one
would.

Only weights and gradients go from GPU to GPU (NCCL). Everything else goes through Gloo on the CPUs, where no GPU is
waited for, the end of a process is noticed at once, and a long validation on rank 0 runs into no timeout.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Protocol, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import Parameter

T = TypeVar("T")
CONTROL_TIMEOUT = timedelta(days=7)
"""How long rank 0 may validate, extract features or score, while the others wait for it."""
GRADIENT_TIMEOUT = timedelta(minutes=30)


class Collective(Protocol):
    """What the training loop asks of the others; every rank must call the same methods in the same order."""

    rank: int
    """0 validates, saves and reports for all."""
    world_size: int

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """The sums of every rank's values."""
        ...

    def all_reduce_gradients(self, parameters: Iterable[Parameter]) -> None:
        """Replace each gradient by the sum of all ranks' gradients, where any rank has one."""
        ...

    def broadcast(self, value: T) -> T:
        """Rank 0's value, plain data."""
        ...

    def all_gather(self, value: T) -> list[T]:
        """Each rank's value, plain data."""
        ...

    def broadcast_weights(self, model: nn.Module) -> None:
        """Give every rank the weights of rank 0."""
        ...


class SingleProcess:
    """The collective of one process."""

    rank, world_size = 0, 1

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """See `Collective.all_reduce_sum`."""
        return list(values)

    def all_reduce_gradients(self, parameters: Iterable[Parameter]) -> None:
        """There are no others."""

    def broadcast(self, value: T) -> T:
        """See `Collective.broadcast`."""
        return value

    def all_gather(self, value: T) -> list[T]:
        """See `Collective.all_gather`."""
        return [value]

    def broadcast_weights(self, model: nn.Module) -> None:
        """There are no others."""


class PeerFailedError(Exception):
    """A collective failed because another rank left the training."""


class Distributed:
    """One rank of a training of several processes; see `Collective`. Made on every rank at the same time.

    Attributes:
        device: this rank's.

    Raises:
        PeerFailedError: from any method, where another rank left the training.
    """

    def __init__(self, device_type: str) -> None:
        self.device = _local_device(device_type)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self._control = new_group("gloo", CONTROL_TIMEOUT)
        self._tensors = new_group("nccl", GRADIENT_TIMEOUT) if device_type == "cuda" else self._control

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """See `Collective.all_reduce_sum`; in double precision."""
        summed = torch.tensor(values, dtype=torch.float64)
        with _peer_errors():
            dist.all_reduce(summed, group=self._control)
        return summed.tolist()

    def all_reduce_gradients(self, parameters: Iterable[Parameter]) -> None:
        """See `Collective.all_reduce_gradients`; one all-reduce a parameter, all in flight at once."""
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        holders = self.all_reduce_sum([float(parameter.grad is not None) for parameter in trained])
        held = [parameter for parameter, count in zip(trained, holders, strict=True) if count]
        gradients = list[Tensor]()
        for parameter in held:
            grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            parameter.grad = grad.contiguous()
            gradients.append(parameter.grad)
        with _peer_errors():
            in_flight = [dist.all_reduce(gradient, group=self._tensors, async_op=True) for gradient in gradients]
            for work in in_flight:
                assert work is not None
                work.wait()

    def broadcast(self, value: T) -> T:
        """See `Collective.broadcast`."""
        box = [value]
        with _peer_errors():
            dist.broadcast_object_list(box, 0, group=self._control)
        return box[0]

    def all_gather(self, value: T) -> list[T]:
        """See `Collective.all_gather`."""
        values: list[T] = [value] * self.world_size
        with _peer_errors():
            dist.all_gather_object(values, value, group=self._control)
        return values

    def broadcast_weights(self, model: nn.Module) -> None:
        """See `Collective.broadcast_weights`."""
        self.all_reduce_sum([0.0])  # a rank that failed is noticed here; on GPUs, NCCL would wait for it
        for tensor in model.state_dict().values():
            whole = tensor.contiguous()
            with _peer_errors():
                dist.broadcast(whole, 0, group=self._tensors)
            tensor.copy_(whole)

    def close(self, abort: bool = False) -> None:
        """Leave the training's groups; with `abort` the other ranks are not waited for, and get `PeerFailedError`."""
        control, tensors = self._control, self._tensors
        del self._control, self._tensors
        if tensors is not control:
            if abort:
                dist.distributed_c10d._abort_process_group(tensors)  # destroying it in order waits for the others
            else:
                dist.destroy_process_group(tensors)
        dist.destroy_process_group(control)
        del control, tensors
        gc.collect()  # Gloo closes its connections, which the others notice, with the last reference to the group


def new_group(backend: str, timeout: timedelta) -> dist.ProcessGroup:
    """A group of all ranks; made on every rank at the same time."""
    group = dist.new_group(backend=backend, timeout=timeout)
    assert isinstance(group, dist.ProcessGroup)
    return group


def _local_device(device_type: str) -> torch.device:
    """This rank's device on its host, which becomes torch's current one."""
    if device_type != "cuda":
        return torch.device(device_type)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


@contextmanager
def _peer_errors() -> Iterator[None]:
    """Raise what a collective says where a connection ended as `PeerFailedError`."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise PeerFailedError(str(error)) from error
