"""Results as data frames: columns with units and types, filters, and what is missing."""

import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import results
from results import ImageRecord, Quantity, Results, SplitResult, Store, StoreError
from results.costs import with_unit
from results.records import CodeRecord

Add = Callable[..., str]

FRAMES = ("runs", "leaderboard", "scores", "image_scores", "captions", "costs", "epochs")
RUN = ["run", "model", "role", "seed", "dataset"]
CONDITIONS = ["track", "fingerprint", "signature", "code_model", "code_revision"]
SIGNATURE = "nrefs:5|split:scenes-test|beam:3"


@pytest.fixture
def full(store: Store, add: Add, make: Any) -> Results:
    """A model of two seeds, one without scores, a person, a run that failed after an epoch, one that runs again."""
    code = CodeRecord("ab12", "cd34", "7", {"zoo/models/blind.py": "ef56"})
    add("blind", 1, 0.25, code=code)
    add("blind", 2, 0.75, code=code)
    add("unscored", 1, None)
    add("human", 0, 2.0, role="reference", signature={"nrefs": "4"})
    store.plan([make.spec("crash")])
    store.begin("crash-1", {})
    store.record_epoch("crash-1", make.epoch(1, val_cider=0.5))
    store.fail("crash-1", "RuntimeError", "no", "")
    add("again")
    store.begin("again-1", {})
    return Results(store)


def test_leaderboard_has_a_row_a_model_with_references_below(full: Results) -> None:
    frame = full.leaderboard()
    assert list(frame.model) == ["blind", "unscored", "human"]
    assert list(frame.group) == [1, 1, 1]
    assert list(frame.role) == ["model", "model", "reference"]
    assert list(frame.differs) == ["", "", "nrefs: 4"]
    blind = frame.iloc[0]
    assert (blind.seeds, blind.runs, blind.signature) == ("1 2", "blind-1 blind-2", SIGNATURE)
    assert (blind["CIDEr-D_percent"], blind["CIDEr-D_seeds"], blind["BLEU-4_percent"]) == (50, 2, 25)
    assert blind["CIDEr-D_sd_percent"] == pytest.approx(100 * np.std([0.25, 0.75], ddof=1))
    assert (blind.code_model, blind.code_revision, blind.parameters) == ("ab12", "7", 1000)
    assert frame.loc[1:, ["CIDEr-D_percent", "rank_low"]].isna().to_numpy().tolist() == [[True, True], [False, True]]
    assert list(frame["CIDEr-D_seeds"]) == [2, 0, 1]
    assert frame.energy_J.isna().all()


def test_leaderboard_has_places_p_values_and_what_papers_print(store: Store, make: Any) -> None:
    images = tuple(ImageRecord(number, f"{number}.png", "test", ("a",)) for number in range(40))
    store.record_dataset(make.dataset("e" * 16, name="more", images=images))
    models = (("m2", 1.0), ("expansionnet_v2", 3.0), ("blind", 0.75), ("updown", 0.5))
    for (model, factor), seed in product(models, (1, 2, 3)):
        by_image = {number: factor * (1 + number % 7 + 0.1 * seed) / 8 for number in range(40)}
        overall = {"CIDEr-D": Quantity(factor / 2, low=factor / 4, high=factor)}
        result = SplitResult("test", dict.fromkeys(by_image, "a"), {"overall": overall}, {"CIDEr-D": by_image})
        data = {"dataset": "e" * 16, "signature": {"data": "coco#1", "nrefs": "5"}}
        make.run(store, make.outcome(splits=(result,)), model, seed, **data)
    best, other, baseline, low = Results(store).leaderboard().to_dict("records")
    assert (best["model"], best["rank_low"], best["rank_high"]) == ("expansionnet_v2", 1, 1)
    assert (other["rank_low"], other["rank_high"]) == (2, 2)
    assert (low["not_above"], low["unranked_reason"]) == ("blind", "not above a baseline")
    assert pd.isna([baseline["rank_low"], low["rank_low"], best["not_above"], baseline["not_above"]]).all()
    assert best["interval_over"] == "over seeds and images"
    assert 100 < best["CIDEr-D_low_percent"] < 150 < best["CIDEr-D_high_percent"] < 200
    assert pd.isna(best["p_against_best"])
    assert pd.isna(best["still_learning"]), "no epoch is stored"
    assert 0 < other["p_against_best"] == other["p_against_above"] < 0.05
    assert best["CIDEr-D_published_percent"] > 100
    assert best["CIDEr-D_published_matches"] is False
    assert pd.isna([baseline["CIDEr-D_published_percent"], baseline["CIDEr-D_published_matches"]]).all()


