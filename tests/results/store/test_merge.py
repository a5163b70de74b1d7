"""Merging brings in what is missing, replaces nothing that is finished, and can be repeated."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete, select, update

from results import ImageRecord, Quantity, Store, StoreError
from results.runs import reading
from results.runs.leaderboard import leaderboard
from results.runs.scores import OVERALL
from results.store.merge import merge
from results.store.schema import Base, Caption, DatasetRow, RunRow, Score


@pytest.fixture
def other(tmp_path: Path, make: Any) -> Iterator[Store]:
    """A store of another machine, which knows the same data set."""
    with Store(tmp_path / "other.sqlite") as opened:
        opened.record_dataset(make.dataset(root="/elsewhere"))
        yield opened


def finish(store: Store, spec: Any, outcome: Any) -> None:
    store.plan([spec])
    store.begin(spec.key, {"device": "cuda"})
    store.finish(spec.key, outcome)


def contents(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, with keys and fingerprints in place of numbers that a database gives."""
    with store.reading() as connection:
        names: dict[str, dict[int, str]] = {
            "run_id": dict(connection.execute(select(RunRow.id, RunRow.key)).all()),
            "dataset_id": dict(connection.execute(select(DatasetRow.id, DatasetRow.fingerprint)).all()),
        }
        return {
            table.name: sorted(
                (
                    {
                        name: names[name][value] if name in names else value
                        for name, value in row.items()
                        if name != "id"
                    }
                    for row in connection.execute(select(table)).mappings()
                ),
                key=repr,
            )
            for table in Base.metadata.sorted_tables
        }


def test_captions_are_asked_for_when_either_store_says_so_last(store: Store, other: Store, make: Any) -> None:
    for where, asked in ((store, "1"), (other, "2")):
        finish(where, make.spec(kind="captions", record={"card": {"asked": asked}}), make.outcome())
    for one, two in ((store, other), (other, store)):
        merge(one, str(two.url))
        assert reading.one_run(one, "blind-1").card["asked"] == "2"


def test_everything_of_another_store_comes_in_once(url: str, other: Store, make: Any) -> None:
    spec = make.spec("far", 2**40)
    boxes = ((0.0, 0.25, 0.5, 1.0), (0.0, 0.0, 1.0, 1.0), (0.5, 0.5, 0.75, 0.75))
    attention = make.attention(1), make.attention(30, grid=None, boxes=boxes)
    outcome = make.outcome(0.1 + 0.2, attention, costs={"latency": Quantity(2.0, None, "ms", 1.5, 2.5)})
    influences = {"BLEU-4": {1: 0.1, 2: 0.2, 30: 0.45}}
    outcome = replace(outcome, splits=(replace(outcome.splits[0], influences=influences),))
    other.record_dataset(make.dataset("e" * 16, name="more"))
    finish(other, spec, outcome)
    other.record_epoch(spec.key, make.epoch(1, val_cider=0.1 + 0.2))
    crash = make.spec("crash", dataset="e" * 16)
    other.plan([crash, make.spec("waiting")])
    other.fail(crash.key, "ValueError", "no", "tail")
    with Store(url) as store:
        merged = merge(store, str(other.url.database))
        assert (merged.added, merged.completed, merged.kept) == ([spec.key, crash.key, "waiting-1"], [], [])
        assert (merged.datasets, merged.conflicts) == (["scenes", "more"], {})
        after = contents(store)
        assert after == contents(other)
        assert [row["scores"] for row in after["image_influences"]] == list(influences.values())
        again = merge(store, str(other.url.database))
        assert contents(store) == after
        assert (again.datasets, again.added, again.completed, again.conflicts) == ([], [], [], {})
        assert again.kept == merged.added
        assert reading.one_run(store, spec.key).scores.by_domain("test") == outcome.splits[0].scores


def test_runs_of_both_stand_side_by_side(store: Store, add: Callable[..., str], other: Store, make: Any) -> None:
    add("here", 1)
    finish(other, make.spec("there", 1), make.outcome(0.75))
    merge(store, str(other.url.database))
    assert [row.model for row in leaderboard(store)[0].rows] == ["there", "here"]
    assert reading.datasets(store)[0].root == "/pictures", "where the pictures lie here stays"


