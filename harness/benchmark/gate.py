"""What the regression gate records: the first steps of training, what stored weights say, metrics, and what is seen.

All of it is deterministic up to rounding, and judged by `results.comparison.recording`. Data are a small embedded set.
How much rounding changes each number is measured where a baseline is made: everything is recorded again with weights
moved by a rounding, which every instruction set, number of threads and release of torch does in its own way.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor

import harness
from harness.benchmark.context import RunContext, open_context
from harness.benchmark.models import build_model, check_captioner, model_arguments
from harness.benchmark.rows import RequestedModel, graph_kinds, resolve_models
from harness.benchmark.scoring import score_people, score_split
from harness.benchmark.train import train_model
from harness.config.features import FeatureConfig
from harness.config.load import load_preset
from harness.config.preset import Preset
from harness.config.run import Conditions, RunData
from harness.config.schedule import Stage
from harness.data.backbones.scenesnet import ScenesNet
from harness.data.batches import pad_rows
from harness.data.images import ImagePreprocessing, load_image
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.inference.generate import caption_images
from harness.key import built_with
from harness.measure.environment import describe_environment
from harness.metrics.evaluator import Evaluator
from harness.metrics.ptb import tokenize_ptb
from harness.training.checkpoint import load_weights
from harness.training.losses import StepLoss
from harness.training.self_critical import CaptionRewards
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter, silent
from harness.utils.workspace import Workspace
from results.comparison.recording import RUNS, Layer, Recording, Request, Series, series
from results.records import SplitResult
from zoo import Captioner
from zoo.captioner import VisualSpec
from zoo.decoding import sample

SCENES: Final = ScenesConfig(train=300, val=20, test=60, nocaps_per_domain=4)
STEPS: Final = 16  # an epoch has 10, so that its smaller last batch and the next order are among them
REPLICAS: Final = 6
ONE_ROUNDING = 2.0**-23
MANY_ROUNDINGS = 1e-5
"""What weights are moved by, relative to each, to measure tolerances of numbers (and by twice as much for each further
replica, since rounding adds up), and to find what captions hang on."""
SEED: Final = 0
_STARTS: Final = 3e-6
_LOGITS: Final = 1e-5
_FEATURES: Final = 1e-4  # features are kept in half precision, whose last bit may turn
_PIXELS: Final = 1e-6
_SCORE: Final = 1e-5
_POINTS: Final = 1e-3
"""What may differ in any case: relative to the largest number of a series, and of scores absolute, as fractions."""
_WRITTEN: Final = (
    "A man's dog -- 3 of them, U.S. -- doesn't run...",
    "Two RED circles (large) above a blue square.",
    "a photo-realistic cat, seen from above; it cannot move!",
    'The "old" man\'s hat costs $3.50 & up.',
)
"""Captions that the tokenizer has to do something about, each a reference of the others too."""


class _EnoughError(Exception):
    """Raised after the steps that are recorded."""


@dataclass(frozen=True)
class Gate:
    """The models of a request, and what is opened for them."""

    request: Request
    preset: Preset
    models: tuple[RequestedModel, ...]
    context: RunContext

    @classmethod
    def open(cls, request: Request, workspace: Workspace, reporter: Reporter) -> Self:
        """Draw the embedded images and extract their features into the workspace's cache; plug-ins are loaded."""
        preset = load_preset(request.preset, request.changes)
        models = resolve_models(request.models, workspace)
        for model in models:
            if model.kind != "trained":
                raise BenchError(f"{model.name} is not trained: there are no first steps of it", "name models alone")
        workspace.create()
        described = RunData(
            sees=tuple(sorted({model.visual for model in models})), graphs=tuple(sorted(graph_kinds(models)))
        )
        data = str(prepare_scenes(workspace.cache, SCENES))
        conditions = Conditions.of_inputs(data, None, FeatureConfig(), described=described, preset=preset)
        return cls(request, preset, tuple(models), open_context(conditions, workspace, reporter))

    def build(self, model: str) -> Captioner:
        """A model as it begins."""
        torch.manual_seed(SEED)
        sizes = self.context.sizes
        backbone = self.context.data.backbone
        arguments = model_arguments(model, self.preset.model_arguments(model, **sizes), backbone)
        built = build_model(model, arguments, backbone=backbone, **sizes)
        check_captioner(model, built, self.context)
        return built

    def under(self, *stages: Stage) -> RunContext:
        """The context of a training through these stages alone."""
        schedule = self.preset.schedule.model_copy(update={"stages": stages})
        return replace(self.context, preset=self.preset.model_copy(update={"schedule": schedule}))


