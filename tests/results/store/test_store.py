"""Writing: what goes in comes out, again changes nothing, and what is no measurement stays out."""

import math
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select, text
from sqlalchemy.exc import IntegrityError

from results import DatasetRecord, Outcome, Quantity, RunSpec, SplitResult, Store, StoreError
from results.runs import reading
from results.runs.leaderboard import leaderboard
from results.store.publish import publish
from results.store.schema import Base, Caption, Cost, DatasetRow, ImageScores, RunRow, Score
from results.store.store import RunProgress
from tests.results.conftest import Make


def count(store: Store, table: type[Base]) -> int:
    with store.reading() as connection:
        return connection.scalar(select(func.count()).select_from(table)) or 0


def test_round_trip_of_everything(store: Store, make: Any) -> None:
    spec, outcome, epochs = make.spec(), make.outcome(), (make.epoch(1), make.epoch(2, val_cider=0.1 + 0.2))
    before = datetime.now(UTC)
    store.plan([spec])
    assert store.status(spec.key) == "planned"
    store.begin(spec.key, {"device": "cpu"})
    assert store.status(spec.key) == "running"
    for epoch in epochs:
        store.record_epoch(spec.key, epoch)
    store.finish(spec.key, outcome)
    detail = reading.one_run(store, spec.key)
    assert detail.status == "finished"
    assert (detail.model, detail.role, detail.seed, detail.track) == ("blind", "model", 1, "controlled")
    assert (detail.dataset, detail.fingerprint, detail.code_version) == ("scenes", "f" * 16, "0.1.0")
    assert detail.config == spec.record
    assert list(detail.signature.items()) == list(spec.signature.items())
    assert (detail.environment, detail.operators) == (outcome.environment, outcome.operators)
    assert detail.checkpoint == outcome.checkpoint
    assert detail.epochs == list(epochs)
    assert detail.scores.splits == ["test"]
    assert detail.scores.by_domain("test") == outcome.splits[0].scores
    assert detail.costs == outcome.costs
    assert detail.attempts == 1
    assert detail.started_at is not None
    assert detail.finished_at is not None
    assert before <= detail.started_at <= detail.finished_at <= datetime.now(UTC)
    with store.reading() as connection:
        assert dict(connection.execute(select(Caption.image_id, Caption.caption)).all()) == (outcome.splits[0].captions)
        assert connection.scalars(select(ImageScores.scores)).one() == outcome.splits[0].per_image["CIDEr-D"]


def test_data_set_again_updates_its_root_and_adds_images(store: Store, make: Any) -> None:
    first = make.dataset().images
    store.record_dataset(make.dataset(root="/moved", images=first[:1], skipped={}))
    extra = replace(first[0], image_id=99, split="nocaps")
    store.record_dataset(make.dataset(root="/moved", images=(extra,), skipped={"a": "b"}))
    info = reading.datasets(store)[0]
    assert info.root == "/moved"
    assert info.evaluated == {"nocaps": 1, "test": 3}
    assert info.skipped == {"a": "b"}
    assert info.split_sizes == {"train": 90, "test": 3}
    assert len(reading.datasets(store)) == 1


def test_planning_again_keeps_what_is_known(store: Store, make: Any) -> None:
    specs = [make.spec(seed=seed) for seed in (1, 2, 3, 4)]
    store.plan([*specs, specs[0]])
    store.finish(specs[0].key, make.outcome())
    store.fail(specs[1].key, "ValueError", "no", "tail")
    store.skip(specs[2].key, "not asked for")
    store.plan([*specs, make.spec("new")])
    found = [store.status(spec.key) for spec in [*specs, make.spec("new")]]
    assert found == ["finished", "failed", "skipped", "planned", "planned"]
    store.fail(specs[0].key, "ValueError", "another attempt", "tail")
    assert store.status(specs[0].key) == "finished"


def test_readers_see_one_instant(url: str, add: Callable[..., str]) -> None:
    add("first")
    with Store(url, read_only=True) as reader:
        with reader.reading() as connection:
            assert len(connection.execute(select(RunRow.id)).all()) == 1
            add("second")
            assert len(connection.execute(select(RunRow.id)).all()) == 1
        assert count(reader, RunRow) == 2


def test_finishing_again_replaces_everything(store: Store, make: Any) -> None:
    store.plan([make.spec(), make.spec("other")])
    store.finish("other-1", make.outcome())
    store.finish("blind-1", make.outcome(0.5))
    sizes = {table: count(store, table) for table in (Caption, Score, ImageScores, Cost)}
    store.finish("blind-1", make.outcome(0.75))
    assert {table: count(store, table) for table in sizes} == sizes
    assert reading.one_run(store, "blind-1").scores.get("test", "CIDEr-D") == Quantity(0.75)
    smaller = SplitResult("test", {1: "a"}, {"overall": {"CIDEr-D": Quantity(1.0)}}, {})
    store.finish("blind-1", make.outcome(splits=(smaller,), costs={}))
    assert reading.one_run(store, "blind-1").scores.rows == {("test", "overall", "CIDEr-D"): Quantity(1.0)}
    assert count(store, Caption) == 4


