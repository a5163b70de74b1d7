"""The page of COCO shows what the database in the repository holds, and that holds what the captions score."""

import pytest

from results.runs.leaderboard import leaderboard
from results.store.store import Store
from tests.documentation.pages import ROOT, exported_tables, groups_of, missing_numbers, points, tables_in, text_of

DATABASE = ROOT / "baselines" / "coco_released.sqlite"
COLUMNS = "CIDEr-D,95 % interval,Rank,Published,BLEU-4,METEOR,ROUGE-L"
# CIDEr-D and BLEU-4 as coco-caption gives them for the same files.
MEASURED = {
    "OFA sparse experts": (147.0, 42.5),
    "OFA-Base": (146.4, 43.3),
    "BLIP-2": (146.0, 43.8),
    "PureT": (138.2, 40.9),
    "ER-SAN": (135.0, 41.7),
    "ExpansionNet v1": (131.5, 39.1),
    "M2": (131.2, 39.1),
    "sparse captioner": (131.1, 39.8),
    "Up-Down+VC": (130.5, 39.5),
    "VQACaptioning": (129.5, 39.0),
    "ETN": (128.9, 39.2),
    "SSG": (128.3, 38.7),
    "AoANet (Paddle)": (126.4, 38.8),
    "GAT": (111.5, 35.3),
    "Up-Down (Paddle)": (110.7, 35.0),
    "h-detach": (96.9, 31.0),
    "COMIC-256": (94.4, 30.8),
    "ViECap": (92.9, 27.2),
    "Soft attention (Paddle)": (92.1, 29.9),
    "LLaVA-1.5-7B": (68.6, 22.3),
    "ZeroCap": (34.5, 7.0),
    "MAGIC": (49.3, 12.9),
}


def test_its_tables_are_those_of_the_database() -> None:
    """Of COCO, Flickr30k, nocaps, and COCO's of fewer images."""
    exported = exported_tables(DATABASE, COLUMNS)
    assert len(exported) == 4
    tables = tables_in(text_of("docs/coco.md"))
    for table in exported:
        assert table in tables


def test_its_numbers_of_pairs_are_those_of_the_database() -> None:
    pairs = groups_of("coco_released")[0]["comparisons"]["pairs"]
    better = [pair["difference"] for pair in pairs if pair["verdict"] == "better"]
    half_widths = [(pair["high"] - pair["low"]) / 2 for pair in pairs]
    shown = points(min(better), min(half_widths), max(half_widths))
    assert not missing_numbers("docs/coco.md", {len(pairs), len(better), len(pairs) - len(better)} | shown)


def test_scores_are_those_of_coco_caption() -> None:
    with Store(DATABASE, read_only=True) as store:
        groups = [group for group in leaderboard(store, every_metric=False) if group.dataset == "coco"]
    found = {row.model: row.scores for group in groups for row in group.rows}
    assert found.keys() == MEASURED.keys()
    for name, printed in MEASURED.items():
        for metric, value in zip(("CIDEr-D", "BLEU-4"), printed, strict=True):
            assert 100 * (found[name][metric].mean or 0.0) == pytest.approx(value, abs=0.1), name


@pytest.mark.parametrize("name", ["coco_released", "flickr8k", "flickr8k_rewards"])
def test_a_database_holds_no_captions_of_a_data_set(name: str) -> None:
    content = (ROOT / "baselines" / f"{name}.sqlite").read_bytes()
    for words in (b"riding a motorcycle", b"dirt road", b"a man wearing", b"grassy field", b"blue shirt", b"is riding"):
        assert words not in content