def train_weights(gate: Gate, folder: Path, reporter: Reporter) -> None:
    """Train each model through the first stage, and keep its weights in `folder`, in half precision."""
    for model in gate.models:
        reporter.note(f"{model.name}: training the weights that it will caption with")
        trained = gate.build(model.name)
        with tempfile.TemporaryDirectory() as scratch:
            train_model(
                trained, SEED, gate.under(gate.preset.schedule.stages[0]), Path(scratch), lambda _: None, silent()
            )
        halves = {
            name: (value.half() if value.is_floating_point() else value).contiguous()
            for name, value in trained.state_dict().items()
        }
        with replacing(weights_of(folder, model.name)) as temporary:
            save_file(halves, temporary)


def weights_of(folder: Path, model: str) -> Path:
    """The file of a model's weights in a baseline's folder."""
    return folder / f"{model.replace('/', '.').replace(':', '.')}.safetensors"


def record(gate: Gate, folder: Path, reporter: Reporter, expected: Recording | None = None) -> Recording:
    """Record the code as it is, with the weights of `folder`; stored captions of `expected` are scored again.

    Without `expected` tolerances are measured, too, and what cannot be run is raised; with it that is a finding.
    """
    recording: list[Series] = [_settings(gate), *_data(gate)]
    platform = describe_environment("cpu")
    with Evaluator() as evaluator:
        texts = [
            caption for samples in gate.context.data.evaluated.values() for item in samples for caption in item.captions
        ]
        evaluator.warm_up([*texts, *_WRITTEN], ())
        for model in gate.models:
            reporter.note(f"{model.name}: inference and first steps")
            recorder = _Recorder(gate, model.name, weights_of(folder, model.name), evaluator)
            recording += recorder.measured() if expected is None else recorder.attempted(expected)
        recording += _metrics(gate, evaluator)
    commit = str(platform["commit"] or "")
    return Recording(
        request=gate.request,
        code=f"{harness.__version__} {commit[:12]}{'-dirty' if commit.endswith('-dirty') else ''}".strip(),
        platform={
            **{name: str(platform["packages"][name]) for name in ("torch", "numpy")},
            **{name: str(platform[name]) for name in ("python", "machine", "cpu")},
            "instructions": torch.backends.cpu.get_cpu_capability(),
        },
        series=tuple(recording),
    )


def widest_tolerance(recording: Recording) -> Iterator[str]:
    """Of each model's stages what rounding allows its loss at the last step, relative to it."""
    for recorded in recording.series:
        if recorded.layer == "first_steps" and recorded.quantity.endswith(": loss"):
            largest = max(abs(float(value)) for value in recorded.values)
            allowed = f"{recorded.tolerance[-1] / largest:.0e} at step {recorded.positions[-1]}"
            yield f"{recorded.model}, {recorded.quantity}: rounding allows {allowed}"


def _settings(gate: Gate) -> Series:
    settings: dict[str, Any] = {
        "preset": gate.preset.model_dump(mode="json"),
        "images": FeatureConfig().model_dump(mode="json"),
    }
    for model in gate.models:
        settings[model.name] = built_with(model.name, gate.preset.model_arguments(model.name, **gate.context.sizes))
    likely = ("harness/config/", "zoo/cards/")
    return series("settings", "", "settings", "setting", dict(_leaves(settings, "")), likely)


def _leaves(value: object, path: str) -> Iterator[tuple[str, str]]:
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
    if parts is None:
        yield path, str(value)
        return
    for name, nested in parts:
        yield from _leaves(nested, f"{path}.{name}".lstrip("."))


