"""Families of the transformers library as captioners: tiny random checkpoints, batches, prompts and ends."""

import json
import math
import re
import resource
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from harness.config.preset import Decoding
from harness.inference.hub_captioner import HubCaptioner
from harness.inference.hub_checkpoint import OWN, Checkpoint, Prompt, choose_prompt, choose_rules, clean
from harness.measure.flops import count_generation
from harness.utils.errors import BenchError
from tests.harness.inference.hub_families import FAMILIES, write_family, write_vision_encoder_decoder
from tests.harness.inference.second_counter import count_again
from zoo import ZooError

_RANDOM = np.random.default_rng(0)
PICTURES = [
    Image.fromarray(_RANDOM.integers(0, 255, (height, width, 3), dtype=np.uint8))
    for height, width in ((40, 61), (97, 33), (28, 28))
]
DECODING = Decoding(beam_size=2, max_len=6)
SHORT = Decoding(beam_size=1, max_len=3)
ZEBRA = "Zebra, zebra?"
PADDED = ("idefics3", "qwen2_vl")  # families in which an image of another size has another number of tokens
SHIFTED = ("florence2", "kosmos-2")
"""Families in which transformers shifts positions by padding; there, one prompt for all images needs none."""
OpenFamily = Callable[..., HubCaptioner]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Folders of families, each written when it is first asked for."""
    place = tmp_path_factory.mktemp("hub")
    return cache(lambda family: write_family(family, place / family))


@pytest.fixture(scope="module")
def captioners(folders: Callable[[str], Path]) -> Callable[[str], HubCaptioner]:
    """Captioners of families, read once; tests leave them as they were."""
    return cache(lambda family: read(folders(family)))


@pytest.fixture
def opened(captioners: Callable[[str], HubCaptioner], monkeypatch: pytest.MonkeyPatch) -> OpenFamily:
    """A captioner of a family with a prompt."""

    def open_family(family: str, prompt: str | None = None) -> HubCaptioner:
        captioner = captioners(family)
        monkeypatch.setattr(captioner, "prompt", choose_prompt(captioner.network.config.model_type, prompt))
        return captioner

    return open_family


def read(folder: Path) -> HubCaptioner:
    checkpoint = Checkpoint(folder, f"hf:{folder.name}")
    checkpoint.check()
    return HubCaptioner(checkpoint, choose_prompt(checkpoint.family, None), torch.device("cpu"), "fp32")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_batch_of_odd_sizes_is_captioned_as_its_images_one_by_one(
    folders: Callable[[str], Path], opened: OpenFamily, family: str
) -> None:
    captioner = opened(family)
    found = captioner.caption(PICTURES, DECODING)
    alone = [captioner.caption([picture], DECODING) for picture in PICTURES]
    assert found[0] == [each[0][0] for each in alone]
    assert found[1] == [each[1][0] for each in alone]
    assert all(1 <= length <= DECODING.max_len for length in found[1])
    assert read(folders(family)).caption(PICTURES, DECODING) == found


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers_are_refused_by_file_and_tensor(
    folders: Callable[[str], Path], tmp_path: Path, value: float
) -> None:
    shutil.copytree(folders("blip"), tmp_path / "blip")
    file = tmp_path / "blip" / "model.safetensors"
    tensors = load_file(file)
    broken = sorted(name for name, tensor in tensors.items() if tensor.is_floating_point())[5]
    tensors[broken].view(-1)[-1] = value
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(ZooError, match=rf"{file}: the tensor {re.escape(broken)} "):
        read(tmp_path / "blip")


@pytest.mark.parametrize(
    ("setting", "value"), [("num_hidden_layers", 10**6), ("vocab_size", 10**8), ("intermediate_size", 10**9)]
)
def test_a_configuration_far_larger_than_its_weights_is_refused_before_it_is_built(
    folders: Callable[[str], Path], tmp_path: Path, setting: str, value: int
) -> None:
    shutil.copytree(folders("blip"), tmp_path / "blip")
    path = tmp_path / "blip" / "config.json"
    content = json.loads(path.read_text())
    content["text_config"][setting] = value
    path.write_text(json.dumps(content))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ZooError, match=rf"{path.parent} .* larger network than its weights"):
        read(tmp_path / "blip")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("prompt", ["", ZEBRA])
def test_a_prompt_may_be_empty_and_is_never_part_of_the_caption(opened: OpenFamily, family: str, prompt: str) -> None:
    captioner = opened(family, prompt)
    assert captioner.prompt.name == OWN
    found = captioner.caption(PICTURES, SHORT)
    assert len(found[0]) == len(PICTURES)
    assert all(1 <= length <= SHORT.max_len for length in found[1])
    assert not any("ebra" in caption for caption in found[0])


@pytest.mark.parametrize("family", [family for family in FAMILIES if family not in SHIFTED])
def test_padding_on_the_left_does_not_move_a_caption(opened: OpenFamily, family: str) -> None:
    texts = [opened(family, asked)._text() for asked in ("Zebra?", "What does a zebra do here?")]
    captioner = opened(family)
    both = captioner._together(PICTURES[:1] * 2, texts)
    assert not both["attention_mask"][0].all()
    assert both["attention_mask"][:, -1].all()
    said = captioner.generate(both, SHORT, full_length=True).tolist()
    for row, text in enumerate(texts):
        alone = captioner._together(PICTURES[:1], [text])
        assert said[row] == captioner.generate(alone, SHORT, full_length=True)[0].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_one_prompt_is_padded_only_where_images_differ_in_tokens(opened: OpenFamily, family: str) -> None:
    mask = opened(family, ZEBRA).inputs(PICTURES)["attention_mask"]
    assert mask[:, -1].all()
    assert set(mask[:, 0].tolist()) == ({0, 1} if family in PADDED else {1})
    assert mask.all() == (family not in PADDED)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_end_token_ends_a_caption(opened: OpenFamily, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    captioner = opened(family, "what is this.")
    greedy = Decoding(beam_size=1, max_len=6)
    inputs = captioner.inputs(PICTURES[:1])
    tokens = captioner.generate(inputs, greedy)[0].tolist()
    place = next(place for place, token in enumerate(tokens) if place == len(tokens) - 1 or token not in tokens[:place])
    for module in captioner.network.modules():
        if getattr(module, "generation_config", None) is not None:
            monkeypatch.setattr(module.generation_config, "eos_token_id", tokens[place])
            monkeypatch.setattr(module.generation_config, "forced_eos_token_id", None)
    if family == "blip":
        monkeypatch.setattr(captioner.network.config.text_config, "sep_token_id", tokens[place])
    assert captioner.generate(inputs, greedy)[0].tolist() == tokens[: place + 1]
    assert captioner.caption(PICTURES[:1], greedy)[1] == [place + 1]
    assert captioner.generate(inputs, greedy, full_length=True).shape[1] == greedy.max_len


def test_prompts_are_templates_or_texts() -> None:
    assert choose_prompt("florence2", None).text == "<CAPTION>"
    assert choose_prompt("blip", "photo") == Prompt("photo", "a photo of", "{prompt}", chat=False, bare=False)
    assert choose_prompt("blip", "").bare
    assert not choose_prompt("llava", "").bare
    assert choose_prompt("of-next-year", "Say it all.") == Prompt(OWN, "Say it all.", "{image}{prompt}", True, False)
    signed = [choose_prompt("llava", asked).signature() for asked in (None, "caption", "detailed", "Why?", "How?", "")]
    assert len(set(signed)) == len(signed) - 1, "the first template is the default"
    with pytest.raises(BenchError, match="llava has no template of that name") as caught:
        choose_prompt("llava", "detaild")
    assert "caption, detailed" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("rule", "said", "kept"),
    [
        ("first-sentence", "A dog of 3.5 kg runs. It is wet.", "A dog of 3.5 kg runs."),
        ("first-sentence", "a dog\nassistant: a cat.", "a dog"),
        ("first-sentence", "a dog", "a dog"),
        ("quotes", '"A dog."', "A dog."),
        ("quotes", 'a dog\'s "ball"', 'a dog\'s "ball"'),
        ("quotes", '"', '"'),
        ("prompt", "Say it: a dog say it", "a dog"),
        ("prompt", "they say it all", "they say it all"),
        ("first-sentence,prompt,quotes", 'SAY IT "A dog. A cat."', "A dog."),
    ],
)
def test_captions_are_cleaned_by_named_rules(rule: str, said: str, kept: str) -> None:
    assert clean(said, "say it", choose_rules(rule)) == kept
    assert clean(said, "say it", choose_rules(None)) == said
    assert clean("STRASSE: ein Hund, Straße", "Straße", ("prompt",)) == "ein Hund,"


def test_rules_have_one_order_and_are_known_by_name() -> None:
    assert choose_rules("first-sentence, prompt") == ("prompt", "first-sentence")
    for wrong in ("", ",", "first", "quotes,all"):
        with pytest.raises(BenchError, match="--hub clean"):
            choose_rules(wrong)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_counted_is_what_a_second_counter_counts(opened: OpenFamily, family: str) -> None:
    captioner = opened(family)
    generate = generation(captioner)
    counts = count_generation(captioner.vision, generate, beam_size=1, max_len=2)
    assert counts.vision is not None
    assert min(counts.vision, counts.prefill, counts.step) > 0
    assert count_again(captioner.network, generate, length=2) == (counts.vision + counts.prefill, counts.step)


def test_an_image_processor_and_a_tokenizer_in_one_folder_are_a_processor(tmp_path: Path) -> None:
    captioner = read(write_vision_encoder_decoder(tmp_path / "vit_gpt2"))
    together, lengths = captioner.caption(PICTURES, DECODING)
    alone = [captioner.caption([picture], DECODING)[0][0] for picture in PICTURES]
    assert together == alone
    assert all(1 <= length <= DECODING.max_len for length in lengths)
    counts = captioner.counts(captioner.inputs(PICTURES[:1]), SHORT)
    assert counts.vision is not None
    assert min(counts.vision, counts.prefill, counts.step) > 0
    with pytest.raises(BenchError, match="has no prompt"):
        choose_prompt("vision-encoder-decoder", "what is this?")


def generation(captioner: HubCaptioner) -> Callable[[int, int], None]:
    inputs = captioner.inputs(PICTURES[:1])

    def generate(length: int, beam_size: int) -> None:
        captioner.generate(inputs, Decoding(beam_size=beam_size, max_len=length), full_length=True)

    return generate