def test_splits_and_metrics_stay_in_their_order(url: str, other: Store, make: Any) -> None:
    outcome = make.outcome()
    nocaps = replace(outcome.splits[0], split="nocaps")  # before "test" in any index
    finish(other, make.spec(), replace(outcome, splits=(outcome.splits[0], nocaps)))
    with Store(url) as store:
        merge(store, str(other.url.database))
        detail, original = (reading.one_run(each, make.spec().key) for each in (store, other))
    assert detail.scores.splits == ["test", "nocaps"]
    assert list(detail.scores.rows) == list(original.scores.rows)


def test_a_run_only_ever_gets_further(tmp_path: Path, other: Store, make: Any) -> None:
    """Runs of every status here, each with every status there."""
    progress = {"planned": 0, "running": 1, "skipped": 2, "failed": 2, "finished": 3}
    pairs = {make.spec(here, seed).key: (here, there) for here in progress for seed, there in enumerate(progress)}

    def bring(store: Store, here: bool) -> None:
        for model, (seed, there) in product(progress, enumerate(progress)):
            spec, status = make.spec(model, seed), model if here else there
            store.plan([spec])
            if status == "finished":
                store.finish(spec.key, make.outcome(0.5))
            elif status == "running":
                store.begin(spec.key, {})
                store.record_epoch(spec.key, make.epoch(1))
            elif status == "failed":
                store.fail(spec.key, "ValueError", "why", "tail")
            elif status == "skipped":
                store.skip(spec.key, "why")

    with Store(tmp_path / "bench.sqlite") as store:
        store.record_dataset(make.dataset())
        bring(store, here=True)
        bring(other, here=False)
        before, theirs = contents(store), contents(other)
        merged = merge(store, str(other.url.database))
        further = {key for key, (here, there) in pairs.items() if progress[there] > progress[here]}
        assert (set(merged.completed), set(merged.kept)) == (further, pairs.keys() - further)
        assert merged.conflicts == {}
        for name, rows in contents(store).items():
            column = "key" if name == "runs" else "run_id"
            taken = [row for row in theirs[name] if row.get(column) in further]
            assert rows == sorted([row for row in before[name] if row.get(column) not in further] + taken, key=repr)


def test_two_results_of_one_run_are_a_conflict_that_is_said(
    store: Store, add: Callable[..., str], other: Store, make: Any
) -> None:
    for model in ("score", "caption", "same", "rounding"):
        add(model, 1, 0.5)
    finish(other, make.spec("score"), make.outcome(0.75))
    split = make.outcome(0.5).splits[0]
    said = replace(split, captions={**split.captions, 30: "a cone"})
    finish(other, make.spec("caption"), make.outcome(splits=(said,)))
    finish(other, make.spec("same"), make.outcome(0.5, costs={"train_seconds": Quantity(9.0)}))
    finish(other, make.spec("rounding"), make.outcome(0.5 + 1e-12))
    before = contents(store)
    merged = merge(store, str(other.url.database))
    assert contents(store) == before
    assert merged.kept == ["score-1", "caption-1", "same-1", "rounding-1"]
    assert merged.conflicts == {
        "score-1": "score, seed 1: captions or scores that differ: 2, first CIDEr-D on test: 0.5 here, 0.75 there",
        "caption-1": "caption, seed 1: captions or scores that differ: 1, first the caption of image 30 of test: "
        "'cones' here, 'a cone' there",
    }


def test_what_one_side_lacks_is_no_disagreement(store: Store, other: Store, make: Any) -> None:
    split = make.outcome(0.5).splits[0]
    more = {domain: {**found, "CIDEr-D (df:domain)": Quantity(0.4)} for domain, found in split.scores.items()}
    finish(store, make.spec("same"), make.outcome(0.5))
    finish(other, make.spec("same"), make.outcome(0.5, splits=(replace(split, scores=more),)))
    with other.writing() as connection:
        connection.execute(delete(Caption))  # as a published copy has none
    merged = [merge(store, str(other.url.database)) for _ in range(2)]
    assert [(one.completed, one.kept, one.conflicts) for one in merged] == [(["same-1"], [], {}), ([], ["same-1"], {})]
    assert reading.one_run(store, "same-1").scores.rows["test", OVERALL, "CIDEr-D (df:domain)"].value == 0.4
    with other.writing() as connection:
        connection.execute(delete(Score).where(Score.metric == "CIDEr-D (df:domain)"))
    here = store.url.render_as_string(hide_password=False)
    assert [merge(other, here).completed for _ in range(2)] == [["same-1"], []]
    assert contents(other)["captions"] == contents(store)["captions"] != []


