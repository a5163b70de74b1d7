"""Cross-entropy is that of its authors' code, and a mean over words however a batch is split."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.data.batches import Batch
from harness.training.objectives import CrossEntropy, cross_entropy
from tests.harness.training.tiny_training import VOCABULARY, tiny_schedule
from zoo import Visual, create_model, model_card


@pytest.mark.parametrize("parts", [1, 2, 3, 5])
def test_losses_of_parts_weigh_as_much_as_their_words(parts: int) -> None:
    torch.manual_seed(5)
    model = create_model("blind", vocab_size=VOCABULARY, visual_dim=8, **model_card("blind").tiny).eval()
    tokens = torch.tensor([[1, 4, 5, 6, 2], [1, 4, 2, 0, 0], [1, 2, 0, 0, 0]]).repeat_interleave(2, 0)
    batch = Batch(Visual(torch.zeros(3, 1, 8), torch.ones(3, 1, dtype=torch.bool)), tokens, (7, 8, 9))
    objective = CrossEntropy(tiny_schedule().stages[0])
    split = batch.split(parts)
    assert [image for part in split for image in part.image_ids] == [7, 8, 9]
    assert len(split) == min(parts, 3)
    mean = sum(objective(model, part) * objective.weight(part) for part in split) / objective.weight(batch)
    torch.testing.assert_close(mean, objective(model, batch))


@pytest.mark.parametrize(("eps", "name"), [(0.0, "lm"), (0.1, "ls0.1"), (0.2, "ls0.2")])
def test_cross_entropy_is_that_of_luos_code(eps: float, name: str) -> None:
    with np.load(Path(__file__).parents[2] / "fixtures" / "training" / "losses.npz") as file:
        theirs = {key: torch.from_numpy(file[key]) for key in ("in/logprobs", "in/seq", "in/mask", f"out/{name}")}
    classes = theirs["in/logprobs"].shape[-1]
    words = torch.where(theirs["in/mask"] > 0, theirs["in/seq"], -1)
    tokens = torch.cat((torch.zeros_like(words[:, :1]), words), 1)
    constant = (1 - eps) * math.log(1 - eps) + eps * math.log(eps / (classes - 1)) if eps else 0.0
    ours = cross_entropy(theirs["in/logprobs"], tokens, eps * classes / (classes - 1), pad=-1).double() + constant
    torch.testing.assert_close(ours, theirs[f"out/{name}"], atol=1e-6, rtol=0)


@pytest.mark.parametrize("pad", [0, 3])
def test_label_smoothing_is_luos_and_expansionnets_up_to_a_constant(pad: int) -> None:
    """They spread eps over the other V - 1 entries and subtract the target's entropy (Kullback-Leibler)."""
    torch.manual_seed(0)
    logits = torch.randn(2, 4, VOCABULARY, dtype=torch.double)
    tokens = torch.tensor([[1, 5, 6, 2, pad], [1, 7, 2, pad, pad]])
    eps, others = 0.1, VOCABULARY - 1
    target = torch.full((VOCABULARY, VOCABULARY), eps / others, dtype=torch.double).fill_diagonal_(1 - eps)
    kept = tokens[:, 1:] != pad
    divergence = (
        torch.nn.functional.kl_div(logits[kept].log_softmax(-1), target[tokens[:, 1:][kept]], reduction="sum")
        / kept.sum()
    )
    entropy = -(1 - eps) * math.log(1 - eps) - eps * math.log(eps / others)
    ours = cross_entropy(logits, tokens, eps * VOCABULARY / others, pad).double()
    torch.testing.assert_close(ours, divergence + entropy, atol=1e-6, rtol=0)
