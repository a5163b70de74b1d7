"""One training process a device, set up by Lightning Fabric; imported only where there are several: it takes a second.

This process is the first of them: it keeps validation, checkpoints, the store and the terminal. The others are started
beside it for one training and end with it, however it ends.

Fabric chooses the devices, joins the processes and carries what they tell each other. Its wrapped module is not used:
it averages the processes' gradients, but a batch's loss is a mean over words, of which the shares of a batch hold
unequal numbers, and it hooks onto `forward` alone, where objectives also encode and step. Gradients, weighed by words,
are added up after the backward pass instead, so that several devices make the step that one would.

Only weights and gradients go from GPU to GPU. All else that the processes tell each other goes through the processors,
where no GPU is waited for, the end of a process is noticed at once, and the others have patience with the first one.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from lightning_fabric import Fabric
from lightning_fabric.plugins.environments.cluster_environment import ClusterEnvironment
from torch import nn
from torch.nn import Parameter

from harness.utils.errors import BenchError
from harness.utils.processes import exit_with_parent

T = TypeVar("T")
HOST = "127.0.0.1"
JOIN_TIMEOUT_S = 20.0
"""How long a process may take to end after training has."""
LONGEST_SILENCE = timedelta(days=7)
"""How long the first process may validate, or extract features, while the others wait for it."""


class Together:
    """One of several processes, through Fabric; see `harness.training.processes.Processes`."""

    def __init__(self, rank: int, count: int, port: int, device_type: str) -> None:
        self.rank, self.count = rank, count
        for name in ("lightning_fabric", "lightning.fabric"):
            logging.getLogger(name).setLevel(logging.ERROR)  # it announces every process
        self._fabric = Fabric(
            accelerator="cuda" if device_type == "cuda" else "cpu",
            devices=count,
            strategy="ddp",
            plugins=[_Place(rank, count, port)],
        )
        self._fabric.launch()
        self.device: torch.device = self._fabric.device
        talk = dist.new_group(backend="gloo", timeout=LONGEST_SILENCE)
        assert isinstance(talk, dist.ProcessGroup)
        self._talk = talk

    def total(self, values: Sequence[float]) -> list[float]:
        """See `Processes.total`."""
        summed = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(summed, group=self._talk)
        return summed.tolist()

    def add_gradients(self, parameters: Iterable[Parameter]) -> None:
        """See `Processes.add_gradients`; all of them travel at once."""
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        has = self.total([float(parameter.grad is not None) for parameter in trained])
        under_way = []
        for parameter, holders in zip(trained, has, strict=True):
            if holders:
                grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                parameter.grad = grad.contiguous()
                under_way.append(dist.all_reduce(parameter.grad, async_op=True))
        for work in under_way:
            work.wait()

    def of_first(self, value: T) -> T:
        """See `Processes.of_first`."""
        box = [value]
        dist.broadcast_object_list(box, 0, group=self._talk)
        return box[0]

    def of_all(self, value: T) -> list[T]:
        """See `Processes.of_all`."""
        values: list[T] = [value] * self.count
        dist.all_gather_object(values, value, group=self._talk)
        return values

    def share_weights(self, model: nn.Module) -> None:
        """See `Processes.share_weights`."""
        for tensor in model.state_dict().values():
            whole = tensor.contiguous()
            dist.broadcast(whole, 0)
            tensor.copy_(whole)


class _Place(ClusterEnvironment):
    """Where a process stands among those that were started here; Fabric starts none."""

    def __init__(self, rank: int, count: int, port: int) -> None:
        super().__init__()
        self._rank, self._count, self._port = rank, count, port

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return HOST

    @property
    def main_port(self) -> int:
        return self._port

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return self._count

    def set_world_size(self, size: int) -> None:
        pass

    def global_rank(self) -> int:
        return self._rank

    def set_global_rank(self, rank: int) -> None:
        pass

    def local_rank(self) -> int:
        return self._rank

    def node_rank(self) -> int:
        return 0


Work = Callable[["Together"], None]
"""What the other processes do; it and all that it holds must be picklable."""


@contextmanager
def several_processes(count: int, device_type: str, work: Work) -> Iterator[Together]:
    """Start `count` - 1 processes that do `work`, and be the first of them within the block.

    Raises:
        BenchError: one of the others failed; its own error stands above on the terminal.
    """
    port = _free_port()
    context = multiprocessing.get_context("spawn")
    others = [
        context.Process(target=_join, args=(work, rank, count, port, device_type), daemon=True)
        for rank in range(1, count)
    ]
    for process in others:
        process.start()
    try:
        yield Together(0, count, port, device_type)
        dist.destroy_process_group()  # on GPUs each process waits here for all others
        for process in others:
            process.join(JOIN_TIMEOUT_S)
    except RuntimeError as error:
        for process in others:
            process.join(1.0)
        if failed := [rank for rank, process in enumerate(others, 1) if process.exitcode]:
            shown = ", ".join(map(str, failed))
            raise BenchError(
                f"training process {shown} of {count} failed; its error stands above",
                "the same command continues from the last checkpoint; or leave --devices out",
            ) from error
        raise
    finally:
        for process in others:
            process.kill()
            process.join()
        if dist.is_initialized():
            _give_up(device_type)


def _join(work: Work, rank: int, count: int, port: int, device_type: str) -> None:
    """The life of another process, which ends with the first one's."""
    exit_with_parent()
    torch.set_num_threads(max(torch.get_num_threads() // count, 1))
    try:
        work(Together(rank, count, port, device_type))
        dist.destroy_process_group()
    except Exception:
        traceback.print_exc()
        os._exit(1)  # leaving in order would wait on GPUs for the others, who wait for this one


def _give_up(device_type: str) -> None:
    """Leave the others, who are gone: on GPUs, destroying the group in order would wait for them for ever."""
    if device_type == "cuda":
        dist.distributed_c10d._abort_process_group()
    else:
        dist.destroy_process_group()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind((HOST, 0))
        return int(listener.getsockname()[1])
