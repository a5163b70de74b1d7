"""docs/api.md: its code runs and shows what is so; captions and shapes are those of a larger model than the test's."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.documentation.pages import ROOT, text_of
from tests.harness.conftest import DrawScenes, bench_ok, run_words
from tests.results.frames.test_notebook import BLOCK, run, stripped

SMALL = {
    "size.d_model": 16, "size.n_heads": 2, "size.n_encoder_layers": 1, "schedule.stages.0.epochs": 1,
    "decoding.max_len": 5, "latency_repeats": 2,
}  # fmt: skip


@pytest.mark.usefixtures("quick_runs")
def test_the_page_shows_what_its_code_gives(
    draw_scenes: DrawScenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = draw_scenes(train=8, val=2, test=4)
    bench_ok(*run_words(data, tmp_path / "workspace", "transformer_base", SMALL), "--backbone", "filterbank")
    shutil.copytree(data / "images", tmp_path / "pictures")
    (tmp_path / "baselines").symlink_to(ROOT / "baselines")
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    names: dict[str, Any] = {}
    compared = 0
    for block in BLOCK.finditer(text_of("docs/api.md")):
        shown = run(block["code"], names) or capsys.readouterr().out
        if "model." not in block["code"]:
            assert stripped(shown) == stripped(block["shown"] or ""), block["code"]
            compared += 1
    assert compared == 7
    names["test_captions_are_still_good"]()
    balls = {image: f"a ball and {image} cubes" for image in range(20)}
    Path("references.json").write_text(json.dumps({image: [text, "a ball"] for image, text in balls.items()}))
    Path("captions.json").write_text(json.dumps(balls))
    bench_ok("evaluate", "captions.json", "--references", "references.json", "--no-meteor", "--out", "scores.json")
    names["test_cider_has_not_fallen_by_half_a_point"]()
    Path("captions.json").write_text(json.dumps(balls | {3: "a dog"}))
    with pytest.raises(AssertionError):
        names["test_cider_has_not_fallen_by_half_a_point"]()
    assert names["encoded"].shape == (len(names["images"]), 64, 16)
    assert names["points"].shape == (len(names["images"]), 2)
