"""`bench caption`: pictures of one's own, by a run that was trained here."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import timm
import torch
from typer.testing import Result

import harness.inference.generate
from harness.benchmark.caption_images import caption_dataset, of_files
from harness.benchmark.saved_model import SavedModel, find_run
from harness.config.features import FeatureConfig
from harness.data.formats.predictions import read_predictions
from harness.data.formats.references import read_references
from harness.training.checkpoint import save_weights
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from harness.utils.workspace import Workspace
from results.errors import StoreError
from tests.harness.conftest import WORDS, DrawScenes, MakeRun, bench, bench_ok


def caption(*words: object) -> Result:
    return bench("caption", *words)


def test_each_picture_gets_a_line_from_a_run_by_key_or_folder(pictures: list[Path], make_run: MakeRun) -> None:
    folder = make_run()
    by_folder = caption(*pictures, "--run", folder)
    by_key, by_model = (
        caption(*pictures, "--run", name, "--workspace", folder.parents[1]) for name in ("run-s0", "run")
    )
    assert by_folder.exit_code == by_key.exit_code == by_model.exit_code == 0, by_folder.stderr
    assert by_folder.stdout == by_key.stdout == by_model.stdout
    assert ["run-s0" in each.stderr for each in (by_folder, by_key, by_model)] == [False, False, True]
    lines = by_folder.stdout.splitlines()
    assert [line.split(": ")[0] for line in lines] == [str(path) for path in pictures]
    assert all(set(line.split(": ")[1].split()) <= {*WORDS, "<unk>"} for line in lines)


def test_unknown_words_are_shown_unless_the_run_bans_them(pictures: list[Path], make_run: MakeRun) -> None:
    folder = make_run()
    shown = [line.split(": ")[1].split() for line in caption(*pictures, "--run", folder).stdout.splitlines()]
    assert "<unk>" in {*shown[0], *shown[1]}, "what these random weights say"
    run = SavedModel.load(folder)
    run.model_copy(update={"decoding": run.decoding.model_copy(update={"banned": ("<unk>", "dog")})}).save(folder)
    others = [line.split(": ")[1].split() for line in caption(*pictures, "--run", folder).stdout.splitlines()]
    assert all(others)
    assert {*others[0], *others[1]} <= {*WORDS} - {"dog"}


def test_captions_do_not_depend_on_the_other_pictures(pictures: list[Path], make_run: MakeRun) -> None:
    folder = make_run()
    together = caption_dataset(of_files(pictures), folder, reporter=Reporter()).captions
    alone = [caption_dataset(of_files([path]), folder, reporter=Reporter()).captions[0] for path in pictures]
    assert [together[0], together[1]] == alone


def test_the_same_picture_twice_is_captioned_once(pictures: list[Path], make_run: MakeRun) -> None:
    assert len(caption(pictures[0], pictures[0], "--run", make_run()).stdout.splitlines()) == 1


@pytest.mark.parametrize("model", ["transformer_base", "blind", "git/small"])
def test_regions_that_nothing_reads_are_refused(pictures: list[Path], make_run: MakeRun, model: str) -> None:
    refused = caption(*pictures, "--run", make_run(model), "--regions", "windows:2")
    assert isinstance(refused.exception, BenchError)
    assert "leave out --regions" in (refused.exception.hint or "")


def test_a_beam_size_replaces_the_runs(
    pictures: list[Path], make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, seen = make_run(), []
    search = harness.inference.generate.beam_search
    monkeypatch.setattr(
        harness.inference.generate, "beam_search", lambda *a, **k: seen.append(k["beam_size"]) or search(*a, **k)
    )
    caption_dataset(of_files(pictures), folder, reporter=Reporter())
    caption_dataset(of_files(pictures), folder, reporter=Reporter(), beam_size=4)
    assert seen == [2, 4]


def test_unreadable_pictures_are_named_and_others_captioned(pictures: list[Path], make_run: MakeRun) -> None:
    broken = pictures[0].with_name("broken.png")
    broken.write_bytes(pictures[0].read_bytes()[:50])
    done = caption(broken, pictures[1], "absent.jpg", "--run", make_run())
    assert done.exit_code == 1
    assert [line.split(": ")[0] for line in done.stdout.splitlines()] == [str(pictures[1])]
    assert "broken.png" in done.stderr
    assert "absent.jpg: is missing" in done.stderr


def test_an_unknown_run_names_the_nearest(make_run: MakeRun) -> None:
    workspace = Workspace(make_run(key="expansionnet_v2-s0-abc").parents[1])
    training = workspace.run_folder("expansionnet_v2-s1-def")
    training.mkdir()
    (training / "run.json").write_text("{}")
    assert find_run("expansionnet_v2", workspace).name == "expansionnet_v2-s0-abc", "of a model, its newest trained one"
    with pytest.raises(BenchError, match="no run 'expansionet_v2-s0'") as caught:
        find_run("expansionet_v2-s0", workspace)
    assert "expansionnet_v2-s0-abc" in (caught.value.hint or "")
    with pytest.raises(BenchError, match="holds no runs"):
        find_run("x", Workspace(workspace.root / "elsewhere"))


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (lambda folder: (folder / "run.json").unlink(), "run.json is missing"),
        (lambda folder: (folder / "run.json").write_text("{"), r"run.json is not a description of a run"),
        (lambda folder: (folder / "best.safetensors").unlink(), "no trained weights"),
        (lambda folder: (folder / "best.safetensors").write_bytes(b"no"), "best.safetensors"),
        (lambda folder: (folder / "vocabulary.json").unlink(), "vocabulary.json"),
    ],
)
def test_a_damaged_run_is_named(
    pictures: list[Path], make_run: MakeRun, damage: Callable[[Path], object], named: str
) -> None:
    folder = make_run()
    damage(folder)
    with pytest.raises((BenchError, StoreError), match=named):
        caption_dataset(of_files(pictures), folder, reporter=Reporter())


def test_moved_and_other_backbone_weights_are_told_apart(
    pictures: list[Path], make_run: MakeRun, tmp_path: Path
) -> None:
    for seed, name in enumerate(("weights.safetensors", "other.safetensors")):
        torch.manual_seed(seed)
        save_weights(timm.create_model("test_resnet", pretrained=False, num_classes=0), tmp_path / name)
    weights = tmp_path / "weights.safetensors"
    folder = make_run(features=FeatureConfig(backbone="test_resnet", weights=weights, image_size=64))
    expected = caption_dataset(of_files(pictures), folder, reporter=Reporter()).captions
    moved = Path(shutil.move(weights, tmp_path / "moved.safetensors"))
    with pytest.raises(BenchError, match=r"weights\.safetensors") as caught:
        caption_dataset(of_files(pictures), folder, reporter=Reporter())
    assert "--backbone-weights" in (caught.value.hint or "")
    assert caption_dataset(of_files(pictures), folder, reporter=Reporter(), backbone_weights=moved).captions == expected
    with pytest.raises(BenchError, match="trained with"):
        caption_dataset(
            of_files(pictures), folder, reporter=Reporter(), backbone_weights=tmp_path / "other.safetensors"
        )


def test_captions_of_a_table_have_its_file_names(make_run: MakeRun, draw_scenes: DrawScenes, tmp_path: Path) -> None:
    data = draw_scenes(train=2, val=1, test=3, nocaps_per_domain=1)
    [annotations] = data.glob("dataset*.json")
    images = [image for image in json.loads(annotations.read_text())["images"] if image["split"] == "test"]
    table = tmp_path / "captions.csv"
    lines = [f"{image['filename']},{sentence['raw']}" for image in images for sentence in image["sentences"]]
    table.write_text("\n".join(["image,caption", *lines]) + "\n")
    out = tmp_path / "predictions.json"
    pictures = next(path.parent for path in data.rglob(images[0]["filename"]))
    bench_ok("caption-data", table, "--images", pictures, "--run", make_run(), "--out", out)
    assert {entry["image_id"] for entry in json.loads(out.read_text())} == {image["filename"] for image in images}
    bench_ok("evaluate", out, "--references", table, "--no-meteor")


def test_a_split_becomes_predictions_that_can_be_scored(
    make_run: MakeRun, draw_scenes: DrawScenes, tmp_path: Path
) -> None:
    data = draw_scenes(train=2, val=1, test=3, nocaps_per_domain=1)
    out = tmp_path / "predictions.json"
    done = bench("caption-data", data, "--run", make_run(), "--out", out)
    assert done.exit_code == 0, done.output
    predictions = read_predictions(out)
    [annotations] = data.glob("dataset*.json")
    assert predictions.captions.keys() <= read_references(annotations).captions.keys()
    assert len(json.loads(out.read_text())) == 3
    assert len(bench("caption-data", data, "--split", "val", "--run", make_run()).stdout.splitlines()) == 1
