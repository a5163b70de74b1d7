"""Ensembles of stored runs: what they caption, what they cost, and which members they refuse."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.benchmark.benchmark import _refuse_missing_members
from harness.benchmark.context import RunContext
from harness.benchmark.costs import weights_folder
from harness.benchmark.rows import resolve_models
from harness.benchmark.run import RunTools, evaluate_ensemble, evaluate_run
from harness.benchmark.saved_model import SavedModel
from harness.config.preset import Decoding
from harness.config.run import EnsembleRun, StoredRun, config_of
from harness.training.checkpoint import save_weights
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.published.scores import measured_conditions
from results.records import Outcome, Quantity, RunSpec, SplitResult
from results.runs.reading import described_config
from tests.harness.benchmark.small_runs import FixedServices, make_spec, planner, quiet, save_run
from zoo import Pretraining

KEYS = ("show_tell-s0-a", "show_tell-s1-b", "show_tell-s2-c")


@pytest.fixture
def workspace(tmp_path: Path, small: RunContext) -> Workspace:
    """Three runs that differ in their weights."""
    place = Workspace(tmp_path)
    for number, key in enumerate(KEYS):
        folder = save_run(place, key, small)
        model, _ = SavedModel.load(folder).build(folder)
        torch.manual_seed(number)
        for parameter in model.parameters():
            parameter.data = torch.randn_like(parameter) * 0.5
        save_weights(model, folder / "best.safetensors")
    return place


def plan(word: str, context: RunContext, workspace: Workspace, seeds: int = 1) -> list[RunSpec]:
    return planner(context, workspace).plan(resolve_models([word], workspace), seeds)


def members_of(spec: RunSpec) -> tuple[str, ...]:
    config = config_of(spec)
    assert isinstance(config, EnsembleRun)
    return config.members


def run(spec: RunSpec, context: RunContext, services: FixedServices) -> Outcome:
    config = config_of(spec)
    folder = weights_folder(spec.key, config, services.workspace)
    tools = RunTools(folder, services.store, services.evaluator(context), quiet())
    if isinstance(config, EnsembleRun):
        return evaluate_ensemble(config, context, tools)
    assert isinstance(config, StoredRun)
    return evaluate_run(config, context, tools)


@torch.no_grad()
def by_hand(context: RunContext, workspace: Workspace, keys: Sequence[str]) -> dict[int, str]:
    """The likeliest word by the mean of all models' probabilities, each word from the whole prefix anew."""
    models = [SavedModel.load(folder).build(folder)[0] for folder in [workspace.run_folder(key) for key in keys]]
    vocabulary, captions = context.inputs.vocabulary, {}
    for sample in context.data.evaluated["test"]:
        visual = context.source(models[0].visual).visual([sample.image_id], models[0].visual)
        said = [vocabulary.bos]
        while len(said) <= 5 and said[-1] != vocabulary.eos:
            each = [model(visual, torch.tensor([said]))[0, -1].softmax(-1) for model in models]
            said.append(int(torch.stack(each).mean(0).argmax()))
        captions[sample.image_id] = vocabulary.decode(said[1:])
    return captions


def test_an_ensemble_says_the_likeliest_word_by_the_mean_of_probabilities(
    small: RunContext, workspace: Workspace
) -> None:
    [spec] = plan(f"ensemble:{'+'.join(KEYS)}", small, workspace, seeds=7)  # of stored runs there is one
    with FixedServices(workspace, small) as services:
        for key, seconds in zip(KEYS, (1.0, 2.0, 4.0), strict=True):
            services.store.plan([make_spec(key, "show_tell", small)])
            split = SplitResult("test", {}, {"overall": {"CIDEr-D": Quantity(0.5)}}, {})
            services.store.finish(key, Outcome((split,), {"train_seconds": Quantity(seconds, unit="s")}, {}))
        outcome = run(spec, small, services)
        again = run(plan(spec.key, small, workspace)[0], small, services)
    captions = outcome.splits[0].captions
    assert captions == by_hand(small, workspace, KEYS) == again.splits[0].captions
    assert all(captions != by_hand(small, workspace, [key]) for key in KEYS)
    folder = workspace.run_folder(KEYS[0])
    one = sum(weight.numel() for weight in SavedModel.load(folder).build(folder)[0].parameters())
    costs = outcome.costs
    assert (costs["parameters"].value, costs["train_seconds"].value) == (3 * one, 7.0)
    assert (costs["train_gmac"].value, costs["train_steps"].value, outcome.checkpoint) == (None, None, None)
    assert costs["latency_median"].value is not None
    assert measured_conditions("test", spec.signature, described_config(spec.config, spec.record)).models == 3


