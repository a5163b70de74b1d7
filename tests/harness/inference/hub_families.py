"""Tiny checkpoints of image-to-text families with random weights, written as transformers writes them, offline."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

_WIDTH = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
_SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
_LETTERS = [letter for letter in sorted(pre_tokenizers.ByteLevel.alphabet()) if letter.isascii() or letter in "ĠĊ"]
PAD, BEGIN, END, IMAGE = 0, 1, 2, 4
_ENDS = {"pad_token_id": PAD, "bos_token_id": BEGIN, "eos_token_id": END}


def tokenizer(*extra: str, image: str | None = "<image>", template: str = "<s> $A") -> PreTrainedTokenizerFast:
    """Letters as tokens, after special ones; `image` is the one that the tokenizer knows as an image's."""
    special = [*_SPECIAL, *extra]
    vocabulary = {token: number for number, token in enumerate([*special, *_LETTERS])}
    library = Tokenizer(models.BPE(vocabulary, []))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    library.add_special_tokens(special)
    ends = [("<s>", BEGIN), ("</s>", END)]
    library.post_processor = processors.TemplateProcessing(single=template, special_tokens=ends)
    return PreTrainedTokenizerFast(
        tokenizer_object=library,
        pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>",
        extra_special_tokens={} if image is None else {"image_token": image},
    )  # fmt: skip


def _size(side: int = 28) -> dict[str, dict[str, int]]:
    return {"size": {"height": side, "width": side}}


def _clip_size(side: int = 28) -> dict[str, Any]:
    return {"size": {"shortest_edge": side}, "crop_size": {"height": side, "width": side}}


def _vision(**more: Any) -> dict[str, Any]:
    return {**_WIDTH, "image_size": 28, "patch_size": 14, **more}


def _text(words: PreTrainedTokenizerFast, **more: Any) -> dict[str, Any]:
    return {**_WIDTH, "vocab_size": len(words), "max_position_embeddings": 256, **_ENDS, **more}


def _querying(folder: Path, config: Any, network: Any, processor: Any, *words: Any) -> None:
    """BLIP-2 and InstructBLIP, whose processor has a second tokenizer."""
    own = tokenizer(image=None)
    settings = config(
        vision_config=_vision(),
        qformer_config={**_WIDTH, "encoder_hidden_size": 16, "vocab_size": len(own)},
        text_config=_text(own, ffn_dim=16, word_embed_proj_dim=16, model_type="opt"),
        num_query_tokens=3, image_token_index=IMAGE,
    )  # fmt: skip
    _write(folder, network(settings))
    image = transformers.BlipImageProcessor(**_size())
    processor(image, own, *words, num_query_tokens=3).save_pretrained(folder)


def _blip2(folder: Path) -> None:
    network = transformers.Blip2ForConditionalGeneration
    _querying(folder, transformers.Blip2Config, network, transformers.Blip2Processor)


def _instructblip(folder: Path) -> None:
    network, processor = transformers.InstructBlipForConditionalGeneration, transformers.InstructBlipProcessor
    _querying(folder, transformers.InstructBlipConfig, network, processor, tokenizer(image=None))


def _florence2(folder: Path) -> None:
    words = tokenizer()
    vision = {
        "embed_dim": [8, 16], "depths": [1, 1], "patch_size": [7, 3], "patch_stride": [4, 2], "patch_padding": [3, 1],
        "patch_prenorm": [False, True], "num_heads": [2, 2], "num_groups": [2, 2], "window_size": 4,
        "projection_dim": 16,
    }  # fmt: skip
    text = {
        "model_type": "bart", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
        "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "vocab_size": len(words),
        "max_position_embeddings": 256, "decoder_start_token_id": END, "forced_eos_token_id": END, **_ENDS,
    }  # fmt: skip
    config = transformers.Florence2Config(vision_config=vision, text_config=text, image_token_id=IMAGE)
    _write(folder, transformers.Florence2ForConditionalGeneration(config))
    image = transformers.CLIPImageProcessor(**_size(32), do_center_crop=False)
    image.image_seq_length = 17
    transformers.Florence2Processor(image, words, num_additional_image_tokens=1).save_pretrained(folder)


def _paligemma(folder: Path) -> None:
    words = tokenizer()
    config = transformers.PaliGemmaConfig(
        vision_config=_vision(model_type="siglip_vision_model", projection_dim=16),
        text_config=_text(words, model_type="gemma", num_key_value_heads=1, head_dim=8),
        image_token_index=IMAGE, projection_dim=16, hidden_size=16,
    )  # fmt: skip
    _write(folder, transformers.PaliGemmaForConditionalGeneration(config))
    image = transformers.SiglipImageProcessor(**_size())
    image.image_seq_length = 4
    transformers.PaliGemmaProcessor(image, words).save_pretrained(folder)


def _kosmos2(folder: Path) -> None:
    image = transformers.CLIPImageProcessor(**_clip_size())
    processor = transformers.Kosmos2Processor(image, tokenizer(), num_patch_index_tokens=4)
    processor.save_pretrained(folder)
    config = transformers.Kosmos2Config(
        vision_config=_vision(),
        text_config={
            "vocab_size": len(processor.tokenizer), "embed_dim": 16, "layers": 1, "ffn_dim": 16, "attention_heads": 2,
            "max_position_embeddings": 256, **_ENDS,
        },
        latent_query_num=64,
    )  # fmt: skip
    _write(folder, transformers.Kosmos2ForConditionalGeneration(config))


