"""Models where sizes and values are extreme: all works, or one clear error says what does not."""

import pytest
import torch

import zoo
from tests.zoo.test_laws import BOS, EOS, look, tiny, words
from zoo.decoding import beam_search, sample

EXPANSIONS = ["expansionnet_v2", "expansionnet_v1", "expansionnet_v1/dynamic-encoder-1"]
FAMILIES = sorted(
    {name for name in zoo.list_models() if "/" not in name and zoo.model_card(name).visual in {"grid", "regions"}}
    | set(EXPANSIONS)
)
SEARCH = {"bos": BOS, "eos": EOS}
LONGEST = 24


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EXPANSIONS)
def test_scores_that_are_all_zero_give_numbers_and_gradients(name, dtype):
    """Keys and queries of zero: every row of every expansion is zero, in the encoder and in the decoder."""
    model = tiny(name, torch.float32)
    with torch.no_grad():
        for label, parameter in model.named_parameters():
            if label.endswith(("mixer.queries", "mixer.key.weight", "mixer.key.bias")):
                parameter.zero_()
    visual, tokens = zoo.Visual(torch.rand(2, 5, 6)), words(2, 6)
    with torch.autocast("cpu", dtype, enabled=dtype.itemsize == 2):
        memory = model.double().encode(visual) if dtype == torch.float64 else model.encode(visual)
        logits = model.decode(memory, tokens)
        logits.float().square().mean().backward()
        found = beam_search(model, memory, beam_size=3, max_len=6, **SEARCH)
    assert logits.isfinite().all()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    assert found.scores.isfinite().all()


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("length", [1, LONGEST])
@torch.no_grad()
def test_captions_of_one_token_and_of_all_tokens(name, length):
    model = tiny(name, torch.float32, max_len=LONGEST)
    memory = model.encode(look(model, 2, torch.float32))
    search = {**SEARCH, "max_len": length}
    found = beam_search(model, memory, beam_size=3, banned=(SEARCH["eos"],), **search)  # no caption ends early
    assert (found.lengths == length).all()
    tokens = found.tokens.flatten(0, 1)
    given = torch.cat((torch.full_like(tokens[:, :1], SEARCH["bos"]), tokens[:, :-1]), 1)
    log_probs = model.decode(memory, given).log_softmax(-1).gather(2, tokens[..., None])[..., 0]
    torch.testing.assert_close(found.log_probs.flatten(0, 1), log_probs, atol=1e-5, rtol=1e-4)
    assert sample(model, memory, n=2, **search).lengths.le(length).all()