def test_seeds_are_spent_on_ensembles_that_share_none(small: RunContext, workspace: Workspace) -> None:
    alone = plan("show_tell", small, workspace, seeds=7)
    first, second = plan("ensemble:show_tell:3", small, workspace, seeds=7)
    assert [*members_of(first), *members_of(second)] == [spec.key for spec in alone[:6]]
    assert (first.seed, second.seed, first.kind, first.signature) == (0, 1, "ensemble", alone[0].signature)
    [mixed] = plan("ensemble:show_tell+cgru", small, workspace)
    assert (members_of(mixed)[0], mixed.record["card"]["model"]) == (alone[0].key, "")
    assert first.record["card"]["model"] == "show_tell"


def test_finished_runs_that_are_re_used_are_the_members(small: RunContext, workspace: Workspace) -> None:
    models = resolve_models(["ensemble:show_tell:2"], workspace)
    [now] = planner(small, workspace).plan(models, 2)

    def older(specs: list[RunSpec]) -> list[RunSpec]:
        return [replace(spec, key=f"older-{spec.seed}") for spec in specs]

    [of_finished] = planner(small, workspace, reuse=older).plan(models, 2)
    assert members_of(of_finished) == ("older-0", "older-1")
    assert of_finished.key != now.key


def test_what_any_member_has_seen_before_is_on_the_row(small: RunContext, workspace: Workspace) -> None:
    captions = Pretraining(("A", "C"), "1 M", ("COCO",), {"coco": "all"}, "x")
    for key, of in zip(KEYS, (None, captions, Pretraining((), "none", (), {}, "x")), strict=True):
        folder = workspace.run_folder(key)
        SavedModel.load(folder).model_copy(update={"pretraining": of}).save(folder)
    [spec] = plan(f"ensemble:{'+'.join(KEYS)}", small, workspace)
    merged = spec.record["card"]["pretraining"]
    assert (merged["data_sets"], merged["captions_of"], merged["overlap"]) == (["A", "C"], ["COCO"], {"coco": "all"})
    assert (merged["captions"], merged["source"]) == ("1 M; none", "x")


@pytest.mark.parametrize(
    "word",
    [
        "ensemble:show_tell",
        "ensemble:human:2",
        "ensemble:show_tell:x",
        "ensemble:blind:0",
        "ensemble:show_tell+updown",
        "ensemble:blind:2+blind",
    ],
)
def test_what_is_no_ensemble_is_refused(word: str, workspace: Workspace) -> None:
    with pytest.raises(BenchError, match="ensemble:"):
        resolve_models([word], workspace)


def test_members_must_be_there_and_alike(small: RunContext, workspace: Workspace) -> None:
    [trained], [stored] = (plan(f"ensemble:{of}", small, workspace) for of in ("cgru:2", f"{KEYS[0]}+{KEYS[1]}"))
    members = plan("cgru", small, workspace, seeds=2)
    save_run(workspace, KEYS[1], small, decoding=Decoding(beam_size=2, max_len=5))
    with FixedServices(workspace, small) as services:
        _refuse_missing_members([stored, *members, trained], services)
        with pytest.raises(BenchError, match=f"2 of its members .*{members[0].key}"):
            _refuse_missing_members([trained], services)
        with pytest.raises(BenchError, match=f"{KEYS[1]} have other decodings"):
            run(stored, small, services)
        services.store.plan([make_spec(KEYS[1], "show_tell", small)])
        with pytest.raises(BenchError, match=f"members are not finished: {KEYS[1]}"):
            run(stored, small, services)
