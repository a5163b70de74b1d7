"""The papers' numbers: read as printed, found by their conditions, never taken for measured ones."""

import math
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from results import StoreError
from results.metrics import metric_names
from results.published.scores import (
    PAPERS,
    SPLIT_IMAGES,
    MeasuredConditions,
    PublishedScore,
    RunRecipe,
    all_footnotes,
    best_match,
    chosen_by,
    domain_footnote,
    measured_conditions,
    printed_of,
    printed_split,
    recipes,
    scores,
)

FROZEN, END_TO_END = (
    RunRecipe(preset, recipes()[preset].digest) for preset in ("expansionnet-v2-paper-frozen", "expansionnet-v2-paper")
)
OWN = MeasuredConditions(
    "karpathy-test", "XE", 3, "swin_large_patch4_window12_384.ms_in22k#1f", "frozen", recipe=FROZEN, images=5000
)


def select(**fields: Any) -> list[PublishedScore]:
    """The printed numbers whose fields equal these."""
    return [score for score in scores() if all(getattr(score, name) == value for name, value in fields.items())]


def test_what_a_paper_does_not_state_is_none() -> None:
    unstated = select(paper="expansionnet_v2", table="Table IV", model="updown", split="coco-online-c5")
    assert {(score.objective, score.features, score.beam, score.ensemble) for score in unstated} == {
        (None, None, None, True)
    }
    assert select(model="updown", objective=None, split="coco-online-c5", paper="expansionnet_v2") == unstated
    with pytest.raises(StoreError, match="days"):
        _ = select(metric="train_time_days")[0].fraction


def test_every_printed_number_is_there_and_follows_the_file_s_rules() -> None:
    assert len(scores()) == 1593
    assert {score.paper for score in scores()} == set(PAPERS)
    for score in scores():
        assert not score.note.startswith("/")
        assert score.table
        assert score.model
        assert score.backbone in {None, "frozen", "trained"}
        assert score.objective in {None, "XE", "RL"}
        assert score.split in {None, *SPLIT_IMAGES, "coco-online-c5", "coco-online-c40"}
        assert score.domain in {None, "in", "near", "out", "all"}
        assert (score.unit == "percent") == (score.metric in metric_names())
        assert math.isfinite(score.value)
        assert score.value >= 0
        assert score.beam is None or score.beam > 0
        assert score.ensemble_size is None or score.ensemble_size > 1


def test_every_name_and_every_footnote_finds_rows() -> None:
    for name, printed in printed_of().items():
        for rows in printed:
            assert any(chosen_by(score, [rows]) for score in scores()), f"{name}: {rows}"
    for preset, recipe in recipes().items():
        for rows in recipe.rows:
            assert any(chosen_by(score, [rows]) for score in scores()), f"{preset}: {rows}"
    for text, rows in all_footnotes():
        assert any(chosen_by(score, [rows]) for score in scores()), text


def test_the_same_conditions_match() -> None:
    match = best_match("expansionnet_v2", "CIDEr-D", OWN)
    assert match is not None
    assert (match.score.value, match.score.source) == (123.8, "expansionnet_v2_arxiv, Table 2")
    assert match.matches
    tuned = replace(OWN, objective="RL", backbone="trained", recipe=END_TO_END)
    end_to_end = best_match("expansionnet_v2", "CIDEr-D", tuned)
    assert end_to_end is not None
    assert (end_to_end.score.value, end_to_end.differing, end_to_end.unstated) == (140.4, (), ("beam",))
    assert not end_to_end.matches


@pytest.mark.parametrize(
    ("change", "differing", "unclear"),
    [
        ({"recipe": None}, (), ("recipe",)),
        ({"recipe": RunRecipe("quick", "1f")}, ("recipe (preset quick)",), ()),
        ({"recipe": RunRecipe("")}, ("recipe (no paper's)",), ()),
        ({"recipe": replace(FROZEN, deviations=("size.d_model: 512 → 16",))}, ("recipe (size.d_model: 512 → 16)",), ()),
        ({"recipe": replace(FROZEN, deviations=tuple("abcdef"))}, ("recipe (a; b; c; d; 2 more)",), ()),
        ({"recipe": replace(FROZEN, digest="1f")}, (f"recipe ({FROZEN.preset} as another release ships it)",), ()),
        ({"recipe": END_TO_END}, (f"recipe ({END_TO_END.preset} is the recipe of other printed rows)",), ()),
        ({"beam": 5}, ("beam",), ()),
        ({"beam": None}, (), ("beam",)),
        ({"features": "resnet50.a1_in1k#1f"}, ("features",), ()),
        ({"features": "swin_large_patch4_window12_3840#1f"}, ("features",), ()),
        ({"backbone": None}, (), ("backbone",)),
        ({"ensemble": True}, ("ensemble",), ()),
        ({"images": 6}, ("images (6, not 5,000)",), ()),
        ({"images": None}, (), ("images",)),
    ],
)
def test_one_other_condition_is_named(
    change: dict[str, Any], differing: tuple[str, ...], unclear: tuple[str, ...]
) -> None:
    match = best_match("transformer_base", "CIDEr-D", replace(OWN, **change))
    assert match is not None
    assert (match.score.value, match.differing, match.unstated, match.unclear) == (115.8, differing, (), unclear)
    assert not match.matches


