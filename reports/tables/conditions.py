"""What each leaderboard is of, in words: the entries of the menus that choose one.

A word is as short as it can be while no two of the report's leaderboards that differ have the same: "regions" where
all regions are the same, "regions, windows:7, tf_efficientnet_lite2" where there are others. Digests are in signatures.
"""

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass

from results.runs.leaderboard import Group
from results.runs.run import SYSTEMS
from results.signature import format_fields

_TRAINING = ("schedule", "tuned", "reward", "sentences", "recipe", "trainlen")
_DATA = ("data", "split")
_DIGEST = re.compile(r"#[0-9a-f]{4,}")


@dataclass(frozen=True, slots=True)
class Conditions:
    """The words of one leaderboard by menu; "" if it has no such condition.

    `others` are the conditions that no other menu names, where only these tell it from another leaderboard.
    """

    data: str
    features: str = ""
    training: str = ""
    track: str = ""
    others: str = ""

    @property
    def words(self) -> dict[str, str]:
        """By the title of a menu its entry."""
        return {
            "Data": self.data,
            "Features": self.features,
            "Training": self.training,
            "Track": self.track,
            "Other conditions": self.others,
        }

    def title(self, menus: Collection[str]) -> str:
        """The data and the words of these menus, in one line."""
        return ", ".join(word for menu, word in self.words.items() if word and (menu == "Data" or menu in menus))

    def beside(self, other: "Conditions") -> str:
        """What differs from another's, in one line."""
        return ", ".join(word for menu, word in self.words.items() if word and word != other.words[menu])


def menus(conditions: Sequence[Conditions]) -> dict[str, list[str]]:
    """By title the menus that choose a leaderboard, each with the words that occur; those of one word are left out."""
    words: dict[str, dict[str, None]] = {}
    for condition in conditions:
        for title, word in condition.words.items():
            words.setdefault(title, {})[word] = None
    return {title: list(values) for title, values in words.items() if len(values) > 1}


def conditions_of(groups: Sequence[Group], titles: Mapping[str, str]) -> list[Conditions]:
    """The conditions of each group; `titles` are what data sets are called, by fingerprint."""
    data = [f"{titles[group.fingerprint]}, {group.split}" for group in groups]
    features = _distinct(
        [_features_key(group) for group in groups],
        [
            lambda group: _features(group, detailed=False),
            lambda group: _features(group, detailed=True),
            lambda group: without_digests(group.signature.get("feat", "")),
        ],
        groups,
    )
    training = _distinct(
        [_training_key(group) for group in groups],
        [
            lambda group: _training(group, named=False),
            lambda group: _training(group, named=True),
        ],
        groups,
    )
    track = [group.track if group.rows else "" for group in groups]
    shared = list(zip(data, features, training, track, strict=True))
    twins = [shared.count(words) > 1 for words in shared]
    others = _distinct(
        [_others_key(group) if twin else () for group, twin in zip(groups, twins, strict=True)],
        [_others_in_words],
        groups,
    )
    return [
        Conditions(*words, others=other_words if twin else "")
        for words, other_words, twin in zip(shared, others, twins, strict=True)
    ]


def _distinct(
    keys: Sequence[Hashable], spellings: Sequence[Callable[[Group], str]], groups: Sequence[Group]
) -> list[str]:
    """The words of each group by the first spelling in which groups of other keys have other words.

    If no spelling distinguishes all groups, those of the last one are numbered.
    """
    words: list[str] = []
    for spelling in spellings:
        words = [spelling(group) for group in groups]
        if len(set(zip(keys, words, strict=True))) == len(set(words)):
            return words
    numbers: dict[str, dict[Hashable, int]] = {}
    numbered = []
    for key, word in zip(keys, words, strict=True):
        numbers_of_word = numbers.setdefault(word, {})
        index = numbers_of_word.setdefault(key, len(numbers_of_word) + 1)
        numbered.append(word if index == 1 else f"{word} ({index})")
    return numbered


def _features_key(group: Group) -> Hashable:
    return group.signature.get("feat"), group.signature.get("graph")


def _features(group: Group, *, detailed: bool) -> str:
    """What the models see: "regions", "regions + grid", "grid" or "pixels"."""
    feat = group.signature.get("feat", "")
    if not feat or feat == "none":
        return ""
    if feat.startswith("pixels"):
        words = "pixels"
        detail = without_digests(feat.removeprefix("pixels").strip("[]"))
    elif feat.startswith("regions["):
        words = "regions + grid" if feat.endswith("+grid") else "regions"
        source, *parts_after_source = _parts(feat.removeprefix("regions["))
        backbone = parts_after_source[-1].partition("[")[0] if parts_after_source else ""
        detail = ", ".join(filter(None, (without_digests(source), without_digests(backbone))))
    else:
        words = "grid"
        detail = without_digests(feat)
    if "graph" in group.signature and group.signature["graph"] != "none":
        words += " + graphs"
    return f"{words}, {detail}" if detailed and detail else words


def _parts(text: str) -> list[str]:
    """What stands between the commas of a bracket that is already open, up to where it closes."""
    parts = [""]
    depth = 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if depth < 0:
            break
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _training_key(group: Group) -> Hashable:
    return tuple(group.signature.get(name) for name in _TRAINING)


def _training(group: Group, *, named: bool) -> str:
    """How long the models were trained, and with what: "504 updates", "3,000 updates with rewards, tuned"."""
    if group.track == SYSTEMS or not group.rows:
        return ""
    schedule = group.signature.get("schedule", "").partition("#")[0]
    words = group.training_steps or schedule
    if group.signature.get("reward", "none") != "none":
        words += " with rewards"
    if group.signature.get("tuned", "none") != "none":
        words += ", tuned"
    if named and group.training_steps and schedule:
        words += f", {schedule}"
    return words


def _others(group: Group) -> dict[str, str]:
    named_elsewhere = {*_TRAINING, *_DATA, "feat", "graph", "track"}
    return {name: group.fields.get(name, "none") for name in group.separating if name not in named_elsewhere}


def _others_in_words(group: Group) -> str:
    """Fields with their values, less those that a group has not; a part of a split is its number of images."""
    others = _others(group)
    fields = {name: value for name, value in others.items() if name != "subset" and value != "none"}
    parts = []
    if "subset" in others and group.scored_part is None:
        parts.append("all images")
    elif "subset" in others and group.scored_part is not None:
        scored, images = group.scored_part
        parts.append(f"{scored:,} of {images:,} images")
    if fields:
        parts.append(without_digests(format_fields(fields)))
    return ", ".join(parts)


def _others_key(group: Group) -> Hashable:
    return tuple(sorted(_others(group).items()))


def without_digests(text: str) -> str:
    """A signature's text without its digests, such as "#4cafb134"."""
    return _DIGEST.sub("", text)
