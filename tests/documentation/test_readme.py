"""What README and the page of costs conclude is what the files in the repository hold."""

import json
import re

from tests.documentation.pages import ROOT, groups_of, text_of

NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


def says(*words: str) -> None:
    readme = re.sub(r"\s+", " ", text_of("README.md"))
    for each in words:
        assert each in readme


def test_what_it_says_of_flickr8k() -> None:
    group = groups_of("flickr8k")[0]
    rows, pairs = group["rows"], group["comparisons"]["pairs"]
    scores = [100 * rows[place]["scores"]["CIDEr-D"]["mean"] for place in group["comparisons"]["rows"]]
    better = {
        (rows[pair["first"]]["model"], rows[pair["second"]]["model"]) for pair in pairs if pair["verdict"] == "better"
    }
    assert better == {(row["model"], "cgru") for row in rows[:9]} | {("transformer_base", "puret")}
    unknown = sum(pair["verdict"] == "unknown" for pair in pairs)
    hours = {row["model"]: row["costs"]["train_seconds"]["value"] for row in rows}
    says(
        f"{NUMBERS[len(scores)].capitalize()} architectures of two million parameters",
        f"they end between {min(scores):.1f} and {max(scores):.1f} points of CIDEr-D",
        f"tell {NUMBERS[len(better)]} of their {len(pairs)} pairs apart",
        "the cGRU captioner is worse than all others, and PureT than the Transformer",
        f"The other {unknown} pairs",
        f"X-LAN trains {hours['x_lan'] / hours['transformer_base']:.1f} times as long as the Transformer",
    )


def test_what_it_says_of_coco() -> None:
    pairs = groups_of("coco_released")[0]["comparisons"]["pairs"]
    told = sum(pair["verdict"] == "better" for pair in pairs)
    gaps = re.findall(r"\(([+−]\d+\.\d)\)", text_of("docs/coco.md").split("\n\n| ")[1].split("\n\n")[0])
    met = sum(abs(float(gap.replace("−", "-"))) <= 0.1 for gap in gaps)
    says(
        f"{told} of {len(pairs)} pairs are told apart",
        f"{met} of the {len(gaps)} scores that their papers print are met",
    )


KINDS = ("cross_entropy", "self_critical", "beam search")


def test_rates_of_the_page_were_measured() -> None:
    measured = json.loads((ROOT / "baselines" / "gpu_h100.json").read_text(encoding="utf-8"))
    assert {part["state"] for part in measured["parts"]} == {"works"}
    [speed] = [part["numbers"] for part in measured["parts"] if part["part"] == "speed"]
    page = (ROOT / "docs" / "costs.md").read_text(encoding="utf-8")
    models = {name: found for name, found in speed.items() if "cross_entropy" in found}
    for name, found in models.items():
        rates = [
            " → ".join(f"{found[kind + end]['images_per_second']:,.0f}" for end in ("", ", replayed")) for kind in KINDS
        ]
        assert f"| {name} | {' | '.join(rates)} |" in page
    assert len(models) == 7
    for precision, shown in (("bf16", "450 images a second in bf16"), ("fp32", "158 in fp32")):
        rate = speed[f"swin_large_patch4_window12_384 {precision}"]["images_per_second"]
        assert f"{rate:.0f} " in shown
        assert shown in page
