"""Cards of GCN-LSTM. Spatial graphs are second hand: the paper's rule as two later repositories have it."""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model

_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "gcn_lstm": ("Regions convolved along a graph of boxes, as X-modaler has it (second hand)", {}),
    "gcn_lstm/no-graph": ("GCN-LSTM whose graph has no edges", {"graph": "none"}),
    "gcn_lstm/semantic": ("GCN-LSTM along the relations of a scene graph", {"graph": "given"}),
}

for _name, (_summary, _arguments) in _ROWS.items():
    register_model(
        ModelCard(
            name=_name,
            entry="zoo.models.gcn_lstm:GCNLSTM",
            summary=_summary,
            paper=(
                "Yao, Pan, Li, Mei: Exploring Visual Relationship for Image Captioning, ECCV 2018 (arXiv:1809.07041); "
                "the code is a later library's"
            ),
            year=2018,
            source="https://github.com/YehLi/xmodaler",
            licence="Apache-2.0",
            visual="regions",
            graph="labels" if _arguments.get("graph") == "given" else "none",
            arguments={"d_model": 1024, "d_attention": 512, "dropout": 0.5, **_arguments},
            tiny={"d_model": 16, "max_len": 12, "d_attention": 8},
            small={"d_embedding": None, "d_attention": 64},
        )
    )
