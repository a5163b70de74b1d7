"""Every handler against a number worked out by hand, and against torch's own counter where it has one."""

from collections.abc import Callable

import pytest
import torch
from fvcore.nn import FlopCountAnalysis
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from torchvision.ops import roi_align

from harness.measure.flops import HANDLERS, MOVES


class _Call(nn.Module):
    def __init__(self, call: Callable[..., Tensor], inner: nn.Module | None = None) -> None:
        super().__init__()
        self.call = call
        self.inner = inner

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.call(*tensors)


def count(call: Callable[..., Tensor], *tensors: Tensor, inner: nn.Module | None = None) -> dict[str, int]:
    analysis = FlopCountAnalysis(_Call(call, inner).eval(), tensors)
    analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).tracer_warnings("none")
    with torch.no_grad():
        return dict(analysis.set_op_handle(**HANDLERS, **dict.fromkeys(MOVES)).by_operator())


B, N, K, M = 2, 3, 5, 7
PRODUCTS = [
    ("matmul", lambda a, b: a @ b, [(N, K), (K, M)], N * K * M),
    ("matmul", lambda a, b: a @ b, [(N, K), (B, K, M)], B * N * K * M),
    ("matmul", lambda a, b: a @ b, [(B, 1, N, K), (4, K, M)], B * 4 * N * K * M),
    ("matmul", lambda a, b: a @ b, [(B, N, K), (K,)], B * N * K),
    ("matmul", lambda a, b: a @ b, [(K,), (B, K, M)], B * K * M),
    ("bmm", torch.bmm, [(B, N, K), (B, K, M)], B * N * K * M),
    ("mm", torch.mm, [(N, K), (K, M)], N * K * M),
    ("mv", torch.mv, [(N, K), (K,)], N * K),
    ("dot", torch.dot, [(K,), (K,)], K),
    ("inner", torch.inner, [(B, N, K), (M, K)], B * N * K * M),
    ("addmm", torch.addmm, [(M,), (N, K), (K, M)], N * K * M),
    ("addmv", torch.addmv, [(N,), (N, K), (K,)], N * K),
    ("baddbmm", torch.baddbmm, [(B, N, M), (B, N, K), (B, K, M)], B * N * K * M),
    ("addbmm", torch.addbmm, [(N, M), (B, N, K), (B, K, M)], B * N * K * M),
    ("tensordot", lambda a, b: torch.tensordot(a, b, dims=([1, 2], [0, 1])), [(B, N, K), (N, K, M)], B * N * K * M),
]


@pytest.mark.parametrize(("operator", "call", "shapes", "macs"), PRODUCTS)
def test_products(operator: str, call: Callable[..., Tensor], shapes: list[tuple[int, ...]], macs: int) -> None:
    tensors = [torch.randn(shape) for shape in shapes]
    assert count(call, *tensors) == {operator: macs}
    with FlopCounterMode(display=False) as reference:
        call(*tensors)
    # torch counts two flops a multiply-accumulate, and leaves dot products of vectors out.
    assert reference.get_total_flops() in {2 * macs, 0}


@pytest.mark.parametrize(
    ("equation", "shapes", "macs"),
    [
        ("ij,jk->ik", [(N, K), (K, M)], N * K * M),
        ("bhtd, bhsd -> bhts", [(B, 4, N, K), (B, 4, M, K)], B * 4 * N * K * M),
        ("...ij,...jk->...ik", [(B, N, K), (K, M)], B * N * K * M),
        ("bij,j->bi", [(B, N, K), (K,)], B * N * K),
        ("ab,bc,cd->ad", [(2, 3), (3, 4), (4, 5)], 2 * 3 * 4 + 2 * 4 * 5),
        ("ii->i", [(N, N)], 0),
    ],
)
def test_einsum_by_hand(equation: str, shapes: list[tuple[int, ...]], macs: int) -> None:
    counted = count(lambda *operands: torch.einsum(equation, *operands), *(torch.randn(shape) for shape in shapes))
    assert sum(counted.values()) == macs


def test_fused_attention_counts_scores_and_values() -> None:
    queries, keys, values = torch.randn(B, 4, N, 8), torch.randn(B, 4, M, 8), torch.randn(B, 4, M, 6)
    counted = count(functional.scaled_dot_product_attention, queries, keys, values)
    assert counted == {"scaled_dot_product_attention": B * 4 * N * M * (8 + 6)}


@pytest.mark.parametrize(
    ("layer", "operator", "macs_a_row"),
    [
        (nn.LSTM(4, 6, batch_first=True), "lstm", 4 * 6 * (4 + 6)),
        (nn.LSTM(4, 6, num_layers=2, bidirectional=True), "lstm", 2 * 4 * 6 * (4 + 6) + 2 * 4 * 6 * (12 + 6)),
        (nn.LSTM(4, 6, proj_size=3), "lstm", 4 * 6 * (4 + 3) + 3 * 6),
        (nn.GRU(4, 6, bias=False), "gru", 3 * 6 * (4 + 6)),
        (nn.RNN(4, 6, nonlinearity="relu"), "rnn_relu", 6 * (4 + 6)),
    ],
)
def test_fused_recurrent_layers(layer: nn.Module, operator: str, macs_a_row: int) -> None:
    assert count(lambda x: layer(x)[0], torch.randn(3, 5, 4), inner=layer) == {operator: 15 * macs_a_row}


def test_packed_recurrent_layer_counts_only_valid_rows() -> None:
    layer = nn.LSTM(4, 6, batch_first=True)

    def call(x: Tensor) -> Tensor:
        return layer(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 3, 1]), batch_first=True))[0].data

    assert count(call, torch.randn(3, 5, 4), inner=layer) == {"lstm": 9 * 4 * 6 * (4 + 6)}


@pytest.mark.parametrize(("cell", "gates"), [(nn.LSTMCell(4, 6), 4), (nn.GRUCell(4, 6), 3), (nn.RNNCell(4, 6), 1)])
def test_recurrent_cells_whether_fused_or_decomposed(cell: nn.Module, gates: int) -> None:
    def call(x: Tensor) -> Tensor:
        state = cell(x)
        return state[0] if isinstance(state, tuple) else state

    assert sum(count(call, torch.randn(3, 4), inner=cell).values()) == 3 * gates * 6 * (4 + 6)


@pytest.mark.parametrize(("ratio", "samples"), [(2, 4), (-1, 2 * 3)])
def test_roi_align_samples_every_bin(ratio: int, samples: int) -> None:
    maps, boxes = torch.randn(1, 5, 4, 6), torch.tensor([[0.0, 0.0, 0.0, 6.0, 4.0]] * 3)
    counted = count(lambda seen: roi_align(seen, boxes, 2, sampling_ratio=ratio, aligned=True), maps)
    assert counted == {"roi_align": 3 * 5 * 2 * 2 * 4 * samples}