def test_scores_by_domain_are_times_100_or_say_why_not(full: Results) -> None:
    frame = full.scores(metric="CIDEr-D")
    assert list(frame.run.unique()) == ["blind-1", "blind-2", "unscored-1", "human-0"]
    assert list(frame.columns[:8]) == [*RUN, "split", "domain", "metric"]
    first = frame[frame.run == "blind-1"]
    assert list(first.domain) == ["overall", "in-domain", "out-domain"]
    assert list(first.score_percent[:2]) == [25, 25]
    assert list(first.reason.fillna("")) == ["", "", "one image only"]
    (reason,) = frame[(frame.model == "unscored") & (frame.domain == "overall")].reason
    assert reason == "no Java found"


def test_held_out_scores_stand_beside_those_overall(store: Store, make: Any) -> None:
    split = make.outcome().splits[0]
    fields = {name: getattr(split, name) for name in ("split", "captions", "scores", "per_image")}
    held_out = {"CIDEr-D": Quantity(0.25), "BLEU-4": Quantity(None, "one reference only")}
    make.run(store, make.outcome(splits=(SplitResult(**fields, held_out=held_out),)))
    frame = Results(store).scores()
    told = {
        (row.domain, row.metric): (row.held_out_percent, row.held_out_reason)
        for row in frame.fillna({"held_out_percent": -1, "held_out_reason": ""}).itertuples()
    }
    assert told == {
        ("overall", "CIDEr-D"): (25, ""),
        ("overall", "BLEU-4"): (-1, "one reference only"),
        ("in-domain", "CIDEr-D"): (-1, ""),
        ("out-domain", "CIDEr-D"): (-1, ""),
    }


def test_image_scores_have_a_row_an_image(full: Results) -> None:
    frame = full.image_scores(split="test")
    assert list(frame.columns) == [*RUN, "split", "image_id", "domain", "metric", "score_percent", *CONDITIONS]
    first = frame[frame.run == "blind-1"]
    assert list(first.image_id) == [1, 2, 30]
    assert list(first.domain) == ["in-domain", "in-domain", "out-domain"]
    assert list(first.score_percent) == [25, 50, 75]
    assert list(frame.run.unique()) == list(frame.run.cat.categories) == ["blind-1", "blind-2", "human-0"]
    assert list(first.code_model) == ["ab12"] * 3


def test_captions_have_their_picture_and_references(full: Results) -> None:
    frame = full.captions()
    assert len(frame) == 4 * 3
    first = frame.iloc[0]
    assert (first.run, first.split, first.image_id, first.caption) == ("blind-1", "test", 1, "a ball")
    assert (first.file, first.domain, first.references) == ("test/1.png", "in-domain", ("a red ball", "one ball"))


def test_costs_are_named_with_units_and_say_why_they_lack(full: Results) -> None:
    frame = full.costs()
    assert len(frame) == 4 * 2
    first = frame[frame.run == "blind-2"]
    assert list(first.cost) == ["parameters", "energy_J"]
    assert list(first.unit) == ["1", "J"]
    assert list(first.reason.fillna("")) == ["", "no meter"]
    assert first.value.isna().tolist() == [False, True]
    assert set(frame.cost) <= set(full.leaderboard().columns)
    assert not {"parameters_low", "energy_low_J"} & set(full.leaderboard().columns), "neither has bounds"


def test_a_cost_without_unit_takes_that_of_other_runs(store: Store, make: Any) -> None:
    costs = Quantity(None, "not counted"), Quantity(2.0, None, "s", 1.0, 4.0), Quantity(4.0, None, "s", 3.0, 6.0)
    for seed, cost in enumerate(costs):
        make.run(store, make.outcome(costs={"latency_median": cost}), "blind", seed)
    frame = Results(store).costs()
    assert list(frame.cost) == ["latency_median_s"] * 3
    assert list(frame.unit) == ["s"] * 3
    assert frame[["value", "low", "high"]].iloc[1].tolist() == [2, 1, 4]
    board = Results(store).leaderboard()
    assert board["latency_median_s"].tolist() == [3]
    assert board[["latency_median_low_s", "latency_median_high_s"]].iloc[0].tolist() == [2, 5]


@pytest.mark.parametrize(
    ("name", "unit", "column"),
    [
        ("parameters", "", "parameters"),
        ("gmac_beam", "GMAC", "gmac_beam"),
        ("latency_median", "s", "latency_median_s"),
        ("train_seconds", "s", "train_seconds"),
        ("train_images_per_second", "images/s", "train_images_per_second"),
        ("latency_throughput", "images/s", "latency_throughput_images_per_s"),
        ("train_gmac_per_second", "GMAC/s", "train_gmac_per_second"),
        ("train_data_wait", "%", "train_data_wait_percent"),
        ("train_a100_hours_estimate_low", "h", "train_a100_hours_estimate_low"),
        ("train_peak_memory_host", "MiB", "train_peak_memory_host_MiB"),
    ],
)
def test_names_of_costs_have_their_unit_once(name: str, unit: str, column: str) -> None:
    assert with_unit(name, unit) == column


