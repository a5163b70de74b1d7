"""The rows that `--models` asks for, and their planned runs: each of a known kind, with its conditions, in order."""

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.context import RunContext, open_context
from harness.benchmark.plan import Benchmark, choose_jobs, resolve
from harness.benchmark.plan import plan as plan_request
from harness.benchmark.pretrained import Pretrained
from harness.benchmark.rows import RequestedModel, resolve_models
from harness.config.experiment import DataChoice, Experiment
from harness.config.features import FeatureConfig
from harness.config.load import load_preset
from harness.config.run import config_of
from harness.executors.local import LocalExecutor
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.errors import StoreError
from results.records import RunSpec
from tests.harness.benchmark.small_runs import CHANGES, planner, quiet, save_run
from tests.harness.conftest import bench, bench_ok
from zoo import ZooError, model_card, select_models
from zoo.width import count_parameters


def plan(names: Sequence[str], context: RunContext, workspace: Workspace, seeds: int = 1) -> list[RunSpec]:
    return planner(context, workspace).plan(resolve_models(names, workspace), seeds)


def arguments_of(spec: RunSpec) -> dict[str, Any]:
    arguments: dict[str, Any] = (spec.config or {})["arguments"]
    return arguments


def test_every_model_has_a_row_before_the_second_seed(small: RunContext, workspace: Workspace) -> None:
    save_run(workspace, "stored-run", small)
    names = ["blind", "human", "git/pretrained", "stored-run", "git/finetuned"]
    planned = plan(names, small, workspace, seeds=3)
    assert [(spec.model, spec.seed) for spec in planned] == [
        ("human", 0),
        *((name, 0) for name in names if name != "human"),
        ("blind", 1),
        ("git/finetuned", 1),
        ("blind", 2),
        ("git/finetuned", 2),
    ], "what is not trained is the same for every seed"
    assert [(spec.kind, spec.role) for spec in planned[:6]] == [
        ("reference", "reference"),
        ("trained", "model"),
        ("pretrained", "model"),
        ("stored", "model"),
        ("trained", "model"),
        ("trained", "model"),
    ]
    assert len({spec.key for spec in planned}) == len(planned)


def test_other_seeds_are_those_of_trained_models_alone(small: RunContext, workspace: Workspace) -> None:
    models = resolve_models(["blind", "human", "git/pretrained"], workspace)
    first = planner(small, workspace).plan(models, 4)
    again = planner(small, workspace).plan(models, 2, first_seed=2)
    assert [(spec.model, spec.seed) for spec in again] == [
        ("human", 0), ("blind", 2), ("git/pretrained", 0), ("blind", 3)
    ]  # fmt: skip
    assert {spec.key for spec in again} < {spec.key for spec in first}, "the same runs, in whichever command"


def test_what_is_trained_is_planned_budget_by_budget(small: RunContext, workspace: Workspace) -> None:
    models = resolve_models(["blind", "human", "git/pretrained"], workspace)
    planned = planner(small, workspace).plan(models, 2, budgets=(2, 3))
    assert [(spec.model, spec.seed, config_of(spec).made_from.budget) for spec in planned] == [
        ("human", 0, 1), ("blind", 0, 2), ("git/pretrained", 0, 1), ("blind", 1, 2), ("blind", 0, 3), ("blind", 1, 3)
    ]  # fmt: skip
    usual = planner(small, workspace).plan(models, 2)
    assert {spec.key for spec in usual} & {spec.key for spec in planned} == {planned[0].key, planned[2].key}
    stages = small.preset.schedule.stages
    assert [config_of(spec).preset.schedule.stages[0].epochs for spec in planned if spec.model == "blind"] == [
        budget * stages[0].epochs for budget in (2, 2, 3, 3)
    ]
    assert len({spec.signature["schedule"] for spec in planned if spec.model == "blind"}) == 2


def test_a_trained_row_has_the_conditions_of_the_run(small: RunContext, workspace: Workspace) -> None:
    [spec] = plan(["show_tell"], small, workspace)
    assert {name: value for name, value in small.signature.items() if name != "rev"}.items() <= spec.signature.items()
    assert arguments_of(spec) == small.preset.model_arguments("show_tell")
    assert spec.record["evaluated"] == {"test": 3, "nocaps": 3}
    assert spec.record["card"]["family"] == "show_tell"


def test_seeds_differ_in_key_and_seed_alone(small: RunContext, workspace: Workspace) -> None:
    first, second = plan(["blind"], small, workspace, seeds=2)
    assert first.key != second.key
    assert replace(second, key=first.key, seed=0, config={**(second.config or {}), "seed": 0}) == first


