"""The recipe of docs/models.md for outputs of sub-transformers, of runs on a few scenes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.documentation.pages import blocks_of
from tests.harness.conftest import DrawScenes, bench_ok, run_words

SMALL = {
    "size.d_model": 16, "size.n_heads": 2, "size.n_encoder_layers": 1, "schedule.stages.0.epochs": 1,
    "decoding.max_len": 5, "latency_repeats": 2,
}  # fmt: skip


@pytest.mark.parametrize(("model", "count"), [("image_transformer", 3), ("image_transformer/sub-1", 1)])
def test_the_recipe_gives_traces_and_a_point_a_vector(
    model: str, count: int, draw_scenes: DrawScenes, tmp_path: Path
) -> None:
    [block] = [block for block in blocks_of("docs/models.md", ["python"]) if "captionbench.load" in block.code]
    data = draw_scenes(train=8, val=2, test=4)
    seeing = ("--backbone", "filterbank", "--regions", "windows:2")
    bench_ok(*run_words(data, tmp_path, model, SMALL), "--preset", "smoke", *seeing)
    code = block.code
    for shown, here in (
        ('"image_transformer/official-graph", regions="cocobu_att"', f"{model!r}, {str(tmp_path)!r}"),
        ('Path("coco/images/val2014").glob("*.jpg"))', f'Path({str(data / "images")!r}).glob("*.png"))'),
    ):
        assert shown in code
        code = code.replace(shown, here)
    names: dict[str, Any] = {}
    exec(compile(code, block.page, "exec"), names)  # noqa: S102
    vectors, layer = names["vectors"], names["vectors"]["layer"]
    assert set(vectors) == {"layer", *range(1, count + 1)}
    assert layer.shape[1] == 16
    np.testing.assert_allclose(np.mean([vectors[number] for number in range(1, count + 1)], 0), layer, atol=1e-5)
    for name, found in vectors.items():
        assert names["traces"][name] == pytest.approx(found.var(0, ddof=1).sum())
        assert names["traces"][name] > 0
    assert names["places"].shape == (count * len(layer), 2)
    assert np.isfinite(names["places"]).all()
    assert len(names["colours"]) == count * len(layer)