def test_a_failed_run_can_be_tried_again(store: Store, make: Any) -> None:
    store.plan([make.spec()])
    store.begin("blind-1", {})
    store.fail("blind-1", "RuntimeError", "shapes differ", "last line")
    store.begin("blind-1", {})
    running = reading.one_run(store, "blind-1")
    assert (running.status, running.reason, running.error_class, running.log_tail) == ("running", None, None, None)
    assert (running.attempts, running.finished_at) == (2, None)
    store.finish("blind-1", make.outcome())
    assert store.status("blind-1") == "finished"


def test_results_of_a_run_that_runs_again_are_not_shown(store: Store, add: Callable[..., str]) -> None:
    key = add("blind")
    store.begin(key, {})
    assert leaderboard(store) == []
    assert reading.one_run(store, key).scores.rows == {}
    assert [failure.status for failure in reading.failures(store)] == ["running"]


def test_an_epoch_again_replaces_it_and_drops_later_ones(store: Store, make: Any) -> None:
    store.plan([make.spec()])
    for epoch in (make.epoch(1), make.epoch(2), make.epoch(3), make.epoch(1, stage=1)):
        store.record_epoch("blind-1", epoch)
    again = make.epoch(2, train_loss=9.0)
    store.record_epoch("blind-1", again)
    store.record_epoch("blind-1", again)
    assert reading.one_run(store, "blind-1").epochs == [make.epoch(1), again]
    store.record_epoch("blind-1", make.epoch(1, stage=1))
    assert len(reading.one_run(store, "blind-1").epochs) == 3


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_by_name(store: Store, make: Any, number: float) -> None:
    store.plan([make.spec()])
    split = make.outcome().splits[0]
    outcomes = {
        "CIDEr-D on test, overall": make.outcome(number),
        "CIDEr-D of image 2 on test": make.outcome(
            splits=(replace(split, per_image={"CIDEr-D": {1: 0.5, 2: number}}),)
        ),
        "cost energy": make.outcome(costs={"energy": Quantity(number)}),
        "environment": make.outcome(environment={"load": number}),
        "operators": make.outcome(operators={"load": [number]}),
    }
    for named, outcome in outcomes.items():
        with pytest.raises(StoreError, match=named):
            store.finish("blind-1", outcome)
    for field in ("learning_rate", "train_loss", "val_cider", "seconds", "images_per_second"):
        with pytest.raises(StoreError, match="stage 0, epoch 1"):
            store.record_epoch("blind-1", make.epoch(1, **{field: number}))
    with pytest.raises(StoreError, match="record"):
        store.plan([make.spec("other", record={"rate": number})])
    assert store.status("blind-1") == "planned"
    assert reading.one_run(store, "blind-1").epochs == []
    assert count(store, Caption) == count(store, Score) == count(store, Cost) == 0


@pytest.mark.parametrize("columns", ["value = NULL", "reason = 'why'"])
@pytest.mark.parametrize("table", ["scores", "costs"])
def test_the_tables_hold_exactly_one_of_value_and_reason(
    store: Store, add: Callable[..., str], table: str, columns: str
) -> None:
    add("blind")
    with store.reading() as connection, pytest.raises(IntegrityError, match="value_or_reason"):
        connection.execute(text(f"UPDATE {table} SET {columns} WHERE value IS NOT NULL"))  # noqa: S608


def test_deleting_a_data_set_takes_everything_along(store: Store, add: Callable[..., str], make: Any) -> None:
    store.record_epoch(add("blind"), make.epoch(1))
    with store.reading() as connection:
        connection.execute(text("DELETE FROM datasets"))
    assert [table.__tablename__ for table in Base.__subclasses__() if count(store, table)] == []


def test_unplanned_runs_are_refused(store: Store, make: Any) -> None:
    for write in (
        lambda: store.begin("ghost", {}),
        lambda: store.record_epoch("ghost", make.epoch(1)),
        lambda: store.finish("ghost", make.outcome()),
        lambda: store.fail("ghost", "E", "r", ""),
        lambda: store.skip("ghost", "r"),
    ):
        with pytest.raises(StoreError, match="ghost was never planned"):
            write()
    assert count(store, RunRow) == 0


