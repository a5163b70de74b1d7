"""Cards of the captioners with a recurrent decoder: Show and Tell, Show Attend and Tell, Att2in, adaptive attention,
Up-Down, GCN-LSTM and SGAE.
"""

from typing import Any

from zoo.card import ModelCard, variants

CARDS: list[ModelCard] = []
_CODE: dict[str, Any] = {"source": "https://github.com/ruotianluo/ImageCaptioning.pytorch", "licence": "MIT"}
_VINYALS: dict[str, Any] = {
    "paper": "Vinyals, Toshev, Bengio, Erhan: Show and Tell: A Neural Image Caption Generator, CVPR 2015",
    "year": 2015,
    "visual": "pooled",
    **_CODE,
}
_XU: dict[str, Any] = {
    "paper": "Xu, Ba, Kiros, Cho, Courville, Salakhutdinov, Zemel, Bengio: Show, Attend and Tell: Neural Image Caption "
    "Generation with Visual Attention, ICML 2015",
    "year": 2015,
    "visual": "grid",
    "source": "https://github.com/kelvinxu/arctic-captions",
    "licence": "BSD-3-Clause",
}
_RENNIE: dict[str, Any] = {
    "paper": "Rennie, Marcheret, Mroueh, Ross, Goel: Self-critical Sequence Training for Image Captioning, CVPR 2017",
    "year": 2017,
    "visual": "grid",
    **_CODE,
}
_LU: dict[str, Any] = {
    "paper": "Lu, Xiong, Parikh, Socher: Knowing When to Look: Adaptive Attention via A Visual Sentinel for Image "
    "Captioning, CVPR 2017 (arXiv:1612.01887)",
    "year": 2017,
    "visual": "grid",
    **_CODE,
}
_ANDERSON: dict[str, Any] = {
    "paper": "Anderson, He, Buehler, Teney, Johnson, Gould, Zhang: Bottom-Up and Top-Down Attention for Image "
    "Captioning and Visual Question Answering, CVPR 2018",
    "year": 2018,
    "visual": "regions",
    **_CODE,
}
_ATTENDING_TINY = {"d_model": 16, "max_len": 12, "d_attention": 8}
_ATTENDING_SMALL = {"d_embedding": None, "d_attention": 64}


def _add(name: str, model: str, summary: str, origin: dict[str, Any], **arguments: Any) -> None:
    attends = origin["visual"] != "pooled"
    CARDS.extend(
        variants(
            {name: (summary, arguments)},
            entry=f"zoo.models.{model}",
            **origin,
            arguments={"dropout": 0.5},
            tiny=_ATTENDING_TINY if attends else {"d_model": 16, "max_len": 12},
            small=_ATTENDING_SMALL if attends else {},
        )
    )


_add("show_tell", "show_tell:ShowTell", "An LSTM that reads the pooled image before the words", _VINYALS)
_add(
    "show_tell/fc",
    "show_tell:ShowTell",
    "The FC model of self-critical training: the same with maxout candidates",
    {**_RENNIE, "visual": "pooled"},
    cell="maxout",
)
_add(
    "show_attend_tell",
    "show_attend_tell:ShowAttendTell",
    "Soft attention over the grid, gated, with a deep output",
    _XU,
    d_model=1800,
    d_embedding=512,
)
_add("att2in", "att2in:Att2in", "What is attended to enters the candidates of a maxout LSTM", _RENNIE)
_add(
    "att2in/embedded",
    "att2in:Att2in",
    "Att2in with rectified embeddings of words and regions (att2in2)",
    {**_RENNIE, "visual": "regions"},
    rectified=True,
    visual_kind="regions",
)
_add(
    "att2all",
    "att2in:Att2in",
    "What is attended to enters every gate of a maxout LSTM (att2all2)",
    _RENNIE,
    attended="all",
    rectified=True,
)
_add(
    "adaptive_attention",
    "adaptive_attention:AdaptiveAttention",
    "An LSTM that attends to the image or to a sentinel of its own (adaatt)",
    _LU,
)
_add("updown", "updown:UpDown", "An attention LSTM below a language LSTM, over regions", _ANDERSON, d_model=1000)

_graph: dict[str, Any]
# Spatial graphs are second hand: the paper's rule as two later repositories have it.
for _name, _summary, _graph in (
    ("gcn_lstm", "Regions convolved along a graph of boxes, as X-modaler has it (second hand)", {}),
    ("gcn_lstm/no-graph", "GCN-LSTM whose graph has no edges", {"graph": "none"}),
    ("gcn_lstm/semantic", "GCN-LSTM along the relations of a scene graph", {"graph": "given"}),
):
    CARDS += variants(
        {_name: (_summary, _graph)},
        arguments={"d_model": 1024, "d_attention": 512, "dropout": 0.5},
        entry="zoo.models.gcn_lstm:GCNLSTM",
        paper="Yao, Pan, Li, Mei: Exploring Visual Relationship for Image Captioning, ECCV 2018 (arXiv:1809.07041); "
        "the code is a later library's",
        year=2018,
        source="https://github.com/YehLi/xmodaler",
        licence="Apache-2.0",
        visual="regions",
        graph="labels" if _graph.get("graph") == "given" else "none",
        tiny=_ATTENDING_TINY,
        small=_ATTENDING_SMALL,
    )
# The authors' printed 127.8 CIDEr-D is, by their README, that of the model without the image graph.
for _name, _summary, _graph in (
    ("sgae", "Regions re-encoded by a dictionary, without its pre-training on sentences", {}),
    ("sgae/graph", "SGAE whose regions are convolved along a scene graph of the image", {"graph": "given"}),
    (
        "sgae/sentences",
        "SGAE with the auto-encoder of sentences that its dictionary is trained by",
        {"sentences": True},
    ),
):
    CARDS += variants(
        {_name: (_summary, _graph)},
        arguments={"d_model": 1000, "d_attention": 512, "dropout": 0.5, "n_entries": 10_000},
        entry="zoo.models.sgae:SGAE",
        paper="Yang, Tang, Zhang, Cai: Auto-Encoding Scene Graphs for Image Captioning, CVPR 2019",
        year=2019,
        source="https://github.com/yangxuntu/SGAE",
        licence="none stated",
        visual="regions",
        graph="words" if "graph" in _graph else "none",
        # The auto-encoder has no part in captioning an image, which is what tests of every model are about.
        tiny={**_ATTENDING_TINY, "n_entries": 9, "sentences": False},
        small={**_ATTENDING_SMALL, "n_entries": 256},
    )
