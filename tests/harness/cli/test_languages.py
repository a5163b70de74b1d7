"""Captions in Chinese, Japanese and German from files to scores, and models that are trained on Chinese words."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from harness.config.run import config_of
from harness.data.vocabularies import load_vocabulary
from harness.utils.errors import BenchError
from results import Store
from results.runs.reading import read_runs
from tests.harness.conftest import bench_ok, bench_or_raise

CHINESE = {
    1: ["一只灰色的狗在草地上奔跑", "草地上有一只灰色的狗"],
    2: ["两个女孩在公园里放风筝", "女孩在公园里放风筝"],
    3: ["一辆红色的公共汽车停在街角", "街角停着一辆红色的公共汽车"],
    4: ["一位老人在修理自行车", "老人在街角修理自行车"],
}
SAID = {
    1: "一只狗在草地上奔跑",
    2: "两个女孩在公园里",
    3: "一辆公共汽车停在街角",
    4: "一位老人在修理自行车",
}


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Predictions and references in Chinese."""
    predictions, references = tmp_path / "said.json", tmp_path / "references.json"
    write(predictions, SAID)
    annotations = [{"image_id": image, "caption": text} for image, texts in CHINESE.items() for text in texts]
    references.write_text(json.dumps({"images": [{"id": image} for image in CHINESE], "annotations": annotations}))
    return predictions, references


def write(path: Path, captions: dict[int, str]) -> None:
    path.write_text(json.dumps([{"image_id": image, "caption": text} for image, text in captions.items()]))


def refuse(*words: Any) -> BenchError:
    """The error that a command ends with."""
    with pytest.raises(BenchError) as caught:
        bench_or_raise(*words)
    return caught.value


def scored(predictions: Path, references: Path, *options: Any) -> dict[str, Any]:
    out = predictions.with_name("scores.json")
    bench_ok("evaluate", predictions, "--references", references, "--out", out, "--force", *options)
    content: dict[str, Any] = json.loads(out.read_text())
    return content


def test_chinese_is_refused_with_the_option_to_type(files: tuple[Path, Path]) -> None:
    refused = refuse("evaluate", files[0], "--references", files[1])
    assert refused.hint == "add --tokenizer zh, or --tokenizer characters"


