"""What is read of a store: runs, their images' scores and captions, data sets; a few SQL queries however many runs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from sqlalchemy import ColumnElement, Connection, func, or_, select, true, type_coerce

from results.errors import StoreError
from results.metrics import depends_on
from results.records import AttentionRecord, CodeRecord, EpochRecord, ImageRecord, Quantity
from results.runs.facts import fact_counts, fact_influences, is_fact
from results.runs.run import DatasetInfo, Run
from results.runs.scores import OVERALL, ScoreKey
from results.statistics.score_matrix import ScoreMatrix
from results.statistics.significance import SUMS
from results.store import schema
from results.store.schema import Caption, Cost, DatasetRow, Epoch, HeldOutScore, Image, RunRow, Score, ScoreArrays
from results.store.store import Store

FINISHED = RunRow.status == "finished"


def read_runs(connection: Connection, *conditions: ColumnElement[bool]) -> list[Run]:
    """The runs that meet conditions on `RunRow` and `DatasetRow`, in the order of planning.

    Captions of a file are left out where other ones, that it held when it was asked for later, meet them too.
    """
    run_columns = [column for column in RunRow.__table__.columns if column.name in Run.__dataclass_fields__]
    of_dataset = (DatasetRow.name.label("dataset"), DatasetRow.fingerprint)
    query = select(*run_columns, RunRow.record, *of_dataset).join(DatasetRow)
    runs: dict[int, Run] = {}
    for row in connection.execute(query.where(*conditions).order_by(RunRow.id)).mappings():
        columns = dict(row)
        columns["code"] = row["code"] and CodeRecord(**row["code"])
        columns["config"] = described_config(row["config"], columns.pop("record"))
        runs[row["id"]] = Run(**columns)

    # Tens of thousands of rows: as tuples they are read in half the time that named fields take.
    def parts(table: type[Epoch | Score | HeldOutScore | Cost], *columns: Any) -> Any:
        return select(table.run_id, *columns).join(RunRow).join(DatasetRow).where(*conditions)

    of_epoch = [Epoch.__table__.columns[field.name] for field in fields(EpochRecord)]
    in_order = (Epoch.run_id, Epoch.stage, Epoch.epoch)
    for run_id, *values in connection.execute(parts(Epoch, *of_epoch).order_by(*in_order)):
        runs[run_id].epochs.append(EpochRecord(*values))
    scored = parts(Score, Score.split, Score.domain, Score.metric, *quantity_columns(Score))
    for run_id, split, domain, metric, *measured in connection.execute(scored.where(FINISHED).order_by(Score.id)):
        runs[run_id].scores.rows[ScoreKey(split, domain, metric)] = Quantity(*measured)
    of_held_out = (HeldOutScore.split, HeldOutScore.metric)
    held_out = parts(HeldOutScore, *of_held_out, HeldOutScore.value, HeldOutScore.reason)
    for run_id, split, metric, value, reason in connection.execute(held_out.where(FINISHED).order_by(*of_held_out)):
        runs[run_id].held_out.rows[ScoreKey(split, OVERALL, metric)] = Quantity(value, reason)
    spent = parts(Cost, Cost.name, *quantity_columns(Cost))
    for run_id, name, *measured in connection.execute(spent.where(FINISHED).order_by(Cost.id)):
        runs[run_id].costs[name] = Quantity(*measured)
    by_key = {run.key: run for run in runs.values()}
    for run in by_key.values():
        run.members.extend(by_key[key] for key in run.config.get("members", ()) if key in by_key)
    return _asked_last(list(by_key.values()))


def described_config(config: Mapping[str, Any] | None, record: Mapping[str, Any]) -> dict[str, Any]:
    """What a run was and what describes it, less its paths and how it was executed; of captionbench 1 the record alone.

    How its preset was made is described in the form of captionbench 1.
    """
    if config is None:
        return dict(record)
    left_out = {"files", "execution", "made_from"}
    if config["kind"] in {"reference", "captions", "stored"}:  # which no preset trains or decodes
        left_out.add("preset")
    described = {**record, **{name: value for name, value in config.items() if name not in left_out}}
    made_from = config["made_from"]
    if config["kind"] == "ensemble" or (config["kind"] == "trained" and "weights" not in config):
        described["shipped_preset"] = {"digest": made_from["digest"], "deviations": made_from["deviations"]}
    if tuned := made_from.get("tuned"):
        described["tuned"] = tuned["values"]
    return described


def _asked_last(runs: Sequence[Run]) -> list[Run]:
    """Less finished captions of a file that held others when it was asked for last."""
    ended = [(run, (run.fingerprint, run.card.get("file", run.key))) for run in runs if run.status == "finished"]
    ended.sort(key=lambda pair: pair[0].card.get("asked", ""))
    last = {file: run.card.get("sha256") for run, file in ended}
    newest = {(file, run.comparable): run.key for run, file in ended}  # its card may have changed
    now = {run.key for run, file in ended if run.card.get("sha256") == last[file]} & {*newest.values()}
    return [run for run in runs if run.status != "finished" or run.key in now]


def finished(
    store: Store, dataset: str | None = None, *, model: str | None = None, seed: int | None = None
) -> list[Run]:
    """Every finished run (of a data set, by fingerprint or name; of a model; of a seed), in the order of planning."""
    conditions: list[ColumnElement[bool]] = []
    if model is not None:
        conditions.append(RunRow.model == model)
    if seed is not None:
        conditions.append(RunRow.seed == seed)
    if dataset is not None:
        conditions.append(or_(DatasetRow.fingerprint == dataset, DatasetRow.name == dataset))
    with store.reading() as connection:
        return read_runs(connection, FINISHED, *conditions)


def failures(store: Store) -> list[Run]:
    with store.reading() as connection:
        return read_runs(connection, ~FINISHED)


def one_run(store: Store, key: str) -> Run:
    """This run, whatever its status; StoreError where it was never planned."""
    with store.reading() as connection:
        runs = read_runs(connection, RunRow.key == key)
    if not runs:
        raise StoreError(f"no run {key} in the results database")
    return runs[0]


@dataclass(frozen=True, slots=True)
class StoredRuns:
    """Finished runs, and the store that their captions and the scores of their images are read from when needed."""

    store: Store
    runs: list[Run]


def stored_runs(store: Store, keys: Collection[str] | None = None) -> StoredRuns:
    """The finished runs of these keys (None: all), in the order of planning; StoreError where one has not finished."""
    with store.reading() as connection:
        runs = read_runs(connection, FINISHED, true() if keys is None else RunRow.key.in_(keys))
        for key in (key for key in keys or () if key not in {run.key for run in runs}):
            status = connection.scalar(select(RunRow.status).where(RunRow.key == key))
            if status != "finished":  # else it was left out
                raise StoreError(
                    f"run {key} has not finished: it is {status}"
                    if status
                    else f"no run {key} in the results database",
                    _nearest(key, connection.scalars(select(RunRow.key).where(FINISHED)).all()),
                )
    return StoredRuns(store, runs)


def image_scores(
    connection: Connection, runs: Sequence[Run], split: str, metric: str, *, of_score: bool = False
) -> ScoreMatrix:
    """Scores of single images; with `of_score`, numbers whose mean is the split's score.

    These are influences on the metrics of `results.statistics.significance.SUMS`, and scores of all others.
    """
    table = schema.ImageInfluences if of_score and metric in SUMS else schema.ImageScores
    return _numbers_of_images(connection, table, runs, split, metric)


def image_influences(connection: Connection, runs: Sequence[Run], split: str, metric: str) -> ScoreMatrix:
    """The influences of single images on a metric that is no mean of their scores; on one of facts by their counts."""
    if not is_fact(metric):
        return _numbers_of_images(connection, schema.ImageInfluences, runs, split, metric)
    counts = _numbers_of_images(connection, schema.ImageScores, runs, split, fact_counts(depends_on(metric)))
    influences = {}
    for run in runs:
        scored = counts.scored(run.id)
        if scored.sum() > 1:
            influences[run.id] = counts.images[scored], fact_influences(counts.column(run.id)[scored], metric)
    return ScoreMatrix.from_runs(counts.runs, influences)


def _numbers_of_images(
    connection: Connection,
    table: type[schema.ImageScores | schema.ImageInfluences],
    runs: Sequence[Run],
    split: str,
    metric: str,
) -> ScoreMatrix:
    run_ids = [run.id for run in runs]
    query = select(table.run_id, type_coerce(table.scores, ScoreArrays))
    query = query.where(table.run_id.in_(run_ids), table.split == split, table.metric == metric)
    return ScoreMatrix.from_runs(run_ids, dict(connection.execute(query).all()))


def captions_of(store: Store, run: Run) -> dict[str, dict[int, str]]:
    """A run's captions, by split and image id."""
    captions: dict[str, dict[int, str]] = {}
    query = select(Caption.split, Caption.image_id, Caption.caption).where(Caption.run_id == run.id)
    with store.reading() as connection:
        for split, image_id, caption in connection.execute(query):
            captions.setdefault(split, {})[image_id] = caption
    return captions


