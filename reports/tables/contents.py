"""What a store has to show, read once: every page, table and export is made of this."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from reports.tables.conditions import Conditions, conditions_of, menus
from reports.tables.facts import card, objective
from results.metrics import RANKING_METRIC
from results.runs import reading
from results.runs.leaderboard import Group, leaderboard
from results.runs.run import DatasetInfo, Run
from results.runs.standings import RankingOptions
from results.store.store import Store

ONE_MODEL = "one model each"


def largest_first(group: Group) -> tuple[int, int]:
    """The order of tables: of most rows first, among these the longest training."""
    return -len(group.rows), -group.budget


@dataclass(frozen=True)
class Contents:
    """The comparability groups, largest first, with what is beside them.

    `runs` are all that were planned, by key; `finished` those with a result.
    """

    groups: tuple[Group, ...]
    datasets: tuple[DatasetInfo, ...]
    failures: tuple[Run, ...]
    finished: tuple[Run, ...]
    runs: Mapping[str, Run]

    @classmethod
    def read(cls, store: Store, metric: str = RANKING_METRIC, options: RankingOptions = RankingOptions()) -> Contents:
        """Everything in the store, with rows sorted and placed by `metric`."""
        with store.reading() as connection:
            all_runs = reading.read_runs(connection)
        finished = [run for run in all_runs if run.status == "finished"]
        failures = [run for run in all_runs if run.status != "finished"]
        groups = leaderboard(store, metric, options, runs=finished)
        groups.sort(key=largest_first)  # among equals, the store's order
        runs = {run.key: run for run in (*finished, *failures)}
        datasets = reading.datasets(store)
        return cls(tuple(groups), tuple(datasets), tuple(failures), tuple(finished), runs)

    @cached_property
    def families(self) -> dict[str, str]:
        families = {run.model: card(run).family for run in self.runs.values() if run.role == "model"}
        sizes = Counter(families.values())
        return {model: family if sizes[family] > 1 else ONE_MODEL for model, family in families.items()}

    @cached_property
    def facets(self) -> dict[str, dict[str, str]]:
        models = {key: run for key, run in self.runs.items() if run.role == "model"}
        return {key: {"family": self.families[run.model], "objective": objective(run)} for key, run in models.items()}

    @cached_property
    def images(self) -> dict[tuple[str, str], int]:
        return {(dataset.fingerprint, split): n for dataset in self.datasets for split, n in dataset.evaluated.items()}

    @cached_property
    def dataset_names(self) -> dict[str, str]:
        """What each data set is called, by fingerprint; those of one name are numbered."""
        names: dict[str, str] = {}
        counts = Counter[str]()
        for group in self.groups:
            if group.fingerprint not in names:
                counts[group.dataset] += 1
                count = counts[group.dataset]
                names[group.fingerprint] = group.dataset if count == 1 else f"{group.dataset} ({count})"
        return names

    @cached_property
    def conditions(self) -> list[Conditions]:
        """What each group is of, in words."""
        return conditions_of(self.groups, self.dataset_names)

    def words_of_runs(self, dataset: str, signature: Mapping[str, str]) -> str:
        """The conditions of runs with this signature, on any split, in words; "" if no leaderboard has such runs."""
        varying = [menu for menu in menus(self.conditions) if menu not in ("Data", "Track")]
        for conditions, group in zip(self.conditions, self.groups, strict=True):
            if (group.dataset, group.signature) == (dataset, signature):
                return ", ".join(word for menu in varying if (word := conditions.words[menu]))
        return ""

    def conditions_of(self, group: Group) -> Conditions:
        """What one group is of, in words."""
        identity = (group.fingerprint, group.split, group.fields)
        for conditions, candidate in zip(self.conditions, self.groups, strict=True):
            if (candidate.fingerprint, candidate.split, candidate.fields) == identity:
                return conditions
        raise ValueError(f"{group.name} is of another store")

    def details(self, group: Group) -> str:
        """What tells a group from others of its split, besides what its title says."""
        rivals = [
            conditions.words
            for conditions, rival_group in zip(self.conditions, self.groups, strict=True)
            if (rival_group.dataset, rival_group.split) == (group.dataset, group.split)
        ]
        conditions_here = self.conditions_of(group)
        beyond_title = (
            conditions_here.training.removeprefix(group.training_steps).removeprefix(" with rewards").removeprefix(", ")
        )
        words = {
            "Features": conditions_here.features,
            "Training": beyond_title,
            "Other conditions": conditions_here.others,
        }
        return ", ".join(word for menu, word in words.items() if word and len({rival[menu] for rival in rivals}) > 1)

    def title(self, group: Group) -> str:
        return group.name.replace(group.dataset, self.dataset_names[group.fingerprint], 1)
