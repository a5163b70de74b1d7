"""A run on disk: what is saved is what is loaded, and what is missing or damaged is named."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.benchmark.context import RunContext
from harness.benchmark.saved_model import SavedModel, find_run, is_saved, open_saved
from harness.config.features import FeatureConfig
from harness.config.preset import Decoding
from harness.data.vocabulary import Vocabulary
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.errors import StoreError
from tests.harness.benchmark.small_runs import save_run
from zoo import Pretraining


def test_a_description_is_loaded_as_it_was_saved(small: RunContext, workspace: Workspace) -> None:
    pretraining = Pretraining(("ImageNet",), "", (), {}, "a paper")
    folder = save_run(workspace, "run-s0", small, pretraining=pretraining, decoding=Decoding(beam_size=7, max_len=9))
    saved = SavedModel.load(folder)
    assert saved.model == "show_tell"
    assert saved.features == FeatureConfig(backbone="filterbank", options={"grid": "2"})
    assert saved.preprocessing == small.inputs.preprocessing
    assert (saved.decoding.beam_size, saved.pretraining, saved.trained) == (7, pretraining, True)
    saved.save(folder.parent / "again")
    assert (folder.parent / "again" / "run.json").read_bytes() == (folder / "run.json").read_bytes()


def test_a_saved_model_is_built_with_its_weights_and_words(small: RunContext, workspace: Workspace) -> None:
    folder = save_run(workspace, "run-s0", small)
    first, words = SavedModel.load(folder).build(folder)
    torch.manual_seed(99)
    second, _ = SavedModel.load(folder).build(folder)
    assert words == small.inputs.vocabulary
    assert not first.training
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items())


def test_what_release_1_wrote_of_controls_is_read_but_for_control_runs(small: RunContext, workspace: Workspace) -> None:
    folder = save_run(workspace, "run-s0", small)
    saved, path = SavedModel.load(folder), folder / "run.json"
    written = json.loads(path.read_text())
    path.write_text(json.dumps(written | {"preprocessing": written["preprocessing"] | {"control": "none"}}))
    assert SavedModel.load(folder) == saved
    path.write_text(json.dumps(written | {"preprocessing": written["preprocessing"] | {"control": "rescaled"}}))
    with pytest.raises(StoreError, match="control run"):
        SavedModel.load(folder)


def test_an_opened_model_brings_its_own_inputs(small: RunContext, workspace: Workspace) -> None:
    folder = save_run(workspace, "run-s0", small, preprocessing={"size": 48, "interpolation": "bilinear"})
    saved = SavedModel.load(folder)
    Vocabulary(small.inputs.vocabulary.words[::-1]).save(folder / "vocabulary.json")
    _, context = open_saved(saved, folder, small)
    assert context.inputs.vocabulary.words == small.inputs.vocabulary.words[::-1]
    assert context.inputs.preprocessing == saved.preprocessing != small.inputs.preprocessing
    assert context.inputs.decoding == Decoding(beam_size=1, max_len=5) != small.inputs.decoding
    assert context.data is small.data


@pytest.mark.parametrize(
    ("key", "value"), [("format", "captionbench run 2"), ("visual_dim", None), ("no_such_setting", 1)]
)
def test_a_damaged_description_is_named(small: RunContext, workspace: Workspace, key: str, value: object) -> None:
    path = save_run(workspace, "run-s0", small) / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(StoreError, match=r"run\.json") as caught:
        SavedModel.load(path.parent)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("visual_dim", "arguments"),
    [
        (10**12, {}),
        (6, {"d_model": 2**16}),  # legal, of 17 GB a matrix
        (6, {"d_model": 10**12}),
        (6, {"no_such_argument": 1}),
    ],
)
def test_sizes_that_the_weights_do_not_have_are_refused_before_memory_is_filled(
    small: RunContext, workspace: Workspace, visual_dim: int, arguments: dict[str, int]
) -> None:
    path = save_run(workspace, "run-s0", small) / "run.json"
    content = json.loads(path.read_text())
    changed = {"model": "show_attend_tell", "visual_dim": visual_dim, "arguments": content["arguments"] | arguments}
    path.write_text(json.dumps(content | changed))
    with pytest.raises((BenchError, StoreError), match=r"run\.json"):
        SavedModel.load(path.parent).build(path.parent)


class OpensAFile:
    """Unpickled, it writes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("option", ["checkpoint_path", "pretrained_cfg_overlay"])
def test_a_strangers_description_names_no_file_to_unpickle(
    option: str, small: RunContext, workspace: Workspace, tmp_path: Path
) -> None:
    folder = save_run(workspace, "run-s0", small)
    torch.save(OpensAFile(tmp_path / "opened"), tmp_path / "net.pth")
    value = {
        "checkpoint_path": str(tmp_path / "net.pth"),
        "pretrained_cfg_overlay": {"file": str(tmp_path / "net.pth")},
    }
    described = json.loads((folder / "run.json").read_text())
    described["model"] = "expansionnet_v2/end-to-end"
    described["arguments"] = {"backbone": "resnet10t", "backbone_options": {option: value[option]}}
    (folder / "run.json").write_text(json.dumps(described))
    with pytest.raises(BenchError, match=f"has no option {option}"):
        SavedModel.load(folder).build(folder)
    assert not (tmp_path / "opened").exists()


def test_a_description_has_no_key_twice(small: RunContext, workspace: Workspace) -> None:
    path = save_run(workspace, "run-s0", small) / "run.json"
    path.write_text(path.read_text().replace("{", '{"visual_dim": 4,', 1))
    with pytest.raises(StoreError, match="the key 'visual_dim' twice"):
        SavedModel.load(path.parent)


def test_weights_of_its_own_are_needed_by_a_trained_run_alone(small: RunContext, workspace: Workspace) -> None:
    for key, trained in (("trained", True), ("published", False)):
        (save_run(workspace, key, small, trained=trained) / "best.safetensors").unlink()
    assert not SavedModel.load(workspace.run_folder("published")).trained
    with pytest.raises(BenchError, match="has no trained weights yet"):
        SavedModel.load(workspace.run_folder("trained"))


def test_a_saved_run_is_named_by_its_key_and_not_by_a_path(small: RunContext, workspace: Workspace) -> None:
    folder = save_run(workspace, "run-s0", small)
    (workspace.run_folder("begun")).mkdir()
    assert is_saved("run-s0", workspace)
    for other in (str(folder), "../runs/run-s0", "run-s0/", "./run-s0", "", "..", "begun", "blind"):
        assert not is_saved(other, workspace), other


def test_a_key_is_found_before_a_folder_of_that_name(
    small: RunContext, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_run(workspace, "run-s0", small)
    for name in ("run-s0", "elsewhere"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_run("run-s0", workspace) == folder
    assert find_run("elsewhere", workspace) == Path("elsewhere")
    assert find_run(str(folder), workspace) == folder


def test_a_plug_ins_model_that_is_not_registered_names_the_option(small: RunContext, workspace: Workspace) -> None:
    folder = save_run(workspace, "mine-s0", small)
    path = folder / "run.json"
    path.write_text(path.read_text().replace('"show_tell"', '"mine"'))
    with pytest.raises(BenchError, match=r"mine-s0 .*'mine'") as caught:
        SavedModel.load(folder).build(folder)
    assert "--plugin" in str(caught.value.hint)
