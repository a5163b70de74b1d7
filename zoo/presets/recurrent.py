"""Cards of the captioners whose decoder is an LSTM: Show and Tell, Show Attend and Tell, Att2in, adaptive attention,
Up-Down.
"""

from __future__ import annotations

from typing import Any

from zoo.registry import ModelCard, register_model

_CODE: dict[str, Any] = {"source": "https://github.com/ruotianluo/ImageCaptioning.pytorch", "licence": "MIT"}
_VINYALS: dict[str, Any] = {
    "paper": "Vinyals, Toshev, Bengio, Erhan: Show and Tell: A Neural Image Caption Generator, CVPR 2015",
    "year": 2015,
    "visual": "pooled",
    **_CODE,
}
_XU: dict[str, Any] = {
    "paper": (
        "Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel, Bengio: Show, Attend and Tell: Neural Image Caption "
        "Generation with Visual Attention, ICML 2015"
    ),
    "year": 2015,
    "visual": "grid",
    "source": "https://github.com/kelvinxu/arctic-captions",
    "licence": "BSD-3-Clause",
}
_RENNIE: dict[str, Any] = {
    "paper": ("Rennie, Marcheret, Mroueh, Ross, Goel: Self-critical Sequence Training for Image Captioning, CVPR 2017"),
    "year": 2017,
    "visual": "grid",
    **_CODE,
}
_LU: dict[str, Any] = {
    "paper": (
        "Lu, Xiong, Parikh, Socher: Knowing When to Look: Adaptive Attention via A Visual Sentinel for Image "
        "Captioning, CVPR 2017 (arXiv:1612.01887)"
    ),
    "year": 2017,
    "visual": "grid",
    **_CODE,
}
_ANDERSON: dict[str, Any] = {
    "paper": (
        "Anderson, He, Buehler, Teney, Johnson, Gould, Zhang: Bottom-Up and Top-Down Attention for Image Captioning "
        "and Visual Question Answering, CVPR 2018"
    ),
    "year": 2018,
    "visual": "regions",
    **_CODE,
}
_REGIONS = {"visual": "regions"}
_ATTENDING_TINY = {"d_model": 16, "max_len": 12, "d_attention": 8}
_ATTENDING_SMALL = {"d_embedding": None, "d_attention": 64}


def _register(name: str, model: str, summary: str, origin: dict[str, Any], **arguments: Any) -> None:
    attends = origin["visual"] != "pooled"
    register_model(
        ModelCard(
            name=name,
            entry=f"zoo.models.{model}",
            summary=summary,
            **origin,
            arguments={"dropout": 0.5, **arguments},
            tiny=_ATTENDING_TINY if attends else {"d_model": 16, "max_len": 12},
            small=_ATTENDING_SMALL if attends else {},
        )
    )


_register("show_tell", "show_tell:ShowTell", "An LSTM that reads the pooled image before the words", _VINYALS)
_register(
    "show_tell/fc",
    "show_tell:ShowTell",
    "The FC model of self-critical training: the same with maxout candidates",
    {**_RENNIE, "visual": "pooled"},
    cell="maxout",
)
_register(
    "show_attend_tell",
    "show_attend_tell:ShowAttendTell",
    "Soft attention over the grid, gated, with a deep output",
    _XU,
    d_model=1800,
    d_embedding=512,
)
_register("att2in", "att2in:Att2in", "What is attended to enters the candidates of a maxout LSTM", _RENNIE)
_register(
    "att2in/embedded",
    "att2in:Att2in",
    "Att2in with rectified embeddings of words and regions (att2in2)",
    {**_RENNIE, **_REGIONS},
    rectified=True,
    visual_kind="regions",
)
_register(
    "att2all",
    "att2in:Att2in",
    "What is attended to enters every gate of a maxout LSTM (att2all2)",
    _RENNIE,
    attended="all",
    rectified=True,
)
_register(
    "adaptive_attention",
    "adaptive_attention:AdaptiveAttention",
    "An LSTM that attends to the image or to a sentinel of its own (adaatt)",
    _LU,
)
_register("updown", "updown:UpDown", "An attention LSTM below a language LSTM, over regions", _ANDERSON, d_model=1000)
