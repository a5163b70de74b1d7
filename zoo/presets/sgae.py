"""Card of SGAE. The authors' printed 127.8 CIDEr-D is, by their README, that of the model without the image graph."""

from __future__ import annotations

from zoo.registry import ModelCard, register_model

register_model(
    ModelCard(
        name="sgae",
        entry="zoo.models.sgae:SGAE",
        summary="Regions re-encoded by a dictionary, without its pre-training on sentences",
        paper="Yang, Tang, Zhang, Cai: Auto-Encoding Scene Graphs for Image Captioning, CVPR 2019",
        year=2019,
        source="https://github.com/yangxuntu/SGAE",
        licence="none stated",
        visual="regions",
        arguments={"d_model": 1000, "d_attention": 512, "dropout": 0.5, "n_entries": 10_000},
        tiny={"d_model": 16, "max_len": 12, "d_attention": 8, "n_entries": 9},
        small={"d_embedding": None, "d_attention": 64, "n_entries": 256},
    )
)
