"""`bench doctor --gpu` and `pytest -m gpu`: whether a GPU gives the CPU's results, and how fast it is.

On a CPU the parts run at toy sizes, which tests the check itself.
"""

import copy
import json
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._autograd import DeviceType
from torch._C._distributed_c10d import HashStore
from torch.profiler import ProfilerActivity, profile

from harness.config.load import load_preset
from harness.config.schedule import Optimiser, Schedule, Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.pixels import hold
from harness.data.vocabulary import Vocabulary
from harness.inference.replay import Replayed, synchronisation_points
from harness.measure.environment import describe_environment
from harness.measure.inputs import batch_of, example_visual
from harness.measure.speed import median_seconds
from harness.training.distributed import Collective, Distributed
from harness.training.losses import BatchGradient
from harness.training.objectives import CrossEntropy, Objective
from harness.training.optimisers import make_optimiser
from harness.training.stage import StageData, make_objective
from harness.training.trainer import Trainer
from harness.utils.precision import autocast, set_products
from harness.utils.progress import silent
from zoo import Captioner, Visual, create_model, list_models, model_card
from zoo.captioner import VisualSpec
from zoo.decoding import Hypotheses, beam_search, greedy, sample

LOGITS, GRADIENT, HALF = 1e-3, 1e-2, 0.1
"""Largest relative distance to the CPU's results: of logits and gradients in fp32, and of logits in bf16."""
IMAGES, REGIONS, CHANNELS, WORDS, CAPTIONS = 3, 5, 6, 6, 2
PAPER = {"images": 32, "regions": 144, "channels": 1536, "length": 20, "captions": 5, "vocabulary": 10_000}
MEASURED = ("expansionnet_v2", "transformer_base", "updown", "image_transformer", "cgru", "x_lan", "x_transformer")
SELF_CRITICAL = {"objective": "self_critical", "self_critical": {"max_len": WORDS, "samples": CAPTIONS}}
_STAGE: dict[str, Any] = {"name": "check", "epochs": 1, "batch_size": IMAGES, "learning_rate": {"peak": 1e-3}}
_TOY = ("transformer_base", "updown")
_SEARCHES: dict[str, Callable[..., Hypotheses]] = {
    "beams": partial(beam_search, beam_size=3),
    "greedy": greedy,
    "samples": partial(sample, n=CAPTIONS),
}
_PAIR = partial(beam_search, beam_size=2)
_WORDS = Vocabulary(tuple(f"w{number}" for number in range(20)))


@dataclass(slots=True)
class Report:
    """The result of a part: "works", "differs", "failed" or "not run", with problems and numbers."""

    part: str
    about: str
    state: str = "works"
    seconds: float | None = None
    problems: list[str] = field(default_factory=list)
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Check:
    """The device that a part of the check runs on, and its report."""

    device: torch.device
    report: Report

    @property
    def full(self) -> bool:
        """Whether to use the sizes of papers, as on a GPU."""
        return self.device.type == "cuda"

    def expect(self, holds: bool, problem: str) -> None:
        """Report a problem unless a condition holds."""
        if not holds:
            self.report.problems.append(problem)


def compare_with_cpu(check: Check) -> None:
    """Every architecture equals the CPU in fp32 without TF32: logits, gradients, words; and is near it in bf16."""
    set_products(check.device, "fp32")
    for name in list_models() if check.full else _TOY:
        model = toy(name).eval()
        model_on_device = copy.deepcopy(model).to(check.device)
        batch = random_batch(model)
        batch_on_device = batch.to(check.device)
        expected = _passes(model, batch)
        computed = _passes(model_on_device, batch_on_device)
        distances = {part: _distance(computed[part], expected[part]) for part in ("logits", "gradient")}
        with torch.no_grad(), autocast(check.device, "bf16"):
            logits = model_on_device(batch_on_device.visual, batch_on_device.tokens)
        distances["bf16"] = _distance(logits, expected["logits"])
        check.report.numbers[name] = {part: float(f"{value:.2g}") for part, value in distances.items()}
        limits = {"logits": LOGITS, "gradient": GRADIENT, "bf16": HALF}
        for part, limit in limits.items():
            check.expect(
                distances[part] <= limit,
                f"{name}: {part} {distances[part]:.2g} from the processor's, more than {limit}",
            )
        for search in ("greedy", "beam"):
            same_words = torch.equal(computed[search].cpu(), expected[search])
            check.expect(same_words, f"{name}: other words by {search} search")


