"""`captions:FILE`: captions that another system wrote, as rows: their card, their split, and their scores."""

import hashlib
import platform
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

import yaml
from pydantic import Field, ValidationError

from harness.benchmark.context import BenchmarkData
from harness.benchmark.scoring import score_split, within
from harness.config.model_patterns import CAPTIONS
from harness.config.run import CaptionsRun, RunFiles
from harness.config.schedule import Strict
from harness.data.formats.look import odd_captions, without_shared_words
from harness.data.formats.match import MatchOptions
from harness.data.formats.predictions import POSITIONS, check_predictions, read_predictions, scores_by_image
from harness.data.formats.references import References
from harness.metrics.evaluator import Evaluator
from harness.utils.errors import BenchError
from harness.utils.files import absolute, expanded, require_file
from harness.utils.hashing import digest
from harness.utils.json_io import read_file
from harness.utils.progress import Reporter
from harness.utils.yaml_value import Loader
from results.files import read_text
from results.metrics import base_name, metric_names
from results.records import Outcome, Quantity, SplitResult

CARD: Final = ".card.yaml"
NOT_RUN: Final = "only its captions are known: no model was run here"
_COSTS: Final = ("parameters", "train_seconds", "latency_median", "gmac_beam")


class SystemCard(Strict):
    """Facts about the system that wrote a file of captions; except for four fields, they are not in the run key.

    Attributes:
        name: of the row. Files with the same name on their cards are seeds of one system.
        paper, link, year: where it is described.
        model: its name in `results/published/published.csv`, where its printed score is looked up.
        ensemble: whether several models wrote the captions.
        trained_on: the data sets whose captions it was trained on, this one included; empty if they are unknown.
        overlap: by evaluated data set, the reason why its images may have been in the training data.
        whose: who wrote the file, and where it is from.
        printed, printed_in: scores in a paper, in per cent by metric, and which paper.
        parameters, gmac, train_hours, hardware: costs as its authors state them: number of parameters, GMAC of a
            caption, hours of training, and on which hardware.
        scores: by metrics that other programs compute, files with a number for each caption, in the folder of the
            captions.
        id_field, by_position, caption_field, format: where the captions and the names of their images are, if the file
            is ambiguous (`harness.data.formats.match`); these four are in the run's key.
    """

    name: str = ""
    paper: str = ""
    link: str = ""
    year: int | None = None
    model: str = ""
    objective: str = ""
    features: str = ""
    decoding: str = ""
    beam: int | None = None
    ensemble: bool | None = None
    trained_on: tuple[str, ...] = ()
    overlap: Mapping[str, str] = {}
    whose: str = ""
    printed: Mapping[str, float] = {}
    printed_in: str = ""
    parameters: int | None = Field(default=None, gt=0)
    gmac: float | None = Field(default=None, gt=0)
    train_hours: float | None = Field(default=None, gt=0)
    hardware: str = ""
    scores: Mapping[str, str] = {}
    id_field: str | None = None
    by_position: bool = False
    caption_field: str | None = None
    format: str | None = None

    @property
    def match(self) -> MatchOptions:
        return MatchOptions(self.id_field, self.by_position, self.caption_field, self.format)


