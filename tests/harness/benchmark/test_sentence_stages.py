"""SGAE's three stages on a few scenes: what each trains, how it is validated, and how it goes on after a kill."""

import io
import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from inspect import get_annotations
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.benchmark import context as module
from harness.benchmark.context import RunContext, open_context, open_inputs
from harness.benchmark.signature import reference_signature
from harness.benchmark.train import train_model
from harness.config.features import FeatureConfig
from harness.config.preset import VocabularyConfig
from harness.config.run import Conditions, RunData
from harness.config.schedule import Optimiser, Schedule
from harness.training.optimisers import make_optimiser, set_rate
from harness.training.sentence_graphs import HasSentenceGraphs
from harness.training.stage import stages_for, validate_schedule
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.records import EpochRecord
from tests.harness.benchmark.kills import Killed, curves
from tests.harness.benchmark.small_runs import make_context, quiet
from zoo import Captioner, create_model, model_card

STAGE = {
    "name": "xe", "epochs": 1, "batch_size": 2, "captions_per_image": 2, "dropout": 0.1,
    "optimiser": {"name": "adam"}, "learning_rate": {"peak": 0.01},
}  # fmt: skip
SENTENCES = STAGE | {"name": "sentences", "objective": "sentence_graph", "epochs": 2}
DICTIONARY = SENTENCES | {"name": "dictionary", "dictionary": True, "constant_rates": {"dictionary": 0.05}}


def schedule_of(*stages: dict[str, Any]) -> Schedule:
    return Schedule.model_validate({"name": "t", "summary": "t", "stages": stages})


THREE = schedule_of(SENTENCES, DICTIONARY, STAGE)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> RunContext:
    """Of four scenes to train on and two to validate, by the parser's graphs."""
    plain = make_context(tmp_path_factory.mktemp("run"), backbone="filterbank", regions={"source": "boxes"})
    preset = plain.preset.model_copy(update={"schedule": THREE})
    return context_of(plain, replace(plain, preset=preset), None)


def context_of(plain: RunContext, wanted: RunContext, file: Path | None, name: str = "scenes") -> RunContext:
    """The context of the same data under another preset, with a file of graphs or without."""
    data = plain.data
    features = data.feature_config.model_copy(update={"sentence_graphs": file})
    described, folder = RunData(sees=("grid",)), str(data.dataset.root.parent)
    conditions = Conditions.of_inputs(folder, None, features, described=described, preset=wanted.preset)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "open_dataset", lambda *_, **__: replace(data.dataset, name=name))
        return open_context(conditions, Workspace(data.cache.parent), quiet())


def model_of(context: RunContext, **arguments: Any) -> Captioner:
    torch.manual_seed(3)
    sizes = {"vocab_size": len(context.inputs.vocabulary), "visual_dim": context.data.visual_dim}
    return create_model("sgae", **sizes, **{**model_card("sgae").tiny, "max_len": 24, "sentences": True, **arguments})


def test_three_stages_train_what_they_are_for_and_go_on_after_a_kill(context: RunContext, tmp_path: Path) -> None:
    undisturbed: list[EpochRecord] = []
    said = io.StringIO()
    model = model_of(context)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    after: dict[str, dict[str, torch.Tensor]] = {}

    def on_epoch(row: EpochRecord) -> None:
        undisturbed.append(row)
        after[row.stage_name] = {name: value.clone() for name, value in model.state_dict().items()}

    summary = train_model(model, 0, context, tmp_path / "one", on_epoch, quiet(said))
    assert [(row.stage_name, row.objective, row.val_cider is None) for row in undisturbed] == [
        *[("sentences", "sentence_graph", True)] * 2,
        *[("dictionary", "sentence_graph", True)] * 2,
        ("xe", "cross_entropy", False),
    ]
    assert said.getvalue().count("validation loss") == 4
    assert summary.best == undisturbed[-1].val_cider

    def moved(name: str, since: Mapping[str, torch.Tensor], until: Mapping[str, torch.Tensor]) -> bool:
        return not torch.equal(since[name], until[name])

    for name, since, until in (("sentences", before, after["sentences"]), ("dictionary", before, after["dictionary"])):
        assert moved("sentences.lstm.input.weight", since, until)
        assert moved("embedding.0.weight", since, until)
        assert moved("dictionary", since, until) == (name == "dictionary")
        assert not moved("lstm.input.weight", since, until)
    assert moved("lstm.input.weight", after["dictionary"], after["xe"])
    assert not moved("sentences.lstm.input.weight", after["dictionary"], after["xe"])

    for stage, epoch in (("sentences", 1), ("dictionary", 0)):  # the last epoch before the kill
        resumed: list[EpochRecord] = []

        def kill(row: EpochRecord, at: tuple[str, int] = (stage, epoch), rows: list[EpochRecord] = resumed) -> None:
            rows.append(row)
            if (row.stage_name, row.epoch) == at:
                raise Killed

        folder = tmp_path / stage
        with pytest.raises(Killed):
            train_model(model_of(context), 0, context, folder, kill, quiet())
        rest: list[EpochRecord] = []
        again = model_of(context)
        train_model(again, 0, context, folder, rest.append, quiet())
        assert curves(resumed[: len(undisturbed) - len(rest)] + rest) == curves(undisturbed)
        for name, value in again.state_dict().items():
            assert torch.equal(value, model.state_dict()[name]), name


