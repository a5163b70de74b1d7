"""The store: every public write is one transaction, so a process killed at any instant leaves nothing half-written."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, cast

from sqlalchemy import URL, Connection, RowMapping, delete, insert, inspect, or_, select, update

from results.errors import StoreError, without_passwords
from results.records import CodeRecord, DatasetRecord, EpochRecord, Outcome, RunSpec, Status
from results.store import engine
from results.store.check import refuse_damaged_row
from results.store.engine import resolve_url, show, sqlite_file, translated, writing
from results.store.revisions import ensure_current, opened
from results.store.rows import (
    Columns,
    epoch_columns,
    insert_all,
    json_object,
    outcome_columns,
    planned_columns,
    run_columns,
    text,
)
from results.store.schema import DatasetRow, Epoch, Image, RunRow, SkippedImage

_NO_FAILURE = dict.fromkeys(("reason", "error_class", "log_tail"))
"""Columns of a failure, which an attempt that begins, or a run that has finished, has not."""


_SPECS = select(
    *(getattr(RunRow, column.name) for column in fields(RunSpec) if column.name != "dataset"),
    DatasetRow.fingerprint.label("dataset"),
).join(DatasetRow)
"""What `RunSpec` has of a run."""


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is; `said` is what its latest attempt last reported (`Store.report_progress`)."""

    status: Status
    attempts: int
    said: dict[str, Any] | None

    @property
    def lines_reported(self) -> int:
        """The number of lines that the attempt has reported; the last of them are in `said["lines"]`."""
        return 0 if self.said is None else int(self.said.get("reported", 0))


