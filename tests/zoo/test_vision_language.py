"""Models of transformers behind the interface: our searches equal the library's, and folders are read strictly."""

import pytest
import torch
from safetensors.torch import load_file, save_file

import zoo
from zoo.decoding import greedy

VOCAB, BOS, EOS, WORDS = 23, 1, 2, 9
NAMES = ["blip/small", "git/small", "vit_gpt2/small"]


def tiny(name, **overrides):
    torch.manual_seed(0)
    model = zoo.create_model(name, vocab_size=VOCAB, visual_dim=0, **{**zoo.model_card(name).tiny, **overrides})
    for parameter in model.parameters():  # the usual 0.02 lets every caption repeat one word
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval()


def generated(model, pixels):
    """Captions (B, T) as the library's own greedy search makes them, begin token left out."""
    asked = {"max_new_tokens": WORDS, "do_sample": False, "eos_token_id": EOS, "pad_token_id": 0}
    begin = torch.full((len(pixels), 1), BOS)
    network = model.network
    match type(network).__name__:
        case "GitForCausalLM":
            tokens = network.generate(pixel_values=pixels, input_ids=begin, **asked)
        case "BlipForConditionalGeneration":
            seen = network.vision_model(pixels).last_hidden_state
            tokens = network.text_decoder.generate(
                input_ids=begin,
                encoder_hidden_states=seen,
                encoder_attention_mask=torch.ones(seen.shape[:2], dtype=torch.long),
                **asked,
            )
        case _:
            tokens = network.generate(pixels, decoder_start_token_id=BOS, **asked)
    return tokens[:, 1:]


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_greedy_equals_the_library_s_own(name):
    model = tiny(name)
    pixels = torch.rand(6, 3, 32, 32)
    expected = generated(model, pixels)
    found = greedy(model, model.encode(zoo.Visual(pixels=pixels)), max_len=WORDS, bos=BOS, eos=EOS).tokens[:, 0]
    assert len(expected.unique(dim=0)) > 1
    assert torch.equal(found[:, : expected.shape[1]], expected)
    assert not found[:, expected.shape[1] :].any()


@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_a_folder_as_the_library_writes_it_gives_the_same_model(name, tmp_path):
    model = tiny(name)
    model.network.save_pretrained(tmp_path)
    again = zoo.create_model(name, vocab_size=VOCAB, visual_dim=0, folder=tmp_path).eval()
    visual, tokens = zoo.Visual(pixels=torch.rand(2, 3, 32, 32)), torch.tensor([[BOS, 5, 7], [BOS, 6, 8]])
    assert torch.equal(again(visual, tokens), model(visual, tokens))


@pytest.mark.parametrize("name", NAMES)
def test_an_unusable_folder_is_named_in_one_line(name, tmp_path):
    def refused(match):
        with pytest.raises(zoo.ZooError, match=match) as caught:
            zoo.create_model(name, vocab_size=VOCAB, visual_dim=0, folder=tmp_path)
        assert str(tmp_path) in str(caught.value)
        assert "\n" not in str(caught.value)

    refused("holds no usable")
    with pytest.raises(RuntimeError, match="Missing key"):
        tiny(name).load_state_dict({})
    tiny(name).network.save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    refused("holds no usable")
    weights.write_bytes(whole)
    save_file(dict(list(load_file(weights).items())[3:]), weights, metadata={"format": "pt"})
    refused("lack 3 tensors")
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    refused("holds no usable")
