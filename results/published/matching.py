"""Which printed number stands beside a measured one, and whether their conditions are the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from results.published.footnotes import Footnote, footnotes
from results.published.names import NAMES
from results.published.scores import Backbone, Objective, PublishedScore, scores

# What a measured run's features are called, for the printed ones that can be told from a backbone's name.
_BACKBONES = {
    "Swin-L grid features, 384x384 input, backbone pre-trained on ImageNet": "swin_large_patch4_window12_384",
    "ResNet-50 pool5 vector": "resnet50",
}
_OBJECTIVES: dict[str, Objective] = {"cross_entropy": "XE", "self_critical": "RL", "reinforce": "RL"}


@dataclass(frozen=True, slots=True)
class Conditions:
    """What a measured number was measured under, as far as papers state such things; None where it is not known.

    `features` is the signature's field. `recipe` says whether the model was trained as its paper says.
    """

    split: str | None
    objective: Objective | None
    beam: int | None
    features: str | None
    backbone: Backbone | None
    ensemble: bool = False
    recipe: bool = False


@dataclass(frozen=True, slots=True)
class PublishedMatch:
    """A printed number beside a measured one.

    `differing` names the conditions that differ, `unstated` those that the paper does not state, `unclear` those that
    cannot be compared. `matches` is true only where all three are empty.
    """

    score: PublishedScore
    differing: tuple[str, ...]
    unstated: tuple[str, ...]
    unclear: tuple[str, ...]
    footnotes: tuple[Footnote, ...]

    @property
    def matches(self) -> bool:
        """Whether every condition is stated and the same."""
        return not (self.differing or self.unstated or self.unclear)


def published_for(model: str, *, split: str | None = None, metric: str | None = None) -> list[PublishedScore]:
    """The printed numbers of a model of the zoo (of one split, one metric; None: of all), in the papers' order.

    A plug-in's model, and one whose rows no paper prints, has none.
    """
    printed = NAMES.get(model, ())
    return [
        score
        for score in scores()
        if any(rows.covers(score) for rows in printed)
        and split in {None, score.split}
        and metric in {None, score.metric}
    ]


def best_match(model: str, metric: str, measured: Conditions, *, domain: str = "overall") -> PublishedMatch | None:
    """The printed score whose conditions are nearest to the measured ones; None where none is printed.

    Nearest is the one of the same objective with the fewest differing, then unstated conditions, single models and the
    papers' own rows first. `domain` is the store's: nocaps' "in-domain", "near-domain", "out-domain", or "overall".
    """
    printed = {"overall": (None, "all")}.get(domain, (domain.removesuffix("-domain"),))
    found = [score for score in published_for(model, metric=metric) if score.domain in printed]
    matches = [_compare(score, measured) for score in found]
    return min(matches, key=_distance, default=None)


def measured_conditions(split: str, signature: Mapping[str, str], config: Mapping[str, Any]) -> Conditions:
    """The conditions of a cell's scores on a split, from its signature and its configuration."""
    stages = _stages(config)
    beam = signature.get("beam", "")
    trained = any(stage.get("backbone") == "trained" for stage in stages)
    return Conditions(
        split=_split(signature.get("data", "").partition("#")[0], split),
        objective=_OBJECTIVES.get(stages[-1].get("objective", "")) if stages else None,
        beam=int(beam) if beam.isdecimal() else None,
        features=signature.get("feat"),
        backbone=("trained" if trained else "frozen") if stages else None,
        recipe=signature.get("track") == "paper",
    )


def _stages(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The schedule's stages, none where the configuration has none: another program may have stored the run."""
    found: Any = config
    for name in ("preset", "schedule", "stages"):
        found = found.get(name) if isinstance(found, Mapping) else None
    return [stage for stage in found if isinstance(stage, Mapping)] if isinstance(found, list) else []


def _split(dataset: str, split: str) -> str:
    """A split's name in the papers, where they have it."""
    if dataset.startswith("nocaps") or (dataset == "coco" and split == "nocaps"):
        return "nocaps-val"
    return f"karpathy-{split}" if dataset == "coco" else f"{dataset}-{split}"


def _compare(score: PublishedScore, measured: Conditions) -> PublishedMatch:
    differing: list[str] = []
    unstated: list[str] = []
    unclear: list[str] = []
    for name in ("split", "objective", "beam", "features", "ensemble"):
        if getattr(score, name) is None:
            unstated.append(name)
            continue
        same = _same_features(score, measured) if name == "features" else _same(score, measured, name)
        if same is None:
            unclear.append(name)
        elif not same:
            differing.append(name)
    if score.backbone is not None and _same(score, measured, "backbone") is not True:
        (differing if measured.backbone else unclear).append("backbone")
    if not measured.recipe:  # what papers print is of their own recipes
        differing.append("recipe")
    return PublishedMatch(score, tuple(differing), tuple(unstated), tuple(unclear), tuple(footnotes(score)))


def _same(score: PublishedScore, measured: Conditions, name: str) -> bool | None:
    own = getattr(measured, name)
    return None if own is None else bool(own == getattr(score, name))


def _same_features(score: PublishedScore, measured: Conditions) -> bool | None:
    """None for features that no backbone's name tells, such as those of a detector's regions."""
    printed = _BACKBONES.get(score.features or "")
    if printed is None or measured.features is None:
        return None
    return re.split(r"[.#@\[]", measured.features)[0] == printed


def _distance(match: PublishedMatch) -> tuple[bool, bool, int, int, bool]:
    """Numbers of another split are further away than any other, then those of another objective.

    What reinforcement gains is more than what most models of a table differ by.
    """
    score = match.score
    return (
        "split" in match.differing and score.split != "karpathy-test",
        "objective" in match.differing,
        len(match.differing),
        len(match.unstated) + len(match.unclear),
        bool(score.ensemble),
    )
