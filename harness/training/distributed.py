"""The processes that train one model together, through torch.distributed.

All processes join one group for control messages by the environment (`env://`: RANK, WORLD_SIZE, MASTER_ADDR,
MASTER_PORT), so that torchrun, srun and Ray can start them on one host or on several. Rank 0 runs the benchmark: it
plans, stores, captions, scores and reports. The other ranks only take part in its trainings. Each training has its own
groups, and at its end each rank reports its failure, if any. A failure on any rank therefore fails only this model, and
the next training begins with new groups.

`DistributedDataParallel` is not used. It averages the processes' gradients, but a batch's loss is a mean over words, of
which ranks have unequal numbers, and it hooks only into `forward`, where objectives also call `encode` and `step`.
Gradients, weighted by words, are summed after the backward pass instead, so that N devices make the step that one
device would make.

Only weights and gradients go from GPU to GPU (NCCL). Everything else goes through Gloo on the CPUs: it waits for no
GPU, notices the end of a process at once, and a long validation on rank 0 does not time out.
"""

import gc
import os
import signal
import socket
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Self, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.rendezvous import rendezvous
from torch.nn import Parameter

from harness.utils.errors import BenchError, ProcessLostError, of_the_device
from harness.utils.plugins import contain_exits
from harness.utils.processes import end_workers, make_worker, starting_worker
from zoo.errors import first_line

T = TypeVar("T")
CONTROL_TIMEOUT = timedelta(days=7)
"""How long rank 0 may validate, extract features or score while the other ranks wait."""
GRADIENT_TIMEOUT = timedelta(minutes=30)
JOIN_TIMEOUT = timedelta(minutes=10)  # how long the processes of a launch wait for each other when they start
BUCKET_BYTES = 32 * 2**20
"""Of gradients that are summed in one all-reduce: enough that starting it counts for little."""
Work = Callable[["Distributed"], object]


class Collective:
    """Communication between the ranks of a training, here of a single one; all ranks call the same methods in order."""

    rank: int = 0
    world_size: int = 1

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """The sums of every rank's values."""
        return list(values)

    def all_reduce_gradients(self, parameters: Iterable[Parameter]) -> None:
        """Replace each gradient that any rank has by the sum over all ranks."""

    def broadcast(self, value: T) -> T:
        """Rank 0's value, plain data."""
        return value

    def all_gather(self, value: T) -> list[T]:
        """Each rank's value, plain data."""
        return [value]

    def broadcast_weights(self, model: nn.Module) -> None:
        """Copy the weights of rank 0 to every rank."""


class PeerFailedError(Exception):
    """A collective failed because another rank left the training."""


class Distributed(Collective):
    """One rank of a training of several processes; to be constructed on every rank at the same time.

    Raises:
        PeerFailedError: from any method, if another rank left the training.
    """

    def __init__(self, device_type: str) -> None:
        self.device = _local_device(device_type)
        self.rank = dist.get_rank()
        self.world_size = dist.get_world_size()
        self._control = new_group("gloo", CONTROL_TIMEOUT)
        self._tensors = new_group("nccl", GRADIENT_TIMEOUT) if device_type == "cuda" else self._control
        dist.barrier(self._control)  # otherwise a rank that fails at once disconnects those that are still connecting

    def all_reduce_sum(self, values: Sequence[float]) -> list[float]:
        """See `Collective.all_reduce_sum`; in double precision."""
        summed = torch.tensor(values, dtype=torch.float64)
        with _peer_errors():
            dist.all_reduce(summed, group=self._control)
        return summed.tolist()

    def all_reduce_gradients(self, parameters: Iterable[Parameter]) -> None:
        """See `Collective.all_reduce_gradients`; gradients are bucketed, and all buckets are in flight together.

        With two ranks, sums equal those of an all-reduce for each gradient. With more, the order of summation depends
        on the position in the bucket, which is the same at every step.
        """
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        holders = self.all_reduce_sum([float(parameter.grad is not None) for parameter in trained])
        held = [parameter for parameter, count in zip(trained, holders, strict=True) if count]
        with _peer_errors():
            in_flight = []
            for bucket in buckets_of(held):
                gradients = [
                    torch.zeros_like(parameter) if parameter.grad is None else parameter.grad for parameter in bucket
                ]
                flat = torch.cat([gradient.flatten() for gradient in gradients])
                sizes = [parameter.numel() for parameter in bucket]
                for parameter, part in zip(bucket, torch.split(flat, sizes), strict=True):
                    parameter.grad = part.view(parameter.shape)
                in_flight.append(dist.all_reduce(flat, group=self._tensors, async_op=True))
            for work in in_flight:
                assert work is not None
                work.wait()

    def broadcast(self, value: T) -> T:
        box = [value]
        with _peer_errors():
            dist.broadcast_object_list(box, 0, group=self._control)
        return box[0]

    def all_gather(self, value: T) -> list[T]:
        values: list[T] = [value] * self.world_size
        with _peer_errors():
            dist.all_gather_object(values, value, group=self._control)
        return values

    def broadcast_weights(self, model: nn.Module) -> None:
        self.all_reduce_sum([0.0])  # a rank that failed is noticed here; on GPUs, NCCL would wait for it
        for tensor in model.state_dict().values():
            contiguous = tensor.contiguous()
            with _peer_errors():
                dist.broadcast(contiguous, 0, group=self._tensors)
            tensor.copy_(contiguous)

    def close(self, abort: bool = False) -> None:
        """Leave the training's groups; `abort` does not wait for the other ranks, which raise `PeerFailedError`."""
        control = self._control
        tensors = self._tensors
        del self._control, self._tensors
        if tensors is not control:
            if abort:
                dist.distributed_c10d._abort_process_group(tensors)  # destroying it in order waits for the others
            else:
                dist.destroy_process_group(tensors)
        dist.destroy_process_group(control)
        del control, tensors
        gc.collect()  # Gloo closes its connections, which the others notice, with the last reference to the group