def test_what_stands_beside_no_printed_number() -> None:
    assert best_match("blind", "CIDEr-D", OWN) is None
    assert best_match("transformer_base", "no-metric", OWN) is None
    assert best_match("transformer_base", "CIDEr-D", OWN, domain="in-domain") is None


def test_nocaps_is_matched_by_domain() -> None:
    nocaps = replace(OWN, split="nocaps-val", backbone="trained", recipe=END_TO_END, images=4500)
    for domain, value in (("in-domain", 83.8), ("near-domain", 79.2), ("out-domain", 54.0), ("overall", 72.9)):
        match = best_match("expansionnet_v2", "CIDEr-D", nocaps, domain=domain)
        assert match is not None
        assert (match.score.value, match.matches) == (value, True)


def test_other_objectives_are_further_away_than_other_conditions() -> None:
    match = best_match("expansionnet_v2", "CIDEr-D", replace(OWN, objective="RL"))
    assert match is not None
    assert (match.score.objective, match.score.value) == ("RL", 140.4), "not cross-entropy's, though its backbone fits"
    assert not match.score.ensemble
    assert match.differing == ("backbone", "recipe (expansionnet-v2-paper-frozen is two of the paper's four steps)")


@pytest.mark.parametrize(
    ("dataset", "split", "printed"),
    [
        ("coco", "test", "karpathy-test"),
        ("coco", "val", "karpathy-val"),
        ("coco", "nocaps", "nocaps-val"),
        ("nocaps", "test", "nocaps-val"),
        ("coco", "online-c5", None),
        ("scenes", "test", None),
        ("scenes", "nocaps", None),
        ("flickr8k", "test", None),
    ],
)
def test_other_data_has_no_printed_number(dataset: str, split: str, printed: str | None) -> None:
    assert printed_split(dataset, split) == printed
    assert (best_match("updown", "CIDEr-D", replace(OWN, split=printed)) is None) == (printed in {None, "karpathy-val"})


def test_conditions_come_from_signature_and_configuration() -> None:
    signature = {"data": "coco#1f3a09bc", "beam": "3", "feat": "resnet50.a1#2b", "track": "paper"}
    stages = [{"objective": "cross_entropy", "backbone": "frozen"}, {"objective": "self_critical"}]
    config: dict[str, Any] = {"preset": {"name": "aoanet-paper", "schedule": {"stages": stages}}}
    config |= {"shipped_preset": {"digest": "1f", "deviations": ["a: 1 → 2"]}, "evaluated": {"test": 4998}}
    recipe = RunRecipe("aoanet-paper", "1f", ("a: 1 → 2",))
    assert measured_conditions("test", signature, config) == MeasuredConditions(
        "karpathy-test", "RL", 3, "resnet50.a1#2b", "frozen", recipe=recipe, images=4998
    )
    stages[1]["backbone"] = "trained"
    assert measured_conditions("test", signature, config).backbone == "trained"
    assert measured_conditions("nocaps", signature, config).split == "nocaps-val"
    assert measured_conditions("test", {"data": "scenes#1", "beam": "none"}, {}) == MeasuredConditions(
        None, None, None, None, None
    )


def test_domains_of_other_images_than_the_servers_are_a_footnote() -> None:
    local = domain_footnote({"in-domain": 417, "near-domain": 2670, "out-domain": 1413})
    assert local is not None
    assert "417 in-domain, 2,670 near-domain, 1,413 out-domain" in local
    assert "648 in-domain, 2,938 near-domain, 914 out-domain" in local
    unknown = domain_footnote({"in-domain": 0})
    assert unknown is not None
    assert "may differ here" in unknown
    assert domain_footnote({"out-domain": 914, "in-domain": 648, "near-domain": 2938}) is None


def test_the_numbers_need_no_library() -> None:
    heavy = ("torch", "pandas", "numpy", "sqlalchemy")
    program = (
        "import sys; from results.published.scores import published_for; assert published_for('updown')\n"
        f"assert not [name for name in {heavy!r} if name in sys.modules]"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