@dataclass(frozen=True, slots=True)
class CaptionsFile:
    """A file of captions of `--models`, with its card.

    `subset` describes the images that it has if some are missing, `named_by` is the field that names the images.
    """

    path: Path
    checksum: str
    card: SystemCard
    name: str
    seed: int = 0
    subset: str = ""
    named_by: str | None = None

    @property
    def path_digest(self) -> str:
        """A digest of the machine and the path; runs of earlier contents of the file have the same one."""
        return digest([platform.node(), str(absolute(self.path))])

    def run(self, common: Mapping[str, Any]) -> CaptionsRun:
        """The configuration of its run; `common` are the fields of every run.

        BenchError if a file of scores cannot be read.
        """
        files = {name: scores_file(self.path, file) for name, file in self.card.scores.items()}
        built_in = [name for name in files if base_name(name) in metric_names()]
        if built_in:
            raise BenchError(
                f"the card of {self.path}: {built_in[0]} is computed here", "take it out of the card's scores"
            )
        located: RunFiles = common["files"]
        return CaptionsRun(
            **{**common, "files": located.model_copy(update={"captions": self.path})},
            model=self.name,
            seed=self.seed,
            sha256=self.checksum,
            path_digest=self.path_digest,
            id_field=self.card.id_field,
            named_by=self.named_by,
            subset=self.subset,
            caption_field=self.card.caption_field,
            by_position=self.card.by_position,
            format=self.card.format,
            scores=dict(self.card.scores),
            scores_sha256={name: hashlib.sha256(read_file(file)).hexdigest() for name, file in files.items()},
        )

    def record(self, dataset: str) -> dict[str, Any]:
        """The card as reports read it from a run's configuration, with the file and the time of the command."""
        card = self.card
        kind = {None: "", True: "an ensemble", False: "one model"}[card.ensemble]
        facts = {"features": card.features, "decoding": card.decoding, "models": kind, "captions from": card.whose}
        parts = [f"{label}: {value}" for label, value in facts.items() if value]
        parts.append(f"{self.path.name} (sha256 {self.checksum[:16]})")
        pretraining = {
            "data_sets": card.trained_on,
            "captions": "",
            "captions_of": card.trained_on,
            "overlap": dict(card.overlap),
            "source": "the card of its captions",
        }
        # A system trained only on this data set's training captions has seen the same data as models trained here.
        data_names = _alphanumeric(dataset)
        if re.match(r"captions_(train|val)20\d\d", dataset):
            data_names += "coco"
        is_like_trained = (
            card.trained_on and not card.overlap and all(_alphanumeric(name) in data_names for name in card.trained_on)
        )
        return {
            **card.model_dump(mode="json"),
            "family": self.name,
            "name": self.name,
            "named": bool(card.name),
            "source": card.link,
            "summary": f"Captions of another system; {'; '.join(parts)}.",
            "sha256": self.checksum,
            "file": self.path_digest,
            "asked": datetime.now(UTC).isoformat(),
            **({} if is_like_trained else {"pretraining": pretraining}),
        }

    def checked(self, data: BenchmarkData, reporter: Reporter, *, allow_subset: bool) -> Self:
        """Check the captions; returns the file with its `subset` and `named_by`, and notes what was left out."""
        by_split, id_field, notes = captions_by_split(self.path, data, self.card.match, allow_subset=allow_subset)
        by_position = id_field is None
        if self.card.by_position and not (by_position or self.card.scores):
            raise BenchError(
                f"the card of {self.path} says by_position, but the file names the images",
                "take by_position off the card",
            )
        for note in notes:
            reporter.note(f"{self.name}: {note}", style="yellow")
        parts = []
        for split, captions in by_split.items():
            ids = sorted(captions)
            total = len(data.evaluated[split])
            if len(ids) < total:
                parts.append(f"{split}={len(ids)}/{total}#{digest(ids, 6)}")
        return replace(self, subset=",".join(parts), named_by=id_field)


def _alphanumeric(name: str) -> str:
    return "".join(filter(str.isalnum, name.lower()))


