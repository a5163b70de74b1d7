"""The counts of several models, as the rows and notes that `bench flops` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.cli.tables import TableFormat, format_table

if TYPE_CHECKING:
    from harness.benchmark.hub import CheckpointCount
    from harness.benchmark.hub_model import HubModel
    from harness.measure.flops.backbone import BackboneCount
    from harness.measure.flops.counting import FlopCounts

_PARTS = ("encoder", "step", "greedy", "beam", "teacher_forced", "training")
_SEES_BACKBONE = {"grid", "regions", "regions+grid", "pooled"}


@dataclass(slots=True)
class CountedModels:
    """The models in the order asked for, with the count or the failure of each; `hub` has the checkpoints of `hf:`."""

    names: list[str]
    hub: dict[str, HubModel] = field(default_factory=dict)
    checkpoints: dict[str, CheckpointCount] = field(default_factory=dict)
    counts: dict[str, FlopCounts] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    backbone: BackboneCount | None = None

    def shown(self, name: str) -> str:
        """The name of a model's row."""
        return self.hub[name].row if name in self.hub else name

    def with_backbone(self, name: str) -> int | None:
        """Multiply-accumulates of a beam-searched caption with the backbone's, where the model looks through it."""
        from zoo import model_card

        if self.backbone is None or name not in self.counts:
            return None
        seen = self.backbone.count.macs if model_card(name).visual in _SEES_BACKBONE else 0
        return self.counts[name].beam.macs + seen


def model_row(name: str, found: CountedModels) -> list[str]:
    count = found.counts.get(name)
    if count is None:
        return [name, "failed", *["-"] * (len(_PARTS) + (found.backbone is not None))]
    macs = [getattr(count, part).macs for part in _PARTS]
    if (whole := found.with_backbone(name)) is not None:
        macs.append(whole)
    return [name, f"{count.parameters / 1e6:.2f} M", *map(gmac, macs)]


def gmac(macs: int) -> str:
    """Multiply-accumulates in GMAC."""
    return f"{macs / 1e9:.3f}" if macs < 100e9 else f"{macs / 1e9:.1f}"


def counting_notes(found: CountedModels, operators: bool) -> list[str]:
    """What is not counted; with `operators` by model, of a whole caption by beam search."""
    notes = []
    if (backbone := found.backbone) is not None:
        notes.append(
            f"Backbone {backbone.name} at {backbone.image_size} x {backbone.image_size}: "
            f"{backbone.count.macs / 1e9:.2f} GMAC, {backbone.parameters / 1e6:.1f} M parameters."
        )
    if not operators:
        most = max((count.beam.uncounted_share for count in found.counts.values()), default=0.0)
        notes.append(
            f"Not counted: element-wise work, at most about {100 * most:.1f} % of all operations; --operators lists it."
        )
        return notes
    for name, count in found.counts.items():
        part = count.beam
        counted = [f"{operator} {gmac(macs)}" for operator, macs in part.by_operator.items()]
        work = sum(part.element_wise.values()) + part.macs
        missing = [
            f"{operator} x{times}"
            + (f" ({100 * part.element_wise[operator] / work:.2f} %)" if operator in part.element_wise else "")
            for operator, times in part.uncounted.items()
        ]
        notes += [
            f"{name}, a caption by beam search. GMAC: {', '.join(counted)}.",
            f"Not counted, about {100 * part.uncounted_share:.2f} % of all operations: {', '.join(missing) or 'none'}.",
        ]
    return notes


def as_csv(found: CountedModels) -> str:
    """Exact multiply-accumulates, one line a model; with checkpoints of `hf:`, three columns more at the end."""
    header = ["model", "parameters", *(f"{part}_mac" for part in _PARTS), "beam_and_backbone_mac"]
    header += ["uncounted", "uncounted_share", "failure"]
    header += ["start_mac", "second_first_token_mac", "second_step_mac"] if found.hub else []
    rows = []
    for name in found.names:
        row: list[object | None] = [found.shown(name), *[None] * (len(header) - 1)]
        row[header.index("failure")] = found.failures.get(name)
        if name in found.counts:
            row[1:] = _exact(name, found)[: len(header) - 1]
        elif name in found.checkpoints:
            count = found.checkpoints[name]
            counts, again = count.counts, (None, None) if isinstance(count.again, str) else count.again
            row[1:6] = [count.parameters, counts.vision, counts.step, counts.greedy, counts.beam]
            row[-3:] = [counts.prefill, *again]
        rows.append(["" if value is None else str(value) for value in row])
    return format_table(header, rows, TableFormat.csv)


def _exact(name: str, found: CountedModels) -> list[object | None]:
    count = found.counts[name]
    macs = [*(getattr(count, part).macs for part in _PARTS), found.with_backbone(name)]
    uncounted = " ".join(f"{operator}:{times}" for operator, times in count.uncounted.items())
    share = f"{count.beam.uncounted_share:.6f}"
    return [count.parameters, *macs, uncounted, share, None, count.start.macs, None, None]
