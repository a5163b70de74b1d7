"""The counts of checkpoints of `hf:` as `bench flops` prints them: a table of their own, and its notes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from harness.cli.flops.counts import CountedModels, gmac

if TYPE_CHECKING:
    from harness.benchmark.hub import CheckpointCount


def checkpoint_header(beam_size: int, tokens: int, position: int | None) -> list[str]:
    """The table's titles; the step's has its position."""
    return ["Model", "Params", "Vision", "Prefill", f"Step {max(position or tokens, 2)}", "Greedy", f"Beam {beam_size}"]


def checkpoint_row(name: str, found: CountedModels) -> list[str]:
    """One checkpoint; "-" where it has no module of its own that sees."""
    count = found.checkpoints.get(name)
    if count is None:
        return [found.shown(name), "failed", *["-"] * 5]
    counts = count.counts
    macs = (counts.vision, counts.prefill, counts.step, counts.greedy, counts.beam)
    shown = ["-" if number is None else gmac(number) for number in macs]
    return [count.row, f"{count.parameters / 1e6:.2f} M", *shown]


def checkpoint_notes(found: CountedModels, picture: tuple[int, int], tokens: int) -> list[str]:
    """What was counted and how, and whether the second counter agrees."""
    asked = dict.fromkeys(count.prompt for count in found.checkpoints.values())
    wide, high = picture
    notes = [
        f"Checkpoints: GMAC by torch's counter. One picture of {wide} x {high}, {tokens} tokens, "
        f"prompt {', '.join(asked) or 'none'}. Vision: once. Prefill: all else up to the first token. Step: one token "
        "of one row, with keys and values kept. Norms and other element-wise work are not counted."
    ]
    by_answer: dict[str, list[str]] = {}
    for count in found.checkpoints.values():
        by_answer.setdefault(_agreement(count), []).append(count.row)
    return notes + [
        f"Second counter, fvcore, norms left out: {said} ({', '.join(of)})." for said, of in by_answer.items()
    ]


def _agreement(count: CheckpointCount) -> str:
    if isinstance(count.again, str):
        return f"cannot count, {count.again}"
    pairs = zip(count.again, (count.first, count.counts.step), strict=True)
    first, step = (0.0 if second == one else 100 * (second / one - 1) for second, one in pairs)
    if not first and not step:
        return "the same up to the first token, and of the step"
    return f"{first:+.2f} % up to the first token, {step:+.2f} % of the step"
