"""Names of tensors that the LSTM captioners of R. Luo's ImageCaptioning.pytorch share.

https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT). Weights can be converted if they have no batch
normalisation and a single output layer. Shapes do not determine `max_len`.
"""

WORDS = ((r"^embed\.(0\.)?weight", r"embedding.\1weight"), (r"^logit\.", "vocabulary."))
"""Names of the embedding and the logits; see `zoo.converter.Converter.renames`."""
ATTENTION = (
    (r"^att_embed\.", "region_embedding."),
    (r"^ctx2att\.", "attention.key."),
    (r"^core\.attention\.h2att\.", "attention.query."),
    (r"^core\.attention\.alpha_net\.", "attention.score."),
)
"""Names of the embedded regions and of the attention to them."""
WORD_SIZES = {"vocab_size": ("logit.weight", 0), "d_model": ("logit.weight", 1)}
ATTENTION_SIZES = {
    **WORD_SIZES,
    "d_embedding": ("embed.0.weight", 1),
    "visual_dim": ("att_embed.0.weight", 1),
    "d_attention": ("ctx2att.weight", 0),
}
"""Tensors and axes of the sizes of a model that embeds its regions."""
HINT = "there are converters for models without batch normalisation, whose image is the mean of its regions"
