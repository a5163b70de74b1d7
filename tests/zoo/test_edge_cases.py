"""Models where sizes and values are extreme: all works, or one clear error says what does not."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import zoo
from zoo.decoding import beam_search, sample

EXPANSIONS = ["expansionnet_v2", "expansionnet_v1", "expansionnet_v1/dynamic-encoder-1"]
FAMILIES = sorted(
    {name for name in zoo.list_models() if "/" not in name and zoo.model_card(name).visual in {"grid", "regions"}}
    | set(EXPANSIONS)
)
SEARCH = {"bos": 1, "eos": 2}
LONGEST = 74


def tiny(name, **changes):
    torch.manual_seed(0)
    arguments = {**zoo.model_card(name).tiny, "max_len": LONGEST, **changes}
    return zoo.create_model(name, vocab_size=9, visual_dim=6, **arguments).eval()


def look(features, mask=None):
    """Features with boxes, which models of cells pass over."""
    corner = torch.arange(features.shape[1])[:, None].expand(*features.shape[:2], 2) / 200
    return zoo.Visual(features, mask, torch.cat((corner, corner + 0.3), -1).to(features.dtype))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", EXPANSIONS)
def test_scores_that_are_all_zero_give_numbers_and_gradients(name, dtype):
    """Keys and queries of zero: every row of every expansion is zero, in the encoder and in the decoder."""
    model = tiny(name)
    with torch.no_grad():
        for label, parameter in model.named_parameters():
            if label.endswith(("mixer.queries", "mixer.key.weight", "mixer.key.bias")):
                parameter.zero_()
    visual, tokens = zoo.Visual(torch.rand(2, 5, 6)), torch.randint(3, 9, (2, 6))
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
    model = tiny(name)
    memory = model.encode(look(torch.rand(2, 5, 6)))
    search = {**SEARCH, "max_len": length, "banned": (SEARCH["eos"],)}  # no caption ends early
    found = beam_search(model, memory, beam_size=3, **search)
    assert (found.lengths == length).all()
    tokens = found.tokens.flatten(0, 1)
    given = torch.cat((torch.full_like(tokens[:, :1], SEARCH["bos"]), tokens[:, :-1]), 1)
    log_probs = model.decode(memory, given).log_softmax(-1).gather(2, tokens[..., None])[..., 0]
    torch.testing.assert_close(found.log_probs.flatten(0, 1), log_probs, atol=1e-5, rtol=1e-4)
    assert sample(model, memory, n=2, **search).lengths.eq(length).all()


def beam_search_macs(images, width, steps):
    """Multiply-accumulates of a beam search of the paper's size, 144 x 1536 features, after each step, not computed."""
    with torch.device("meta"):
        model = zoo.create_model("expansionnet_v2", vocab_size=10_000, visual_dim=1536).eval()
        visual = zoo.Visual(torch.empty(images, 144, 1536))
        first, rows = torch.ones(images, dtype=torch.long), torch.ones(images * width, dtype=torch.long)
    with torch.no_grad():
        model.encode(visual)  # queries are folded once a model, not once a search
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        state = model.start(model.encode(visual))
        _, state = model.step(first, state)
        state, macs = state.expand(width), [counter.get_total_flops() / 2]
        for _ in range(steps - 1):
            _, state = model.step(rows, state)
            state = state.reorder(rows)
            macs.append(counter.get_total_flops() / 2)
    return macs


def test_a_beam_search_of_the_papers_size_needs_at_most_35_gmac():
    """Beam 5, 8 images, 20 tokens; decoding every prefix anew needs more than 336 GMAC."""
    macs = beam_search_macs(8, 5, 20)
    assert 25e9 < macs[19] <= 35e9
    assert macs[19] - macs[10] < 1.1 * (macs[9] - macs[0])  # the last nine steps cost no more than nine before
