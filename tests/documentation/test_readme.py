"""The numbers of README and of the page of costs are those that the files in the repository hold."""

import json
from typing import Any

from tests.documentation.pages import ROOT, exported_tables, groups_of, missing_numbers, points, tables_in, text_of

README = "README.md"
KINDS = ("cross_entropy", "self_critical", "beam search")


def better_pairs(group: dict[str, Any]) -> set[tuple[str, str]]:
    """(better model, worse model) of every pair that differs significantly."""
    models = [group["rows"][index]["model"] for index in group["comparisons"]["rows"]]
    pairs = set()
    for pair in group["comparisons"]["pairs"]:
        names = models[pair["first"]], models[pair["second"]]
        if pair["verdict"] == "better":
            pairs.add(names if pair["difference"] > 0 else names[::-1])
    return pairs


def test_its_numbers_of_flickr8k_are_those_of_the_database() -> None:
    comparisons = groups_of("flickr8k")[0]["comparisons"]
    rows = groups_of("flickr8k")[0]["rows"]
    scores = [rows[index]["scores"]["CIDEr-D"]["mean"] for index in comparisons["rows"]]
    unknown = sum(pair["verdict"] == "unknown" for pair in comparisons["pairs"])
    seconds = {row["model"]: row["costs"]["train_seconds"]["value"] for row in rows}
    ratio = f"{seconds['x_lan'] / seconds['transformer_base']:.1f}"
    shown = points(min(scores), max(scores)) | {ratio}
    assert not missing_numbers(README, shown | {len(comparisons["pairs"]), unknown})


def test_the_models_that_it_names_differ_as_it_says() -> None:
    flickr8k = better_pairs(groups_of("flickr8k")[0])
    worse_than_all = {(better, "cgru") for better, _ in flickr8k if better != "cgru"}
    assert len(worse_than_all) == 9
    assert flickr8k == worse_than_all | {("transformer_base", "puret")}

    rewards = groups_of("flickr8k_rewards")[0]
    assert {len(row["seeds"]) for row in rewards["rows"]} == {7}
    assert sum(better == "transformer_base" for better, _ in better_pairs(rewards)) == 8

    scenes = [group for group in groups_of("scenes") if group["split"] == "test" and len(group["rows"]) == 24]
    shortest = next(group for group in scenes if "*" not in group["signature"]["schedule"])
    longest = next(group for group in scenes if "*8#" in group["signature"]["schedule"])
    ahead_at_first = {better for better, worse in better_pairs(shortest) if worse == "gcn_lstm"}
    behind_at_last = {worse for better, worse in better_pairs(longest) if better == "gcn_lstm"}
    assert (len(ahead_at_first), len(ahead_at_first & behind_at_last)) == (10, 7)


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