_CHAT = (
    "{% for message in messages %}{{ message.role }}: {% for part in message.content %}"
    "{% if part.type == 'image' %}IMAGE{% else %}{{ part.text }}{% endif %}{% endfor %}\n{% endfor %}assistant: "
)


def _qwen2_vl(folder: Path) -> None:
    marks = ("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    words = tokenizer(*marks, image=marks[0])
    ids = dict(zip(marks, words.convert_tokens_to_ids(list(marks)), strict=True))
    text = _text(
        words, num_key_value_heads=1, rope_parameters={"rope_type": "default", "mrope_section": [1, 1, 2]},
    )  # fmt: skip
    config = transformers.Qwen2VLConfig(
        text_config=text,
        vision_config={
            "embed_dim": 16, "hidden_size": 16, "depth": 1, "num_heads": 2, "patch_size": 14, "mlp_ratio": 1,
        },
        image_token_id=ids["<|image_pad|>"], video_token_id=ids["<|video_pad|>"],
        vision_start_token_id=ids["<|vision_start|>"], vision_end_token_id=ids["<|vision_end|>"],
    )  # fmt: skip
    _write(folder, transformers.Qwen2VLForConditionalGeneration(config))
    image = transformers.Qwen2VLImageProcessor(size={"shortest_edge": 28 * 28, "longest_edge": 28 * 28 * 8})
    video = transformers.Qwen2VLVideoProcessor()
    chat = _CHAT.replace("IMAGE", "<|vision_start|><|image_pad|><|vision_end|>")
    transformers.Qwen2VLProcessor(image, words, video, chat_template=chat).save_pretrained(folder)


def _idefics3(folder: Path) -> None:
    marks = ("<fake_token_around_image>", "<end_of_utterance>", "<global-img>")
    words = tokenizer(*marks)
    config = transformers.Idefics3Config(
        vision_config=_vision(),
        text_config=_text(words, model_type="llama", num_key_value_heads=1),
        image_token_id=IMAGE, scale_factor=2, pad_token_id=PAD,
    )  # fmt: skip
    _write(folder, transformers.Idefics3ForConditionalGeneration(config))
    image = transformers.Idefics3ImageProcessor(size={"longest_edge": 56}, max_image_size={"longest_edge": 28})
    chat = _CHAT.replace("IMAGE", "<image>")
    transformers.Idefics3Processor(image, words, image_seq_len=1, chat_template=chat).save_pretrained(folder)


def _llava(folder: Path) -> None:
    words = tokenizer()
    config = transformers.LlavaConfig(
        vision_config=_vision(model_type="clip_vision_model"),
        text_config=_text(words, model_type="llama", num_key_value_heads=1),
        image_token_index=IMAGE, vision_feature_layer=-1,
    )  # fmt: skip
    _write(folder, transformers.LlavaForConditionalGeneration(config))
    image = transformers.CLIPImageProcessor(**_clip_size())
    transformers.LlavaProcessor(
        image, words, patch_size=14, vision_feature_select_strategy="default", num_additional_image_tokens=1
    ).save_pretrained(folder)


def _blip(folder: Path) -> None:
    words = tokenizer(template="<s> $A </s>")
    text = _text(words, encoder_hidden_size=16, sep_token_id=END)
    config = transformers.BlipConfig(vision_config=_vision(), text_config=text)
    _write(folder, transformers.BlipForConditionalGeneration(config))
    transformers.BlipProcessor(transformers.BlipImageProcessor(**_size()), words).save_pretrained(folder)


def write_vision_encoder_decoder(folder: Path) -> Path:
    """As ViT-GPT-2 captioners are published: image processor and tokenizer in one folder, and no processor of both."""
    words = tokenizer(image=None)
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        transformers.ViTConfig(**_vision()),
        transformers.GPT2Config(
            vocab_size=len(words), n_positions=64, n_embd=16, n_layer=1, n_head=2, add_cross_attention=True,
            bos_token_id=BEGIN, eos_token_id=END,
        ),
    )  # fmt: skip
    config.decoder_start_token_id, config.pad_token_id, config.eos_token_id = BEGIN, PAD, END
    _write(folder, transformers.VisionEncoderDecoderModel(config))
    transformers.ViTImageProcessor(**_size()).save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def _write(folder: Path, network: Any) -> None:
    torch.manual_seed(0)
    for parameter in network.parameters():  # the libraries' own scales make every word equally likely
        torch.nn.init.normal_(parameter, std=0.3)
    for name, value in _ENDS.items():
        setattr(network.generation_config, name, value)
    network.save_pretrained(folder)


FAMILIES: dict[str, Callable[[Path], None]] = {
    "blip": _blip,
    "blip-2": _blip2,
    "instructblip": _instructblip,
    "florence2": _florence2,
    "paligemma": _paligemma,
    "kosmos-2": _kosmos2,
    "qwen2_vl": _qwen2_vl,
    "idefics3": _idefics3,
    "llava": _llava,
}


def write_family(name: str, folder: Path) -> Path:
    """Write the tiny checkpoint of a family to `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    FAMILIES[name](folder)
    return folder
