"""A captioner small enough to count by hand: linear encoder, one attention block, a GRU over the words."""

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from zoo.captioner import Captioner, DecodingState, Memory, Visual, VisualSpec

DIM, WIDTH, VOCABULARY, REGIONS = 8, 16, 12, 6


class TinyCaptioner(Captioner):
    """Embeds a token, lets a GRU cell read it, attends over the regions, and projects to the vocabulary."""

    def __init__(self) -> None:
        super().__init__()
        self.visual = VisualSpec("grid", DIM)
        self.vocab_size = VOCABULARY
        self.max_len = 32
        self.project = nn.Linear(DIM, WIDTH)
        self.keys = nn.Linear(WIDTH, WIDTH)
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.cell = nn.GRUCell(WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)
        self.dropout = nn.Dropout(0.5)

    def encode(self, visual: Visual) -> Memory:
        return Memory(torch.relu(self.project(visual.features)), visual.mask)

    def start(self, memory: Memory) -> DecodingState:
        images = {"keys": self.keys(memory.features), "values": memory.features, "mask": memory.mask}
        return DecodingState(images, {"hidden": memory.features.mean(1)})

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        hidden = self.cell(self.dropout(self.embed(tokens)), state.rows["hidden"])
        images = state.images
        queries = hidden.view(images["keys"].shape[0], -1, WIDTH)
        seen = functional.scaled_dot_product_attention(
            queries, images["keys"], images["values"], attn_mask=images["mask"][:, None]
        )
        return self.head(seen.reshape(-1, WIDTH) + hidden), DecodingState(images, {"hidden": hidden})

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        state = self.start(memory).expand(tokens.shape[0] // memory.batch_size)
        logits = []
        for position in range(tokens.shape[1]):
            step_logits, state = self.step(tokens[:, position], state)
            logits.append(step_logits)
        return torch.stack(logits, 1)


def make_visual(batch: int = 1, regions: int = REGIONS) -> Visual:
    """Random features of `batch` images with every region valid."""
    features = torch.randn(batch, regions, DIM, generator=torch.Generator().manual_seed(0))
    return Visual(features=features, mask=torch.ones(batch, regions, dtype=torch.bool))


@pytest.fixture
def tiny() -> TinyCaptioner:
    torch.manual_seed(0)
    return TinyCaptioner()


@pytest.fixture
def visual() -> Callable[..., Visual]:
    return make_visual


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
