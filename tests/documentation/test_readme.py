"""What README concludes is what the databases in the repository hold."""

import functools
import json
import re
from typing import Any

from tests.documentation.pages import ROOT, text_of
from tests.harness.conftest import bench_ok

NUMBERS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]


@functools.cache
def board(name: str) -> dict[str, Any]:
    """The first group of comparable rows of a committed database."""
    exported = bench_ok("export", "leaderboard", "--db", str(ROOT / "baselines" / f"{name}.sqlite"), "--format", "json")
    group: dict[str, Any] = json.loads(exported.output)[0]
    return group


def says(*words: str) -> None:
    readme = re.sub(r"\s+", " ", text_of("README.md"))
    for each in words:
        assert each in readme


def test_what_it_says_of_flickr8k() -> None:
    group = board("flickr8k")
    rows, pairs = group["rows"], group["comparisons"]["pairs"]
    scores = [100 * rows[place]["scores"]["CIDEr-D"]["mean"] for place in group["comparisons"]["rows"]]
    better = {
        (rows[pair["first"]]["model"], rows[pair["second"]]["model"]) for pair in pairs if pair["verdict"] == "better"
    }
    assert better == {(name, "cgru") for name in ("transformer_base", "expansionnet_v1", "m2", "aoanet")}
    unknown = sum(pair["verdict"] == "unknown" for pair in pairs)
    hours = {row["model"]: row["costs"]["train_seconds"]["value"] for row in rows}
    assert round(hours["expansionnet_v2"] / hours["updown"], 1) == 2.0
    says(
        f"{NUMBERS[len(scores)].capitalize()} architectures of two million parameters",
        f"they end between {min(scores):.1f} and {max(scores):.1f} points of CIDEr-D",
        f"tell {NUMBERS[len(better)]} of their {len(pairs)} pairs apart",
        "the Transformer, ExpansionNet v1, M2 and AoANet are better than the cGRU captioner",
        f"The other {unknown} pairs",
        "ExpansionNet v2 trains twice as long as Up-Down",
    )


def test_what_it_says_of_coco() -> None:
    pairs = board("coco_released")["comparisons"]["pairs"]
    told = sum(pair["verdict"] == "better" for pair in pairs)
    gaps = re.findall(r"\(([+−]\d+\.\d)\)", text_of("docs/coco.md").split("\n\n| ")[1].split("\n\n")[0])
    met = sum(abs(float(gap.replace("−", "-"))) <= 0.1 for gap in gaps)
    says(
        f"{told} of {len(pairs)} pairs are told apart",
        f"{met} of the {len(gaps)} scores that their papers print are met",
    )
