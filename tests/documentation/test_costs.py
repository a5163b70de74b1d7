"""The numbers of a GPU on the page of costs are those of the check that is in the repository."""

import json

from tests.documentation.pages import ROOT

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