def count_waits(check: Check) -> None:
    """A training step never waits for the device; a search and a self-critical step wait once a word."""
    names = _families(check)
    if check.full:
        names += ["blip/small", "git/small", "vit_gpt2/small"]
    for name in names:
        model = toy(name).to(check.device).train()
        batch = random_batch(model)
        for kind, changes, max_waits in (("cross_entropy", {}, 0), ("self_critical", SELF_CRITICAL, WORDS + 2)):
            step = _step(model, batch.pinned() if check.full else batch, changes, check.device, replays=False)
            step()
            step()  # libraries initialise in the first two steps
            waits = _waits(step, check.device)
            check.report.numbers.setdefault(name, {})[kind] = len(waits)
            check.expect(len(waits) <= max_waits, f"{name}: a step of {kind} waits {_format_waits(waits)}")
        visual = batch.visual.to(check.device)
        waits = _waits(lambda: _search(model.eval(), visual), check.device)  # noqa: B023
        check.report.numbers[name]["beam search"] = len(waits)
        check.expect(len(waits) <= WORDS, f"{name}: a beam search waits {_format_waits(waits)}")


def speed(check: Check) -> None:
    """Speed of training steps and a beam search at papers' sizes: seconds, kernels, and how busy the device is."""
    size = PAPER if check.full else {**PAPER, "images": 2, "regions": 4, "channels": 8, "length": 3, "vocabulary": 50}
    words = Vocabulary(tuple(f"w{number}" for number in range(size["vocabulary"] - 4)))
    for name in MEASURED if check.full else _TOY:
        arguments = load_preset("matched-width").model_arguments(name) if check.full else model_card(name).tiny
        model = create_model(name, vocab_size=len(words), visual_dim=size["channels"], **arguments).to(check.device)
        batch = random_batch(
            model,
            words=words,
            images=size["images"],
            regions=size["regions"],
            captions=size["captions"],
            length=size["length"],
        )
        visual = batch.visual.to(check.device)
        images = size["images"]
        critical = {"objective": "self_critical", "self_critical": {"max_len": size["length"], "samples": 5}}
        search = partial(_search, search=partial(beam_search, beam_size=5), length=size["length"])
        tasks: dict[str, Callable[[], object]] = {
            "cross_entropy": _step(model.train(), batch, {}, check.device, words, replays=False),
            "self_critical": _step(model, batch, critical, check.device, words, replays=False),
            "beam search": lambda: search(model.eval(), visual),  # noqa: B023
        }
        if check.full:
            replay = Replayed(partial(search, model, early_stop=False), _unreplayed)
            tasks |= {
                "cross_entropy, replayed": _step(model, batch, {}, check.device, words),
                "self_critical, replayed": _step(model, batch, critical, check.device, words),
                "beam search, replayed": partial(replay, visual),
            }
        measured = check.report.numbers.setdefault(name, {})
        for kind, task in tasks.items():
            model.train(not kind.startswith("beam search"))
            seconds = median_seconds(task, check.device, 1.0 if check.full else 0.01)
            measured[kind] = {"seconds": seconds, "images_per_second": images / seconds} | _profiled(task, check.device)
    _extraction(check)


def replayed(check: Check) -> None:
    """Searches that are replayed as graphs give the same captions as without graphs, also after weights change."""
    for name in _families(check):
        model = toy(name).to(check.device).eval()
        for kind, search in _SEARCHES.items():

            def run_search(visual: Visual, *, early_stop: bool = False) -> tuple[Hypotheses]:
                return _search(model.eval(), visual, search, early_stop=early_stop)  # noqa: B023

            replay = Replayed(run_search, _unreplayed) if check.full else run_search
            different = 0
            for seed in range(4):  # eager, captured, replayed twice
                visual = random_batch(model, seed=seed).visual.to(check.device)
                torch.manual_seed(seed)
                (eager,) = run_search(visual, early_stop=kind != "samples")
                torch.manual_seed(seed)
                (replayed_captions,) = replay(visual)
                different += not torch.equal(eager.tokens, replayed_captions.tokens)
                with torch.no_grad():
                    for weight in model.parameters():
                        weight.mul_(1.01)
            check.report.numbers.setdefault(name, {})[kind] = different
            check.expect(not different, f"{name}: {different} of 4 batches get other words by {kind} when replayed")


