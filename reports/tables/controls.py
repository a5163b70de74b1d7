"""How large a difference is without any other architecture, in words, from a table's control pairs."""

from __future__ import annotations

from results.runs.controls import ControlPair, Controls


def control_sentences(controls: Controls) -> tuple[str, ...]:
    """A sentence for each model with control pairs, the last one beside the table's own differences; in points."""
    pairs: dict[str, list[ControlPair]] = {}
    for pair in controls.pairs:
        pairs.setdefault(pair.model, []).append(pair)
    if not pairs:
        return ()
    said = [f"Not the architecture: {model} {'; '.join(map(_pair, of))}" for model, of in pairs.items()]
    if controls.largest is not None:
        said[-1] += f"; the models of this table differ by {_points(controls.largest)} at most, "
        said[-1] += f"{_points(controls.median or 0.0)} in the median"
    return tuple(f"{sentence}." for sentence in said)


def _pair(pair: ControlPair) -> str:
    counts = f"{pair.seeds[0]} against {pair.seeds[1]} seeds"
    if pair.low is None or pair.high is None or pair.p is None:
        measured = f"no interval, {pair.reason}; {counts}"
    else:
        p = "p below 0.001" if pair.p < 0.001 else f"p {pair.p:.3f}"
        measured = f"95 % {_points(pair.low)} to {_points(pair.high)}, {p}, {counts}"
    return f"{_changed(pair)} differs by {_points(pair.difference)} points ({measured})"


def _changed(pair: ControlPair) -> str:
    if pair.change is None:
        return "with other seeds"
    if pair.change.startswith("rescaled:"):
        return f"with images scaled by {pair.change.removeprefix('rescaled:')} first"
    return f"with the resize filter {pair.change}"


def _points(value: float) -> str:
    return f"{value:.1f}".replace("-0.0", "0.0")