def buckets_of(parameters: Iterable[Parameter]) -> Iterator[list[Parameter]]:
    """Group consecutive parameters of one type into buckets of at least `BUCKET_BYTES`; the last may be smaller."""
    bucket: list[Parameter] = []
    size = 0
    for parameter in parameters:
        if bucket and (size >= BUCKET_BYTES or parameter.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
            size = 0
        bucket.append(parameter)
        size += parameter.nbytes
    if bucket:
        yield bucket


def new_group(backend: str, timeout: timedelta) -> dist.ProcessGroup:
    """Create a group of all ranks; every rank must call this at the same time."""
    group = dist.new_group(backend=backend, timeout=timeout)
    assert isinstance(group, dist.ProcessGroup)
    return group


def _local_device(device_type: str) -> torch.device:
    """This rank's device on its host; a GPU becomes torch's current device."""
    if device_type != "cuda":
        return torch.device(device_type)
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    torch.cuda.set_device(device)
    return device


@contextmanager
def _peer_errors() -> Iterator[None]:
    """Raise the error of a collective whose connection ended as `PeerFailedError`."""
    try:
        yield
    except RuntimeError as error:
        if of_the_device(error):
            raise
        raise PeerFailedError(str(error)) from error


@dataclass(frozen=True, slots=True)
class _Failure:
    """Why a rank left a training; sent to the others."""

    reason: str
    hint: str | None
    trace: str

    @classmethod
    def of(cls, error: Exception) -> Self:
        """Describe an exception."""
        reason = str(error) if isinstance(error, BenchError) else f"{type(error).__name__}: {first_line(error)}"
        return cls(reason, getattr(error, "hint", None), "".join(traceback.format_exception(error)))


@contextmanager
def joined() -> Iterator[None]:
    """Within the block, this process is a member of the process group that the environment describes.

    Raises:
        BenchError: not all processes joined, or a variable is missing.
    """
    try:
        store, rank, world_size = next(rendezvous("env://", timeout=JOIN_TIMEOUT))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world_size, timeout=CONTROL_TIMEOUT)
    except (ValueError, RuntimeError) as error:
        raise BenchError(
            f"the {os.environ['WORLD_SIZE']} processes of this launch did not all join: {first_line(error)}",
            "start all of them with MASTER_ADDR and MASTER_PORT of rank 0's host (torchrun sets both), or unset "
            "RANK and WORLD_SIZE to train in one process",
        ) from error
    try:
        yield
    finally:
        dist.destroy_process_group()


def end_work() -> None:
    """On rank 0: tell the other ranks that there is no further training."""
    _broadcast_work(None)


@contextmanager
def start_training(work: Work, device_type: str, world_size: int) -> Iterator[Distributed]:
    """On rank 0: have the other ranks do `work`, and be the first of them within the block.

    Raises:
        BenchError: another rank failed, or the launch has another number of processes.
        ProcessLostError: another process has ended; no further training is possible.
    """
    if not dist.is_initialized() or dist.get_world_size() != world_size:
        raise BenchError(
            f"{world_size} devices need {world_size} processes that were started together",
            f"type bench run --devices {world_size}, or torchrun --nproc-per-node {world_size} -m harness.cli run",
        )
    _broadcast_work((work, device_type))
    with _training(device_type) as collective:
        yield collective


