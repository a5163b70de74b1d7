"""The public API gives what the commands give: scores, comparisons, captions; and imports nothing before it must."""

import doctest
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import captionbench
from captionbench import BenchError
from harness.config.features import FeatureConfig
from harness.data.batches import VisualSource
from harness.inference.generate import encode_images
from harness.metrics import evaluator
from harness.metrics.java import JavaError
from results import StoreError
from results.statistics.significance import PairedScores, holm, paired_differences
from tests.harness.cli.conftest import Fill
from tests.harness.conftest import ROOT, TINY, MakeRun, bench_ok, run_words
from zoo import Visual, VisualSpec, create_model, model_card

REFERENCES = {
    7: ["A dog runs.", "A brown dog, running"],
    3: ["Two cats asleep.", "cats sleep"],
    5: ["A red kite.", "a kite in the sky"],
    9: ["A man on a horse", "a horse with a man"],
}
OURS = {7: "a dog runs", 3: "two cats", 5: "a red kite", 9: "a horse"}
THEIRS = {7: "a cat", 3: "two cats asleep", 5: "a dog", 9: "a man on a horse"}


def evaluate(captions: Any, references: Any = REFERENCES, **options: Any) -> captionbench.Evaluation:
    return captionbench.evaluate(references, captions, meteor=False, **options)


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path, Path]:
    """References with domains in COCO's format, and the captions of two systems."""
    images = [{"id": i, "domain": "out-domain" if i == 5 else "in-domain"} for i in REFERENCES]
    annotations = [{"image_id": i, "caption": text} for i, texts in REFERENCES.items() for text in texts]
    references = tmp_path / "references.json"
    references.write_text(json.dumps({"images": images, "annotations": annotations}))
    paths = tmp_path / "ours.json", tmp_path / "theirs.json"
    for path, captions in zip(paths, (OURS, THEIRS), strict=True):
        path.write_text(json.dumps([{"image_id": i, "caption": text} for i, text in captions.items()]))
    return references, *paths


def test_importing_it_imports_nothing_heavy() -> None:
    heavy = {"torch", "pandas", "sqlalchemy", "pydantic", "numpy", "scipy", "PIL", "rich", "typer"}
    use = "import sys, captionbench; captionbench.register_model; dir(captionbench)"
    code = f"{use}; print(*({heavy!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_every_public_name_is_there() -> None:
    for name in captionbench.__all__:
        assert getattr(captionbench, name).__doc__, name
    with pytest.raises(AttributeError):
        getattr(captionbench, "evalute")  # noqa: B009


