"""The printed numbers, their footnotes, and the one to show beside a measured number."""

import csv
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any, Literal

import yaml

from results.errors import StoreError
from results.metrics import metric_names
from results.records import stages_of

Objective = Literal["XE", "RL"]
Backbone = Literal["frozen", "trained"]
SPLIT_IMAGES = {"karpathy-test": 5000, "karpathy-val": 5000, "nocaps-val": 4500}
_SERVER_DOMAINS = {"in-domain": 648, "near-domain": 2938, "out-domain": 914}


PAPERS = {
    "expansionnet_v2": ("Exploiting Multiple Sequence Lengths in Fast End to End Training for Image Captioning", 2023),
    "expansionnet_v2_arxiv": (
        "ExpansionNet v2: Block Static Expansion in fast end to end training for Image Captioning",
        2022,
    ),
    "expansionnet_v1": (
        "ExpansionNet: exploring the sequence length bottleneck in the Transformer for Image Captioning",
        2022,
    ),
    "image_transformer": ("Image Captioning through Image Transformer", 2020),
    "light_cgru": ("Bringing back simplicity and lightliness into neural image captioning", 2018),
    "x_linear": ("X-Linear Attention Networks for Image Captioning", 2020),
}


@dataclass(frozen=True, slots=True)
class PublishedScore:
    """One printed number with its conditions; None where the paper does not state one.

    `model` is the table's row, under one name in all papers; `variant` distinguishes the rows of one model. Scores
    (`results.metrics.METRICS`) are in percent, as printed; `note` says what the paper implies but does not state.
    """

    paper: str
    table: str
    model: str
    variant: str
    features: str | None
    backbone: Backbone | None
    objective: Objective | None
    ensemble: bool | None
    ensemble_size: int | None
    beam: int | None
    split: str | None
    domain: str | None
    metric: str
    value: float
    unit: str
    note: str

    @property
    def fraction(self) -> float:
        """The score as the store has it: 1.404 for a printed CIDEr-D of 140.4; StoreError for what is not a score."""
        if self.unit != "percent":
            raise StoreError(f"{self.metric} of {self.model} is printed in {self.unit}, which is not a score")
        return self.value / 100

    @property
    def source(self) -> str:
        """Where it is printed: "expansionnet_v2, Table II"."""
        return f"{self.paper}, {self.table}"


@cache
def scores() -> tuple[PublishedScore, ...]:
    lines = resources.files(__package__).joinpath("published.csv").read_text(encoding="utf-8").splitlines()
    return tuple(map(_score, csv.DictReader(lines)))


def _score(row: dict[str, Any]) -> PublishedScore:
    size = row["ensemble"]
    row |= {name: row[name] or None for name in ("features", "backbone", "objective", "split", "domain")}
    row |= {"ensemble": size != "no" if size else None, "ensemble_size": int(size) if size.isdecimal() else None}
    row |= {"beam": int(row["beam"]) if row["beam"] else None, "value": float(row["value"])}
    return PublishedScore(**row)


def printed_rows(scores: Iterable[PublishedScore]) -> list[dict[str, PublishedScore]]:
    """Numbers as their tables show them: one row for all that share every condition, by metric, in order."""
    rows: dict[PublishedScore, dict[str, PublishedScore]] = {}
    for score in scores:
        rows.setdefault(replace(score, metric="", value=0.0, unit="", note=""), {})[score.metric] = score
    return list(rows.values())


Chosen = Mapping[str, Sequence[str]]
"""Printed numbers by fields of `PublishedScore`, with the values that each may have; of others, all."""


def chosen_by(score: PublishedScore, rows: Iterable[Chosen]) -> bool:
    """Whether a number is one of those."""
    return any(all(getattr(score, name) in values for name, values in row.items()) for row in rows)


def _chosen(entry: Mapping[str, Any]) -> Chosen:
    return {name: [value] if isinstance(value, str) else value for name, value in entry.items()}


def footnotes(score: PublishedScore) -> list[str]:
    """What a reader should know of a printed number."""
    return [text for text, row in all_footnotes() if chosen_by(score, [row])]


