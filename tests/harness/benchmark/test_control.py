"""Control runs: which model, what is varied, how their runs are told apart, and that failures stay their own."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.benchmark.context import RunContext, open_context
from harness.benchmark.plan import choose_control, nothing_to_vary, vary
from harness.benchmark.rows import plan_runs
from harness.benchmark.run_config import Opening
from harness.config.features import FeatureConfig, RegionConfig
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from reports.html.report import write_report
from results import Store
from tests.harness.benchmark.small_runs import quiet, requested, run_config
from tests.harness.conftest import (
    TINY,
    DrawScenes,
    bench_ok,
    bench_or_raise,
    failures_in,
    groups_in,
    run_counts,
    run_words,
)

GRID = FeatureConfig()


@pytest.mark.parametrize(
    ("models", "name", "chosen"),
    [
        (("blind", "human", "m2", "updown"), "auto", "m2"),
        (("blind", "human"), "auto", "blind"),
        (("git/finetuned", "m2"), "auto", "m2"),
        (("m2", "updown"), "updown", "updown"),
    ],
)
def test_the_first_model_that_can_be_varied_is_chosen(models: Sequence[str], name: str, chosen: str) -> None:
    assert choose_control(name, requested(*models), GRID).name == chosen


def test_models_that_are_not_trained_are_no_control() -> None:
    with pytest.raises(BenchError, match="--models trains no model of this name") as caught:
        choose_control("human", requested("human", "m2"), GRID)
    assert caught.value.hint == "choose auto, or one of: m2"
    with pytest.raises(BenchError, match="names none"):
        choose_control("auto", requested("human"), GRID)


def test_without_images_to_prepare_there_is_nothing_to_vary() -> None:
    blind, finetuned, m2, on_pixels = requested("blind", "git/finetuned", "m2", "expansionnet_v2/end-to-end")
    stored = FeatureConfig(regions=RegionConfig(source=Path("cocobu_att")))
    boxes = FeatureConfig(regions=RegionConfig(source="boxes"))
    assert nothing_to_vary(blind, GRID) == "it sees no images"
    assert "image processor" in (nothing_to_vary(finetuned, GRID) or "")
    assert "cocobu_att" in (nothing_to_vary(m2, stored) or "")
    assert [nothing_to_vary(m2, GRID), nothing_to_vary(m2, boxes), nothing_to_vary(on_pixels, stored)] == [None] * 3


@pytest.mark.parametrize("name", ["show_tell", "blip/small"])
def test_only_the_preprocessing_tells_the_runs_apart(small: RunContext, tmp_path: Path, name: str) -> None:
    [model] = models = requested(name)
    changed = vary(small, model, quiet())
    assert changed is not None
    own, other = (plan_runs(models, 1, context, Workspace(tmp_path))[0] for context in (small, changed))
    assert other.signature == own.signature | {"preprocessing": "bicubic"}, "also of a model that reads pixels"
    assert other.key != own.key
    assert replace(other, key=own.key, signature=own.signature, config=own.config) == own
    assert other.config | {"settings": ""} == own.config | {"settings": ""}


@pytest.mark.parametrize(("size", "control"), [(12, "bicubic"), (96, "rescaled:1.02")])
def test_the_filter_is_swapped_where_images_are_resized(small: RunContext, size: int, control: str) -> None:
    [model] = requested("show_tell")
    backbone = small.data.backbone
    own = backbone.preprocessing
    try:
        backbone.preprocessing = replace(own, size=size)
        changed = vary(small, model, quiet())
        assert backbone.preprocessing == replace(own, size=size), "the other runs keep theirs"
    finally:
        backbone.preprocessing = own
    assert changed is not None
    assert changed.signature["preprocessing"] == control


def test_varied_features_are_of_the_varied_images(small: RunContext) -> None:
    opening = run_config(small).opening.model_copy(update={"control": "other-filter"})
    changed = open_context(opening, Workspace(small.data.cache.parent), quiet())
    assert changed.data.features is not None
    assert small.data.features is not None
    ids = [sample.image_id for sample in small.data.train]
    assert changed.data.features.digest != small.data.features.digest
    assert 0 < abs(changed.data.features.pooled(ids) - small.data.features.pooled(ids)).mean() < 0.2


@pytest.fixture
def words(draw_scenes: DrawScenes, tmp_path: Path) -> list[object]:
    data = draw_scenes(train=8, val=3, test=4)
    settings = TINY | {"size.n_heads": 2}
    asked = ("--backbone", "filterbank", "--backbone-option", "grid=2", "--jobs", 1, "--control", "auto")
    return [*run_words(data, tmp_path / "workspace", "show_tell,majority", settings), *asked]


def test_further_seeds_join_the_row_and_the_change_stands_apart(words: list[object], tmp_path: Path) -> None:
    said = bench_ok(*words, "--first-seed", 3).stdout
    assert "control: show_tell with further seeds, and with preprocessing bicubic" in said
    plain, changed = groups_in(tmp_path / "workspace")
    assert [(row.model, row.seeds) for row in (*plain.rows, *plain.references)] == [
        ("show_tell", (3, 4)),
        ("majority", (0,)),
    ]
    assert [(row.model, row.seeds) for row in changed.rows] == [("show_tell", (3,))]
    assert dict(changed.signature.items() - plain.signature.items()) == {"preprocessing": "bicubic"}
    with Store(tmp_path / "workspace" / "bench.sqlite") as store:
        page = write_report(store, tmp_path / "report").with_name("method.html").read_text(encoding="utf-8")
    assert "Not the architecture: show_tell with the resize filter bicubic differs by " in page
    _, said = bench_or_raise(*words, "--first-seed", 3)
    assert run_counts(said).items() >= {"finished": 0, "re-used": 4, "failed": 0}.items()


def test_a_control_that_cannot_start_is_a_failed_row(
    words: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(opening: Opening, *more: Any, **named: Any) -> RunContext:
        if opening.control != "none":
            raise BenchError("the disk is full")
        return open_context(opening, *more, **named)

    monkeypatch.setattr("harness.benchmark.work.open_context", full)
    code, said = bench_or_raise(*words)
    assert code == 1
    assert run_counts(said).items() >= {"finished": 3, "re-used": 0, "failed": 1}.items()
    [failed] = failures_in(tmp_path / "workspace")
    assert (failed.model, failed.status, failed.error_class) == ("show_tell", "failed", "BenchError")
