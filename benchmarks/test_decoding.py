"""Beam search step by step against decoding every prefix anew, at the paper's size, in processor seconds of one thread.

    pytest benchmarks/test_decoding.py -n 0

8 images of 144 x 1536 features, beam 5, 20 tokens, V 10,000, random weights. The reference is the
same model, decoded as the authors of ExpansionNet v2 decode: every step feeds the whole prefix of every beam, whose
image's memory was copied for it.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from zoo.captioner import Captioner, Memory
from zoo.decoding import beam_search

BEAMS, STEPS, BOS, EOS = 5, 20, 1, 2
EXPECTED_RATIO = 7.0


@pytest.fixture(scope="module")
def model() -> Iterator[Captioner]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = zoo.create_model("expansionnet_v2", vocab_size=10_000, visual_dim=1536).eval()
    yield model
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def visual() -> zoo.Visual:
    return zoo.Visual(torch.randn(8, 144, 1536, generator=torch.Generator().manual_seed(0)))


@torch.no_grad()
def incremental(model: Captioner, visual: zoo.Visual) -> Tensor:
    hypotheses = beam_search(model, model.encode(visual), beam_size=BEAMS, max_len=STEPS, bos=BOS, eos=EOS)
    return hypotheses.tokens


@torch.no_grad()
def redecoding(model: Captioner, visual: zoo.Visual) -> Tensor:
    memory = model.encode(visual)
    images = memory.batch_size
    tokens = torch.full((images, 1), BOS)
    sums, words = model.decode(memory, tokens)[:, -1].log_softmax(-1).topk(BEAMS)
    memory = Memory(memory.features.repeat_interleave(BEAMS, 0), memory.mask.repeat_interleave(BEAMS, 0))
    tokens = torch.cat((tokens.repeat_interleave(BEAMS, 0), words.view(-1, 1)), 1)
    rows = torch.arange(0, images * BEAMS, BEAMS)[:, None]
    for _ in range(STEPS - 1):
        log_probs = model.decode(memory, tokens).log_softmax(-1)[:, -1]
        gains, words = log_probs.topk(BEAMS)
        sums, choice = (sums[..., None] + gains.view(images, BEAMS, BEAMS)).flatten(1).topk(BEAMS)
        last = words.view(images, -1).gather(1, choice)
        tokens = torch.cat((tokens[(rows + choice // BEAMS).flatten()], last.view(-1, 1)), 1)
    return tokens[:, 1:].view(images, BEAMS, -1)


def seconds(way: Callable[[Captioner, zoo.Visual], Tensor], model: Captioner, visual: zoo.Visual) -> float:
    start = time.process_time()
    way(model, visual)
    return time.process_time() - start


@pytest.mark.benchmark(group="beam 5, 8 images, 20 tokens", timer=time.process_time)
@pytest.mark.parametrize("way", [incremental, redecoding], ids=["incremental", "redecoding"])
def test_beam_search(
    benchmark: Any, model: Captioner, visual: zoo.Visual, way: Callable[[Captioner, zoo.Visual], Tensor]
) -> None:
    benchmark.pedantic(way, (model, visual), rounds=3, warmup_rounds=1)


def test_both_ways_find_the_same(model: Captioner, visual: zoo.Visual) -> None:
    quick, slow = incremental(model, visual), redecoding(model, visual)
    # The reference knows no end token, so that only images whose beams lack one are alike: with random weights, most.
    endless = ~(slow == EOS).any(-1).any(-1)
    assert endless.any()
    assert torch.equal(quick[endless], slow[endless])


def test_incremental_decoding_takes_at_most_a_seventh_of_the_time(model: Captioner, visual: zoo.Visual) -> None:
    """The ways take turns, so that a busy machine slows both down; the least of the rounds counts."""
    rounds = [(seconds(incremental, model, visual), seconds(redecoding, model, visual)) for _ in range(4)]
    quick, slow = (min(times) for times in zip(*rounds, strict=True))
    print(f"\n{slow:.2f} s / {quick:.2f} s = {slow / quick:.1f} times")
    assert slow / quick >= EXPECTED_RATIO