def serve() -> None:
    """On every other rank: do this rank's work in each training of rank 0, until there are no more.

    A training that fails here fails on rank 0, which reports it.

    Raises:
        ProcessLostError: another process has ended.
    """
    torch.set_num_threads(max(torch.get_num_threads() // int(os.environ.get("LOCAL_WORLD_SIZE", "1")), 1))
    while (assignment := _broadcast_work(None)) is not None:
        work, device_type = assignment
        try:
            with _training(device_type) as collective:
                work(collective)
        except Exception:  # `_training` has sent it to rank 0
            continue


@contextmanager
def _training(device_type: str) -> Iterator[Distributed]:
    """The collectives of one training; at its end, each rank sends the others its failure, or None."""
    try:
        collective = Distributed(device_type)
    except Exception as error:  # the other ranks wait for this one, and notice only its end
        raise ProcessLostError(f"a rank cannot train on {device_type}: {first_line(error)}") from error
    try:
        with contain_exits():
            yield collective
    except Exception as error:
        failure = None if isinstance(error, PeerFailedError) else _Failure.of(error)
        _clear_frames(error)  # they hold the group, whose connections close with the last reference to it
        collective.close(abort=True)
        failures = _exchange(failure)
        if failure is not None or dist.get_rank():
            raise
        raise _peer_error(failures, error) from error
    except BaseException:  # this process is about to end, and the others with it
        collective.close(abort=True)
        raise
    failures = _exchange(None)
    collective.close(abort=any(failures))


def _broadcast_work(assignment: tuple[Work, str] | None) -> tuple[Work, str] | None:
    """Send rank 0's next function to call and its type of device to all ranks; None: no further training."""
    box = [assignment]
    with _process_errors():
        dist.broadcast_object_list(box, 0)
    return box[0]


def _exchange(failure: _Failure | None) -> list[_Failure | None]:
    """The failure of each rank, or None."""
    failures = [failure] * dist.get_world_size()
    with _process_errors():
        dist.all_gather_object(failures, failure)
    return failures


def _peer_error(failures: Sequence[_Failure | None], error: Exception) -> BenchError:
    """The error of rank 0 for a training that failed on another rank; that traceback becomes the cause of `error`."""
    for rank, failure in enumerate(failures):
        if failure is not None:
            error.__cause__ = PeerFailedError(f"on rank {rank}:\n{failure.trace}")
            message = f"training process {rank} of {len(failures)} failed: {failure.reason}"
            return BenchError(message, failure.hint or "the same command continues from the last checkpoint")
    return BenchError(
        f"the connection between the {len(failures)} training processes failed: {first_line(error)}",
        "the same command continues from the last checkpoint",
    )


def _clear_frames(error: BaseException | None) -> None:
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__


@contextmanager
def _process_errors() -> Iterator[None]:
    """Raise the error of a broken connection to another process as `ProcessLostError`."""
    try:
        yield
    except RuntimeError as error:
        raise ProcessLostError(first_line(error)) from error


@contextmanager
def other_ranks(count: int) -> Iterator[None]:
    """Within the block, this process is rank 0 of `count` processes of this host; the others are started here.

    They join by the environment, as with torchrun, and are ended with this process.

    Raises:
        BenchError: not all processes joined.
        ProcessLostError: within the block, if one of them has ended; no further training is possible.
    """
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    shared = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    previous = {name: os.environ.get(name) for name in (*shared, "RANK", "LOCAL_RANK")}
    target = f"{__name__}:serve_as"
    threads = torch.get_num_threads()
    processes = []
    lost: ProcessLostError | None = None
    try:
        with starting_worker():
            for rank in range(1, count):
                process = make_worker(target, rank, shared, threads)
                process.start()
                processes.append(process)
        os.environ.update(shared, RANK="0", LOCAL_RANK="0")
        with joined():
            yield
            end_work()
        for process in processes:
            process.join()
    except ProcessLostError as error:
        lost = error
    finally:
        end_workers(processes)
        for name, value in previous.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
    if lost is not None:
        for rank, code in enumerate((process.exitcode for process in processes), 1):
            if code and code != -signal.SIGTERM:  # SIGTERM: `end_workers` ended it
                ending = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
                raise ProcessLostError(f"training process {rank} of {count} {ending}") from lost
        raise ProcessLostError(str(lost)) from lost


def serve_as(rank: int, shared: Mapping[str, str], threads: int) -> None:
    """In a separate process: take part in the trainings of rank 0, which computes with `threads` threads."""
    os.environ.update(shared, RANK=str(rank), LOCAL_RANK=str(rank))
    torch.set_num_threads(threads)
    with suppress(ProcessLostError), joined():  # rank 0 reports it, or is the lost process
        serve()