def test_a_model_without_the_part_passes_over_the_stages(context: RunContext, tmp_path: Path) -> None:
    said, records = io.StringIO(), list[EpochRecord]()
    train_model(model_of(context, sentences=False), 0, context, tmp_path / "a", records.append, quiet(said))
    assert "left out, since the model has no part for sentence graphs: sentences, dictionary" in said.getvalue()
    assert {row.stage for row in records} == {2}
    alone = replace(context, preset=context.preset.model_copy(update={"schedule": schedule_of(STAGE)}))
    expected = list[EpochRecord]()
    train_model(model_of(context, sentences=False), 0, alone, tmp_path / "b", expected.append, quiet())
    assert [row[1:] for row in curves(records)] == [row[1:] for row in curves(expected)]


def test_the_signature_says_where_the_graphs_are_from(context: RunContext, tmp_path: Path) -> None:
    assert context.signature["sentences"] == "parsed"
    ids = [sample.image_id for sample in (*context.data.train, *context.data.val)]
    path = tmp_path / "graphs.json"
    images = {str(image): [{"objects": [["star", "red"]]}] for image in ids}
    path.write_text(json.dumps({"format": "captionbench sentence graphs 1", "images": images}))
    named = context_of(context, context, path, "mine")
    assert named.signature["sentences"].startswith("file#")
    assert reference_signature(named.signature, nrefs="5")["sentences"] == "none"
    del images[str(ids[0])]
    path.write_text(json.dumps({"format": "captionbench sentence graphs 1", "images": images}))
    with pytest.raises(BenchError, match=f"no graph for image {ids[0]}"):
        context_of(context, context, path, "mine")


def test_missing_and_unread_files_are_one_clear_error(context: RunContext, tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="mine has none") as caught:
        context_of(context, context, None, "mine")
    assert "features.sentence_graphs=FILE" in (caught.value.hint or "")
    subwords = context.preset.model_copy(update={"vocabulary": VocabularyConfig(kind="bpe")})
    with pytest.raises(BenchError, match="this one is of subwords"):
        context_of(context, replace(context, preset=subwords), None)
    folder = shutil.copytree(context.data.dataset.root.parent, tmp_path / "mine")
    annotations = folder / "dataset_scenes.json"
    annotations.write_text(annotations.read_text().replace('"dataset":"scenes"', '"dataset":"mine"'))
    conditions = Conditions.of_inputs(str(folder), None, FeatureConfig(), described=RunData(), preset=context.preset)
    with pytest.raises(BenchError, match="and mine has none"):  # before features are extracted
        open_inputs(conditions, Workspace(tmp_path / "workspace"))
    plain = replace(context, preset=context.preset.model_copy(update={"schedule": schedule_of(STAGE)}))
    with pytest.raises(BenchError, match=r"features\.sentence_graphs"):
        context_of(context, plain, tmp_path / "unread.json")
    assert "sentences" not in context_of(context, plain, None).signature


def test_schedules_and_models_must_fit(context: RunContext) -> None:
    model, without = model_of(context), model_of(context, sentences=False)
    assert not get_annotations(HasSentenceGraphs), "from Python 3.12 on, protocols do not see a module's submodules"
    with pytest.raises(BenchError, match="which no stage of schedule 't' trains"):
        validate_schedule(model, schedule_of(STAGE))
    with pytest.raises(BenchError, match="this model has no part for them"):
        validate_schedule(without, THREE)
    validate_schedule(without, stages_for(without, THREE))
    with pytest.raises(BenchError, match="constant_rates for nothing"):
        validate_schedule(without, schedule_of(STAGE | {"constant_rates": {"nothing": 0.1}}))
    for stages, expected in (
        ((SENTENCES,), "the last stage must caption images"),
        ((DICTIONARY | {"optimiser": {"name": "muon"}}, STAGE), "constant_rates need another optimiser"),
    ):
        with pytest.raises(ValueError, match=expected):
            schedule_of(*stages)


def test_a_constant_rate_stays_when_the_others_fall(context: RunContext) -> None:
    model = model_of(context)
    optimiser = make_optimiser(model, Optimiser(name="adam"), constant_rates={"dictionary": 0.05})
    set_rate(optimiser, 0.0)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    sum(parameter.sum() for parameter in model.parameters()).backward()  # type: ignore[union-attr]
    optimiser.step()
    assert {name for name, value in model.state_dict().items() if not torch.equal(value, kept[name])} == {"dictionary"}
    torch.testing.assert_close(model.state_dict()["dictionary"], kept["dictionary"] - 0.05)
