"""No model computes with tensors of the processor where its own lie elsewhere, as they do on a GPU."""

import pytest
import torch

import zoo
from tests.zoo.elsewhere import Elsewhere
from tests.zoo.test_laws import beside
from zoo.decoding import beam_search

CHANNELS, VOCAB, BOS, EOS = 6, 23, 1, 2


def test_training_and_decoding_stay_on_the_device(architecture):
    model = zoo.create_model(architecture, vocab_size=VOCAB, visual_dim=CHANNELS, **zoo.model_card(architecture).tiny)
    seen = 1 if model.visual.kind == "pooled" else 5
    mask = torch.ones(3, seen, dtype=torch.bool)
    parts = torch.rand(3, seen, CHANNELS), mask, torch.rand(3, seen, 4), torch.rand(3, 3, 32, 32)
    visual = zoo.Visual(*parts, **beside(model, 3))
    model, visual, tokens = model.to("meta"), visual.to("meta"), torch.ones(6, 4, dtype=torch.long, device="meta")
    with Elsewhere():
        model.train()(visual, tokens).sum().backward()
        model.eval()
        found = beam_search(model, model.encode(visual), beam_size=2, max_len=3, bos=BOS, eos=EOS)
    assert found.scores.is_meta


def test_a_tensor_of_the_processor_is_refused():
    there = torch.zeros(2, device="meta")
    with Elsewhere():
        assert (there + torch.tensor(1.0)).is_meta
        assert torch.arange(2).to("meta").is_meta
        assert there.tolist() == [0.0, 0.0]
        for mistake in (lambda: there + torch.arange(2), lambda: there[torch.arange(2)]):
            with pytest.raises(RuntimeError, match="different devices"):
                mistake()
