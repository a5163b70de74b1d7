"""The registry: names, arguments, plug-ins, and that looking at it costs nothing."""

import dataclasses
import subprocess
import sys

import pytest

import zoo
from harness.benchmark.baselines import REFERENCE_ROWS

SIZES = {"vocab_size": 10, "visual_dim": 4}


def a_card(**changes):
    return dataclasses.replace(zoo.model_card("blind"), **{"name": "mine", **changes})


def test_listing_imports_no_torch():
    code = (
        "import sys, zoo\n"
        "names = zoo.list_models()\n"
        "assert zoo.model_card(names[0]).paper\n"
        "print(*sorted({'torch', 'numpy', 'timm'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", zoo.list_models())
def test_pretrained_weights_say_what_they_saw(name):
    card = zoo.model_card(name)
    assert (card.pretraining is not None) == bool(card.hub)
    if card.pretraining is not None:
        seen = card.pretraining
        assert all(seen.data_sets)
        assert all(seen.captions_of)
        assert all((seen.captions, seen.source, "coco" in seen.overlap, *seen.overlap.values()))


def test_patterns_find_families_and_variants():
    zoo.register_model(a_card(name="expansionnet_v2/mine"))
    assert {"expansionnet_v2", "expansionnet_v2/mine"} <= set(zoo.list_models("expansionnet*"))
    assert "expansionnet_v2" not in zoo.list_models("expansionnet_v2/*")
    assert zoo.list_models("no_such_*") == []
    assert zoo.list_models() == sorted(zoo.list_models())


@pytest.mark.parametrize("name", ["all", "auto", *REFERENCE_ROWS, "hf:mine"])
def test_names_that_stand_for_something_else_are_refused(name):
    with pytest.raises(zoo.ZooError, match=name):
        zoo.register_model(a_card(name=name))


@pytest.mark.parametrize(("what", "changes"), [("visual", {"visual": "regions"}), ("graph", {"graph": "words"})])
def test_a_plug_in_sees_what_its_card_says(what, changes):
    zoo.register_model(a_card(name="right"))
    zoo.create_model("right", **SIZES)
    zoo.register_model(a_card(**changes))
    with pytest.raises(zoo.ZooError, match=f"the card of mine has {what}="):
        zoo.create_model("mine", **SIZES)


def test_all_leaves_out_variants_except_small_pretrained_forms():
    small = {"blip/small", "git/small", "vit_gpt2/small"}
    assert zoo.select_models("all") == [name for name in zoo.list_models() if "/" not in name or name in small]


def test_pattern_finds_variants_except_those_on_pixels():
    found = zoo.select_models("expansionnet_v2/*")
    assert len(found) > 5
    assert "expansionnet_v2/end-to-end" not in found
    assert all(zoo.model_card(name).visual != "pixels" for name in found)
    assert zoo.select_models("expansionnet_v2/end-to-end") == ["expansionnet_v2/end-to-end"]
    assert zoo.select_models("expansionet") == []


def test_unknown_names_get_suggestions():
    with pytest.raises(zoo.ZooError, match="expansionet_v2") as caught:
        zoo.create_model("expansionet_v2", **SIZES)
    assert "did you mean expansionnet_v2" in caught.value.hint
    with pytest.raises(zoo.ZooError) as caught:
        zoo.model_card("qqqqqq")
    assert "bench models" in caught.value.hint


def test_unknown_arguments_get_suggestions():
    with pytest.raises(zoo.ZooError, match="d_modle") as caught:
        zoo.create_model("blind", **SIZES, d_modle=8)
    assert "d_model" in caught.value.hint
    with pytest.raises(zoo.ZooError, match="zzz") as caught:
        zoo.create_model("blind", **SIZES, zzz=8)
    assert "n_heads" in caught.value.hint


def test_collisions_are_refused():
    zoo.register_model(a_card())
    with pytest.raises(zoo.ZooError, match="'mine' is already registered"):
        zoo.register_model(a_card())
    with pytest.raises(zoo.ZooError, match="'blind'"):
        zoo.register_model(a_card(name="blind"))


@pytest.mark.parametrize("name", ["", "Upper", "a b", "a/b/c", "../x", "a*"])
def test_malformed_names_are_refused(name):
    with pytest.raises(zoo.ZooError, match="not a valid model name"):
        zoo.register_model(a_card(name=name))


def test_registering_first_still_finds_the_built_in_models():
    code = (
        "import zoo\n"
        "from zoo import ModelCard\n"
        "zoo.register_model(ModelCard('mine', 'no:where', 's', 'p', 2000, 'https://x', 'MIT', 'none'))\n"
        "print('blind' in zoo.list_models() and 'mine' in zoo.list_models())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert (done.stdout.strip(), done.stderr) == ("True", "")


@pytest.mark.parametrize("entry", ["zoo.nowhere:Model", "zoo.models.expansionnet:Nothing", "zoo.errors"])
def test_an_entry_that_cannot_be_loaded_is_named(entry):
    zoo.register_model(a_card(entry=entry))
    with pytest.raises(zoo.ZooError, match=f"'{entry}' of model 'mine'"):
        zoo.create_model("mine", **SIZES)
