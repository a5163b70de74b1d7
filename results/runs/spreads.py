"""A row's numbers over its seeds: means, deviations and intervals, costs on one machine, or why there are none."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import fsum, sqrt
from statistics import fmean
from typing import Any, Final, Literal, get_args

from results.metrics import metric_info
from results.records import Quantity
from results.runs.run import Run
from results.statistics.architecture import OVER_IMAGES, OVER_SEEDS, architecture_mean
from results.statistics.estimate import Estimate
from results.statistics.significance import Array


@dataclass(frozen=True, slots=True)
class Spread:
    """One score over the seeds of a row, `n` of which have it; `reason` says why the others have not.

    `sd` is the sample standard deviation. `low` and `high` bound the 95 % interval of the mean, and `over` says over
    what: the images alone, or seeds and images (`results.statistics.architecture`); None where images' scores are not
    stored.
    """

    mean: float | None
    sd: float | None
    n: int
    reason: str | None = None
    low: float | None = None
    high: float | None = None
    over: str | None = None


Phase = Literal["trained", "measured"]

_UNITS: Final = frozenset({"s", "images/s", "GMAC/s", "%", "h", "J", "W"})
_AFTER_TRAINING: Final = ("latency_", "energy_", "idle_")


@dataclass(frozen=True, slots=True)
class OtherMachine:
    """Why a row's cost is not of all its seeds, or not comparable: some ran on another machine than most of the group.

    `explanation` names the machines. The cost is the mean over `seeds`, those on the machine of most rows; where there
    are none, it is over all seeds, and compares with no other row.
    """

    explanation: str
    seeds: tuple[int, ...]


def depends_on_machine(cost: str, unit: str) -> bool:
    """Whether another machine has another value: times, rates, power, and whether a time is noise."""
    return unit in _UNITS or cost == "latency_noisy"


def machine_of(environment: Mapping[str, Any], phase: Phase) -> str:
    """The device's name, else the processor's, of training or of later measurement; "" where it is not known."""
    measurement = environment.get("measurement") if phase == "measured" else None
    return (_name(measurement) if isinstance(measurement, dict) else "") or _name(environment)


def majority_machine(environments: Iterable[Mapping[str, Any]]) -> dict[Phase, str]:
    """By phase, the machine of most runs; "" where none is known."""
    environments = list(environments)
    majority: dict[Phase, str] = {}
    for phase in get_args(Phase):
        machines = [machine_of(environment, phase) for environment in environments]
        majority[phase] = _most(filter(None, machines))
    return majority


def _most(values: Iterable[str]) -> str:
    """What most values are, of equally many the last by name; "" without any."""
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value), default="")


_COMPUTING: Final = ("torch", "numpy", "timm", "transformers")


def versions(environment: Mapping[str, Any]) -> dict[str, str]:
    """By package, the version that a run was computed by, of those that bits depend on and that it recorded."""
    packages = environment.get("packages")
    by_package = packages if isinstance(packages, dict) else {}
    return {name: str(by_package[name]) for name in _COMPUTING if by_package.get(name)}


def rows_on_other_hardware(rows: Sequence[Sequence[Run]]) -> dict[int, str]:
    """By row number, on what processor or by which versions a row, or some of its seeds, was computed, unlike most.

    Most are the rows that have the seed too, where there are others: seeds divided alike in all rows differ in none.
    """
    computed = [{run.seed: {"": _name(run.environment), **versions(run.environment)} for run in runs} for runs in rows]
    most: dict[int, dict[str, str]] = {}
    for seed in {seed for by_seed in computed for seed in by_seed}:
        of_seed = [[by_seed[seed]] for by_seed in computed if seed in by_seed]
        compared = of_seed if len(of_seed) > 1 else [list(by_seed.values()) for by_seed in computed]
        most[seed] = {
            part: _most(value for of_row in compared for value in {run[part] for run in of_row if part in run})
            for part in ("", *_COMPUTING)
        }
    described: dict[int, str] = {}
    for index, (runs, by_seed) in enumerate(zip(rows, computed, strict=True)):
        others: dict[str, list[int]] = {}
        for seed, parts in by_seed.items():
            for part, value in parts.items():
                if value != most[seed][part]:
                    others.setdefault(f"{part} {value}".strip() or "an unknown machine", []).append(seed)
        if others:
            described[index] = " and ".join(
                text if len(seeds) == len(runs) else f"{text} ({_named(seeds)})" for text, seeds in others.items()
            )
    return described


def _named(seeds: Sequence[int]) -> str:
    noun = "seed" if len(seeds) == 1 else "seeds"
    return f"{noun} {', '.join(map(str, seeds))}"


def _name(environment: Mapping[str, Any]) -> str:
    device = environment.get("device")
    name = device.get("name") if isinstance(device, dict) else None
    return str(name or environment.get("cpu") or "")


def spreads(by_seed: Mapping[int, Mapping[str, Quantity]]) -> dict[str, Spread]:
    """Every metric over seeds, with the interval over images where one seed has it."""
    by_metric = {}
    for metric in dict.fromkeys(metric for scores in by_seed.values() for metric in scores):
        measured, values, reason = _measured({seed: scores.get(metric) for seed, scores in by_seed.items()})
        mean = fmean(values) if values else None
        deviation = None
        if mean is not None and len(values) > 1:  # `statistics.stdev`, by exact fractions, takes twenty times as long
            deviation = sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1))
        spread = Spread(mean, deviation, len(values), reason)
        if len(values) == 1:
            [only] = measured.values()
            spread = replace(spread, low=only.low, high=only.high, over=None if only.low is None else OVER_IMAGES)
        by_metric[metric] = spread
    return by_metric


def with_interval_over_seeds(spread: Spread, metric: str, scores: Array | None) -> Spread:
    """The spread of several seeds with the interval of its mean, by the `scores` (seeds, images) of those that have it.

    t knows no bounds, scores do: the interval ends at 0 and at the highest score that there can be.
    """
    mean = Estimate(None) if scores is None else architecture_mean(scores)
    if mean.low is None or mean.high is None:
        return spread
    highest = metric_info(metric).highest
    return replace(spread, low=max(mean.low, 0.0), high=min(mean.high, highest), over=OVER_SEEDS)


def row_costs(
    runs: Sequence[Run], machines: Mapping[Phase, str]
) -> tuple[dict[str, Quantity], dict[str, OtherMachine]]:
    """A row's costs over its seeds, and which of them are not, or not of all seeds, from `machines`.

    Costs that depend on the machine are means over the seeds that have them from this one; where none has, over all.
    """
    costs: dict[str, Quantity] = {}
    others: dict[str, OtherMachine] = {}
    for name in dict.fromkeys(name for run in runs for name in run.costs):
        by_seed = {run.seed: run.costs.get(name) for run in runs}
        unit = next(run.costs[name].unit for run in runs if name in run.costs)
        if depends_on_machine(name, unit):
            phase: Phase = "measured" if name.startswith(_AFTER_TRAINING) else "trained"
            measured = (run for run in runs if name in run.costs and run.costs[name].value is not None)
            machine_by_seed = {run.seed: machine_of(run.environment, phase) for run in measured}
            seeds_here = [seed for seed, machine in machine_by_seed.items() if machine in ("", machines[phase])]
            if len(seeds_here) < len(machine_by_seed):
                elsewhere = {machine for seed, machine in machine_by_seed.items() if seed not in seeds_here}
                names = " and ".join(sorted(elsewhere))
                most = machines[phase]
                reason = f"{phase} on {names}, most others on {most}"
                if seeds_here:
                    reason = f"of {len(seeds_here)} of {len(machine_by_seed)} seeds, {phase} on {most} as most others"
                    reason += f"; the rest was on {names}"
                others[name] = OtherMachine(reason, tuple(seeds_here))
                by_seed = {seed: by_seed[seed] for seed in seeds_here or machine_by_seed}
        costs[name] = _mean_cost(by_seed)
    return costs, others


def _mean_cost(by_seed: Mapping[int, Quantity | None]) -> Quantity:
    """A cost over seeds, between the means of its bounds."""
    measured, values, reason = _measured(by_seed)
    unit = next((cost.unit for cost in by_seed.values() if cost is not None), "")
    if not values:
        return Quantity(None, reason, unit)
    bounds = (
        [low for cost in measured.values() if (low := getattr(cost, side)) is not None] for side in ("low", "high")
    )
    low, high = (fmean(side_values) if len(side_values) == len(values) else None for side_values in bounds)
    return Quantity(fmean(values), None, unit, low, high)


def _measured(by_seed: Mapping[int, Quantity | None]) -> tuple[dict[int, Quantity], list[float], str | None]:
    """The seeds that have a value, these values, and why the others have none."""
    measured = {}
    values = list[float]()
    reasons = dict[str, list[int]]()
    for seed, quantity in by_seed.items():
        if quantity is not None and quantity.value is not None:
            measured[seed] = quantity
            values.append(quantity.value)
        else:
            reasons.setdefault((None if quantity is None else quantity.reason) or "not recorded", []).append(seed)
    if not values and len(reasons) == 1:
        return measured, values, next(iter(reasons))
    return measured, values, "; ".join(f"{_named(seeds)}: {reason}" for reason, seeds in reasons.items()) or None