@cache
def all_footnotes() -> tuple[tuple[str, Chosen], ...]:
    """The texts, and the numbers that each is of."""
    return tuple((entry.pop("text"), _chosen(entry)) for entry in stored("footnotes.yaml"))


def domain_footnote(images: Mapping[str, int]) -> str | None:
    """The footnote of scores of nocaps by domain where the domains are other images than the printed ones'.

    The server's validation domains and those that copies of the annotations state are not the same. `images` are how
    many each domain has here, by name ("in-domain", "near-domain", "out-domain"); 0: not known.
    """
    if images == _SERVER_DOMAINS:
        return None
    counted = [[f"{count:,} {name}" for name, count in counts.items()] for counts in (images, _SERVER_DOMAINS)]
    ours, server = map(", ".join, counted)
    relation = f"are of other images here: {ours}" if all(images.values()) else "may differ here"
    return (
        f"Domains {relation}; printed scores by domain are of the nocaps server's {server}, but for ExpansionNet v2's, "
        "which fit the annotations' (docs/evaluation.md)."
    )


def stored(name: str) -> Any:
    return yaml.safe_load(resources.files(__package__).joinpath(name).read_text(encoding="utf-8"))


# The names of a measured run's features, for the printed ones that a backbone's name identifies. Of ExpansionNet v2 the
# authors' code tells which of the weights of Swin-L are meant.
_BACKBONES = {
    "Swin-L grid features, 384x384 input, backbone pre-trained on ImageNet": "swin_large_patch4_window12_384.ms_in22k",
    "ResNet-50 pool5 vector": "resnet50",
}
_MAX_DEVIATIONS = 4
_OBJECTIVES: dict[str, Objective] = {"cross_entropy": "XE", "self_critical": "RL", "reinforce": "RL"}


@dataclass(frozen=True, slots=True)
class PresetRecipe:
    """A preset of the paper track; `rows.yaml` says what its fields are."""

    digest: str
    rows: tuple[Chosen, ...] = ()
    whose: str = "the recipe of other printed rows"
    ablation: tuple[tuple[str, str], ...] = ()


@cache
def printed_of() -> dict[str, tuple[Chosen, ...]]:
    """By model of the zoo, the printed rows that are of it; models without any are not there."""
    return {model: tuple(map(_chosen, rows)) for model, rows in stored("rows.yaml")["models"].items()}


@cache
def recipes() -> dict[str, PresetRecipe]:
    recipes_by_preset = {}
    for preset, entry in stored("rows.yaml")["presets"].items():
        rows = tuple(map(_chosen, entry.pop("rows", ())))
        ablation = tuple(map(tuple, entry.pop("ablation", ())))
        recipes_by_preset[preset] = PresetRecipe(rows=rows, ablation=ablation, **entry)
    return recipes_by_preset


@dataclass(frozen=True, slots=True)
class RunRecipe:
    """What a run was trained and decoded by: a preset's name, the digest of the one that ships, the deviations from it.

    Empty deviations stand for a preset as it ships; each names a setting with both values, "size.max_len: 74 → 20".
    """

    preset: str
    digest: str | None = None
    deviations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasuredConditions:
    """What a measured number was measured under, as far as papers state such things; None where it is not known.

    `split` is one of `SPLIT_IMAGES`, None for every other, and `images` how many of its images were captioned.
    `features` is the signature's field, `models` how many an ensemble has.
    """

    split: str | None
    objective: Objective | None
    beam: int | None
    features: str | None
    backbone: Backbone | None
    ensemble: bool = False
    models: int | None = None
    recipe: RunRecipe | None = None
    images: int | None = None


@dataclass(frozen=True, slots=True)
class PublishedMatch:
    """A printed number beside a measured one, and the conditions that differ, are unstated, or cannot be compared.

    Recipes and images that differ say in what: "recipe (size.max_len: 74 → 20)".
    """

    score: PublishedScore
    differing: tuple[str, ...]
    unstated: tuple[str, ...]
    unclear: tuple[str, ...]
    footnotes: tuple[str, ...]

    @property
    def matches(self) -> bool:
        return not (self.differing or self.unstated or self.unclear)