def test_spaces_between_words_change_no_score(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Characters that somebody has parted by spaces are what `characters` makes of the text itself."""
    predictions, references = files
    by_characters = scored(predictions, references, "--tokenizer", "characters")
    assert "|tok:characters|" in by_characters["signature"]
    assert by_characters["reasons"].keys() == {"METEOR", "SPICE"}
    spaced, spaced_references = tmp_path / "spaced.json", tmp_path / "spaced_references.json"
    write(spaced, {image: " ".join(text) for image, text in SAID.items()})
    parted = {str(image): [" ".join(text) for text in texts] for image, texts in CHINESE.items()}
    spaced_references.write_text(json.dumps(parted))
    for said, wanted, tokenizer in (
        (spaced, spaced_references, "python"),
        (spaced, references, "characters"),
        (predictions, spaced_references, "characters"),
    ):
        again = scored(said, wanted, "--tokenizer", tokenizer, "--no-meteor")
        for metric in ("BLEU-1", "BLEU-4", "ROUGE-L", "CIDEr-D"):
            assert again["scores"][metric] == pytest.approx(by_characters["scores"][metric], abs=1e-12)
    words = scored(predictions, references, "--tokenizer", "zh")
    assert words["signature"].split("|tok:")[1].startswith("zh-jieba-")
    assert words["scores"]["CIDEr-D"] != pytest.approx(by_characters["scores"]["CIDEr-D"], abs=0.01)


def test_meteor_of_german_and_of_chinese(files: tuple[Path, Path], tmp_path: Path) -> None:
    german, references = tmp_path / "german.json", tmp_path / "german_references.json"
    write(german, {1: "Ein Hund läuft", 2: "zwei Mädchen spielen"})
    references.write_text(json.dumps({"1": ["der Hund lief"], "2": ["zwei Mädchen spielten"]}))
    english, of_german = (scored(german, references, *words) for words in ([], ["--language", "de"]))
    assert "|meteor:1.5|" in english["signature"]
    assert "|meteor:1.5-de-without-paraphrases|" in of_german["signature"]
    assert of_german["scores"]["METEOR"] != pytest.approx(english["scores"]["METEOR"], abs=0.01)
    assert of_german["scores"]["CIDEr-D"] == english["scores"]["CIDEr-D"]
    unknown = scored(german, references, "--language", "ko")
    assert unknown["scores"]["METEOR"] is None
    assert "Korean" in unknown["reasons"]["METEOR"]
    asked = scored(*files, "--tokenizer", "zh", "--language", "en")
    assert asked["scores"]["METEOR"] > 0.1
    assert "--language" in str(refuse("evaluate", german, "--references", references, "--language", "german"))


def test_systems_are_compared_in_the_words_that_are_asked_for(files: tuple[Path, Path], tmp_path: Path) -> None:
    predictions, references = files
    write(tmp_path / "other.json", dict.fromkeys(SAID, "一只狗"))
    report = tmp_path / "report"
    words = ("--tokenizer", "characters", "--report", report)
    bench_ok("evaluate", predictions, tmp_path / "other.json", "--references", references, *words)
    alone = scored(predictions, references, "--tokenizer", "characters")["scores"]["CIDEr-D"]
    with Store(report / "bench.sqlite", read_only=True) as store, store.reading() as connection:
        scores = [run.scores.get("test", "CIDEr-D") for run in read_runs(connection)]
    assert max(score.value or 0 for score in scores if score) == pytest.approx(alone, abs=1e-9)


def test_judgements_of_chinese(tmp_path: Path) -> None:
    rated = {
        str(image): {
            "image_path": f"{image}.jpg",
            "ground_truth": texts,
            "human_judgement": [
                {"image_path": f"{image}.jpg", "caption": SAID[image], "rating": 4.0},
                {"image_path": f"{image}.jpg", "caption": SAID[image % 4 + 1], "rating": 1.0},
            ],
        }
        for image, texts in CHINESE.items()
    }
    file = tmp_path / "rated.json"
    file.write_text(json.dumps(rated))
    assert "--tokenizer zh" in str(refuse("judgements", file).hint)
    printed = bench_ok("judgements", file, "--tokenizer", "zh").output
    assert "8 captions of 4 images" in printed
    assert "CIDEr-D" in printed
    assert "METEOR 1.5 does not support Chinese" in printed


@pytest.fixture(scope="module")
def chinese_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Karpathy folder of 16 pictures with two Chinese captions each."""
    folder = tmp_path_factory.mktemp("chinese")
    numbers = np.random.default_rng(0)
    images = []
    for image in range(16):
        pixels = numbers.integers(0, 256, (24, 24, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{image}.png")
        split = "train" if image < 8 else "val" if image < 12 else "test"
        sentences = [{"raw": text} for text in CHINESE[image % 4 + 1]]
        images.append({"imgid": image, "filename": f"{image}.png", "split": split, "sentences": sentences})
    (folder / "dataset_chinese.json").write_text(json.dumps({"images": images, "dataset": "chinese"}))
    return folder


def train(data: Path, workspace: Path, *options: Any) -> dict[str, Any]:
    """Train a small model on the data; the runs by model."""
    size = ("--set", "size={d_model: 16, d_ff: 16, n_heads: 2, n_encoder_layers: 1, n_decoder_layers: 1, max_len: 24}")
    words = ("--backbone", "filterbank", "--preset", "smoke", "--seeds", 1, "--workspace", workspace, *size)
    bench_ok("run", "--data", data, "--models", "show_tell,human,majority,retrieval", *words, *options)
    with Store(workspace / "bench.sqlite", read_only=True) as store, store.reading() as connection:
        return {run.model: (run, store.spec(run.key)) for run in read_runs(connection)}


@pytest.mark.usefixtures("quick_runs")
@pytest.mark.parametrize("tokenizer", ["zh", "characters"])
def test_models_are_trained_on_the_words_that_are_scored(tokenizer: str, chinese_data: Path, tmp_path: Path) -> None:
    refused = refuse("run", "--data", chinese_data, "--backbone", "filterbank", "--workspace", tmp_path / "none")
    assert "--tokenizer zh" in str(refused.hint)
    runs = train(chinese_data, tmp_path / "w", "--tokenizer", tokenizer, "--set", "vocabulary.min_count=1")
    _, spec = runs["show_tell"]
    vocabulary = load_vocabulary(tmp_path / "w" / "runs" / spec.key / "vocabulary.json")
    assert vocabulary.preparation == tokenizer
    expected = {"zh": {"公共汽车", "自行车", "女孩"}, "characters": {"公", "车", "女"}}[tokenizer]
    assert expected < set(vocabulary.words)
    for run, planned in runs.values():
        assert planned.signature["tok"].partition("-")[0] == tokenizer
        assert config_of(planned).tokenizer == tokenizer
        assert run.status == "finished"
    assert runs["show_tell"][1].signature["vocab"].startswith(runs["human"][1].signature["tok"])
    for model in ("human", "majority", "retrieval"):
        score = runs[model][0].scores.get("test", "CIDEr-D")
        assert score is not None
        assert (score.value or 0) > 0.05, model
    again = bench_ok(
        *("run", "--data", chinese_data, "--models", "human", "--backbone", "filterbank", "--preset", "smoke"),
        *("--seeds", 1, "--workspace", tmp_path / "w", "--tokenizer", tokenizer),
    )
    assert "re-used" in again.output


def test_verify_says_which_tokenizer_runs_need(chinese_data: Path) -> None:
    said = bench_ok("data", "verify", chinese_data)
    assert "take them with --tokenizer zh, or --tokenizer characters" in " ".join(said.output.split())
    assert "all 16 images can be used" in said.output


def test_papers_words_refuse_a_tokenizer(chinese_data: Path, tmp_path: Path) -> None:
    refused = refuse(
        *("plan", "--data", chinese_data, "--models", "expansionnet_v2/end-to-end"),
        *("--preset", "expansionnet-v2-paper", "--set", "recipe.backbone=filterbank"),
        *("--backbone", "filterbank", "--tokenizer", "zh", "--workspace", tmp_path),
    )
    assert "recipe.captions is expansionnet" in str(refused)