def test_examples_of_docstrings_give_what_they_show(
    make_run: MakeRun, tmp_path: Path, pictures: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_run("transformer_base", key="transformer_base-s0-266c9441c4")
    assert {path.name for path in pictures} == {"red.png", "blue.png"}
    (tmp_path / "baselines").symlink_to(ROOT / "baselines")
    monkeypatch.chdir(tmp_path)
    results = doctest.testmod(captionbench, extraglobs={"captionbench": captionbench})
    assert results.failed == 0
    assert results.attempted > 15


def test_scores_are_those_of_bench_evaluate(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    references, ours, _ = files
    out = tmp_path / "scores.json"
    bench_ok("evaluate", ours, "--references", references, "--no-meteor", "--out", out)
    written = json.loads(out.read_text())
    scores = evaluate(ours, references)
    assert scores.scores == {metric: value for metric, value in written["scores"].items() if value is not None}
    assert scores.reasons == written["reasons"]
    assert scores.intervals == {metric: tuple(bounds) for metric, bounds in written["intervals"].items()}
    assert scores.signature == written["signature"]
    assert written["per_image"] == {
        metric: {str(image): value for image, value in by_image.items()}
        for metric, by_image in scores.per_image.items()
    }
    assert {domain: found["ROUGE-L"] for domain, found in scores.domains.items()} == {
        domain: found["ROUGE-L"] for domain, found in written["domains"].items()
    }
    assert scores["CIDEr-D"] == scores.scores["CIDEr-D"]
    assert "CIDEr-D" in scores
    assert "METEOR" not in scores


def test_values_in_memory_score_as_files(files: tuple[Path, Path, Path]) -> None:
    references, ours, _ = files
    scores = evaluate(OURS)
    assert scores.scores == evaluate(ours, references).scores == evaluate(OURS, references).scores
    assert set(scores.per_image["CIDEr-D"]) == {*REFERENCES}
    assert evaluate({str(image): text for image, text in OURS.items()}).scores == scores.scores
    assert evaluate({np.int64(image): text for image, text in OURS.items()}).scores == scores.scores
    named = evaluate(
        {f"photos/{image}.jpg": text for image, text in OURS.items()},
        {f"{image}.jpg": tuple(texts) for image, texts in REFERENCES.items()},
    )
    assert named["ROUGE-L"] == scores["ROUGE-L"]
    assert set(named.per_image["CIDEr-D"]) == {f"{image}.jpg" for image in REFERENCES}


@pytest.mark.parametrize(
    ("references", "captions", "options"),
    [
        (REFERENCES, {i: text for i, text in OURS.items() if i != 3}, {}),
        (REFERENCES, OURS | {4: "a dog"}, {}),
        (REFERENCES, {i + 100: text for i, text in OURS.items()}, {}),
        (REFERENCES, OURS | {"3": "another"}, {}),
        (REFERENCES, OURS | {3: " "}, {}),
        (REFERENCES, OURS | {3: 5}, {}),
        (REFERENCES, OURS | {True: "a dog"}, {}),
        (REFERENCES, OURS | {(1, 2): "a dog"}, {}),
        (REFERENCES, {}, {}),
        ({"a": ["a dog"], "b": ["a cat"]}, {0: "a dog", 1: "a cat"}, {}),
        (REFERENCES | {3: []}, OURS, {}),
        (REFERENCES | {3: ["", " "]}, OURS, {}),
        (REFERENCES | {3: None}, OURS, {}),
        ({}, OURS, {}),
        (REFERENCES, OURS, {"split": "test"}),
        (REFERENCES, OURS, {"reference_field": "caption"}),
        (REFERENCES, OURS, {"by_position": True}),
        ("nowhere.json", OURS, {}),
        (REFERENCES, "nowhere.json", {}),
    ],
)
def test_what_does_not_fit_is_refused(references: Any, captions: Any, options: dict[str, Any]) -> None:
    with pytest.raises(BenchError):
        evaluate(captions, references, **options)


def test_a_subset_is_scored_where_it_is_allowed_and_signed() -> None:
    some = {image: text for image, text in OURS.items() if image != 3}
    with pytest.warns(UserWarning, match="left out"):
        scores = evaluate(some, allow_subset=True)
    assert set(scores.per_image["CIDEr-D"]) == {*some}
    assert "|of:4|" in scores.signature


def test_without_java_a_metric_has_a_reason_and_no_score(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_java() -> str:
        raise JavaError("no Java here")

    monkeypatch.setattr(evaluator, "find_java", without_java)
    scores = captionbench.evaluate(REFERENCES, OURS)
    assert "no Java here" in scores.reasons["METEOR"]
    assert "METEOR" not in scores.scores
    with pytest.raises(BenchError, match="no Java here"):
        scores["METEOR"]
    with pytest.raises(BenchError, match="CIDEr-D"):
        scores["CIDEr"]


def test_two_evaluations_are_compared_by_paired_tests() -> None:
    ours, theirs = evaluate(OURS), evaluate(THEIRS)
    changes = ours.compare(theirs)
    metrics = [metric for metric in changes if metric in ours]
    numbers: list[list[Any]] = [
        [found._images.influences.get(metric) or found.per_image[metric] for found in (ours, theirs)]
        for metric in metrics
    ]
    pairs = [PairedScores.from_captions(before, after) for before, after in numbers]
    tests = paired_differences([pair.changes() for pair in pairs])
    assert [changes[metric].p for metric in metrics] == pytest.approx(holm([test.p or 0.0 for test in tests]))
    for metric in metrics:
        assert changes[metric].value == pytest.approx(theirs[metric] - ours[metric])
        assert changes[metric].n == len(REFERENCES)
    assert changes["METEOR"].value is None
    assert changes["METEOR"].reason == ours.reasons["METEOR"]
    assert {change.value for change in ours.compare(ours).values() if change.value is not None} == {0.0}


def test_evaluations_of_other_references_are_not_compared(files: tuple[Path, Path, Path]) -> None:
    ours = evaluate(OURS)
    with pytest.raises(BenchError, match="refs"):
        ours.compare(evaluate(OURS, REFERENCES | {3: ["two cats"]}))
    assert ours.compare(evaluate(OURS, files[0]))["CIDEr-D"].value == 0, "a file of the same references"


@pytest.mark.usefixtures("quick_runs")
def test_two_evaluations_are_compared_as_two_stored_rows(files: tuple[Path, Path, Path], tmp_path: Path) -> None:
    references, ours, theirs = files
    workspace = tmp_path / "workspace"
    bench_ok("run", "--models", f"captions:{ours},captions:{theirs}", "--data", references, "-w", workspace)
    [pair] = captionbench.compare("ours", "theirs", workspace).pairs
    changes = evaluate(ours, references).compare(evaluate(theirs, references))
    stored = {score.metric: score.estimate for score in pair.scores}
    assert {metric: change.p for metric, change in changes.items()} == {
        metric: change.p for metric, change in stored.items()
    }
    for metric, change in changes.items():
        for side in ("value", "low", "high"):
            assert getattr(change, side) == pytest.approx(getattr(stored[metric], side)), metric


def test_stored_results_are_compared_as_by_bench_compare(fill: Fill) -> None:
    old, new = fill("old", {"updown": 0.0, "m2": 0.0}), fill("new", {"updown": 5.0, "m2": 0.0})
    comparison = captionbench.compare(old, new)
    written = json.loads(bench_ok("compare", old, new, "--format", "json").stdout)
    assert [pair.before.model for pair in comparison.pairs] == [pair["before"]["model"] for pair in written["pairs"]]
    ciders = [score.estimate for pair in comparison.pairs for score in pair.scores if score.metric == "CIDEr-D"]
    sides = []
    for workspace in (old, new):
        with captionbench.open(workspace) as results:
            frame = results.image_scores(metric="CIDEr-D")
        sides.append({str(run): dict(zip(rows.image_id, rows.score_percent / 100, strict=True))
                      for run, rows in frame.groupby("run", observed=True)})  # fmt: skip
    pairs = [PairedScores.from_captions(sides[0][run], sides[1][run]) for run in ("updown-s0", "m2-s0")]
    tests = paired_differences([pair.changes() for pair in pairs])
    assert [change.value for change in ciders] == pytest.approx([test.value for test in tests])
    [pair] = captionbench.compare("updown", "m2", new).pairs
    assert (pair.before.model, pair.after.model) == ("updown", "m2")
    assert captionbench.compare("updown", "m2", new / "bench.sqlite").pairs[0].before == pair.before


@pytest.mark.parametrize("names", [("updown", "nothing"), ("updown", "old"), ("nowhere", "nothing")])
def test_what_cannot_be_compared_is_refused(
    names: tuple[str, str], fill: Fill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(fill("old", {"updown": 0.0}).parent)
    with pytest.raises(BenchError):
        captionbench.compare(*names, workspace="old")
    with pytest.raises(BenchError):
        captionbench.compare("updown", "updown", workspace="empty")


def test_results_are_read_only_frames(fill: Fill, tmp_path: Path) -> None:
    workspace = fill("workspace", {"updown": 0.0}, failed=("m2",))
    with captionbench.open(workspace) as results:
        assert isinstance(results, captionbench.Results)
        assert list(results.leaderboard().model) == ["updown"]
        assert results.runs().set_index("run").status.to_dict() == {"updown-s0": "finished"}
        with pytest.raises(StoreError, match="read-only"):
            results._store.plan([])
    with pytest.raises(BenchError):
        captionbench.open(tmp_path / "nowhere")


@pytest.mark.usefixtures("quick_runs")
def test_a_loaded_run_gives_the_captions_that_it_stored(data: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    bench_ok(*run_words(data, workspace, "transformer_base", TINY), "--backbone", "filterbank")
    with captionbench.open(workspace) as results:
        [run] = results.runs().run
        stored = results.captions(split="test")
    images = [data / "images" / Path(file).name for file in stored.file]
    model = captionbench.load(run, workspace)
    assert model.key == run
    assert model.caption(images) == list(stored.caption)
    assert captionbench.load("transformer_base", str(workspace)).caption(images[:2]) == list(stored.caption)[:2]
    backwards = [*reversed(images), images[0]]
    assert model.caption(backwards) == [*reversed(stored.caption), stored.caption[0]]
    assert captionbench.load(workspace / "runs" / run).caption([Image.open(path) for path in images]) == list(
        stored.caption
    )
    encoded = model.encode(images)
    assert encoded.shape == (len(images), 64, 16)
    assert (encoded.dtype, encoded.device.type, encoded.requires_grad) == (torch.float32, "cpu", False)
    torch.testing.assert_close(model.encode(backwards), encoded[[*range(len(images) - 1, -1, -1), 0]])


class Ragged:
    """Features of images with as many tokens as their ids say; what is padded is noise."""

    def visual(self, image_ids: Any, spec: VisualSpec) -> Visual:
        mask = torch.arange(max(image_ids)) < torch.tensor(image_ids)[:, None]
        rows = [torch.randn(max(image_ids), spec.dim, generator=torch.Generator().manual_seed(i)) for i in image_ids]
        return Visual(features=torch.stack(rows), mask=mask)


def test_absent_tokens_are_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    model = create_model("transformer_base", vocab_size=9, visual_dim=8, **model_card("transformer_base").tiny)
    source: VisualSource = Ragged()
    monkeypatch.setattr("harness.inference.generate.IMAGES_AT_ONCE", 2)
    encoded = encode_images(model.eval(), source, [2, 3, 1, 5], device=torch.device("cpu"))
    assert encoded.shape[:2] == (4, 5)
    assert (~encoded.isnan()).all(2).sum(1).tolist() == [2, 3, 1, 5]
    assert encoded.isnan().any(2).sum(1).tolist() == [3, 2, 4, 0]
    alone = model.encode(source.visual([3], model.visual)).features.mean(1)[0]
    torch.testing.assert_close(encoded[1].nanmean(0), alone)


def test_pictures_of_pil_are_seen_as_their_files(make_run: MakeRun, tmp_path: Path) -> None:
    make_run()
    turned = Image.effect_noise((60, 40), 80).convert("RGB")
    exif = turned.getexif()
    exif[0x0112] = 6
    paths = [tmp_path / "turned.jpg", tmp_path / "clear.png", tmp_path / "print.jpg", tmp_path / "deep.tiff"]
    turned.save(paths[0], exif=exif)
    turned.convert("RGBA").point(lambda value: value // 2).save(paths[1])
    turned.convert("CMYK").save(paths[2])
    turned.convert("F").save(paths[3])
    model = captionbench.load("run", tmp_path / "workspace")
    torch.testing.assert_close(model.encode([Image.open(path) for path in paths]), model.encode(paths), rtol=0, atol=0)


def test_images_that_cannot_be_used_are_refused(make_run: MakeRun, tmp_path: Path, pictures: list[Path]) -> None:
    make_run()
    model = captionbench.load("run", tmp_path / "workspace")
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(pictures[0].read_bytes()[:60])
    for images in ([*pictures, damaged], [tmp_path / "nowhere.png"]):
        with pytest.raises(BenchError, match=images[-1].name):
            model.caption(images)
    for single in (pictures[0], str(pictures[0]), Image.open(pictures[0])):
        with pytest.raises(BenchError, match="single"):
            model.caption(single)  # type: ignore[arg-type]  # what a user may do
    assert model.caption([]) == []
    with pytest.raises(BenchError):
        model.encode([])
    for beam_size in (0, 257):
        with pytest.raises(BenchError, match="beam_size"):
            model.caption(pictures, beam_size=beam_size)


def test_a_beam_size_replaces_the_runs(make_run: MakeRun, tmp_path: Path, pictures: list[Path]) -> None:
    make_run()
    model = captionbench.load("run", tmp_path / "workspace")
    printed = bench_ok(
        "caption", *pictures, "--run", "run", "--workspace", tmp_path / "workspace", "--beam-size", 1
    ).stdout
    assert [line.partition(": ")[2] for line in printed.splitlines()] == model.caption(pictures, beam_size=1)


def test_regions_of_files_need_images_with_ids(make_run: MakeRun, tmp_path: Path, pictures: list[Path]) -> None:
    features = {"backbone": "filterbank", "options": {"grid": "2"}, "regions": {"source": "boxes"}}
    make_run(features=FeatureConfig.model_validate(features))
    workspace = tmp_path / "workspace"
    with pytest.raises(BenchError) as caught:
        captionbench.load("run", workspace).caption(pictures)
    assert "--regions" in (caught.value.hint or "")
    boxes = tmp_path / "boxes.json"
    boxes.write_text(json.dumps([{"image_id": 1, "bbox": [0, 0, 20, 20]}, {"image_id": 2, "bbox": [0, 0, 9, 9]}]))
    numbered = [path.rename(tmp_path / f"photo_{index}.png") for index, path in enumerate(pictures, start=1)]
    model = captionbench.load("run", workspace, regions=boxes)
    assert len(model.caption(numbered)) == 2
    assert model.encode(numbered).shape[:2] == (2, 1)
    with pytest.raises(BenchError, match="no image id"):
        model.caption([Image.open(numbered[0])])


def test_a_model_without_images_has_nothing_to_encode(make_run: MakeRun, tmp_path: Path, pictures: list[Path]) -> None:
    make_run("blind")
    model = captionbench.load("run", tmp_path / "workspace")
    assert len(model.caption(pictures)) == 2
    with pytest.raises(BenchError, match="sees no image"):
        model.encode(pictures)


def test_a_run_that_is_not_there_or_whose_model_is_unknown_is_refused(make_run: MakeRun, tmp_path: Path) -> None:
    folder = make_run()
    for name in ("other", tmp_path / "workspace", "hf:org/name"):
        with pytest.raises(BenchError):
            captionbench.load(name, tmp_path / "workspace")
    with pytest.raises(BenchError, match="--plugin"):
        captionbench.load(folder, plugins=["nowhere.py"])
    saved = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps(saved | {"model": "mine"}))
    with pytest.raises(BenchError, match="mine"):
        captionbench.load(folder)
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        "from dataclasses import replace\n\nimport captionbench\nfrom zoo import model_card\n\n"
        "captionbench.register_model(replace(model_card('transformer_base'), name='mine'))\n"
        "assert captionbench.Captioner.__name__ == 'Captioner'\n"
    )
    assert captionbench.load(folder, plugins=[str(plugin)]).captioner.vocab_size == 9
    (folder / "run.json").write_text("{}")
    with pytest.raises(BenchError):
        captionbench.load(folder)