def passes(check: Check) -> None:
    """Replayed passes give the same losses in training: with dropout, several shapes, micro-batches and rewards."""
    for name in _families(check):
        kinds: dict[str, dict[str, Any]] = {"cross_entropy": {}}
        if name in _TOY:
            kinds["self_critical"] = SELF_CRITICAL
        for kind, changes in kinds.items():
            losses = []
            for replays in (False, True):
                model = toy(name, dropout=0.1).to(check.device).train()
                torch.manual_seed(0)
                step = _step(model, random_batch(model), changes, check.device, precision="fp32", replays=replays)
                shapes = ((4, WORDS), (4, WORDS - 2), (1, WORDS))
                step_losses = []
                for index in range(12):
                    images, length = shapes[index % 3]
                    batch = random_batch(model, images=images, length=length, seed=index)
                    step_losses.append(step(batch, 1 + index // 9, read=True))
                losses.append(step_losses)
            distance = max(abs(a - b) / max(abs(a), 1.0) for a, b in zip(*losses, strict=True))
            check.report.numbers[f"{name} {kind}"] = float(f"{distance:.2g}")
            check.expect(distance <= LOGITS, f"{name}: losses of {kind} differ by {distance:.2g} when replayed")


def memory(check: Check) -> None:
    """Features held on the device equal those read; a batch that does not fit is split, with the same gradient."""
    model = toy("transformer_base", dropout=0.0).to(check.device).train()
    source = _Source(random_batch(model).visual)
    held = hold(source, range(IMAGES), model.visual, check.device, 1 << 30)
    assert held is not None
    on_device = held.visual([2, 0], model.visual).parts()
    for name, part in source.visual([2, 0], model.visual).parts().items():
        check.expect(torch.equal(on_device[name].cpu(), part), f"{name} on the device differ from those that are read")
    # A GPU's memory is allocated in blocks of megabytes, so that a limit needs a large batch.
    images, regions = (4096, PAPER["regions"]) if check.full else (8, REGIONS)
    batch = random_batch(model, images=images, regions=regions)
    expected, _ = _gradient(model, batch)
    with _less_memory(check, model, batch) as objective:
        gradient, parts = _gradient(model, batch, objective)
        distance = _distance(gradient, expected)
    check.report.numbers |= {"parts": parts, "gradient": distance}
    check.expect(parts > 1, "memory did not run out")
    check.expect(distance <= GRADIENT, f"the gradient of {parts} parts is {distance:.2g} from the whole batch's")


def collective(check: Check) -> None:
    """A group of one rank (NCCL on a GPU) gives the gradient of a single process."""
    model = toy("transformer_base", dropout=0.0).to(check.device).train()
    batch = random_batch(model)
    expected, _ = _gradient(model, batch)
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    try:
        gradient, _ = _gradient(model, batch, collective=Distributed(check.device.type))
        distance = _distance(gradient, expected)
        check.expect(distance == 0, f"the gradient of a group of one is {distance:.2g} from a process's")
    finally:
        dist.destroy_process_group()


def resume(check: Check) -> None:
    """A training that is interrupted and resumed ends with the same weights."""
    weights = []
    for cuts in ((), (1, 5)):  # batches after which the training is interrupted
        with tempfile.TemporaryDirectory() as folder:
            for cut in (*cuts, None):
                torch.manual_seed(0)
                trainer = _trainer(toy("transformer_base", dropout=0.1).to(check.device), Path(folder), cut, check)
                try:
                    trainer.fit()
                except _CutError:
                    continue
            weights.append(torch.cat([weight.detach().flatten() for weight in trainer.model.parameters()]))
    distance = _distance(*weights)
    check.report.numbers["weights"] = distance
    # A GPU may sum in another order; a lost or repeated step makes a much larger difference.
    limit = 1e-4 if check.full else 0.0
    check.expect(distance <= limit, f"weights are {distance:.2g} from those of an undisturbed training")


PARTS: dict[str, Callable[[Check], None]] = {
    "equal": compare_with_cpu,
    "waits": count_waits,
    "replayed": replayed,
    "passes": passes,
    "memory": memory,
    "collective": collective,
    "resume": resume,
    "speed": speed,
}


def run_part(part: str, device: str) -> Report:
    """Run one part in this process; an error is its result."""
    check_part = PARTS[part]
    report = Report(part, check_part.__doc__ or "")
    started = time.monotonic()
    try:
        check_part(Check(torch.device(device), report))
        report.state = "differs" if report.problems else "works"
    except Exception as error:  # the other parts still run
        report.state = "failed"
        report.problems += [f"{type(error).__name__}: {error}", traceback.format_exc()]
    report.seconds = round(time.monotonic() - started, 1)
    return report


def as_json(reports: Sequence[Report], device: str) -> str:
    """The environment and all reports as JSON."""
    content = {"environment": describe_environment(device), "parts": [asdict(report) for report in reports]}
    return json.dumps(content, indent=1) + "\n"


def _unreplayed(reason: str) -> None:
    raise RuntimeError(reason.strip())


def _families(check: Check) -> list[str]:
    return [name for name in list_models() if "/" not in name] if check.full else list(_TOY)


def toy(name: str, **changes: Any) -> Captioner:
    """A model at its tiny size, with the same weights every time."""
    torch.manual_seed(0)
    return create_model(name, vocab_size=len(_WORDS), visual_dim=CHANNELS, **{**model_card(name).tiny, **changes})


def random_batch(
    model: Captioner,
    *,
    images: int = IMAGES,
    regions: int = REGIONS,
    words: Vocabulary = _WORDS,
    captions: int = CAPTIONS,
    length: int = WORDS,
    seed: int = 0,
) -> Batch:
    """Random features and captions, on the CPU."""
    random = torch.Generator().manual_seed(seed)
    visual = batch_of(example_visual(model.visual, length=regions), images)
    for part in ("features", "grid", "pixels"):
        if (value := getattr(visual, part)) is not None:
            visual = replace(visual, **{part: torch.randn(value.shape, generator=random)})
    tokens = torch.randint(4, len(words), (images * captions, length + 1), generator=random)
    tokens[:, 0] = words.bos
    return Batch(visual, tokens, tuple(range(images)))


def _step(
    model: Captioner,
    first: Batch,
    changes: dict[str, Any],
    device: torch.device,
    words: Vocabulary = _WORDS,
    precision: str = "bf16",
    replays: bool = True,
) -> Callable[..., float]:
    """A training step with clipping and AdamW, which returns its loss; by default with the batch `first`."""
    stage = Stage.model_validate(_STAGE | changes)
    samples = [Sample(image, f"{image}.png", "train", ("w1 w2 w3 w4",)) for image in range(64)]
    gradient = BatchGradient(
        model,
        device,
        precision=precision,
        collective=Collective(),
        on_split=lambda _: None,
        note=_unreplayed,
        replays=replays,
    )
    widths = (stage.self_critical.max_len,) if replays and device.type == "cuda" else ()
    objective = make_objective(stage, model, samples, words, widths, _unreplayed)
    weights = list(model.parameters())
    optimiser = make_optimiser(model, Optimiser(name="adamw"))
    for group in optimiser.param_groups:
        group["lr"] = 1e-3

    def step(batch: Batch = first, parts: int = 1, *, read: bool = False) -> float:
        losses, _ = gradient(objective, weights, batch, 0, parts)
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)
        return float(sum(losses)) if read else 0.0

    return step


def _search(
    model: Captioner,
    visual: Visual,
    search: Callable[..., Hypotheses] = _PAIR,
    length: int = WORDS,
    early_stop: bool = True,
) -> tuple[Hypotheses]:
    limits = {"max_len": length, "bos": _WORDS.bos, "eos": _WORDS.eos, "early_stop": early_stop}
    with torch.no_grad(), autocast(next(model.parameters()).device, "bf16"):
        return (search(model, model.encode(visual), **limits),)


def _passes(model: Captioner, batch: Batch) -> dict[str, Tensor]:
    """Logits, the gradient of all weights, and the words of both searches."""
    search: Any = {"max_len": WORDS, "bos": _WORDS.bos, "eos": _WORDS.eos}
    on_cpu = replace(batch, visual=batch.visual.to("cpu"), tokens=batch.tokens.cpu())
    results = {"gradient": _gradient(model, on_cpu)[0]}
    with torch.no_grad():
        results["logits"] = model(batch.visual, batch.tokens)
        results["greedy"] = greedy(model, model.encode(batch.visual), **search).tokens
        results["beam"] = beam_search(model, model.encode(batch.visual), beam_size=3, **search).tokens
    return results


def _gradient(
    model: Captioner, batch: Batch, objective: Objective | None = None, collective: Collective | None = None
) -> tuple[Tensor, int]:
    """The gradient of a batch's cross-entropy as one vector, and the number of its passes."""
    weights = list(model.parameters())
    parts = [1]
    gradient = BatchGradient(
        model,
        weights[0].device,
        precision="fp32",
        collective=collective or Collective(),
        on_split=parts.append,
    )
    model.zero_grad(set_to_none=True)
    gradient(objective or CrossEntropy(Stage.model_validate(_STAGE), _WORDS.pad), weights, batch, 0, 1)
    flat = torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None])
    model.zero_grad(set_to_none=True)
    return flat, parts[-1]