@pytest.mark.parametrize("measured_here", [True, False])
def test_a_measured_score_wins_over_one_that_was_not(
    measured_here: bool, store: Store, other: Store, make: Any
) -> None:
    split = make.outcome(0.5).splits[0]
    without, measured = (
        {domain: {**found, "METEOR": meteor} for domain, found in split.scores.items()}
        for meteor in (Quantity(None, "no Java"), Quantity(0.27))
    )
    here, there = (measured, without) if measured_here else (without, measured)
    by_image = {"METEOR": dict.fromkeys(split.captions, 0.27)}
    for where, scores in ((store, here), (other, there)):
        per_image = {**split.per_image, **(by_image if scores is measured else {})}
        outcome = make.outcome(0.5, splits=(replace(split, scores=scores, per_image=per_image),))
        finish(where, make.spec("same"), outcome)
    merged = merge(store, str(other.url.database))
    assert merged.conflicts == {}
    assert merged.completed == ([] if measured_here else ["same-1"])
    run = reading.one_run(store, "same-1")
    assert run.scores.get("test", "METEOR") == Quantity(0.27)
    assert contents(store)["image_scores"] == (contents(store) if measured_here else contents(other))["image_scores"]
    assert contents(store)["costs"] == contents(other)["costs"]


def test_the_folder_of_pictures_comes_into_a_published_copy(store: Store, other: Store) -> None:
    with store.writing() as connection:
        connection.execute(update(DatasetRow).values(root=DatasetRow.name))
    merge(store, str(other.url.database))
    assert reading.datasets(store)[0].root == "/elsewhere"
    with other.writing() as connection:
        connection.execute(update(DatasetRow).values(root=DatasetRow.name))
    merge(store, str(other.url.database))
    assert reading.datasets(store)[0].root == "/elsewhere"


def test_what_is_missing_of_images_is_added(store: Store, other: Store, make: Any, tmp_path: Path) -> None:
    extra = ImageRecord(99, "near/99.png", "nocaps", ("a dog",))
    other.record_dataset(make.dataset(images=(*make.dataset().images, extra)))
    assert merge(store, str(other.url.database)).datasets == ["scenes"]
    assert reading.datasets(store)[0].evaluated == {"nocaps": 1, "test": 3}
    with Store(tmp_path / "published.sqlite") as copy:
        bare = tuple(replace(image, references=()) for image in make.dataset().images)
        copy.record_dataset(make.dataset(images=bare))
        assert [merge(copy, str(other.url.database)).datasets for _ in range(2)] == [["scenes"], []]
        assert contents(copy)["images"] == contents(store)["images"]


def test_what_cannot_be_merged(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="into itself"):
        merge(store, store.url.render_as_string(hide_password=False))
    with pytest.raises(StoreError, match="no results database at"):
        merge(store, tmp_path / "nothing.sqlite")
    (tmp_path / "notes.txt").write_text("these are only notes\n" * 200)
    with pytest.raises(StoreError, match="not a SQLite database"):
        merge(store, tmp_path / "notes.txt")


def test_a_merge_that_is_stopped_goes_on_when_repeated(
    store: Store, other: Store, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for model in ("one", "two", "three"):
        finish(other, make.spec(model), make.outcome())
    calls = iter(range(100))

    def stumbling(*arguments: Any, **columns: Any) -> None:
        if next(calls) == 12:
            raise KeyboardInterrupt
        insert_all(*arguments, **columns)

    from results.store.merge import insert_all

    with monkeypatch.context() as patched:
        patched.setattr("results.store.merge.insert_all", stumbling)
        with pytest.raises(KeyboardInterrupt):
            merge(store, str(other.url.database))
    assert [store.status(f"{model}-1") for model in ("one", "two", "three")] == ["finished", None, None]
    assert merge(store, str(other.url.database)).added == ["two-1", "three-1"]