def test_a_reference_row_is_signed_by_what_it_reads_alone(small: RunContext, workspace: Workspace) -> None:
    human, retrieval, majority = plan(["human", "retrieval", "majority"], small, workspace)
    assert retrieval.signature["feat"] == small.signature["feat"]
    assert human.signature["feat"] == majority.signature["feat"] != small.signature["feat"]
    assert human.signature["nrefs"] != majority.signature["nrefs"], "each reference is scored against one less"
    assert human.record["what"] == REFERENCE_ROWS["human"]


def test_published_weights_are_planned_from_where_they_lie(small: RunContext, workspace: Workspace) -> None:
    models = resolve_models(["git/pretrained", "git/finetuned"], workspace, {"git/pretrained": "somebody/git"})
    as_it_is, further = planner(small, workspace).plan(models, 1)
    assert (as_it_is.config or {})["weights"] == "somebody/git"
    assert as_it_is.signature["schedule"] != small.signature["schedule"], "its schedule was somebody else's"
    assert further.signature["schedule"] == small.signature["schedule"]


def test_a_checkpoint_that_was_moved_is_the_same_and_a_replaced_one_is_not(
    small: RunContext, workspace: Workspace, tmp_path: Path
) -> None:
    def key_at(folder: Path) -> str:
        models = resolve_models(["git/pretrained"], workspace, {"git/pretrained": str(folder)})
        [spec] = planner(small, workspace).plan(models, 1)
        assert config_of(spec).files.checkpoint == folder
        return spec.key

    first = tmp_path / "git"
    first.mkdir()
    (first / "model.safetensors").write_bytes(b"weights")
    key = key_at(first)
    (tmp_path / "elsewhere").mkdir()
    moved = first.rename(tmp_path / "elsewhere" / "git")
    assert key_at(moved) == key
    (moved / "model.safetensors").write_bytes(b"other weights")
    assert key_at(moved) != key


def test_a_stored_run_keeps_its_own_decoding(small: RunContext, workspace: Workspace) -> None:
    save_run(workspace, "stored-run", small)
    [spec] = plan(["stored-run"], small, workspace)
    assert (spec.record["stored"]["decoding"]["max_len"], spec.signature["beam"]) == (5, "1")
    assert spec.signature["vocab"].startswith("stored#")
    assert spec.signature["feat"] == small.signature["feat"]
    assert spec.record["card"]["family"] == "show_tell", "of the model that it is a run of"


def test_a_model_that_learns_to_see_is_signed_by_its_pixels(small: RunContext, workspace: Workspace) -> None:
    frozen, seeing = plan(["show_tell", "blip/small"], small, workspace)
    assert frozen.signature["feat"] == small.signature["feat"]
    assert seeing.signature["feat"] == f"pixels[{small.inputs.preprocessing.key()}]"


def test_a_run_is_built_with_the_width_that_was_found(small: RunContext, workspace: Workspace) -> None:
    preset = small.preset.model_copy(update={"parameters": 300_000})
    [narrow, wide] = plan(["show_tell", "updown"], replace(small, preset=preset), workspace)
    assert narrow.signature == wide.signature
    assert arguments_of(narrow)["d_model"] > arguments_of(wide)["d_model"]
    sizes = {"vocab_size": len(small.inputs.vocabulary), "visual_dim": small.data.visual_dim}
    for spec in (narrow, wide):
        assert count_parameters(spec.model, **sizes, **arguments_of(spec)) == pytest.approx(300_000, rel=0.02)


def test_all_is_the_models_and_then_the_reference_rows(workspace: Workspace) -> None:
    found = resolve_models(["all"], workspace)
    assert [model.name for model in found] == [*select_models("all"), *REFERENCE_ROWS]
    assert {model.kind for model in found[: -len(REFERENCE_ROWS)]} == {"trained"}


GIT, TUNED = (Pretrained(name, model_card(name).hub) for name in ("git/pretrained", "git/finetuned"))


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (["show_tell", "blind"], [("show_tell", "trained", "pooled"), ("blind", "trained", "none")]),
        (["blind", "c[g]ru", "cgru", "blind"], [("blind", "trained", "none"), ("cgru", "trained", "pooled")]),
        (
            ["human", "retrieval", "majority"],
            [("human", "reference", "none"), ("retrieval", "reference", "pooled"), ("majority", "reference", "none")],
        ),
        (["show_tell-s0-abc"], [("show_tell-s0-abc", "stored", "pooled")]),
    ],
)
def test_a_name_is_one_row_of_a_known_kind(
    asked: list[str], found: list[tuple[Any, ...]], workspace: Workspace, small: RunContext
) -> None:
    save_run(workspace, "show_tell-s0-abc", small)
    assert resolve_models(asked, workspace) == [RequestedModel(*each) for each in found]


