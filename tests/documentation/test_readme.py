"""The numbers of README and of the page of costs are those that the files in the repository hold."""

import json

from tests.documentation.pages import ROOT, exported_tables, groups_of, missing_numbers, points, tables_in, text_of

README = "README.md"
KINDS = ("cross_entropy", "self_critical", "beam search")


def test_its_numbers_of_flickr8k_are_those_of_the_database() -> None:
    comparisons = groups_of("flickr8k")[0]["comparisons"]
    rows = groups_of("flickr8k")[0]["rows"]
    scores = [rows[index]["scores"]["CIDEr-D"]["mean"] for index in comparisons["rows"]]
    unknown = sum(pair["verdict"] == "unknown" for pair in comparisons["pairs"])
    seconds = {row["model"]: row["costs"]["train_seconds"]["value"] for row in rows}
    ratio = f"{seconds['x_lan'] / seconds['transformer_base']:.1f}"
    shown = points(min(scores), max(scores)) | {ratio}
    assert not missing_numbers(README, shown | {len(comparisons["pairs"]), unknown})


def test_its_numbers_of_coco_are_those_of_the_database() -> None:
    pairs = groups_of("coco_released")[0]["comparisons"]["pairs"]
    better = sum(pair["verdict"] == "better" for pair in pairs)
    table = exported_tables(ROOT / "baselines" / "coco_released.sqlite", "CIDEr-D,Published")[0]
    differences = [numbers[-1] for _, numbers in table if len(numbers) > 1]
    reproduced = sum(abs(float(difference)) <= 0.1 for difference in differences)
    assert not missing_numbers(README, {len(pairs), better, len(differences), reproduced})


def test_rates_of_the_page_of_costs_were_measured() -> None:
    measured = json.loads((ROOT / "baselines" / "gpu_h100.json").read_text(encoding="utf-8"))
    assert {part["state"] for part in measured["parts"]} == {"works"}
    [speed] = [part["numbers"] for part in measured["parts"] if part["part"] == "speed"]
    rows = [row for table in tables_in(text_of("docs/costs.md")) for row in table]
    models = {name: rates for name, rates in speed.items() if "cross_entropy" in rates}
    assert len(models) == 7
    for name, rates in models.items():
        shown = [rates[kind + replay]["images_per_second"] for kind in KINDS for replay in ("", ", replayed")]
        assert (name, [f"{rate:.0f}" for rate in shown]) in rows
    backbone = [speed[f"swin_large_patch4_window12_384 {precision}"] for precision in ("bf16", "fp32")]
    assert not missing_numbers("docs/costs.md", {f"{rate['images_per_second']:.0f}" for rate in backbone})