def test_every_planned_run_has_its_status(full: Results) -> None:
    statuses = full.runs().set_index("run").status
    assert dict(statuses) == {
        **dict.fromkeys(("blind-1", "blind-2", "unscored-1", "human-0"), "finished"),
        "crash-1": "failed",
        "again-1": "running",
    }
    assert full.runs().set_index("run").reason.dropna().to_dict() == {"crash-1": "no"}


def test_epochs_of_failed_runs_are_there_too(full: Results) -> None:
    (epoch,) = full.epochs().to_dict("records")
    assert (epoch["run"], epoch["status"], epoch["stage_name"]) == ("crash-1", "failed", "cross-entropy")
    assert (epoch["val_CIDEr-D_percent"], epoch["duration_s"], epoch["images_per_s"]) == (50, 1.5, 60)
    assert list(full.epochs().columns) == [*RUN, *list(epoch)[5:-5], *CONDITIONS]


def test_empty_results_have_the_same_columns_and_types(full: Results, tmp_path: Path) -> None:
    with Store(tmp_path / "empty.sqlite") as nothing:
        for name in FRAMES:
            filled, empty = (getattr(opened, name)() for opened in (full, Results(nothing)))
            assert (len(empty), len(filled) > 0) == (0, True), name
            if name == "leaderboard":  # other metrics, and costs, are columns where there are some
                filled = filled[empty.columns]
            assert types(filled) == types(empty), name


def types(frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Columns in their order with their types, and those of categories."""
    return [
        (str(column), str(dtype), str(getattr(dtype, "categories", pd.Index([])).dtype))
        for column, dtype in frame.dtypes.items()
    ]


def test_docstrings_tell_every_column_and_its_type(full: Results) -> None:
    for name in (*FRAMES, "more_metrics"):
        told = documented(getattr(Results, name))
        if name == "leaderboard":
            for metric in ("CIDEr-D", "BLEU-4"):
                told |= {
                    column.replace("METRIC", metric): dtype for column, dtype in told.items() if "METRIC" in column
                }
            told |= dict.fromkeys(("parameters", "energy_J"), told.pop("COST"))
            told = {column: dtype for column, dtype in told.items() if "METRIC" not in column}
        else:
            told |= documented(Results)
        assert told == {column: str(dtype) for column, dtype in getattr(full, name)().dtypes.items()}, name


def documented(described: object) -> dict[str, str]:
    """Columns and their types in the lists of a docstring."""
    lines = re.findall(r"^ *- ([\w-]+(?:, [\w-]+)*) \((\w+)\)", inspect.getdoc(described) or "", re.MULTILINE)
    return {name: dtype for names, dtype in lines for name in names.split(", ")}


@pytest.mark.parametrize(
    ("frames", "named", "there"),
    [
        (("leaderboard", "scores", "image_scores", "captions"), "split", "test"),
        (("scores",), "metric", "BLEU-4, CIDEr-D"),
        (("image_scores",), "metric", "CIDEr-D"),
    ],
)
def test_what_no_result_is_of_is_refused(full: Results, frames: tuple[str, ...], named: str, there: str) -> None:
    for name in frames:
        frame, known = getattr(full, name), there.split(", ")[-1]
        assert set(frame(**{named: known})[named]) == {known}
        with pytest.raises(StoreError, match=f"no {named} 'other' in these results") as caught:
            frame(**{named: "other"})
        assert caught.value.hint == f"there are: {there}"


def test_a_database_opens_read_only_by_its_url(url: str, add: Add) -> None:
    add("blind")
    with results.open(url) as opened:
        assert list(opened.scores().model.unique()) == ["blind"]
        with pytest.raises(StoreError, match="opened read-only"):
            opened._store.plan([])


def test_places_without_results_are_refused_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"no bench\.sqlite") as caught:
        results.open(tmp_path)
    assert f"bench run --models all --workspace {tmp_path}" in (caught.value.hint or "")
    assert caught.value.__notes__ == [caught.value.hint], "a notebook shows notes"
    with pytest.raises(StoreError, match=r"no results database at .*nowhere") as caught:
        results.open(tmp_path / "nowhere")
    assert "bench run" in (caught.value.hint or "")
    assert not list(tmp_path.iterdir())


def test_pandas_waits_until_results_are_opened() -> None:
    program = "import sys, results; print({'pandas', 'sqlalchemy'} & set(sys.modules)); results.open; import pandas"
    program += "; print('open' in dir(results), 'results.frames' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["set()", "True True"]
    with pytest.raises(AttributeError, match="nothing"):
        _ = results.nothing