def _distance(computed: Tensor, expected: Tensor) -> float:
    """The distance of two tensors relative to the norm of the second; infinite if the first is not finite."""
    computed = computed.detach().double().cpu()
    expected = expected.detach().double().cpu()
    if not computed.isfinite().all():
        return float("inf")
    return float((computed - expected).norm() / expected.norm().clamp_min(1e-30))


def _waits(call: Callable[[], object], device: torch.device) -> list[str]:
    """The locations in the code where a call waits for the device; empty on a CPU."""
    if device.type != "cuda":
        call()
        return []
    torch.cuda.synchronize(device)
    return synchronisation_points(call)


def _format_waits(waits: list[str]) -> str:
    return ", ".join(f"{count} times at {location}" for location, count in Counter(waits).most_common())


def _profiled(call: Callable[[], object], device: torch.device) -> dict[str, float | None]:
    """The number of kernels of a call, and the share of its time that the device is busy; None on a CPU."""
    if device.type != "cuda":
        call()
        return {"kernels": None, "device_busy": None}
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        started = time.perf_counter()
        call()
        torch.cuda.synchronize(device)
        seconds = time.perf_counter() - started
    kernels = [event for event in profiled.events() if event.device_type == DeviceType.CUDA]
    busy = sum(event.time_range.elapsed_us() for event in kernels) / 1e6
    return {"kernels": len(kernels), "device_busy": busy / seconds}