def _data(gate: Gate) -> Iterator[Series]:
    """What is seen and read, before any model: captions, words, pixels and features."""
    data = gate.context.data
    vocabulary = gate.context.inputs.vocabulary
    text = partial(series, "data", "", likely=("harness/data/",))
    yield text("fingerprint of the images", "data set", {"scenes": data.dataset.fingerprint})
    yield text("words of the vocabulary", "number", {str(index): word for index, word in enumerate(vocabulary.words)})
    tokens = zip(map(vocabulary.tokenize, _WRITTEN), tokenize_ptb(_WRITTEN), strict=True)
    written = {str(index): f"{vocabulary_words} {theirs}" for index, (vocabulary_words, theirs) in enumerate(tokens)}
    yield text("words of written captions", "caption", written)
    samples = [*data.evaluated["test"][:6], *data.train[:6]]
    pictures = [load_image(data.dataset.path(sample)) for sample in samples[:3]]
    pixels = {
        f"{index} {resize} {interpolation}": _pixels(ImagePreprocessing((40, 56), resize, interpolation), picture)
        for resize in ("squash", "shortest-centre-crop")
        for interpolation in ("bilinear", "bicubic")
        for index, picture in enumerate(pictures)
    }
    yield text("pixels", "image", pixels, rounding=_PIXELS)
    network = ScenesNet()
    feature_maps = [network(torch.from_numpy(network.preprocessing(picture)[None])) for picture in pictures]
    cells = {str(index): _mean_projected(values) for index, values in enumerate(feature_maps)}
    yield text("cells of scenesnet", "image", cells, rounding=_LOGITS)
    if data.features is not None:
        spec = VisualSpec("grid", data.visual_dim)
        ids = [sample.image_id for sample in samples]
        features = {
            str(image): torch.as_tensor(data.features.visual([image], spec).to("cpu").features) for image in ids
        }
        projected = {image: _mean_projected(values) for image, values in features.items()}
        yield text("features", "image", projected, rounding=_FEATURES)
        norms = {image: float(values.norm()) for image, values in features.items()}
        yield text("norm of features", "image", norms, rounding=_FEATURES)


def _pixels(preprocessing: ImagePreprocessing, picture: Image.Image) -> float:
    pixels = torch.from_numpy(preprocessing(picture)).double()
    return float(pixels.mean() + pixels.std()) + _mean_projected(pixels)


def _projected(values: Tensor) -> float:
    """A fixed weighted sum, in which no place can stand for another."""
    return float(values.double() @ torch.cos(torch.arange(values.numel(), dtype=torch.float64) ** 2))


def _mean_projected(values: Tensor) -> float:
    return _projected(values.flatten()) / math.sqrt(values.numel())


def _metrics(gate: Gate, evaluator: Evaluator) -> Iterator[Series]:
    """Scores of captions that people wrote."""
    likely = ("harness/metrics/", "harness/benchmark/scoring.py", "results/statistics/")
    for split in gate.context.data.evaluated:
        result, _ = score_people(split, gate.context.data, evaluator)
        yield series("metrics", "", f"scores of people on {split}", "metric", _scores(result), likely, rounding=_SCORE)
    references = {
        index: [other_caption for other_caption in _WRITTEN if other_caption != caption]
        for index, caption in enumerate(_WRITTEN)
    }
    per_image = evaluator.evaluate(references, dict(enumerate(_WRITTEN))).per_image
    values = {
        f"{metric} {image}": float(value) for metric, images in per_image.items() for image, value in images.items()
    }
    yield series("metrics", "", "scores of written captions", "metric and caption", values, likely, rounding=_SCORE)


def _scores(result: SplitResult) -> dict[str, float]:
    """Every score of a split with its interval; one that could not be measured is missing."""
    scores: dict[str, float] = {}
    for domain, quantities in result.scores.items():
        for metric, score in quantities.items():
            parts = {"": score.value, " low": score.low, " high": score.high}
            scores |= {f"{metric} {domain}{part}": float(value) for part, value in parts.items() if value is not None}
    held_out = {f"{metric} held out": score.value for metric, score in result.held_out.items()}
    return scores | {name: float(value) for name, value in held_out.items() if value is not None}


