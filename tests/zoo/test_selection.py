"""What `all`, patterns and names select."""

from __future__ import annotations

from zoo import list_models, model_card, select_models


def test_all_leaves_out_variants_except_small_pretrained_forms() -> None:
    small = {"blip/small", "git/small", "vit_gpt2/small"}
    assert select_models("all") == [name for name in list_models() if "/" not in name or name in small]


def test_pattern_finds_variants_except_those_on_pixels() -> None:
    found = select_models("expansionnet_v2/*")
    assert len(found) > 5
    assert "expansionnet_v2/end-to-end" not in found
    assert all(model_card(name).visual != "pixels" for name in found)


def test_a_name_finds_itself_whatever_it_sees() -> None:
    assert select_models("expansionnet_v2/end-to-end") == ["expansionnet_v2/end-to-end"]
    assert select_models("expansionet") == []
