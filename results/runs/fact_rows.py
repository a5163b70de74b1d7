"""Facts of a table's rows by seeds and images: intervals, which rows no other surely beats, and sets of models."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from sqlalchemy import select

from results.records import Quantity
from results.runs.facts import FACT_METRICS, KINDS, fact_counts, fact_scores, unpacked
from results.runs.leaderboard import Group, Row
from results.runs.reading import image_scores
from results.runs.run import Run
from results.runs.scores import OVERALL
from results.runs.spreads import spreads, with_interval_over_seeds
from results.statistics.architecture import rank_models
from results.statistics.significance import Array, pseudo_values
from results.store.schema import DatasetRow, Image
from results.store.store import Store


@dataclass(frozen=True)
class FactTable:
    """The rows of a group that have facts, with intervals over seeds and images.

    `leading` are by metric the first keys of the models that no other is surely better than, all pairs corrected;
    `influences` by the first key of a row, (seeds, images, metrics), means of `FACT_METRICS`; `images` by domain.
    """

    group: Group
    leading: Mapping[str, frozenset[str]]
    influences: Mapping[str, Array]
    images: Mapping[str, int]


def fact_table(store: Store, group: Group, runs: Mapping[str, Run]) -> FactTable | None:
    """The facts of a group's rows whose runs all have counts; None where no row has, or only of a single image."""
    of_rows = {row.keys[0]: [runs[key] for key in row.keys] for row in (*group.rows, *group.references) if row.facts}
    with store.reading() as connection:
        every = [run for of_row in of_rows.values() for run in of_row]
        by_kind = [image_scores(connection, every, group.split, fact_counts(kind)) for kind in KINDS]
        images_of_split = select(Image.image_id, Image.domain).join(DatasetRow).where(Image.split == group.split)
        domain_of = dict(connection.execute(images_of_split.where(DatasetRow.fingerprint == group.fingerprint)).all())
    of_rows = {key: runs for key, runs in of_rows.items() if all(by_kind[0].has(run.id) for run in runs)}
    ids = by_kind[0].images[by_kind[0].common([run.id for of_row in of_rows.values() for run in of_row])]
    if len(ids) < 2:
        return None
    domains = [domain_of.get(image) for image in ids.tolist()]
    members = {OVERALL: np.ones(len(ids), bool)}
    members |= {name: np.array([domain == name for domain in domains]) for name in dict.fromkeys(domains) if name}

    def with_intervals(row: Row) -> Row:
        row_runs = of_rows[row.keys[0]]
        by_run = [np.stack([counts.of_ids(run.id, ids) for counts in by_kind], axis=-1) for run in row_runs]
        counts = np.nan_to_num(np.array(by_run))  # (seeds, images, kinds)
        facts = {}
        for domain, among in members.items():
            # (seeds, images, metrics), in the order of `FACT_METRICS`, of counts (seeds, images, kinds, 4)
            by_seed = [pseudo_values(of_seed, fact_scores) for of_seed in unpacked(counts[:, among])]
            values = np.reshape(by_seed, (len(row.keys), -1, len(FACT_METRICS)))
            if domain == OVERALL:
                influences[row.keys[0]] = values
            quantities = [run.scores.metrics(group.split, domain, "fact") for run in row_runs]
            facts[domain] = spreads(dict(zip(row.seeds, quantities, strict=True)))
            for metric, spread in facts[domain].items():
                if spread.n > 1 and metric in FACT_METRICS:
                    scored = [seed for seed, of_run in enumerate(quantities) if _is_known(of_run.get(metric))]
                    of_metric = np.ascontiguousarray(values[scored, :, FACT_METRICS.index(metric)])
                    facts[domain][metric] = with_interval_over_seeds(spread, metric, of_metric)
        return replace(row, facts=facts)

    influences: dict[str, Array] = {}
    ranked, references = (
        tuple(with_intervals(row) for row in rows if row.keys[0] in of_rows) for rows in (group.rows, group.references)
    )
    images = {domain: int(among.sum()) for domain, among in members.items()}
    return FactTable(
        replace(group, rows=ranked, references=references), _leading(ranked, influences), influences, images
    )


def _is_known(quantity: Quantity | None) -> bool:
    return quantity is not None and quantity.value is not None


def _leading(rows: Sequence[Row], influences: Mapping[str, Array]) -> dict[str, frozenset[str]]:
    """Of two rows or more; nobody where they have different numbers of seeds, which are no fair comparison."""
    if len(rows) < 2 or len({len(row.seeds) for row in rows}) > 1:
        return dict.fromkeys(FACT_METRICS, frozenset())
    keys = [row.keys[0] for row in rows]
    leading = {}
    for index, metric in enumerate(FACT_METRICS):
        if any(metric in row.facts[OVERALL] for row in rows):
            ranks = rank_models([influences[key][..., index] for key in keys]).ranks
            leading[metric] = frozenset(key for key, (best, _) in zip(keys, ranks, strict=True) if best == 1)
    return leading