def score_values(store: Store, keys: Collection[str], split: str, metric: str) -> dict[str, float]:
    """A whole split's score by run, of those runs that have one."""
    conditions = (RunRow.key.in_(keys), Score.split == split, Score.domain == OVERALL, Score.metric == metric)
    query = select(RunRow.key, Score.value).join(Score, Score.run_id == RunRow.id).where(*conditions, FINISHED)
    with store.reading() as connection:
        return {key: value for key, value in connection.execute(query) if value is not None}


def run_keys(store: Store, name: str) -> list[str]:
    """The keys of a model's finished runs; a run's key stands for itself, and nothing else does."""
    with store.reading() as connection:
        of_model = select(RunRow.key, RunRow.status).where(RunRow.model == name).order_by(RunRow.id)
        planned = dict(connection.execute(of_model).all())
        finished_keys = connection.scalars(select(RunRow.key).where(FINISHED)).all()
        models = connection.scalars(select(RunRow.model).where(FINISHED).distinct()).all()
        is_run = connection.scalar(select(RunRow.id).where(RunRow.key == name)) is not None
    if not (planned or is_run):
        raise StoreError(f"no model and no run is named {name}", _nearest(name, [*models, *finished_keys]))
    keys = [key for key, status in planned.items() if status == "finished"]
    if planned and not keys:
        statuses = ", ".join(dict.fromkeys(planned.values()))
        raise StoreError(f"no run of {name} has finished: {statuses}", _nearest(name, finished_keys))
    return keys or [name]


