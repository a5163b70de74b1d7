"""What weights of the LSTM captioners of R. Luo's ImageCaptioning.pytorch share.

https://github.com/ruotianluo/ImageCaptioning.pytorch (MIT). They are converted if they have no batch normalisation and
one layer of logits. Shapes do not determine `max_len`.
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
"""The tensors and axes that tell the sizes of a model that embeds its regions."""
HINT = "there are converters for models without batch normalisation, whose image is the mean of its regions"