def find_captions(words: Iterable[str], cards: Path | None) -> dict[str, list[CaptionsFile]]:
    """The files that words of `--models` name, by word; words may be shell patterns, and no file is returned twice.

    `cards` is a YAML file with the cards of several files by their names; a card beside a file replaces its entry.
    BenchError if two files get the same name and not by their cards: they may not be seeds of one system.
    """
    card_entries = {} if cards is None else _yaml(cards)
    shared = {
        str(name): _card(entry, cards, f" of {name}") for name, entry in card_entries.items() if cards is not None
    }
    files_by_word: dict[str, list[CaptionsFile]] = {word: [] for word in words}
    of_word: dict[Path, str] = {}
    for word in files_by_word:
        for path in map(absolute, _paths(word)):
            of_word.setdefault(path, word)
    names = {path.name for path in of_word} | {path.name.removesuffix(".gz") for path in of_word}
    if shared and not shared.keys() & names:
        raise BenchError(
            f"{cards} has no card of any of the files: its names are {', '.join(sorted(shared))[:200]}",
            f"name the cards as the files: {', '.join(sorted(path.name for path in of_word))[:200]}",
        )
    stems = Counter(path.name.partition(".")[0] for path in of_word)
    seeds_by_name: dict[str, list[tuple[Path, str]]] = {}
    for path, word in of_word.items():
        card_path = path.with_name(path.name + CARD)
        stem = path.name.partition(".")[0]
        card = shared.get(path.name, shared.get(path.name.removesuffix(".gz"), SystemCard()))
        if card_path.is_file():
            card = _card(_yaml(card_path), card_path)
        name = card.name or (stem if stems[stem] == 1 else f"{path.parent.name}/{stem}")
        seeds = seeds_by_name.setdefault(name, [])
        files_by_word[word].append(
            CaptionsFile(path, hashlib.sha256(read_file(path)).hexdigest(), card, name, len(seeds))
        )
        seeds.append((path, card.name))
        if len(seeds) > 1 and not all(card_name for _, card_name in seeds):
            raise BenchError(
                f"{seeds[0][0]} and {path} would both be called {name}",
                f"give each a card, {path.name}{CARD} with the line name: NAME; files of one such name are seeds",
            )
    return files_by_word


def _paths(word: str) -> list[Path]:
    path = expanded(word.removeprefix(CAPTIONS))
    patterns: list[Path] = []
    with suppress(ValueError):  # no pattern
        patterns = [] if path.is_file() else sorted(path.parent.glob(path.name))
    matching = [match for match in patterns if not match.name.endswith(CARD)]
    if not matching:
        require_file(
            path, "the file of captions", f"write {CAPTIONS}FILE, or a pattern such as '{CAPTIONS}folder/*.json'"
        )
    return matching or [path]