def published_for(model: str, *, split: str | None = None, metric: str | None = None) -> list[PublishedScore]:
    """The printed numbers of a model of the zoo (of one split, one metric; None: of all), in the papers' order."""
    printed = printed_of().get(model, ())
    return [
        score
        for score in scores()
        if chosen_by(score, printed) and split in {None, score.split} and metric in {None, score.metric}
    ]


def printed_split(dataset: str, split: str) -> str | None:
    """What papers call a data set's split, one of `SPLIT_IMAGES`; None where no printed number is of it."""
    if dataset.startswith("nocaps") or (dataset == "coco" and split == "nocaps"):
        return "nocaps-val"
    name = f"karpathy-{split}"
    return name if dataset == "coco" and name in SPLIT_IMAGES else None


def best_match(
    model: str, metric: str, measured: MeasuredConditions, *, domain: str = "overall"
) -> PublishedMatch | None:
    """The printed score of the same split with the conditions nearest to the measured ones; None where there is none.

    Nearest is the one of the same objective with the fewest differing, then unstated conditions, single models and the
    papers' own rows first. `domain` is the store's: nocaps' "in-domain", "near-domain", "out-domain", or "overall".
    """
    if measured.split is None:
        return None
    printed = {"overall": (None, "all")}.get(domain, (domain.removesuffix("-domain"),))
    candidates = [
        score for score in published_for(model, split=measured.split, metric=metric) if score.domain in printed
    ]
    return min([_compare(score, measured) for score in candidates], key=_distance, default=None)


def nearest(
    model: str, split: str, signature: Mapping[str, str], config: Mapping[str, Any], domain: str = "overall"
) -> PublishedMatch | None:
    """The printed CIDEr-D of a split with the conditions nearest to a run's; of captions, of their card's model."""
    model = (config.get("card") or {}).get("model", model)
    return best_match(model, "CIDEr-D", measured_conditions(split, signature, config), domain=domain)


def told_by_card(config: Mapping[str, Any]) -> float | None:
    """The CIDEr-D, in per cent, that a paper prints of captions that another system wrote, as their card has it."""
    return ((config.get("card") or {}).get("printed") or {}).get("CIDEr-D")


def measured_conditions(split: str, signature: Mapping[str, str], config: Mapping[str, Any]) -> MeasuredConditions:
    """The conditions of a run's scores on a split, from its signature and its configuration."""
    card = config.get("card")
    printed = printed_split(signature.get("data", "").partition("#")[0], split)
    if signature.get("track") == "captions" and card:
        return MeasuredConditions(printed, card["objective"] or None, card["beam"], None, None, bool(card["ensemble"]))
    stages = stages_of(config)
    beam = signature.get("beam", "")
    trained = any(stage.get("backbone") == "trained" for stage in stages)
    members = config.get("members", ())
    preset = config.get("preset") or {}
    shipped = config.get("shipped_preset")
    recipe = None  # of runs of the paper track that do not say how they deviate
    if shipped:
        recipe = RunRecipe(preset.get("name", ""), shipped["digest"], tuple(shipped["deviations"]))
    elif signature.get("track") == "controlled":
        recipe = RunRecipe(preset.get("name", ""))
    return MeasuredConditions(
        split=printed,
        objective=_OBJECTIVES.get(stages[-1].get("objective", "")) if stages else None,
        beam=int(beam) if beam.isdecimal() else None,
        features=signature.get("feat"),
        backbone=("trained" if trained else "frozen") if stages else None,
        ensemble=bool(members),
        models=len(members) or None,
        recipe=recipe,
        images=config.get("evaluated", {}).get(split),
    )


