"""The public API: score captions, read and compare results, and use trained models, from Python.

    >>> import captionbench
    >>> references = {1: ["a red ball on a table", "the ball is red"], 2: ["two dogs", "a pair of dogs"]}
    >>> scores = captionbench.evaluate(references, {1: "a red ball", 2: "two dogs"}, meteor=False)
    >>> round(scores["CIDEr-D"], 2)
    2.94

Importing this module imports neither torch nor pandas, SQLAlchemy or pydantic: each function imports what it needs.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from os import PathLike, fspath
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from harness.utils.errors import BenchError
from zoo.card import ModelCard
from zoo.registry import register_model

if TYPE_CHECKING:
    from PIL.Image import Image
    from sqlalchemy import URL
    from torch import Tensor

    from harness.benchmark.caption_images import LoadedRun
    from harness.config.evaluation import TokenizerName
    from harness.data.dataset import Dataset
    from harness.data.formats.references import References
    from harness.metrics.evaluator import Report
    from results.comparison.comparison import Comparison
    from results.frames import Results
    from results.statistics.estimate import Estimate
    from results.statistics.image_scores import ImageScores
    from zoo.captioner import Captioner

__all__ = [
    "BenchError",
    "Captioner",
    "Comparison",
    "Estimate",
    "Evaluation",
    "ModelCard",
    "Results",
    "TrainedModel",
    "compare",
    "evaluate",
    "load",
    "open",
    "register_model",
]

_MODULES = {
    "Captioner": "zoo.captioner",
    "Comparison": "results.comparison.comparison",
    "Estimate": "results.statistics.estimate",
    "Results": "results.frames",
}


if not TYPE_CHECKING:  # type checkers know every name, and report others

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def open(workspace: str | Path | URL) -> Results:
    """The results of a workspace as pandas data frames, read-only; `with` or `close()` closes them.

    `runs()` has a row for each run and `leaderboard()` one for each model; `scores()`, `more_metrics()`,
    `image_scores()`, `captions()`, `costs()` and `epochs()` have what was measured. Scores are times 100, as papers
    print them. `help(captionbench.Results)` lists all columns with their types and units.

    Args:
        workspace: the folder of a workspace, a SQLite file, or a database's SQLAlchemy URL.

    Raises:
        BenchError: there are no results, or an older captionbench wrote them. Frames raise `results.StoreError` for a
            split or a metric that no run has.

    Examples:
        >>> with captionbench.open("baselines/flickr8k.sqlite") as results:
        ...     board = results.leaderboard(split="test")
        >>> board[["model", "seeds", "CIDEr-D_percent"]].round(1).head(2)
                      model      seeds  CIDEr-D_percent
        0  transformer_base  0 1 2 3 4             55.5
        1            aoanet  0 1 2 3 4             55.2
    """
    with _as_bench_error():
        from results.frames import open as open_frames

        return open_frames(workspace)


def load(
    run: str | Path,
    workspace: str | Path = "workspace",
    plugins: Iterable[str] = (),
    *,
    backbone_weights: str | Path | None = None,
    regions: str | Path | None = None,
    graphs: str | Path | None = None,
) -> TrainedModel:
    """The trained model of a stored run, on a GPU where there is one, in float32.

    Args:
        run: the run's key, its folder, or a model's name, of which the newest trained run is taken.
        workspace: the folder of the workspace that holds the run.
        plugins: modules or `.py` files that register the model, as `bench run --plugin` takes them.
        backbone_weights: the file of the backbone's weights, if it was moved since the training.
        regions: for a model on regions of files, those of the images, by the image ids that file names end with.
        graphs: for a model on scene graphs, those of the regions.

    Raises:
        BenchError: there is no such run, it has no trained weights, its files are damaged, or its model is not
            registered.

    Examples:
        >>> model = captionbench.load("transformer_base")
        >>> model.key
        'transformer_base-s0-266c9441c4'
    """
    with _as_bench_error():
        from harness.benchmark.caption_images import InputOptions, LoadedRun
        from harness.benchmark.saved_model import find_run
        from harness.config.features import graph_config, region_config
        from harness.utils.plugins import load_plugins
        from harness.utils.workspace import Workspace

        load_plugins(plugins)
        folder = find_run(str(run), Workspace(Path(workspace)))
        region_features = region_config(None if regions is None else str(regions))
        source = None if region_features is None else region_features.source
        graph_source = None
        if graphs is not None:
            graph_source = graph_config(str(graphs), region_features or region_config("boxes"))
        weights = None if backbone_weights is None else Path(backbone_weights)
        return TrainedModel(LoadedRun(folder, InputOptions(weights, source, graph_source)))


class TrainedModel:
    """A trained model that captions and encodes images as in its run's evaluation; `load` makes it.

    Attributes:
        key: the run's key, the name of its folder.
        captioner: the model itself, a `Captioner` (torch module) in evaluation mode.
    """

    def __init__(self, run: LoadedRun) -> None:
        self._run = run
        self.key = run.folder.name
        self.captioner: Captioner = run.model

    def __repr__(self) -> str:
        return f"TrainedModel({self.key!r})"

    def caption(self, images: Iterable[str | PathLike[str] | Image], beam_size: int | None = None) -> list[str]:
        """Captions of images, in their order.

        Args:
            images: N files or PIL images. For a model on regions of files, files whose names end with image ids.
            beam_size: from 1 to 256; None takes the run's own.

        Returns:
            N captions, those that `bench caption` prints.

        Raises:
            BenchError: an image cannot be read, `beam_size` is out of range, or the model needs regions, scene graphs
                or weights that `load` was not given.

        Examples:
            >>> model = captionbench.load("transformer_base")
            >>> model.caption(["red.png", "blue.png"], beam_size=3)  # doctest: +SKIP
            ['a red ball on a table', 'a blue cube']
        """
        from harness.config.limits import MAX_BEAM
        from harness.utils.progress import silent

        if beam_size is not None and not 1 <= beam_size <= MAX_BEAM:
            raise BenchError(f"beam_size {beam_size} is out of range", f"choose 1 to {MAX_BEAM}, or None")
        with _as_bench_error(), self._dataset(images) as (dataset, ids):
            if not ids:
                return []
            captioned = self._run.caption(dataset, reporter=silent(), beam_size=beam_size)
            _refuse_unusable(captioned.unusable, len(ids))
            return [captioned.captions[image_id] for image_id in ids]

    def encode(self, images: Iterable[str | PathLike[str] | Image]) -> Tensor:
        """What the model's encoder makes of images, before any word.

        Args:
            images: N files or PIL images, as of `caption`; at least one.

        Returns:
            float32 (N, L, D) on the CPU, of L visual tokens in D dimensions. Where an image has fewer tokens than
            others, the rest of its rows is NaN: `encoded.nanmean(1)` is each image's mean, (N, D). An ensemble gives
            what its first member encodes.

        Raises:
            BenchError: as `caption`; or the model sees no image, as `blind`.

        Examples:
            >>> model = captionbench.load("transformer_base")
            >>> model.encode(["red.png", "blue.png"]).shape
            torch.Size([2, 4, 16])
        """
        if self.captioner.visual.kind == "none":
            raise BenchError(f"{self.key} sees no image: it has nothing to encode", "load a model that sees images")
        with _as_bench_error(), self._dataset(images) as (dataset, ids):
            if not ids:
                raise BenchError("there is no image to encode", "give one image or more")
            encoded = self._run.encode(dataset)
            _refuse_unusable(encoded.unusable, len(ids))
            rows = {image_id: row for row, image_id in enumerate(encoded.ids)}
            return encoded.features[[rows[image_id] for image_id in ids]]

    @contextmanager
    def _dataset(self, images: Iterable[str | PathLike[str] | Image]) -> Iterator[tuple[Dataset, list[int]]]:
        """The images as a data set, and the id of each; PIL images are files while this is open."""
        from harness.benchmark.caption_images import of_files, of_numbered_files, readable

        if isinstance(images, str | PathLike) or not isinstance(images, Iterable):
            raise BenchError(f"images is a single one: {images!r}", "give a list: [image]")
        by_image_id = isinstance(self._run.options.regions, Path)
        with TemporaryDirectory(prefix="captionbench-") as folder:
            paths = []
            for index, image in enumerate(images):
                if isinstance(image, str | PathLike):
                    paths.append(Path(fspath(image)))
                elif by_image_id:
                    raise BenchError(
                        f"image {index} has no image id, by which its regions are found",
                        "give files whose names end with the id, as in 000000000042.jpg",
                    )
                else:
                    paths.append(self._write(image, Path(folder, f"image {index}.png")))
            dataset = of_numbered_files(paths) if by_image_id else of_files(paths)
            usable, unusable = readable(dataset)
            _refuse_unusable(unusable, len(paths))
            ids = {sample.file: sample.image_id for sample in dataset.samples}
            yield usable, [ids[str(path.absolute())] for path in paths]

    def _write(self, image: Image, path: Path) -> Path:
        """Write a PIL image as the pixels that its file would give."""
        from harness.data.images import to_upright_rgb

        if image.mode != "RGB" and getattr(self._run.saved.preprocessing, "non_rgb", "convert") == "black":
            raise BenchError(
                f"{path.stem} is of mode {image.mode}: this run sees files that are not stored as RGB as black",
                "give the image's file, or image.convert('RGB')",
            )
        to_upright_rgb(image).save(path, "PNG", compress_level=1)
        return path


@dataclass(frozen=True)
class Evaluation:
    """Scores of one system's captions; `evaluate` makes it. All scores are fractions: 1.1 is printed as 110.

    Attributes:
        scores: by metric, over all images; also as `evaluation["CIDEr-D"]`.
        reasons: why a metric has no score: METEOR and SPICE without Java, SPICE without its models.
        intervals: the 95 % interval of each score, over images.
        per_image: by metric and image, named as the references name it.
        domains: by domain and metric, where the references have domains, as nocaps has.
        signature: what the scores depend on besides the captions; scores with the same one are comparable.
    """

    scores: dict[str, float]
    reasons: dict[str, str]
    intervals: dict[str, tuple[float, float]]
    per_image: dict[str, dict[int | str, float]] = field(repr=False)
    domains: dict[str, dict[str, float]] = field(repr=False)
    signature: str
    _images: ImageScores = field(repr=False, compare=False)
    _ids: dict[str, int] = field(repr=False, compare=False)

    def __getitem__(self, metric: str) -> float:
        """The score of a metric; BenchError, with the reason, where it has none."""
        if metric in self.scores:
            return self.scores[metric]
        computed = ", ".join(self.scores)
        raise BenchError(f"no score {metric!r}: {self.reasons.get(metric, f'there are {computed}')}")

    def __contains__(self, metric: object) -> bool:
        return metric in self.scores

    def compare(self, other: Evaluation | str | Path) -> dict[str, Estimate]:
        """The change of every score from this evaluation to `other`, of the same images.

        Args:
            other: an evaluation, or a file that `bench evaluate --out` wrote. Where it is the baseline of this one,
                each value is the drop since then.

        Returns:
            By metric an `Estimate`, in fractions: `value` is `other` less this, `low` and `high` its interval, `p` of
            the paired sign-flip test over images, `n` their number. As in `bench compare`, all tests are corrected
            together (Holm) and intervals have the level that this leaves: one leaves out 0 exactly where p < 0.05.
            Where either side has no score, `value` is None, with the `reason`.

        Raises:
            BenchError: the two were scored against other references or with another tokenizer, or the file cannot be
                read.

        Examples:
            >>> references = {image: [f"a ball and {image} cubes", "a ball"] for image in range(12)}
            >>> old = captionbench.evaluate(references, dict.fromkeys(range(12), "a dog"), meteor=False)
            >>> new = captionbench.evaluate(references, dict.fromkeys(range(12), "a ball"), meteor=False)
            >>> change = old.compare(new)["ROUGE-L"]
            >>> print(f"{change.value:.3f} [{change.low:.3f}, {change.high:.3f}], p = {change.p:.4f}")
            0.500 [0.500, 0.500], p = 0.0029
        """
        with _as_bench_error():
            from harness.metrics.stored_scores import read_scores, refuse_other_conditions
            from results.comparison.evaluations import compare_scores

            hint = "evaluate both with the same references and settings"
            if isinstance(other, Evaluation):
                refuse_other_conditions("the other evaluation", other.signature, self.signature, hint)
                images = other._images
            else:
                stored = read_scores(Path(other))
                refuse_other_conditions(str(other), stored.signature, self.signature, hint)
                images = stored.image_scores(self._ids)
            metrics = list({**self.scores, **self.reasons, **images.scores, **images.reasons})
            changes = compare_scores(self._images, {"other": images}, metrics, images="evaluated")
        return {change.metric: change.estimate for change in changes}


def evaluate(
    references: str | Path | Mapping[Any, str | Sequence[str]],
    captions: str | Path | Mapping[Any, str],
    *,
    split: str | None = None,
    limit: int | None = None,
    allow_subset: bool = False,
    meteor: bool = True,
    tokenizer: TokenizerName = "python",
    language: str | None = None,
    id_field: str | None = None,
    caption_field: str | None = None,
    reference_field: str | None = None,
    by_position: bool = False,
    format_name: str | None = None,
) -> Evaluation:
    """Score captions as `bench evaluate` does: BLEU, METEOR, ROUGE-L, CIDEr-D, and SPICE where its models are.

    It needs no workspace, so it works in a test: `assert captionbench.evaluate(references, captions)["CIDEr-D"] > 1.1`.
    What looks wrong with the captions, and what was left out, is a warning.

    Args:
        references: a file, as of `bench evaluate --references`; or by image a caption or several.
        captions: a file, as `bench evaluate` takes it; or a caption by image. Images are named as in files: by whole
            numbers, or by the names of their files.
        split: which split of a Karpathy file; None is "test".
        limit: score the first images of the references alone, this many; the signature says so.
        allow_subset: score the images that have captions where others have none.
        meteor: False leaves METEOR out: no Java, and faster.
        tokenizer: makes words of captions; `zh`, `ja`, `vi` and `characters` are for languages without spaces.
        language: METEOR's, as `de`; None for English, or the tokenizer's.
        id_field, caption_field, reference_field, by_position: as the options of `bench evaluate`, which messages name.
        format_name: the format of a file of captions, as `--format` of `bench evaluate`.

    Raises:
        BenchError: a file cannot be read, captions and references are of different images, an image has no reference
            or several captions, or nothing says which image a caption is of.

    Examples:
        >>> references = {1: ["a red ball on a table", "the ball is red"], 2: ["two dogs", "a pair of dogs"]}
        >>> scores = captionbench.evaluate(references, {1: "a red ball", 2: "a dog"}, meteor=False)
        >>> {metric: round(score, 3) for metric, score in scores.scores.items()}
        {'BLEU-1': 0.655, 'BLEU-2': 0.598, 'BLEU-3': 0.664, 'BLEU-4': 0.022, 'ROUGE-L': 0.472, 'CIDEr-D': 1.45}
        >>> {image: round(score, 3) for image, score in scores.per_image["ROUGE-L"].items()}
        {1: 0.629, 2: 0.314}
        >>> scores.reasons["METEOR"]
        'METEOR was not requested'
    """
    with _as_bench_error():
        from harness.config.evaluation import parse_language
        from harness.data.formats.match import MatchOptions
        from harness.data.formats.predictions import predictions_of, read_predictions
        from harness.metrics.caption_scores import match_captions, score_captions
        from harness.metrics.evaluator import Evaluator
        from harness.metrics.signature import EvaluationSettings
        from harness.metrics.spice import find_spice

        human, names = _read_references(references, split, reference_field)
        options = MatchOptions(id_field, by_position, caption_field, format_name)
        if isinstance(captions, Mapping):
            if caption_field is not None or format_name is not None:
                raise BenchError(
                    "caption_field and format_name apply to files alone",
                    "leave them out: the captions are a dictionary",
                )
            source = Path("captions")
            predictions = predictions_of(captions, source, human, options)
        else:
            source = Path(captions)
            image_names = {"files": human.files, "labels": human.labels}
            other_files = human.other_files
            predictions = read_predictions(
                source, human.captions, **image_names, other_files=other_files, options=options
            )
        if by_position and not predictions.by_position:
            raise BenchError(f"{source} names its images: by_position does not apply", "leave by_position out")
        try:
            matched = match_captions(predictions, human, allow_subset=allow_subset, limit=limit, tokenizer=tokenizer)
        except BenchError as error:
            raise BenchError(f"{source}: {error}", error.hint) from error
        for note in (*matched.notes, *(f"check the captions: {doubt}" for doubt in matched.doubts)):
            warnings.warn(note, stacklevel=2)
        settings = EvaluationSettings(
            tokenizer=tokenizer,
            meteor=meteor,
            spice=find_spice() is not None,
            language=None if language is None else parse_language(language),
        )
        with Evaluator(settings=settings) as evaluator:
            report = score_captions(matched, evaluator)
    return _to_evaluation(report, names)


def compare(
    before: str | Path,
    after: str | Path,
    workspace: str | Path = "workspace",
    *,
    metrics: Collection[str] | None = None,
) -> Comparison:
    """Compare stored results as `bench compare` does: two models, two runs, two workspaces or two databases.

    Two models are compared over all their seeds; of two workspaces or databases, models are paired.

    Args:
        before, after: both a model's name or a run's key; or both a workspace's folder, a SQLite file or a database's
            URL.
        workspace: where models and runs are: a workspace's folder, a SQLite file or a database's URL.
        metrics: the only ones to test, such as `["CIDEr-D"]`; p and intervals are corrected for all that are tested.

    Returns:
        `pairs`, each with `scores` (fractions), `costs` and changed `captions`. A score's `estimate` is the change
        from `before` to `after` with its interval and p, as of `Evaluation.compare`. Where each side has two seeds,
        tests are over seeds and images, else over images, as `over` says.

    Raises:
        BenchError: there are no results, no such model or run, or nothing can be paired.

    Examples:
        >>> [pair] = captionbench.compare("transformer_base", "x_lan", "baselines/flickr8k.sqlite").pairs
        >>> [change] = [change for change in pair.scores if change.metric == "CIDEr-D"]
        >>> print(f"{change.before:.3f} to {change.after:.3f}, p = {change.estimate.p:.3f}, {change.over}")
        0.555 to 0.534, p = 0.032, over seeds and images
    """
    with _as_bench_error():
        from harness.benchmark.compare_results import compare_results
        from harness.utils.workspace import Workspace

        is_folder = "://" not in str(workspace) and not Path(workspace).is_file()
        results = Workspace(Path(workspace)) if is_folder else Workspace(Path(), db=str(workspace))
        return compare_results(str(before), str(after), results, captions=5, metrics=metrics)


@contextmanager
def _as_bench_error() -> Iterator[None]:
    """Raise the errors of the store and of the zoo as BenchError, with their hints."""
    from results.errors import StoreError
    from zoo.errors import ZooError

    try:
        yield
    except (StoreError, ZooError) as error:
        raise BenchError(str(error), error.hint) from error


def _refuse_unusable(unusable: Sequence[Exception], images: int) -> None:
    if unusable:
        raise BenchError(f"{len(unusable)} of {images} images cannot be used; first {unusable[0]}", "leave them out")


def _read_references(
    references: str | Path | Mapping[Any, str | Sequence[str]], split: str | None, field: str | None
) -> tuple[References, dict[int, int | str]]:
    """References by image id, and what the user calls the image of each id."""
    from harness.data.formats.references import image_name, read_references, references_by_image

    if not isinstance(references, Mapping):
        read = read_references(Path(references), split=split, caption_field=field)
        return read, {image_id: read.labels.get(image_id, image_id) for image_id in read.captions}
    for name, value in (("split", split), ("reference_field", field)):
        if value is not None:
            raise BenchError(f"{name} is for a file of references", f"leave {name} out")
    source = Path("references")
    by_image = references_by_image(references, source)
    keys = [image_name(key, source) for key in references]
    return by_image, dict(zip(by_image.captions, keys, strict=True))


def _to_evaluation(report: Report, names: Mapping[int, int | str]) -> Evaluation:
    from harness.metrics.contract import OVERALL

    evaluation = report.evaluation
    overall = evaluation.scores[OVERALL]
    scored = set(evaluation.ids)
    return Evaluation(
        scores={metric: score.value for metric, score in overall.items() if score.value is not None},
        reasons={metric: score.reason or "" for metric, score in overall.items() if score.value is None},
        intervals={
            metric: (score.low, score.high)
            for metric, score in overall.items()
            if score.low is not None and score.high is not None
        },
        per_image={
            metric: {names[image_id]: score for image_id, score in by_image.items()}
            for metric, by_image in evaluation.per_image.items()
        },
        domains={
            domain: {
                metric: score.value for metric, score in evaluation.scores[domain].items() if score.value is not None
            }
            for domain in evaluation.domains
        },
        signature=report.signature,
        _images=report.image_scores(),
        _ids={str(name): image_id for image_id, name in names.items() if image_id in scored},
    )