def _yaml(file: Path) -> dict[Any, Any]:
    require_file(file, "the card", "give YAML")
    try:
        content = yaml.load(read_text(file), Loader)
    except Exception as error:  # PyYAML's constructors raise many types of errors on values that do not fit their tag
        raise BenchError(f"{file} cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict):
        raise BenchError(f"{file} holds no card", "write lines such as name: My system")
    return content


def _card(content: Any, file: Path, owner: str = "") -> SystemCard:
    try:
        return SystemCard.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        raise BenchError(
            f"{file}: the card{owner} is wrong at {field or 'its top'}: {first['msg']}",
            f"fields are {', '.join(SystemCard.model_fields)}",
        ) from error


def captions_by_split(
    path: Path, data: BenchmarkData, options: MatchOptions, *, allow_subset: bool
) -> tuple[dict[str, dict[int, str]], str | None, list[str]]:
    """The captions of a file by evaluated split (without empty ones), the field that names images, and notes."""
    splits = data.evaluated
    all_samples = {name: data.dataset.splits[name] for name in splits}
    samples = [sample for group in all_samples.values() for sample in group]
    files = {sample.image_id: sample.file for sample in samples if sample.file}
    order = [sample.image_id for sample in all_samples["test"]]  # positions count the test split
    if not options.by_position:
        order += [sample.image_id for name, group in all_samples.items() if name != "test" for sample in group]
    other_ids = {sample.image_id for sample in data.dataset.samples}.difference(order)
    other_files = {sample.file for sample in data.dataset.samples if sample.file and sample.image_id in other_ids}
    labels = data.dataset.labels
    try:
        predictions = read_predictions(path, order, files, labels=labels, other_files=other_files, options=options)
    except BenchError as error:
        raise BenchError(str(error), _as_card_hint(error.hint, path)) from error
    predictions = predictions.without(data.left_out())
    covered = {
        split: group
        for split, group in splits.items()
        if any(sample.image_id in predictions.captions for sample in group)
    }
    references = {}
    for group in (covered or splits).values():
        references.update({sample.image_id: sample.captions for sample in group})
    try:
        _, captions, notes = check_predictions(
            predictions, References("", references, other_ids=frozenset(other_ids)), allow_subset=allow_subset
        )
    except BenchError as error:
        raise BenchError(f"{path}: {error}", error.hint) from error
    notes = [f"left out: {note}" for note in notes]
    if predictions.by_position:
        notes.append(POSITIONS)
    warnings = filter(None, (*odd_captions(captions), without_shared_words(captions, references)))
    notes += [f"check the captions: {doubt}" for doubt in warnings]
    by_split = {}
    for split, group in covered.items():
        ids = {sample.image_id for sample in group}
        by_split[split] = {image_id: text for image_id, text in captions.items() if image_id in ids}
    return by_split, predictions.id_field, notes


def images_without_captions(files: Iterable[CaptionsFile], data: BenchmarkData) -> dict[int, str]:
    """The images that some file has no caption of, with the reason; BenchError if no other images remain.

    A split of which a file has no caption at all counts for the other files alone.
    """
    reasons: dict[int, list[str]] = {}
    for file in files:
        by_split, _, _ = captions_by_split(file.path, data, file.card.match, allow_subset=True)
        for split, captions in by_split.items():
            for sample in data.evaluated[split]:
                if sample.image_id not in captions:
                    reasons.setdefault(sample.image_id, []).append(file.name)
    if all(sample.image_id in reasons for sample in data.evaluated["test"]):
        raise BenchError(
            "no image has a caption in every file",
            "compare files with captions of the same images, or score each alone",
        )
    return {image_id: f"no caption in {' and '.join(names)}" for image_id, names in reasons.items()}


def _as_card_hint(hint: str | None, path: Path) -> str | None:
    """A hint about options of `bench evaluate`, reworded for the fields of a card."""
    if hint is None:
        return None
    card = f"into {path}{CARD}"
    hint = hint.replace("add --by-position", f"write by_position: true {card}")
    hint = re.sub(r"--format (\S+)", rf"write format: \1 {card}", hint)
    hint = re.sub(r"--caption-field (\S+)", rf"write caption_field: \1 {card}", hint)
    return re.sub(r"--id-field (\S+)", rf"write id_field: \1 {card}", hint)


def scores_file(captions: Path, name: str) -> Path:
    """A file of scores in the folder of the captions; BenchError if it is elsewhere."""
    if Path(name).is_absolute() or ".." in Path(name).parts:
        raise BenchError(f"the card of {captions}: {name} is not in its folder", f"copy it to {captions.parent}")
    return captions.parent / name


def score_captions(
    config: CaptionsRun, data: BenchmarkData, evaluator: Evaluator, *, held_out: bool = False
) -> Outcome:
    """Score the captions of a file on every split that it has; `held_out` as of `score_split`."""
    path = config.files.captions
    if path is None:
        raise BenchError("files.captions is missing: the file of captions", "add --set files.captions=FILE")
    if hashlib.sha256(read_file(path)).hexdigest() != config.sha256:
        raise BenchError(f"{path} was changed since the run was planned", "give the same command again")
    splits: list[SplitResult] = []
    costs = dict.fromkeys(_COSTS, Quantity(None, NOT_RUN))
    costs["score_seconds"] = Quantity(None, "it has no captions of the test split")
    options = MatchOptions(config.id_field, config.by_position, config.caption_field, config.format)
    by_split, _, _ = captions_by_split(path, data, options, allow_subset=True)
    for split, captions in by_split.items():
        files = {sample.image_id: sample.file for sample in data.evaluated[split] if sample.file}
        other_scores = {
            name: scores_by_image(
                scores_file(path, file),
                name,
                captions,
                files,
                labels=data.dataset.labels,
                options=options,
            )[0]
            for name, file in config.scores.items()
        }
        result, seconds = score_split(
            split, captions, within(data, split, captions), evaluator, other_scores, held_out=held_out
        )
        if split == "test":
            costs["score_seconds"] = Quantity(seconds, unit="s")
        splits.append(result)
    return Outcome(splits=tuple(splits), costs=costs, environment={})
