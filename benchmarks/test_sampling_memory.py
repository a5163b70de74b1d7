"""Peak memory of a self-critical step: sampling without a graph and one teacher-forced pass, against sampling with one.

    pytest benchmarks/test_sampling_memory.py -n 0 -s

4 images of 144 x 1536 features, 5 samples each, 20 tokens (with random weights hardly a sample ends earlier), the
paper's size, dropout 0.1 as in the authors' self-critical stage. Every way runs in a process of its own and prints the
peak of its resident memory, the interpreter and the weights included. "with_graph" samples as the authors do: every
step decodes all prefixes with gradients and fresh dropout, and memory is copied for every sample.
"""

import resource
import subprocess
import sys

import torch
from torch import Tensor

import zoo
from zoo.captioner import Captioner, Memory
from zoo.decoding import sample

IMAGES, SAMPLES, STEPS, BOS = 4, 5, 20, 1


def without_graph(model: Captioner, visual: zoo.Visual) -> Tensor:
    """Log-probabilities (B * n, T) of samples, from one pass over what was drawn step by step."""
    model.eval()
    with torch.no_grad():
        memory = model.encode(visual)
    drawn = sample(model, memory, n=SAMPLES, max_len=STEPS, bos=BOS, eos=model.vocab_size - 1)
    model.train()
    tokens = drawn.tokens.flatten(0, 1)
    given = torch.cat((torch.full_like(tokens[:, :1], BOS), tokens[:, :-1]), 1)
    logits: Tensor = model(visual, given)
    return logits.log_softmax(-1).gather(2, tokens[..., None])[..., 0]


def with_graph(model: Captioner, visual: zoo.Visual) -> Tensor:
    """The same, every word's log-probability from the step that drew it."""
    memory = model.encode(visual)
    memory = Memory(memory.features.repeat_interleave(SAMPLES, 0), memory.mask.repeat_interleave(SAMPLES, 0))
    tokens, gains = torch.full((IMAGES * SAMPLES, 1), BOS), []
    for _ in range(STEPS):
        log_probs = model.decode(memory, tokens).log_softmax(-1)[:, -1]
        last = torch.multinomial(log_probs.detach().exp(), 1)
        gains.append(log_probs.gather(1, last))
        tokens = torch.cat((tokens, last), 1)
    return torch.cat(gains, 1)


def main(way: str) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = zoo.create_model("expansionnet_v2", vocab_size=10_000, visual_dim=1536).train()
    model.set_dropout(0.1)
    visual = zoo.Visual(torch.randn(IMAGES, 144, 1536))
    if way != "weights":
        log_probs = {"without_graph": without_graph, "with_graph": with_graph}[way](model, visual)
        torch.autograd.backward((-log_probs.sum(1)).mean())
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10)


def peak_mib(way: str) -> float:
    done = subprocess.run([sys.executable, __file__, way], capture_output=True, text=True, check=True)
    return float(done.stdout)


def test_one_teacher_forced_pass_needs_at_most_a_third_of_the_memory() -> None:
    start, quick, slow = (peak_mib(way) for way in ("weights", "without_graph", "with_graph"))
    print(f"\nMiB at the peak: model alone {start:.0f}, without a graph {quick:.0f}, with one {slow:.0f}")
    assert start < quick <= slow / 3


if __name__ == "__main__":
    main(sys.argv[1])
