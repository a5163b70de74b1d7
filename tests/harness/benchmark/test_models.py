"""What `--models` asks for: every name becomes one row of a known kind, or an error with the nearest names."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.context import RunContext
from harness.benchmark.models import RequestedModel, resolve_models
from harness.benchmark.pretrained import Pretrained
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from tests.harness.benchmark.small_runs import save_run
from zoo import ZooError, model_card, select_models


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_a_registered_name_is_trained_here(workspace: Workspace) -> None:
    assert resolve_models(["show_tell", "blind"], workspace) == [
        RequestedModel("show_tell", "trained", "pooled"),
        RequestedModel("blind", "trained", "none"),
    ]


def test_a_model_asked_for_twice_is_one_row_in_the_first_place(workspace: Workspace) -> None:
    found = resolve_models(["cgru", "blind", "c[g]ru", "blind"], workspace)
    assert [model.name for model in found] == ["cgru", "blind"]


def test_a_glob_is_every_model_that_fits(workspace: Workspace) -> None:
    found = [model.name for model in resolve_models(["expansionnet_v2/*"], workspace)]
    assert found == select_models("expansionnet_v2/*")
    assert len(found) > 1


def test_all_is_the_models_and_then_the_reference_rows(workspace: Workspace) -> None:
    found = resolve_models(["all"], workspace)
    assert [model.name for model in found] == [*select_models("all"), *REFERENCE_ROWS]
    assert {model.kind for model in found[: -len(REFERENCE_ROWS)]} == {"trained"}


def test_of_the_reference_rows_retrieval_alone_reads_features(workspace: Workspace) -> None:
    assert resolve_models(list(REFERENCE_ROWS), workspace) == [
        RequestedModel("human", "reference", "none"),
        RequestedModel("retrieval", "reference", "pooled"),
        RequestedModel("majority", "reference", "none"),
    ]


def test_the_key_of_a_saved_run_is_a_stored_model(workspace: Workspace, small: RunContext) -> None:
    save_run(workspace, "show_tell-s0-abc", small)
    assert resolve_models(["show_tell-s0-abc"], workspace) == [RequestedModel("show_tell-s0-abc", "stored", "pooled")]


def test_a_saved_run_that_cannot_be_read_is_an_error(workspace: Workspace, small: RunContext) -> None:
    (save_run(workspace, "show_tell-s0-abc", small) / "run.json").write_text("{")
    with pytest.raises(BenchError, match=r"run\.json cannot be read"):
        resolve_models(["show_tell-s0-abc"], workspace)


def test_a_name_is_short_enough_for_the_folder_of_a_run(workspace: Workspace, small: RunContext) -> None:
    save_run(workspace, "r" * 201, small)
    with pytest.raises(BenchError, match="at most 200 bytes"):
        resolve_models(["r" * 201], workspace)


def test_published_weights_are_scored_or_trained_further(workspace: Workspace) -> None:
    found = resolve_models(["git/pretrained", "git/finetuned", "git/small"], workspace)
    hub = model_card("git/pretrained").hub
    assert [(model.kind, model.weights) for model in found] == [
        ("pretrained", Pretrained("git/pretrained", hub)),
        ("trained", Pretrained("git/finetuned", model_card("git/finetuned").hub)),
        ("trained", None),
    ]


def test_weights_may_lie_elsewhere_than_the_card_says(workspace: Workspace) -> None:
    [here, usual] = resolve_models(["git/pretrained", "blip/pretrained"], workspace, {"git/pretrained": "folder"})
    assert here.weights == Pretrained("git/pretrained", "folder")
    assert usual.weights == Pretrained("blip/pretrained", model_card("blip/pretrained").hub)


def test_a_name_that_does_not_exist_gets_the_nearest(workspace: Workspace) -> None:
    with pytest.raises(ZooError, match="no model named 'show_tel'") as caught:
        resolve_models(["blind", "show_tel"], workspace)
    assert "show_tell" in (caught.value.hint or "")


def test_no_name_at_all_is_refused(workspace: Workspace) -> None:
    with pytest.raises(BenchError, match="--models names no model") as caught:
        resolve_models([], workspace)
    assert "--models all" in (caught.value.hint or "")
