"""What researchers type out of habit, and what the hint says to type instead."""

import json
from pathlib import Path

import pytest

from harness.utils.errors import BenchError
from tests.harness.conftest import bench
from zoo.errors import ZooError

MISTAKES = {
    "run --epochs 3": "--set schedule.stages.0.epochs=3",
    "run --lr 0.1": "--set schedule.stages.0.learning_rate.peak=",
    "run --batch-size 8": "--set schedule.stages.0.batch_size=",
    "run --beam 5": "--set decoding.beam_size=",
    "run --dropout 0.1": "--set schedule.stages.0.dropout=",
    "run --gpu 1": "--device cuda:0",
    "run --seed 1": "--first-seed",
    "run --model updown": "--models",
    "run --output-dir runs": "--workspace",
    "run --fp16": "--precision bf16",
    "run --resume": "the same command",
    "run --set lr=0.1": "schedule.stages.0.learning_rate.peak=0.1",
    "run --set learning_rate=0.001": "schedule.stages.0.learning_rate.peak=0.001",
    "run --set decoding.beam=5": "decoding.beam_size=5",
    "run --set epochs=3": "schedule.stages.0.epochs=3",
    "run --set size.hidden=64": "size.d_model",
    "run --preset smal": "did you mean small",
    "run updown": "--models",
    "schedules quik": "did you mean quick",
    "models show_tell": "bench models show show_tell",
    "evalute": "bench evaluate",
    "claims --format md": "--format markdown",
    "export submission results.json --server nocap --images list.json --out up": "--server nocaps",
    "run --models updwn": "did you mean updown?",
    "run --data captions.csv": "bench data convert captions.csv",
    "run --data captions.json": "bench data convert captions.json",
    "run --data flickr8k": "bench data download flickr8k",
    "evaluate": "bench evaluate FILE --references FILE",
    "evaluate named.json --references references.json": "7, 8",
    "evaluate named.json --references captions.csv": "bench data convert",
    "plan --models show_tell --preset smoke --store": "bench data features scenes",
}


@pytest.mark.parametrize("words", MISTAKES)
def test_the_hint_names_what_to_type(words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("captions.csv").write_text("file,caption\na.jpg,a dog\n")
    Path("captions.json").write_text(json.dumps([{"image": "a.jpg", "caption": "a dog"}]))
    Path("named.json").write_text(json.dumps([{"image_id": "a_dog", "caption": "a dog"}]))
    annotations = [{"image_id": image, "caption": "a dog", "id": image} for image in (7, 8)]
    Path("references.json").write_text(json.dumps({"images": [{"id": 7}, {"id": 8}], "annotations": annotations}))
    result = bench(*words.split(), env={"COLUMNS": "200"})
    told = result.exception
    if isinstance(told, BenchError | ZooError):  # which ends the program with code 2
        assert MISTAKES[words] in (told.hint or "")
    else:
        assert result.exit_code == 2
        assert MISTAKES[words] in result.output.splitlines()[-1]
