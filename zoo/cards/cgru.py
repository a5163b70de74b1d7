"""Cards of the conditional GRU."""

from zoo.card import ModelCard, variants

CARDS: list[ModelCard] = []
for _name, _summary, _arguments, _changed in (
    ("cgru", "Two GRUs, the image as a gate between them, a third as bottleneck", {}, {}),
    (
        "cgru/paper-size",
        "On 1024-d features alone: 2,460,490 parameters at 5,066 subwords",
        {"only_dim": 1024},
        {"only_dim": None},
    ),
    ("cgru/x2", "Double width, linear bottleneck (equation 9)", {"d_model": 512, "bottleneck": "linear"}, {}),
    ("cgru/mha", "Three heads over a grid of features in place of the gate", {"look": "attention", "n_heads": 3}, {}),
    (
        "cgru/x2-mha",
        "Double width, linear bottleneck, and three heads over a grid",
        {"d_model": 512, "bottleneck": "linear", "look": "attention", "n_heads": 3},
        {},
    ),
):
    CARDS += variants(
        {_name: (_summary, _arguments)},
        arguments={"d_model": 256, "dropout": 0.5},
        entry="zoo.models.cgru:ConditionalGRU",
        paper="Delbrouck, Dupont: Bringing back simplicity and lightliness into neural image captioning, 2018 "
        "(arXiv:1810.06245)",
        year=2018,
        source="https://github.com/jbdel/light_captioning",
        licence="none stated",
        visual="grid" if "look" in _arguments else "pooled",
        tiny={"d_model": 16, "max_len": 12, **_changed},
        small=_changed,
    )
