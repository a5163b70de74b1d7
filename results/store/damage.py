"""Damaged rows: which runs, data sets and images they belong to, and the sentences that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["run", "data set", "image", "skipped images", "rows without a run"]
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Owner:
    """What is unusable where a value is damaged; it is left out, or set aside, as a whole.

    `id` is (run id), (data set id), (data set id, image id), or (table, run id) of rows without a run; `name` is the
    run's key with its model, or the data set's name.
    """

    kind: Kind
    id: tuple[Any, ...]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class Damage:
    """A column of an owner's rows in one table: `rows` of them are damaged, the first at `place`."""

    owner: Owner
    table: str
    column: str
    why: str
    place: str = ""
    rows: int = 1

    def __str__(self) -> str:
        where = f" (at {self.place})" if self.place else ""
        more = f", and so are {self.rows - 1} rows more" if self.rows > 1 else ""
        return f"{self.owner}: {self.table}.{self.column} {self.why}{where}{more}"


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What queries leave out, and why: runs and data sets by id, images by data set and image id.

    `skipped` are data sets whose list of skipped images is damaged. Runs of damaged data sets are among `runs`.
    """

    damage: tuple[Damage, ...] = ()
    runs: frozenset[int] = frozenset()
    datasets: frozenset[int] = frozenset()
    images: frozenset[tuple[int, int]] = frozenset()
    skipped: frozenset[int] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.damage)

    @property
    def owners(self) -> tuple[Owner, ...]:
        """Each owner once, in the order of the tables."""
        return tuple(dict.fromkeys(each.owner for each in self.damage))

    @property
    def reasons(self) -> dict[str, str]:
        """By owner, the first thing that is wrong with it."""
        found: dict[str, str] = {}
        for each in self.damage:
            found.setdefault(str(each.owner), f"{each.table}.{each.column} {each.why}")
        return found

    def why_run(self, run_id: int) -> str:
        """Why a run is left out."""
        own = (each for each in self.damage if each.owner.kind == "run" and each.owner.id == (run_id,))
        return next((f"{each.table}.{each.column} {each.why}" for each in own), "the row of its data set is damaged")


REMEDY = "`bench db check` lists what is damaged, `bench db check --set-aside` moves it out of the way"


def hint_for(database: str) -> str:
    """The remedy for a database that is not the command's own; a URL may hold a password, which is not repeated."""
    return REMEDY.replace("bench db check", f"bench db check --db {'URL' if '://' in database else database}")


def sentence(left_out: LeftOut) -> str:
    """One sentence for all that is left out."""
    reasons = [f"{owner}: {why}" for owner, why in left_out.reasons.items()]
    runs = len(left_out.runs)
    what = f"{runs} run{'s are' if runs > 1 else ' is'} left out, damaged" if runs else "damaged rows are left out"
    return f"{what} in the results database: {_listed(reasons)}"


def _listed(reasons: Sequence[str]) -> str:
    more = len(reasons) - _NAMED
    return "; ".join(reasons[:_NAMED]) + (f"; and {more} more" if more > 0 else "")