def test_passwords_of_urls_are_not_stored(store: Store, make: Any) -> None:
    store.plan([make.spec()])
    store.fail("blind-1", "OSError", "http://me:secret@host refused", "mlflow at http://me:secret@host")
    failure = reading.failures(store)[0]
    assert failure.reason == "http://me:***@host refused"
    assert failure.log_tail == "mlflow at http://me:***@host"


def test_text_that_no_database_encodes(store: Store, make: Any) -> None:
    store.plan([make.spec()])
    store.fail("blind-1", "", "picture \udcff\0.jpg", "log \ud800")
    failure = reading.failures(store)[0]
    assert (failure.reason, failure.log_tail) == (r"picture \udcff\x00.jpg", r"log \ud800")
    split = replace(make.outcome().splits[0], captions={1: "a \udcff", 2: "猫", 30: "it's; DROP TABLE cells"})
    store.finish("blind-1", make.outcome(splits=(split,)))
    with store.reading() as connection:
        said = connection.scalars(select(Caption.caption).order_by(Caption.image_id)).all()
    assert said == [r"a \udcff", "猫", "it's; DROP TABLE cells"]
    image = replace(make.dataset().images[0], file="a\udcff.jpg")
    with pytest.raises(StoreError, match="invalid character"):
        store.record_dataset(make.dataset("other", images=(image,)))


def test_large_ids_and_every_bit_of_a_score(store: Store, make: Any) -> None:
    spec: RunSpec = make.spec(seed=2**62)
    ids = {2**62: 0.1 + 0.2, -5: 1e-300, 3: 5e-324}
    result = SplitResult("test", dict.fromkeys(ids, "a"), {"overall": {"CIDEr-D": Quantity(0.1)}}, {"CIDEr-D": ids})
    store.plan([spec])
    store.finish(spec.key, make.outcome(splits=(result,)))
    with store.reading() as connection:
        assert connection.scalars(select(ImageScores.scores)).one() == ids
    assert reading.one_run(store, spec.key).seed == 2**62


def test_planning_again_renews_what_executing_needs(store: Store, make: Any) -> None:
    specs = [make.spec(model, config={"data": "/old"}) for model in ("updown", "blind", "lstm")]
    store.plan(specs)
    store.finish(specs[0].key, make.outcome())
    again = [replace(spec, config={"data": "/new"}, record={"new": 1}) for spec in specs]
    store.plan([*reversed(again), make.spec("aoa")])
    kept = replace(again[0], record=specs[0].record)
    assert [store.spec(spec.key) for spec in specs] == [kept, *again[1:]], "a finished run keeps its record"
    assert store.spec("aoa-1").config is None
    assert store.keys(["planned"]) == ["blind-1", "lstm-1", "aoa-1"], "in planning order"
    assert store.keys(["finished", "failed"]) == ["updown-1"]
    with pytest.raises(StoreError, match="run nothing was never planned"):
        store.spec("nothing")


def test_progress_is_of_the_latest_attempt(store: Store, make: Any) -> None:
    specs = [make.spec(model) for model in ("updown", "blind", "lstm")]
    store.plan(specs)
    keys = [spec.key for spec in specs]
    for key in keys[:2]:
        store.begin(key, {})
    for key in keys:
        store.report_progress(key, {"epoch": 2})
    assert store.progress([*keys, "nothing"]) == {
        "updown-1": RunProgress("running", 1, {"epoch": 2}),
        "blind-1": RunProgress("running", 1, {"epoch": 2}),
        "lstm-1": RunProgress("planned", 0, None),
    }
    store.finish("updown-1", make.outcome())
    store.fail("blind-1", "Error", "why", "")
    assert store.progress(keys[:2]) == {
        "updown-1": RunProgress("finished", 1, {"epoch": 2}),
        "blind-1": RunProgress("failed", 1, {"epoch": 2}),
    }
    store.begin("blind-1", {})
    assert store.progress(["blind-1"]) == {"blind-1": RunProgress("running", 2, None)}


@pytest.mark.parametrize("change", ["config = '{not json'", "code = '[1]'", "signature = x'00'", "kind = 'other'"])
def test_the_tables_hold_no_junk(url: str, add: Callable[..., str], store: Store, change: str) -> None:
    key = add("blind")
    if not url.startswith("postgresql") or "kind" in change:
        with store.reading() as connection, pytest.raises(IntegrityError):
            connection.execute(text(f"UPDATE runs SET {change} WHERE key = :key"), {"key": key})  # noqa: S608


