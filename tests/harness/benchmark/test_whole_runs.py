"""What a run leaves is whole: scores of every metric, costs, a report; what is missing is computed from captions."""

import shutil
from pathlib import Path

import pytest
from sqlalchemy import delete, update

from results import Store
from results.store.schema import HeldOutScore, ImageScores, Score
from tests.harness.benchmark.kills import rows, scores_and_captions
from tests.harness.benchmark.test_benchmark import words
from tests.harness.conftest import DrawScenes, bench, bench_ok, run_counts, tables_of

WHOLE_RUNS = True
MODELS = "blind,transformer_base,human,retrieval,majority"
HUNG = {"value": None, "reason": "it hung", "low": None, "high": None}


@pytest.fixture(scope="module")
def data(draw_scenes: DrawScenes) -> Path:
    return draw_scenes(train=32, val=8, test=12, nocaps_per_domain=3)


@pytest.fixture(scope="module")
def scored(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The workspace of one run of every kind of row."""
    workspace = tmp_path_factory.mktemp("scored") / "workspace"
    bench_ok(*words(data, workspace, MODELS))
    return workspace


def test_every_run_is_scored_costed_and_reported_once(scored: Path, data: Path) -> None:
    before = scores_and_captions(scored)
    counts = run_counts(bench_ok(*words(data, scored, MODELS)).stdout)
    assert counts.items() >= {"finished": 0, "re-used": 5, "failed": 0}.items()
    assert scores_and_captions(scored) == before
    found = rows(scored)
    assert set(found) == {"blind", "transformer_base", "human", "retrieval", "majority"}
    for model, row in found.items():
        for metric in ("BLEU-1", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr-D"):
            assert row.scores[metric].mean is not None, (model, metric, row.scores[metric].reason)
            assert row.held_out[metric].mean is not None, (model, metric, row.held_out[metric].reason)
    costs = found["transformer_base"].costs
    for name in ("parameters", "gmac_beam", "gmac_beam_mean_length", "train_seconds", "latency_median"):
        assert costs[name].value, (name, costs[name])
    assert costs["gmac_beam_mean_length"].value <= costs["gmac_beam"].value  # type: ignore[operator]
    assert costs["train_peak_memory_device"].value is None
    assert costs["train_peak_memory_device"].reason
    assert costs["train_beside"].value == 0
    assert (scored / "report" / "index.html").is_file()
    human = found["human"]
    assert human.scores["CIDEr-D"].mean > found["blind"].scores["CIDEr-D"].mean  # type: ignore[operator]
    assert {name: spread.mean for name, spread in human.held_out.items()} == {
        name: spread.mean for name, spread in human.scores.items()
    }
    assert (human.differs["nrefs"], human.differs["heldout"]) == ("4", "each")
    assert {name for name, row in found.items() if "heldout" in row.differs} == {"human"}
    standings = {name: row.ranks["CIDEr-D"] for name, row in found.items() if row.role == "model"}
    assert standings["blind"].is_baseline
    assert {test.baseline for test in standings["transformer_base"].baselines} == {"blind", "majority", "retrieval"}


def test_models_are_scored_as_people_are_once_people_are_among_the_rows(
    scored: Path, data: Path, tmp_path: Path
) -> None:
    bench_ok(*words(data, tmp_path / "workspace", "majority"))
    before = rows(tmp_path / "workspace")["majority"]
    assert before.held_out == {}
    bench_ok(*words(data, tmp_path / "workspace", "human,majority"))
    after = rows(tmp_path / "workspace")["majority"]
    assert after.held_out == rows(scored)["majority"].held_out
    assert after.scores == before.scores == rows(scored)["majority"].scores


def test_a_missing_score_is_computed_from_stored_captions(
    scored: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = tmp_path / "workspace"
    shutil.copytree(scored, workspace)
    before = rows(workspace)
    with Store(workspace / "bench.sqlite") as store, store.writing() as connection:
        connection.execute(update(Score).where(Score.metric == "METEOR").values(HUNG))
        connection.execute(delete(ImageScores).where(ImageScores.metric == "METEOR"))
        lost = {"value": None, "reason": "it hung"}
        connection.execute(update(HeldOutScore).where(HeldOutScore.metric == "METEOR").values(lost))
    monkeypatch.setenv("BENCH_JAVA", str(tmp_path / "no-java"))
    done = bench_ok(*words(data, workspace, "blind,human"))
    assert done.stdout.count("no-java cannot be started") == 1, "one cell is tried, the others not in vain"
    assert "it hung" in str(rows(workspace)["blind"].scores["METEOR"].reason), "reference rows come first"
    monkeypatch.delenv("BENCH_JAVA")
    done = bench_ok(*words(data, workspace, "blind,human"))
    assert done.stdout.count("re-used, finished before; METEOR: scored now") == 2
    assert "xe epoch" not in done.stdout
    after = rows(workspace)
    assert (after["human"].scores, after["blind"].scores) == (before["human"].scores, before["blind"].scores)
    assert after["human"].held_out == before["human"].held_out
    assert after["blind"].held_out == before["blind"].held_out
    assert after["blind"].costs == before["blind"].costs
    assert None not in (after["blind"].scores["METEOR"].low, after["blind"].scores["METEOR"].high)
    done = bench(*words(data, workspace, "human", "--more-metrics"))
    assert done.exit_code in {0, 1}
    assert "More metrics, scenes test" in tables_of(workspace)
    found = {name: row.more for name, row in rows(workspace).items() if row.more}
    assert found["human"]["CHAIR-s (objects:scenes)"].mean == 0
    assert set(found) == {"human"}, "nothing of other runs is measured"