def attention_maps(store: Store, key: str, split: str) -> dict[int, AttentionRecord]:
    table = schema.AttentionMap
    records = {}
    query = select(table).join(RunRow, RunRow.id == table.run_id).where(RunRow.key == key, table.split == split)
    with store.reading() as connection:
        for row in connection.execute(query.order_by(table.image_id)).mappings():
            words = tuple(word for word in row["words"] if isinstance(word, str))
            sources = tuple(source for source in row["words"] if not isinstance(source, str))
            weights = tuple(map(tuple, row["weights"]))
            grid = None if row["grid_height"] is None else (row["grid_height"], row["grid_width"])
            boxes = None if row["boxes"] is None else tuple(map(tuple, row["boxes"]))
            among = weights[len(words) :]
            record = AttentionRecord(row["image_id"], words, weights[: len(words)], grid, boxes, sources, among)
            records[row["image_id"]] = record
    return records


def datasets(store: Store) -> list[DatasetInfo]:
    evaluated = select(Image.dataset_id, Image.split, func.count()).group_by(Image.dataset_id, Image.split)
    left_out = schema.SkippedImage
    skipped = select(left_out.dataset_id, left_out.file, left_out.reason).order_by(left_out.file)
    infos = {}
    with store.reading() as connection:
        for row in connection.execute(select(DatasetRow).order_by(DatasetRow.id)).mappings():
            infos[row["id"]] = DatasetInfo(row["name"], row["fingerprint"], row["root"], row["split_sizes"], {}, {})
        for dataset_id, split, count in connection.execute(evaluated.order_by(Image.split)):
            infos[dataset_id].evaluated[split] = count
        for dataset_id, file, reason in connection.execute(skipped):
            infos[dataset_id].skipped[file] = reason
    return list(infos.values())


def evaluated_images(store: Store) -> dict[str, dict[int, ImageRecord]]:
    images: dict[str, dict[int, ImageRecord]] = {}
    columns = Image.image_id, Image.file, Image.split, Image.references, Image.domain
    with store.reading() as connection:
        for data, image_id, file, split, references, domain in connection.execute(
            select(DatasetRow.fingerprint, *columns).join(DatasetRow)
        ):
            images.setdefault(data, {})[image_id] = ImageRecord(image_id, file, split, tuple(references), domain)
    return images


def quantity_columns(table: type[Score | Cost]) -> tuple[Any, ...]:
    return table.value, table.reason, table.unit, table.low, table.high


def _nearest(key: str, names: Sequence[str]) -> str:
    if not names:
        return "make some with: bench run --models all"
    return f"finished are, among others: {', '.join(get_close_matches(key, names, n=3, cutoff=0))}"
