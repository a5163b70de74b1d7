"""Latency and throughput of captioning a batch, on a given number of threads."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle

import torch

from harness.measure.cpu_contention import OtherLoad
from harness.measure.model_modes import eval_mode
from harness.measure.timings import MIN_RUNS, Timing
from harness.utils.errors import BenchError
from harness.utils.precision import autocast
from results.records import Quantity
from zoo.captioner import Captioner, Visual
from zoo.decoding import beam_search

COSTS = {
    "latency_median": "s",
    "latency_iqr": "s",
    "latency_margin": "s",
    "latency_throughput": "images/s",
    "latency_batch": "images",
    "latency_threads": "threads",
    "latency_repeats": "runs",
    "latency_images": "images",
    "latency_noisy": "",
}
"""Names of the stored costs, with units."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Timed captioning; `noise` lists the reasons why it is unreliable, one sentence each."""

    timing: Timing
    batch: int
    threads: int
    noise: tuple[str, ...]

    def quantities(self) -> dict[str, Quantity]:
        """The costs of `COSTS`.

        The median has its quartiles as bounds; `latency_margin` is how far the median of another run may lie,
        `latency_throughput` images a second at the median, `latency_noisy` 1 where there is noise and 0 elsewhere,
        `latency_repeats` all timed runs, `latency_images` the different images (or batches of copies) among them.
        """
        timing = self.timing
        low, high = timing.quartiles
        margin = Quantity(timing.margin) if timing.margin is not None else Quantity(None, _FEW)
        values = {
            "latency_median": Quantity(timing.median, low=low, high=high),
            "latency_iqr": Quantity(high - low),
            "latency_margin": margin,
            "latency_throughput": Quantity(self.batch / timing.median, low=self.batch / high, high=self.batch / low),
            "latency_batch": Quantity(float(self.batch)),
            "latency_threads": Quantity(float(self.threads)),
            "latency_repeats": Quantity(float(len(timing.seconds))),
            "latency_images": Quantity(float(timing.pieces)),
            "latency_noisy": Quantity(float(bool(self.noise))),
        }
        return {
            name: Quantity(value.value, value.reason, COSTS[name], value.low, value.high)
            for name, value in values.items()
        }


def missing_latency(reason: str) -> dict[str, Quantity]:
    """NULL for every cost of `COSTS`."""
    return {name: Quantity(None, reason, unit) for name, unit in COSTS.items()}


_FEW = f"fewer than {MIN_RUNS} timed runs"


def measure_latency(
    model: Captioner,
    visuals: Sequence[Visual],
    *,
    beam_size: int,
    max_len: int,
    bos: int = 1,
    eos: int = 2,
    repeats: int = 30,
    warmup: int | None = None,
    threads: int | None = None,
    precision: str = "fp32",
    full_length: bool = False,
) -> Latency:
    """Time encoding and beam search of batches in turn, from features on the model's device to finished tokens.

    Args:
        model: left as it was found, training flags included.
        visuals: the batches, of one size; batches of 1 give the latency of a single image.
        beam_size: 1 is greedy.
        max_len: tokens generated at most; captions that end early take less time.
        repeats: how often each batch is timed, round after round.
        warmup: untimed runs before; unless given, a tenth of the repeats or of the batches, whichever are more.
        threads: torch's intra-op threads; None keeps the current number. Reported either way.
        precision: of `harness.utils.precision.autocast`.
        full_length: never generate `eos`, so that all captions are `max_len` long, whatever the weights.

    Raises:
        BenchError: `repeats` is below 2.
    """
    device, count = next(model.parameters()).device, len(visuals)
    seen = [visual.to(device) for visual in visuals]
    caption = captioning(model, seen, beam_size=beam_size, max_len=max_len, bos=bos, eos=eos, full_length=full_length)
    with eval_mode(model), autocast(device, precision):
        return time_work(
            caption, count, device, batch=seen[0].batch_size, repeats=repeats, warmup=warmup, threads=threads
        )


def time_work(
    caption: Callable[[], None],
    count: int,
    device: torch.device,
    *,
    batch: int,
    repeats: int,
    warmup: int | None = None,
    threads: int | None = None,
) -> Latency:
    """Time captioning of `count` batches in turn.

    Args:
        caption: captions the next batch, of `batch` images.
        repeats, warmup, threads: as in `measure_latency`.

    Raises:
        BenchError: `repeats` is below 2.
    """
    if repeats < 2:
        raise BenchError(f"{repeats} timed runs have no spread", hint="time at least 2 runs")
    with torch.inference_mode(), _threads(threads) as used_threads, OtherLoad() as load:
        for _ in range(max(repeats // 10, count // 10, 1) if warmup is None else warmup):
            caption()
        seconds = tuple(seconds_of(caption, device) for _ in range(repeats * count))
    timing = Timing(seconds, count)
    return Latency(timing, batch, used_threads, (*timing.noise(), *load.noise()))


def captioning(
    model: Captioner, visuals: Sequence[Visual], *, beam_size: int, max_len: int, bos: int, eos: int, full_length: bool
) -> Callable[[], None]:
    """The measured work: captioning the next batch, on the model's device; arguments as in `measure_latency`."""
    banned, turns = ((eos,) if full_length else ()), cycle(visuals)

    def caption() -> None:
        memory = model.encode(next(turns))
        beam_search(model, memory, beam_size=beam_size, max_len=max_len, bos=bos, eos=eos, banned=banned)

    return caption


def seconds_of(work: Callable[[], None], device: torch.device) -> float:
    """Time one call: by CUDA events on a CUDA device, by the clock elsewhere."""
    if device.type != "cuda":
        begin = time.perf_counter()
        work()
        return time.perf_counter() - begin
    with torch.cuda.device(device):
        started, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        started.record()
        work()
        ended.record()
        torch.cuda.synchronize()
    return float(started.elapsed_time(ended)) / 1000


@contextmanager
def _threads(wanted: int | None) -> Iterator[int]:
    """Set torch's intra-op threads within a block; gives their number."""
    before = torch.get_num_threads()
    torch.set_num_threads(wanted or before)
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(before)