def _compare(score: PublishedScore, measured: MeasuredConditions) -> PublishedMatch:
    differing: list[str] = []
    unstated: list[str] = []
    unclear: list[str] = []
    for name in ("objective", "beam", "features", "ensemble"):
        same = _same_features(score, measured) if name == "features" else _same(score, measured, name)
        if getattr(score, name) is None:
            unstated.append(name)
        elif not same:
            (unclear if same is None else differing).append(name)
    if score.ensemble and None not in (score.ensemble_size, measured.models) and score.ensemble_size != measured.models:
        differing.append(f"ensemble ({measured.models} models, not {score.ensemble_size})")
    if score.backbone is not None and _same(score, measured, "backbone") is not True:
        (differing if measured.backbone else unclear).append("backbone")
    split_images = SPLIT_IMAGES.get(score.split or "")  # of a part of a split CIDEr-D is another number
    if measured.images is None or split_images is None:
        unclear.append("images")
    elif measured.images != split_images:
        differing.append(f"images ({measured.images:,}, not {split_images:,})")
    if measured.recipe is None:
        unclear.append("recipe")
    elif differing_recipe := _other_recipe(score, measured.recipe):
        differing.append(f"recipe ({differing_recipe})")
    return PublishedMatch(score, tuple(differing), tuple(unstated), tuple(unclear), tuple(footnotes(score)))


def _other_recipe(score: PublishedScore, run_recipe: RunRecipe) -> str:
    """What makes a run's recipe another than that of a printed row, "" where it is the same."""
    shipped = recipes().get(run_recipe.preset)
    if shipped is None:
        return f"preset {run_recipe.preset}" if run_recipe.preset else "no paper's"
    differences = [] if chosen_by(score, shipped.rows) else [f"{run_recipe.preset} is {shipped.whose}"]
    if shipped.digest != run_recipe.digest:
        differences.append(f"{run_recipe.preset} as another release ships it")
    remaining = len(run_recipe.deviations) - _MAX_DEVIATIONS
    differences += [*run_recipe.deviations[:_MAX_DEVIATIONS], *([f"{remaining} more"] if remaining > 0 else [])]
    return "; ".join(differences)


def _same(score: PublishedScore, measured: MeasuredConditions, name: str) -> bool | None:
    value = getattr(measured, name)
    return None if value is None else bool(value == getattr(score, name))


def _same_features(score: PublishedScore, measured: MeasuredConditions) -> bool | None:
    """None for features that no backbone's name identifies, such as those of a detector's regions."""
    printed = _BACKBONES.get(score.features or "")
    if printed is None or measured.features is None:
        return None
    architecture, _, tag = printed.partition(".")
    measured_architecture, _, measured_tag = re.split(r"[#@\[ ]", measured.features)[0].partition(".")
    if measured_architecture != architecture:
        return False
    if not tag:
        return True
    return measured_tag == tag if measured_tag else None  # of a name alone, weights may be any


def _distance(match: PublishedMatch) -> tuple[bool, int, int, bool]:
    """Numbers of another objective are furthest: reinforcement gains more than most models of a table differ by."""
    unknown = len(match.unstated) + len(match.unclear)
    return "objective" in match.differing, len(match.differing), unknown, bool(match.score.ensemble)


@dataclass(frozen=True, slots=True)
class AblationRow:
    """One printed row, its scores by metric, one of them, and the models of the zoo that are built as it says."""

    scores: Mapping[str, PublishedScore]
    first: PublishedScore
    models: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.first.model}: {self.first.variant}" if self.first.variant else self.first.model


@dataclass(frozen=True, slots=True)
class AblationTable:
    """A printed table: `rows` in its order, and the `metrics` that it has columns for."""

    paper: str
    table: str
    metrics: tuple[str, ...]
    rows: tuple[AblationRow, ...]


def ablation_tables(preset: str) -> tuple[AblationTable, ...]:
    """The tables whose rows a preset trains; none for other presets."""
    recipe = recipes().get(preset)
    tables = []
    for paper_table in recipe.ablation if recipe else ():
        rows = printed_rows(
            score for score in scores() if (score.paper, score.table) == paper_table and score.unit == "percent"
        )
        metrics = tuple(name for name in metric_names() if any(name in row for row in rows))
        ablation_rows = []
        for row in rows:
            first = next(iter(row.values()))
            models = tuple(name for name, printed in printed_of().items() if chosen_by(first, printed))
            ablation_rows.append(AblationRow(row, first, models))
        tables.append(AblationTable(*paper_table, metrics, tuple(ablation_rows)))
    return tuple(tables)
