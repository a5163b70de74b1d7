"""Weights of X-modaler's GCN-LSTM (https://github.com/YehLi/xmodaler, Apache-2.0).

Number 0 is begin, end and padding. Labels of edges are those of a semantic graph, which comes with the data (see
`GCNLSTM.encode_graph`), unless `graph` says otherwise; `quirks=False` masks padding. Shapes do not determine `max_len`.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from zoo.weights.converter import Converter, Tensors, lstm_names, zoo_attention_lstm, zoo_lstm


class _GCNLSTM(Converter):
    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        words = official["token_embed.embeddings.weight"].shape[1]
        attention = zoo_attention_lstm(official, "decoder.lstm1", "", words)
        return super().tensors(official) | attention | zoo_lstm(official, "decoder.lstm2", "language_lstm")


CONVERTER = _GCNLSTM(
    what="X-modaler's GCN-LSTM",
    parts=(
        (r"^token_embed\.embeddings\b", "embedding.0"),
        (r"^encoder\.gate_bias$", "convolution.label_gate"),
        (r"^encoder\.bias$", "convolution.label_bias"),
        (r"^encoder\.gcn_loop", "convolution.loop"),
        (r"^encoder\.gcn_sub", "convolution.forth"),
        (r"^encoder\.gcn_obj", "convolution.back"),
        (r"^decoder\.p_att_feats\b", "attention.key"),
        (r"^decoder\.att\.w_h\b", "attention.query"),
        (r"^decoder\.att\.w_alpha\b", "attention.score"),
        (r"^predictor\.logits\b", "vocabulary"),
    ),
    unused=r"^decoder\.lstm[12]\.",
    where={
        "vocab_size": ("predictor.logits.weight", 0),
        "visual_dim": ("encoder.gcn_loop.weight", 1),
        "d_model": ("predictor.logits.weight", 1),
        "d_embedding": ("token_embed.embeddings.weight", 1),
        "d_attention": ("decoder.p_att_feats.weight", 0),
        "n_labels": ("encoder.bias", 0),
    },
    fixed={"graph": "given", "quirks": True},
    needed=lstm_names("decoder.lstm1", "decoder.lstm2"),
)
