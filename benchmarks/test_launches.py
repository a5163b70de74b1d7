"""Kernels that steps and searches start on a GPU in bf16, and how often the host waits for it.

    python -m pytest benchmarks/test_launches.py -n 0 -s

Models at the sizes of the preset `matched-width`, two images of 36 tokens, 5 captions of 20 words each; a beam of 5,
20 words. Counted on fake tensors (`tests/fake_cuda.py`), so that the numbers are the same on every machine: operators
under CUDA's autocast, less views and allocations, attention being one. They must not grow.
"""

from typing import Any

import pytest
import torch

from harness.config.load import load_preset
from harness.config.schedule import Optimiser, Stage
from harness.data.batches import Batch
from harness.data.dataset import Sample
from harness.data.vocabulary import Vocabulary
from harness.measure.inputs import batch_of, example_visual
from harness.training.distributed import Collective
from harness.training.losses import BatchGradient
from harness.training.optimisers import make_optimiser
from harness.training.stage import make_objective
from harness.utils.precision import autocast
from tests.fake_cuda import Watch, fake_cuda, fake_visual, on_fake_cuda
from zoo import Captioner, Visual, create_model
from zoo.decoding import beam_search, sample

CUDA = torch.device("cuda")
IMAGES, REGIONS, CHANNELS, WORDS, CAPTIONS, BEAM = 2, 36, 256, 20, 5, 5
VOCABULARY = Vocabulary(tuple(f"w{number}" for number in range(996)))
SAMPLES = [Sample(number, f"{number}.png", "train", ("w1 w2",)) for number in range(IMAGES)]
SELF_CRITICAL: dict[str, Any] = {"objective": "self_critical", "self_critical": {"max_len": WORDS, "samples": CAPTIONS}}
PREFIXES: dict[str, object] = {"gradient": "prefixes", "sampling_dropout": True}
MOST = {
    "blind": (323, 1511, 1507, 1891),
    "cgru": (1014, 1017, 1039, 1340),
    "expansionnet_v2": (900, 2989, 2930, 3927),
    "image_transformer": (1135, 1139, 1130, 1717),
    "puret": (822, 2118, 2073, 2997),
    "show_tell": (457, 541, 557, 730),
    "transformer_base": (543, 1623, 1581, 2223),
    "updown": (787, 891, 922, 1204),
    "x_lan": (2249, 1439, 1388, 2279),
    "x_transformer": (1457, 4991, 4885, 6486),
}
"""Of a step of cross-entropy with clipping and RAdam, of a beam search with its encoder, of sampling with it, and of a
self-critical step."""


def step(model: Captioner, visual: Visual, changes: dict[str, Any]) -> Watch:
    """A whole training step, less what the optimiser makes at its first one."""
    stage = Stage.model_validate({"name": "s", "epochs": 1, "batch_size": 2, "learning_rate": {"peak": 0.1}} | changes)
    objective = make_objective(stage, model.train(), SAMPLES, VOCABULARY)
    tokens = torch.empty(IMAGES * CAPTIONS, WORDS + 1, dtype=torch.long, device="cpu")
    batch = Batch(fake_visual(visual, "cpu"), tokens, tuple(range(IMAGES)))
    gradient = BatchGradient(
        model,
        CUDA,
        precision="bf16",
        collective=Collective(),
        on_split=lambda parts: pytest.fail(f"split into {parts}"),
        replays=False,
    )
    optimiser, weights = make_optimiser(model, Optimiser(name="radam_liu")), list(model.parameters())
    for _ in range(2):
        watch = Watch()
        with watch:
            gradient(objective, weights, batch, 0, 1)
            torch.nn.utils.clip_grad_norm_(weights, 1.0)
            optimiser.step()
            optimiser.zero_grad()
    return watch


@pytest.mark.parametrize("name", MOST)
def test_launches_do_not_grow(name: str) -> None:
    arguments = load_preset("matched-width").model_arguments(name)
    model = create_model(name, vocab_size=len(VOCABULARY), visual_dim=CHANNELS, **arguments)
    visual = batch_of(example_visual(model.visual, length=REGIONS), IMAGES)
    with fake_cuda():
        on_fake_cuda(model)
        steps = [step(model, visual, changes) for changes in ({}, SELF_CRITICAL)]
        model.eval()
        settings: Any = {"max_len": WORDS, "bos": VOCABULARY.bos, "eos": VOCABULARY.eos}
        with torch.no_grad(), autocast(CUDA, "bf16"):
            with Watch() as search:
                beam_search(model, model.encode(fake_visual(visual)), beam_size=BEAM, **settings)
            with Watch() as drawing:
                sample(model, model.encode(fake_visual(visual)), n=CAPTIONS, **settings)
    watched = (steps[0], search, drawing, steps[1])
    print(f"    {name!r}: {tuple(watch.kernels for watch in watched)},", [watch.reads for watch in watched])
    assert [watch.reads for watch in watched] == [0, WORDS - 1, WORDS, WORDS]
    assert all(watch.kernels <= most for watch, most in zip(watched, MOST[name], strict=True))


def test_prefixes() -> None:
    """Every word decodes all words before it again."""
    arguments = load_preset("matched-width").model_arguments("transformer_base")
    model = create_model("transformer_base", vocab_size=len(VOCABULARY), visual_dim=CHANNELS, **arguments)
    visual = batch_of(example_visual(model.visual, length=REGIONS), IMAGES)
    with fake_cuda():
        changes = {"objective": "self_critical", "self_critical": SELF_CRITICAL["self_critical"] | PREFIXES}
        watch = step(on_fake_cuda(model), visual, changes)
    print(f"prefixes: {watch.kernels} a step")
    assert watch.kernels <= 6210
