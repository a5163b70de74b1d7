"""Cards of AoANet, and of the transformer with attention on attention."""

from zoo.card import ModelCard, variants

CARDS: list[ModelCard] = [
    *variants(
        {
            "aoanet": (
                "Regions refined by attention on attention, and an LSTM that attends so too",
                {"n_encoder_layers": 6},
            ),
            "aoanet/no-refiner": ("AoANet whose LSTM sees the embedded regions as they are", {"refiner": False}),
        },
        entry="zoo.models.aoanet:AoANet",
        paper="Huang, Wang, Chen, Wei: Attention on Attention for Image Captioning, ICCV 2019 (arXiv:1908.06954)",
        year=2019,
        source="https://github.com/husthuaan/AoANet",
        licence="MIT",
        visual="regions",
        arguments={"d_model": 1024, "n_heads": 8, "dropout": 0.5},
        tiny={"d_model": 16, "d_word": 12, "n_heads": 2, "n_encoder_layers": 2, "max_len": 12},
        small={},
    ),
    ModelCard(
        name="transformer_aoa",
        entry="zoo.models.transformer_aoa:AoATransformer",
        summary="ExpansionNet v1's Table 2, Base w/ AoA: AoA blocks and self-attention, no LSTM",
        paper='Huang et al.: Attention on Attention for Image Captioning, ICCV 2019; as the baseline "Base w/ AoA" of '
        "Hu, Cavicchioli, Capotondi: ExpansionNet, 2022 (arXiv:2207.03327)",
        year=2022,
        source="https://github.com/jchenghu/ExpansionNet",
        licence="none stated",
        visual="regions",
        arguments={"d_model": 512, "n_heads": 8, "n_encoder_layers": 3, "n_decoder_layers": 3, "dropout": 0.3},
        tiny={"d_model": 16, "n_heads": 2, "n_encoder_layers": 2, "n_decoder_layers": 2, "max_len": 12},
    ),
]