class Store:
    """Results of many runs. Several processes may write to one store at once; they wait for each other.

    Every method raises StoreError where the database cannot be opened, read or written, or a value may not be stored.
    """

    def __init__(self, url_or_path: str | Path | URL, *, create: bool = True, read_only: bool = False) -> None:
        self._url = resolve_url(url_or_path)
        self._read_only = read_only
        create = create and not read_only
        engine.check_file(self._url, create=create)
        self._reader = engine.open_engine(self._url, read_only=read_only)
        self._writer = writing(self._reader)
        try:
            if create:
                self._refuse_other_programs()
                with translated(self._url):
                    engine.use_write_ahead_log(self._reader)
            with self.writing() if create else self.reading() as connection:
                ensure_current(connection, self._url, create=create)
        except BaseException:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"Store({show(self._url)!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> URL:
        return self._url

    @property
    def name(self) -> str:
        """How messages name the database: its file, or its URL without the password."""
        return show(self._url)

    def close(self) -> None:
        self._reader.dispose()

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A connection in one read transaction, of one instant on SQLite; StoreError names a damaged row."""
        with translated(self._url), self._reader.connect() as connection, connection.begin():
            try:
                yield connection
            except Exception as error:
                refuse_damaged_row(connection, error)
                raise

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A connection in one write transaction; others that write wait for its end."""
        if self._read_only:
            raise StoreError(f"the results database {show(self._url)} was opened read-only")
        with translated(self._url), self._writer.begin() as connection:
            yield connection

    def record_dataset(self, record: DatasetRecord) -> None:
        """Store a data set by its fingerprint; again updates its root and skipped images and adds what is missing."""
        skipped = [{"file": file, "reason": text(reason)} for file, reason in record.skipped.items()]
        columns = {
            "name": record.name,
            "root": record.root,
            "split_sizes": json_object(record.split_sizes, f"data set {record.name}: split sizes"),
        }
        find = select(DatasetRow.id).where(DatasetRow.fingerprint == record.fingerprint)
        with self.writing() as connection:
            if connection.scalar(find) is None:
                first = {"fingerprint": record.fingerprint, "recorded_at": _now()}
                connection.execute(insert(DatasetRow).values(**first, **columns))
            dataset_id = connection.scalars(find).one()
            connection.execute(update(DatasetRow).where(DatasetRow.id == dataset_id).values(columns))
            add_images(connection, dataset_id, map(asdict, record.images))
            connection.execute(delete(SkippedImage).where(SkippedImage.dataset_id == dataset_id))
            insert_all(connection, SkippedImage, skipped, dataset_id=dataset_id)

    def plan(self, specs: Sequence[RunSpec]) -> None:
        """Store runs as "planned", so that none is missing without a reason.

        Those already known take the new `config`, which may differ in files and execution, and the new `record` unless
        they are finished; captions of another system take it anyway, since nothing but their card may have changed.
        """
        with self.writing() as connection:
            datasets = dict(connection.execute(select(DatasetRow.fingerprint, DatasetRow.id)).all())
            statuses = dict(connection.execute(select(RunRow.key, RunRow.status)).all())
            rows = {spec.key: run_columns(spec, datasets) for spec in specs if spec.key not in statuses}
            insert_all(connection, RunRow, rows.values())
            for spec in specs:
                if spec.key in statuses:
                    columns = planned_columns(spec)
                    if statuses[spec.key] == "finished" and spec.kind != "captions":
                        del columns["record"]
                    connection.execute(update(RunRow).where(RunRow.key == spec.key).values(columns))

    def spec(self, key: str) -> RunSpec:
        """A run as it was planned; StoreError where it never was."""
        with self.reading() as connection:
            row = connection.execute(_SPECS.where(RunRow.key == key)).mappings().one_or_none()
        if row is None:
            raise never_planned(key)
        return _spec(row)

    def finished_specs(self) -> list[RunSpec]:
        """All finished runs as they were planned, in the order in which they ended."""
        finished = _SPECS.where(RunRow.status == "finished").order_by(RunRow.finished_at)
        with self.reading() as connection:
            return [_spec(row) for row in connection.execute(finished).mappings()]

    def keys(self, status: Collection[Status]) -> list[str]:
        """The keys of all runs of these statuses, in the order in which they were planned."""
        with self.reading() as connection:
            return list(connection.scalars(select(RunRow.key).where(RunRow.status.in_(status)).order_by(RunRow.id)))

    def report_progress(self, key: str, progress: Mapping[str, Any]) -> None:
        """Store what a running run is at, JSON-able, for others to see; nothing where it is not running."""
        self._update_running(key, progress=json_object(progress, f"run {key}: progress"))

    def progress(self, keys: Collection[str]) -> dict[str, RunProgress]:
        """By key, in the order of planning, how far runs are."""
        columns = (RunRow.key, RunRow.status, RunRow.attempts, RunRow.progress)
        query = select(*columns).where(RunRow.key.in_(keys)).order_by(RunRow.id)
        with self.reading() as connection:
            return {key: RunProgress(*values) for key, *values in connection.execute(query)}

    def status(self, key: str) -> Status | None:
        with self.reading() as connection:
            return cast("Status | None", connection.scalar(select(RunRow.status).where(RunRow.key == key)))

    def begin(self, key: str, environment: Mapping[str, Any], code: CodeRecord | None = None) -> None:
        """Mark a run as running in `environment` (versions, device), by this `code`; one more attempt."""
        columns = {
            **_NO_FAILURE,
            "progress": None,
            "status": "running",
            "attempts": RunRow.attempts + 1,
            "environment": json_object(environment, f"run {key}: environment"),
            "started_at": _now(),
            "finished_at": None,
            **({} if code is None else {"code": asdict(code)}),
        }
        with self.writing() as connection:
            connection.execute(update(RunRow).where(RunRow.id == _run_id(connection, key)).values(columns))

    def record_epoch(self, key: str, record: EpochRecord) -> None:
        """Store an epoch; again replaces it, and drops later ones: they are of an attempt that was given up."""
        columns = epoch_columns(key, record)
        with self.writing() as connection:
            run_id = _run_id(connection, key)
            given_up = or_(Epoch.stage > record.stage, (Epoch.stage == record.stage) & (Epoch.epoch >= record.epoch))
            connection.execute(delete(Epoch).where(Epoch.run_id == run_id, given_up))
            connection.execute(insert(Epoch).values(run_id=run_id, **columns))

    def finish(self, key: str, outcome: Outcome) -> None:
        rows = outcome_columns(key, outcome)
        columns = {
            **_NO_FAILURE,
            "status": "finished",
            "finished_at": _now(),
            "checkpoint": outcome.checkpoint,
            "environment": json_object(outcome.environment, f"run {key}: environment"),
            "operators": json_object(outcome.operators, f"run {key}: operators"),
        }
        with self.writing() as connection:
            run_id = _run_id(connection, key)
            for table, entries in rows.items():
                connection.execute(delete(table).where(table.run_id == run_id))
                insert_all(connection, table, entries, run_id=run_id)
            connection.execute(update(RunRow).where(RunRow.id == run_id).values(columns))

    def fail(self, key: str, error_class: str, reason: str, log_tail: str) -> None:
        self._end(key, "failed", reason or error_class, text(error_class), log_tail)

    def skip(self, key: str, reason: str) -> None:
        self._end(key, "skipped", reason, None, None)

    def interrupt(self, key: str, reason: str) -> None:
        """Store why a running run was given up for now: it stays "running", with a reason and an end; others stay."""
        self._update_running(key, reason=text(without_passwords(reason)), finished_at=_now())

    def _update_running(self, key: str, **columns: Any) -> None:
        with self.writing() as connection:
            running = (RunRow.key == key) & (RunRow.status == "running")
            connection.execute(update(RunRow).where(running).values(columns))

    def _end(self, key: str, status: Status, reason: str, error_class: str | None, log_tail: str | None) -> None:
        columns = {
            "status": status,
            "reason": text(without_passwords(reason)),
            "error_class": error_class,
            "log_tail": log_tail and text(without_passwords(log_tail)),
            "finished_at": _now(),
        }
        with self.writing() as connection:
            given_up = (RunRow.id == _run_id(connection, key)) & (RunRow.status != "finished")
            connection.execute(update(RunRow).where(given_up).values(columns))

    def _refuse_other_programs(self) -> None:
        """StoreError where a SQLite file is another program's or another release's, of which no byte changes."""
        file = sqlite_file(self._url)
        if file is None or not file.exists() or not file.stat().st_size:
            return
        # To write to it would be to change its journal.
        with opened(self._url, read_only=True) as looked_at, looked_at.connect() as connection, connection.begin():
            if inspect(connection).get_table_names():
                ensure_current(connection, self._url, create=False)


