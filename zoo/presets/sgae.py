"""Cards of SGAE. The authors' printed 127.8 CIDEr-D is, by their README, that of the model without the image graph."""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model

_ROWS: dict[str, tuple[str, dict[str, Any]]] = {
    "sgae": ("Regions re-encoded by a dictionary, without its pre-training on sentences", {}),
    "sgae/graph": ("SGAE whose regions are convolved along a scene graph of the image", {"graph": "given"}),
    "sgae/sentences": (
        "SGAE with the auto-encoder of sentences that its dictionary is trained by",
        {"sentences": True},
    ),
}

for _name, (_summary, _arguments) in _ROWS.items():
    register_model(
        ModelCard(
            name=_name,
            entry="zoo.models.sgae:SGAE",
            summary=_summary,
            paper="Yang, Tang, Zhang, Cai: Auto-Encoding Scene Graphs for Image Captioning, CVPR 2019",
            year=2019,
            source="https://github.com/yangxuntu/SGAE",
            licence="none stated",
            visual="regions",
            graph="words" if _arguments.get("graph") == "given" else "none",
            arguments={"d_model": 1000, "d_attention": 512, "dropout": 0.5, "n_entries": 10_000, **_arguments},
            # The auto-encoder has no part in captioning an image, which is what tests of every model are about.
            tiny={"d_model": 16, "max_len": 12, "d_attention": 8, "n_entries": 9, "sentences": False},
            small={"d_embedding": None, "d_attention": 64, "n_entries": 256},
        )
    )