def _extraction(check: Check) -> None:
    """Images a second through a backbone of random weights, in fp32 and bf16."""
    import timm

    name, side, images = ("swin_large_patch4_window12_384", 384, 32) if check.full else ("test_resnet", 64, 2)
    backbone = timm.create_model(name, pretrained=False).to(check.device).eval()
    pixels = torch.rand(images, 3, side, side, device=check.device)
    for precision in ("fp32", "bf16"):
        with torch.no_grad(), autocast(check.device, precision):
            seconds = median_seconds(lambda: backbone(pixels), check.device, 1.0 if check.full else 0.01)
        check.report.numbers[f"{name} {precision}"] = {"images_per_second": images / seconds}


@dataclass(frozen=True, slots=True)
class _Source:
    """Features of images by their number."""

    all_images: Visual

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:  # noqa: ARG002  # of one spec
        return Visual(**{name: part[list(image_ids)] for name, part in self.all_images.parts().items()})


@contextmanager
def _less_memory(check: Check, model: Captioner, batch: Batch) -> Iterator[Objective | None]:
    """Within the block, a quarter of the batch fits the memory but not all: by a limit of the GPU, or an objective."""
    if check.full:
        peaks = []
        for part in (batch, batch.split(4)[0]):
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
            _gradient(model, part)
            peaks.append(torch.cuda.max_memory_reserved())
        torch.cuda.empty_cache()
        total = torch.cuda.get_device_properties(check.device).total_memory
        torch.cuda.set_per_process_memory_fraction(sum(peaks) / 2 / total)
        try:
            yield None
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
    else:
        yield _Small(Stage.model_validate(_STAGE), _WORDS.pad)


class _Small(CrossEntropy):
    """Cross-entropy with memory for at most two images."""

    def __call__(self, model: Captioner, batch: Batch, epoch: int = 0) -> Tensor:
        """See `CrossEntropy`; out of memory for three images or more."""
        if len(batch.image_ids) > 2:
            raise torch.OutOfMemoryError("the check's own limit")
        return super().__call__(model, batch, epoch)


class _CutError(Exception):
    """The training is interrupted."""


class _Batches:
    """Four batches an epoch; training is interrupted after `cut` batches."""

    def __init__(self, model: Captioner, cut: int | None) -> None:
        self._model = model
        self._cut = cut
        self._count = 0

    def __len__(self) -> int:
        return 4

    def epoch(self, number: int, start: int = 0) -> Iterator[Batch]:
        for index in range(start, len(self)):
            if self._count == self._cut:
                raise _CutError
            self._count += 1
            yield random_batch(self._model, seed=4 * number + index)


def _trainer(model: Captioner, folder: Path, cut: int | None, check: Check) -> Trainer:
    stage = _STAGE | {"epochs": 3, "learning_rate": {"peak": 0.01}, "dropout": 0.1}
    batches: Any = _Batches(model, cut)
    return Trainer(
        model,
        Schedule.model_validate({"name": "check", "summary": "check", "stages": [stage]}),
        stage_data=lambda stage: StageData(batches, CrossEntropy(stage, _WORDS.pad), lambda: float(batches._count)),
        folder=folder,
        device=check.device,
        precision="fp32",
        seed=0,
        on_epoch=lambda _: None,
        reporter=silent(),
    )