def add_images(connection: Connection, dataset: int, images: Iterable[Columns]) -> int:
    """Insert the images that a data set lacks, or that lack references, as in a published copy; gives how many."""
    stored = select(Image.image_id, Image.references).where(Image.dataset_id == dataset)
    present = {image_id: bool(references) for image_id, references in connection.execute(stored)}
    by_id = {image["image_id"]: image for image in images}
    missing = {
        key: image
        for key, image in by_id.items()
        if not present.get(key) and (image["references"] or key not in present)
    }
    bare = present.keys() & missing.keys()
    connection.execute(delete(Image).where(Image.dataset_id == dataset, Image.image_id.in_(bare)))
    insert_all(connection, Image, missing.values(), dataset_id=dataset)
    return len(missing)


def _spec(row: RowMapping) -> RunSpec:
    code = row["code"]
    return RunSpec(**{**row, "code": None if code is None else CodeRecord(**code)})


def _now() -> datetime:
    return datetime.now(UTC)


def _run_id(connection: Connection, key: str) -> int:
    run_id = connection.scalar(select(RunRow.id).where(RunRow.key == key))
    if run_id is None:
        raise never_planned(key)
    return run_id


def never_planned(key: str) -> StoreError:
    return StoreError(f"run {key} was never planned", "plan it before recording anything of it")