def test_published_weights_are_scored_or_trained_further_from_where_they_lie(workspace: Workspace) -> None:
    found = resolve_models(["git/pretrained", "git/finetuned", "git/small"], workspace)
    assert [(model.kind, model.weights) for model in found] == [
        ("pretrained", GIT),
        ("trained", TUNED),
        ("trained", None),
    ]
    [here, usual] = resolve_models(["git/pretrained", "git/finetuned"], workspace, {"git/pretrained": "folder"})
    assert (here.weights, usual.weights) == (Pretrained("git/pretrained", "folder"), TUNED)


@pytest.mark.parametrize(
    ("asked", "error", "named", "hint"),
    [
        (["blind", "show_tel"], ZooError, "'show_tel'", "show_tell"),
        ([], BenchError, "--models", "--models all"),
        (["r" * 201], BenchError, "200 bytes", ""),
        (["damaged"], StoreError, "run.json", ""),
    ],
)
def test_other_names_are_refused(
    asked: list[str], error: type[Exception], named: str, hint: str, workspace: Workspace, small: RunContext
) -> None:
    save_run(workspace, "r" * 201, small)
    (save_run(workspace, "damaged", small) / "run.json").write_text("{")
    with pytest.raises(error, match=named) as caught:
        resolve_models(asked, workspace)
    assert hint in (getattr(caught.value, "hint", None) or "")


def one_caption_a_picture(folder: Path) -> Path:
    images = []
    for number, split in enumerate(["train"] * 4 + ["val"] * 2 + ["test"] * 2):
        name = f"{number}.png"
        Image.new("RGB", (8, 8), (30 * number, 9, 9)).save(folder / name)
        sentences = [{"raw": f"a dog on road {number}"}]
        images.append({"imgid": number, "filename": name, "split": split, "sentences": sentences})
    (folder / "dataset.json").write_text(json.dumps({"images": images}))
    return folder / "dataset.json"


def test_people_are_left_out_of_all_where_images_have_one_reference(tmp_path: Path) -> None:
    said = io.StringIO()
    data, workspace = one_caption_a_picture(tmp_path), Workspace(tmp_path / "workspace")
    backbone = FeatureConfig(backbone="filterbank", options={"grid": "2"})
    experiment = Experiment(models=("all",), data=DataChoice(annotations=str(data)))
    benchmark = Benchmark(experiment, load_preset("smoke", CHANGES), workspace, features=backbone)
    reporter = quiet(said)
    workspace.create()
    resolved = resolve(benchmark, reporter)
    context = open_context(resolved.conditions, workspace, reporter)
    models = {spec.model for spec in plan_request(benchmark, resolved, context, reporter, None)}
    assert {"majority", "retrieval", "blind"} < models
    assert "human" not in models
    assert "human" in said.getvalue()


@pytest.mark.parametrize(("models", "others"), [("blind,human", "blind"), ("human", "majority"), ("all,human", "all")])
def test_people_who_are_named_are_refused_where_images_have_one_reference(
    models: str, others: str, tmp_path: Path
) -> None:
    data = one_caption_a_picture(tmp_path)
    options = ("--data", data, "--workspace", tmp_path / "workspace", "--preset", "smoke", "--backbone", "filterbank")
    for command in ("plan", "run"):
        refused = bench(command, "--models", models, *options).exception
        assert isinstance(refused, BenchError)
        assert refused.hint is not None
        assert refused.hint.endswith(f"--models {others}")
    made = {path.name for path in (tmp_path / "workspace").glob("cache/*")}
    assert made <= {"datasets"}, "the annotations alone were read"
    if others != "all":  # dozens of models
        bench_ok("plan", "--models", others, *options)


def test_only_runs_that_are_left_share_the_machine(small: RunContext, workspace: Workspace) -> None:
    specs = plan(["blind", "human"], small, workspace, seeds=3)
    trained = [spec.key for spec in specs if spec.kind == "trained"]

    def jobs(finished: Sequence[str]) -> set[int]:
        chosen = choose_jobs(LocalExecutor(4), specs, small, finished)
        return {config_of(spec).execution.jobs for spec in chosen}

    assert [jobs(trained[:count]) for count in range(4)] == [{3}, {2}, {1}, {1}]
