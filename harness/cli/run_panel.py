"""What `bench run` shows on a terminal: a line for each running run, the progress of all, and the leading models."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from harness.config.run import config_of
from harness.utils.progress import Line, describe_seconds
from results.records import RunSpec
from results.runs.reading import score_values
from results.store.store import Store
from results.text import printable

_ENDED = {"finished", "failed", "skipped"}
_LEADING = 5
_FEWEST_RUNNING = 3
"""Lines of running models that are kept on a small screen, in place of the leading models."""
_UNKNOWN = "-"


@dataclass(frozen=True, slots=True)
class RunName:
    """The panel's name of a run; `row` is the model with its budget, which its seeds share."""

    title: str
    row: str
    is_reference: bool


def name_of(spec: RunSpec) -> RunName:
    """The panel's name of a planned run."""
    budget = 1 if spec.config is None else config_of(spec).made_from.budget
    row = spec.model if budget == 1 else f"{spec.model} budget {budget}"
    return RunName(f"{row} seed {spec.seed}", row, spec.role == "reference")


class RunPanel:
    """The runs of one command.

    Args:
        names: by key, in the order of execution.
        elsewhere: whether other processes execute the runs; their lines are then printed from the store.
        rerun: whether finished runs are trained again.
    """

    def __init__(
        self,
        store: Store,
        names: Mapping[str, RunName],
        *,
        elsewhere: bool,
        rerun: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._names = names
        self._elsewhere = elsewhere
        self._clock = clock
        self._runs = store.progress(list(names))
        self._reused = {key for key, run in self._runs.items() if run.status == "finished" and not rerun}
        self._attempts = {key: run.attempts for key, run in self._runs.items()}
        self._reported = {key: run.lines_reported for key, run in self._runs.items()}
        self._started = clock()
        self._ended_at_ranking = -1
        self._leading: list[tuple[str, float, int]] = []

    def refresh(self) -> None:
        """Read the store."""
        self._runs = self._store.progress(list(self._names))
        ended = len(self._ended())
        if ended != self._ended_at_ranking:
            self._ended_at_ranking = ended
            self._leading = self._rank()

    def new_lines(self) -> Sequence[Line]:
        """The last lines of runs in other processes, each once, with the run's name."""
        if not self._elsewhere:
            return ()
        lines = []
        for key, run in self._runs.items():
            already_shown = self._reported[key]
            if run.lines_reported < already_shown:  # counted anew by another attempt
                already_shown = 0
            self._reported[key] = run.lines_reported
            count = run.lines_reported - already_shown
            if count > 0:
                for text, style, log in (run.said or {}).get("lines", [])[-count:]:
                    lines.append(Line(f"{self._names[key].title}: {text}", style, log))
        return lines

    def seconds_left(self) -> float | None:
        """An estimate from the mean time of the models that have ended; None before the first has.

        References take a moment: they count only where there are no models.
        """
        counted = {key for key, name in self._names.items() if not name.is_reference} or self._names.keys()
        ended = len(self._ended() & counted)
        if not ended:
            return None
        return (self._clock() - self._started) / ended * len(counted - self._done())

    def render(self, width: int, height: int) -> RenderableType:
        """The panel; on a small screen the leading models are left out first."""
        running = [(key, run.said or {}) for key, run in self._runs.items() if run.status == "running"]
        leading = self._leading[:_LEADING]
        lines = height - 5  # without headings, empty lines and the progress bar
        if leading and min(len(running), _FEWEST_RUNNING) + len(leading) + 2 > lines:
            leading = []
        if leading:
            lines -= len(leading) + 2
        most = max(lines, 1)
        parts: list[RenderableType] = [self._running_table(running[:most])]
        if len(running) > most:
            parts.append(Text(f"and {len(running) - most} more", style="dim"))
        parts += [Text(), self._overall_progress(width)]
        if leading:
            parts += [Text(), self._leading_table(leading)]
        return Group(*parts)

    def _done(self) -> set[str]:
        """The runs that have ended, and those that were re-used."""
        return self._ended() | self._reused

    def _ended(self) -> set[str]:
        """The runs that this command has executed."""
        return {
            key for key, run in self._runs.items() if run.status in _ENDED and run.attempts > self._attempts.get(key, 0)
        }

    def _rank(self) -> list[tuple[str, float, int]]:
        """Model, mean CIDEr-D of its runs in points, and number of runs; the best model first."""
        models = [key for key in self._done() if not self._names[key].is_reference]
        scores = defaultdict(list)
        for key, value in score_values(self._store, models, "test", "CIDEr-D").items():
            scores[self._names[key].row].append(100 * value)
        means = [(row, fmean(values), len(values)) for row, values in scores.items()]
        return sorted(means, key=lambda mean: -mean[1])

    def _running_table(self, running: Sequence[tuple[str, Mapping[str, Any]]]) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, expand=True, header_style="bold")
        table.add_column("Running", no_wrap=True, overflow="ellipsis", ratio=1)
        table.add_column("Stage", no_wrap=True, overflow="ellipsis", max_width=17)
        for heading, width in (("Epoch", 5), ("Loss", 5), ("CIDEr-D", 7), ("Images/s", 8)):
            table.add_column(heading, justify="right", no_wrap=True, min_width=width)
        for key, progress in running:
            epoch = progress.get("epoch")
            loss = progress.get("loss")
            cider = progress.get("cider")
            speed = progress.get("images_per_second")
            table.add_row(
                Text(printable(self._names[key].title)),
                Text(printable(progress.get("doing") or "starting")),
                _UNKNOWN if epoch is None else f"{epoch}/{progress['epochs']}",
                _UNKNOWN if loss is None else f"{loss:.2f}",
                _UNKNOWN if cider is None else f"{100 * cider:.1f}",
                _UNKNOWN if speed is None else f"{speed:,.0f}",
            )
        return table

    def _overall_progress(self, width: int) -> RenderableType:
        done = len(self._done())
        total = len(self._names)
        failed = sum(self._runs[key].status == "failed" for key in self._ended())
        text = Text(f"{done} of {total} runs", style="bold")
        if failed:
            text.append(f", {failed} failed", style="bold red")
        text.append(f"  {describe_seconds(self._clock() - self._started)}", style="not bold")
        if done < total:
            seconds = self.seconds_left()
            if seconds is not None:
                text.append(f", about {describe_seconds(seconds)} left", style="not bold")
        grid = Table.grid(padding=(0, 1, 0, 0))
        grid.add_row(ProgressBar(total=total, completed=done, width=max(min(20, width - text.cell_len - 2), 4)), text)
        return grid

    def _leading_table(self, leading: Sequence[tuple[str, float, int]]) -> Table:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
        table.add_column("Leading so far", no_wrap=True)
        table.add_column("CIDEr-D", justify="right")
        table.add_column("Runs", justify="right")
        for row, score, count in leading:
            table.add_row(Text(printable(row)), f"{score:.1f}", str(count))
        return table