SPLIT = Make.outcome().splits[0]
MAP = Make.attention()
REFUSED: dict[str, Outcome | DatasetRecord | RunSpec] = {
    "refused: .*constraint": Make.outcome(costs={"energy": Quantity(None)}),
    "both ends": Make.outcome(costs={"latency": Quantity(1.0, low=0.5)}),
    "needs a value": Make.outcome(costs={"latency": Quantity(None, "no meter", low=0.5, high=1.0)}),
    "low end is nan": Make.outcome(costs={"latency": Quantity(1.0, low=math.nan, high=2.0)}),
    "at least one split": Make.outcome(splits=()),
    "'overall'": Make.outcome(splits=(replace(SPLIT, scores={}),)),
    "scores of images that have no caption": Make.outcome(splits=(replace(SPLIT, captions={1: "a"}),)),
    "BLEU-4 on test has influences": Make.outcome(splits=(replace(SPLIT, influences={"BLEU-4": {9: 0.1}}),)),
    "needs 4 weights for each of its 2 words": Make.outcome(attention=(replace(MAP, grid=(2, 2)),)),
    "refused": Make.outcome(attention=(replace(MAP, image_id=3),)),
    "which was never recorded": Make.spec("other", dataset="scenes"),
}


@pytest.mark.parametrize("named", REFUSED)
def test_what_cannot_be_is_refused_and_nothing_is_stored(store: Store, named: str) -> None:
    store.plan([Make.spec()])
    write = {
        Outcome: lambda given: store.finish("blind-1", given),
        RunSpec: lambda given: store.plan([given]),
        DatasetRecord: store.record_dataset,
    }[type(REFUSED[named])]
    with pytest.raises(StoreError, match=named):
        write(REFUSED[named])
    assert (count(store, DatasetRow), count(store, RunRow), count(store, Caption), count(store, Cost)) == (1, 1, 0, 0)
    assert (store.status("blind-1"), store.status("other-1")) == ("planned", None)


def test_results_stay_and_captions_paths_and_unfinished_runs_go(
    store: Store, add: Callable[..., str], make: Any, tmp_path: Path
) -> None:
    config = {"weights": "/secret/folder/weights.pth", "windows": ["C:\\secret\\a.json"], "kept": "relative/name"}
    for seed in (1, 2):
        add("updown", seed, 0.5 + seed / 10, record=config)
    store.plan([make.spec("aoanet")])
    outcome = make.outcome(0.1, (make.attention(),), checkpoint="/secret/folder/best.safetensors")
    outcome.splits[0].per_image["ROUGE-L"] = {1: 0.5}
    make.run(store, outcome, "blind")
    assert publish(store.url.render_as_string(hide_password=False), tmp_path / "out.sqlite") == (3, 1)
    raw = (tmp_path / "out.sqlite").read_bytes()
    for gone in (b"secret", b"a red ball", b"a cube", b"/pictures", b"aoanet"):
        assert gone not in raw
    for kept in (b"weights.pth", b"a.json", b"relative/name"):
        assert kept in raw
    with Store(tmp_path / "out.sqlite", read_only=True) as copy:
        assert [(row.model, row.scores["CIDEr-D"].mean) for group in leaderboard(copy) for row in group.rows] == [
            (row.model, row.scores["CIDEr-D"].mean) for group in leaderboard(store) for row in group.rows
        ]
        with copy.reading() as connection:
            assert set(connection.scalars(select(ImageScores.metric))) == {"CIDEr-D"}


@pytest.mark.parametrize(
    ("reason", "published"),
    [
        ("/secret/runs/m2-s3/run.json is missing: run it again", "run.json is missing: run it again"),
        ("no weights in '/secret/runs/m2'", "no weights in 'm2'"),
        (r"C:\secret\a.json cannot be read", "a.json cannot be read"),
        ("images/s and and/or, 1/2 of ./relative/name", "images/s and and/or, 1/2 of ./relative/name"),
    ],
)
def test_reasons_name_no_folder(store: Store, make: Any, tmp_path: Path, reason: str, published: str) -> None:
    make.run(store, make.outcome(costs={"latency_median": Quantity(None, reason, "s")}), "m2")
    publish(store.url.render_as_string(hide_password=False), tmp_path / "out.sqlite")
    with Store(tmp_path / "out.sqlite", read_only=True) as copy:
        ((row,),) = (group.rows for group in leaderboard(copy))
    assert row.costs["latency_median"].reason == published


def test_nothing_is_published_where_nothing_is_finished(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no finished run to publish"):
        publish(store.url.render_as_string(hide_password=False), tmp_path / "out.sqlite")
    assert not (tmp_path / "out.sqlite").exists()


def test_what_a_killed_process_left_is_not_taken_up(url: str, add: Callable[..., str], tmp_path: Path) -> None:
    add("updown")
    (tmp_path / ".out.sqlite.part").write_bytes(b"half a file")
    assert publish(url, tmp_path / "out.sqlite")[0] == 1
    assert not (tmp_path / ".out.sqlite.part").exists()
