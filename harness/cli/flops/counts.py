"""The counts of several models, as the rows and notes that `bench flops` prints."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from harness.cli.tables import TableFormat, format_table

if TYPE_CHECKING:
    from harness.measure.flops.backbone import BackboneCount
    from harness.measure.flops.counting import FlopCounts

_PARTS = ("encoder", "step", "greedy", "beam", "teacher_forced", "training")
_SEES_BACKBONE = {"grid", "regions", "regions+grid", "pooled"}


@dataclass(slots=True)
class CountedModels:
    """The models in the order asked for, with the count or the failure of each."""

    names: list[str]
    counts: dict[str, FlopCounts] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    backbone: BackboneCount | None = None

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
    return [name, f"{count.parameters / 1e6:.2f} M", *map(_gmac, macs)]


def _gmac(macs: int) -> str:
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
        counted = [f"{operator} {_gmac(macs)}" for operator, macs in part.by_operator.items()]
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
    """Exact multiply-accumulates, one line a model."""
    header = ["model", "parameters", *(f"{part}_mac" for part in _PARTS), "beam_and_backbone_mac"]
    rows = []
    for name in found.names:
        if name in found.counts:
            count = found.counts[name]
            macs = [*(getattr(count, part).macs for part in _PARTS), found.with_backbone(name)]
            uncounted = " ".join(f"{operator}:{times}" for operator, times in count.uncounted.items())
            share = f"{count.beam.uncounted_share:.6f}"
            rows.append(
                [name, count.parameters, *("" if value is None else value for value in macs), uncounted, share, ""]
            )
        else:
            rows.append([name, *[""] * (len(_PARTS) + 4), found.failures[name]])
    cells = [[str(value) for value in row] for row in rows]
    return format_table([*header, "uncounted", "uncounted_share", "failure"], cells, TableFormat.csv)