@dataclass(frozen=True)
class _Recorder:
    gate: Gate
    model: str
    weights: Path
    evaluator: Evaluator

    @property
    def model_sources(self) -> tuple[str, ...]:
        """Where the model's code may be."""
        return *self.gate.request.plugins, "zoo/"

    def attempted(self, expected: Recording) -> Iterator[Series]:
        """All layers; where one cannot be run, the reason stands in place of its numbers."""
        stored = {
            recorded_series.quantity: recorded_series
            for recorded_series in expected.series
            if recorded_series.model == self.model
        }
        parts: dict[str, Callable[[], Iterator[Series]]] = {
            "inference": partial(self.inference, stored=stored),
            **{
                f"first steps of {stage.name}": partial(self.first_steps, stage)
                for stage in self.gate.preset.schedule.stages
            },
        }
        for part, recorded in parts.items():
            outcome = RUNS
            try:
                yield from list(recorded())
            except Exception as error:  # whatever the change that is judged leads to
                outcome = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            yield self._runs(part, outcome)

    def measured(self) -> Iterator[Series]:
        """Everything, with tolerances."""
        near = [(ONE_ROUNDING * 2**seed, seed) for seed in range(REPLICAS)]
        far = [(MANY_ROUNDINGS, seed) for seed in range(REPLICAS)]
        replicas_of_inference = []
        for perturbations, kind in ((near, float), (far, str)):
            for perturbation in perturbations:
                recorded = self.inference(perturbation)
                replicas_of_inference += [item for item in recorded if isinstance(item.values[0], kind)]
        for recorded_series in self.inference():
            yield recorded_series.with_tolerance(replicas_of_inference)
        yield self._runs("inference", RUNS)
        for stage in self.gate.preset.schedule.stages:
            replicas = [measured_series for moved in near for measured_series in self.first_steps(stage, moved)]
            yield from (measured_series.with_tolerance(replicas) for measured_series in self.first_steps(stage))
            yield self._runs(f"first steps of {stage.name}", RUNS)

    def _runs(self, part: str, outcome: str) -> Series:
        layer: Layer = "inference" if part == "inference" else "first_steps"
        return series(layer, self.model, part, "part", {part: outcome}, self.model_sources)

    def _built(self, has_stored_weights: bool, perturbation: tuple[float, int] | None) -> Captioner:
        model = self.gate.build(self.model)
        if has_stored_weights:
            load_weights(model, self.weights)
        if perturbation is not None:
            amount, seed = perturbation
            random = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for weight in model.parameters():
                    weight.mul_(1 + amount * torch.randn(weight.shape, generator=random))
        return model

    def first_steps(self, stage: Stage, perturbation: tuple[float, int] | None = None) -> Iterator[Series]:
        """The first steps of a stage as the trainer makes them: from stored weights where it samples captions."""
        model = self._built(stage.objective != "cross_entropy", perturbation)
        parts = {name: list(part.parameters()) for name, part in model.named_children()}
        rows: dict[str, dict[str, float]] = {}

        def on_step(step: StepLoss) -> None:  # called before the optimiser's own step
            quantities = {"learning rate": step.rate}
            quantities |= {f"weights of {name}": _norm(weights) for name, weights in parts.items() if weights}
            quantities |= {"loss": step.loss, "norm of the gradient": step.norm}
            quantities |= {
                f"gradient of {name}": _norm([weight.grad for weight in weights if weight.grad is not None])
                for name, weights in parts.items()
                if any(weight.grad is not None for weight in weights)
            }
            for name, value in quantities.items():
                rows.setdefault(name, {})[str(step.step)] = value
            if step.step == STEPS:
                raise _EnoughError

        with tempfile.TemporaryDirectory() as scratch, suppress(_EnoughError):
            train_model(model, SEED, self.gate.under(stage), Path(scratch), lambda _: None, silent(), on_step=on_step)
        likely = {
            "learning rate": ("harness/config/", "harness/training/"),
            "weights": ("harness/training/optimisers.py", "harness/training/", *self.model_sources),
        }
        default_paths = (
            "harness/training/",
            "harness/data/batches.py",
            "harness/benchmark/train.py",
            *self.model_sources,
        )
        for name, values in rows.items():
            paths_of_quantity = next(
                (paths for start, paths in likely.items() if name.startswith(start)), default_paths
            )
            yield series(
                "first_steps", self.model, f"{stage.name}: {name}", "step", values, paths_of_quantity, rounding=_STARTS
            )

    @torch.inference_mode()
    def inference(
        self, perturbation: tuple[float, int] | None = None, stored: Mapping[str, Series] | None = None
    ) -> Iterator[Series]:
        """Inference with the stored weights: logits, captions and their scores, samples and their rewards."""
        model = self._built(True, perturbation).eval()
        context = self.gate.context
        vocabulary = context.inputs.vocabulary
        data = context.data
        source = context.source(model.visual)
        make_series = partial(series, "inference", self.model)
        # Teacher forcing, of captions of several lengths at once.
        shown_samples = data.evaluated["test"][:6]
        rows = [
            [vocabulary.bos, *vocabulary.encode(caption, 20)] for item in shown_samples for caption in item.captions[:2]
        ]
        tokens = pad_rows(rows, vocabulary.pad)
        visual = source.visual([item.image_id for item in shown_samples], model.visual).to("cpu")
        logits = model(visual, tokens[:, :-1]).double()
        logits_by_position = {
            f"{image}, caption {row_index % 2 + 1}, word {word}": logits[row_index, word - 1]
            for row_index, row in enumerate(rows)
            for image in [shown_samples[row_index // 2].image_id]
            for word in range(1, len(row))
        }
        projected = {position: _projected(item) for position, item in logits_by_position.items()}
        yield make_series("logits", "image", projected, self.model_sources, rounding=_LOGITS)
        likeliest = {position: float(item.log_softmax(-1).max()) for position, item in logits_by_position.items()}
        yield make_series("log-probabilities", "image", likeliest, self.model_sources, rounding=_LOGITS)
        # Beam search on every image, and what it scores.
        ids = [item.image_id for samples in data.evaluated.values() for item in samples]
        captions_by_image = caption_images(
            model, vocabulary, source, ids, context.inputs.decoding,
            device=context.compute.device, precision=context.compute.precision, reporter=silent(), title="",
        ).by_image  # fmt: skip
        captions = {str(image): caption for image, caption in captions_by_image.items()}
        searching = ("zoo/decoding.py", "harness/inference/", "harness/data/vocabulary.py", *self.model_sources)
        yield make_series("captions", "image", captions, searching)
        if perturbation is None:
            yield from self._scored(captions, None if stored is None else stored.get("captions"), searching)
        # Samples of a fixed random stream, and what they earn.
        stage = next((item for item in self.gate.preset.schedule.stages if item.objective == "self_critical"), None)
        if stage is not None:
            yield from self._sampled(model, stage)

    def _scored(self, captions: dict[str, str], stored: Series | None, likely: Sequence[str]) -> Iterator[Series]:
        """Scores of its captions, and of the stored ones, which the metrics alone can change."""
        stored_captions = (
            captions if stored is None else {image: str(value) for image, value in stored.by_position().items()}
        )
        metric_paths = ("harness/metrics/", "harness/benchmark/scoring.py")
        for split, samples in self.gate.context.data.evaluated.items():
            scores: list[dict[str, float]] = []
            for captions_to_score in [stored_captions] if stored_captions == captions else [stored_captions, captions]:
                split_captions = {
                    sample.image_id: captions_to_score.get(str(sample.image_id), "") for sample in samples
                }
                result, _ = score_split(split, split_captions, self.gate.context.data, self.evaluator, held_out=True)
                scores.append(_scores(result))
            title = f"scores of stored captions of {split}"
            yield series("metrics", self.model, title, "metric", scores[0], metric_paths, rounding=_SCORE)
            overall_scores = {name: value for name, value in scores[-1].items() if name.endswith(" overall")}
            scores_series = series("inference", self.model, f"scores on {split}", "metric", overall_scores, likely)
            yield scores_series.model_copy(update={"tolerance": (_POINTS,)})

    def _sampled(self, model: Captioner, stage: Stage) -> Iterator[Series]:
        context = self.gate.context
        vocabulary = self.gate.context.inputs.vocabulary
        settings = stage.self_critical
        ids = [train_sample.image_id for train_sample in context.data.train[:8]]
        memory = model.encode(context.source(model.visual).visual(ids, model.visual).to("cpu"))
        torch.manual_seed(SEED)
        drawn = sample(
            model, memory, n=settings.samples, max_len=settings.max_len, bos=vocabulary.bos, eos=vocabulary.eos
        )
        rewards = CaptionRewards(context.data.train, vocabulary, settings.end_in_reward, settings.documents)(ids, drawn)
        texts = {}
        for image_index, image in enumerate(ids):
            for sample_index, reward in enumerate(rewards[image_index].tolist()):
                caption = vocabulary.decode(drawn.tokens[image_index, sample_index].tolist())
                texts[f"{image}, sample {sample_index + 1}"] = f"{caption}: {reward:.4f}"
        likely = ("zoo/decoding.py", "harness/training/self_critical.py", "harness/metrics/", *self.model_sources)
        yield series("inference", self.model, "sampled captions and their rewards", "image", texts, likely)


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(sum(float(tensor.detach().double().square().sum()) for tensor in tensors) ** 0.5)
