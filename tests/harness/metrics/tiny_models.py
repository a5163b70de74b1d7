"""Tiny random CLIP and BERT models in folders as transformers writes them."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BertConfig,
    BertModel,
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaModel,
)

_WORDS = ["a", "A", "photo", "depicts", "dog", "cat", "runs", "sleeps", "red", "blue", "square", "the", "on"]


def write_clip(folder: Path) -> Path:
    """A CLIP model of one layer on each side, with 16 x 16 pixels and 12 tokens."""
    size = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    tokens = _write_tokenizer(folder, 12)
    text = {"vocab_size": tokens, "max_position_embeddings": 12, "bos_token_id": 2, "eos_token_id": 3}
    torch.manual_seed(0)
    config = CLIPConfig(
        text_config=size | text | {"pad_token_id": 0},
        vision_config=size | {"image_size": 16, "patch_size": 8},
        projection_dim=8,
    )
    CLIPModel(config).save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(folder)
    return folder


def write_bert(folder: Path, *, roberta: bool = False) -> Path:
    """A BERT model of two layers, or a RoBERTa model whose tokenizer states no limit."""
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    tokens = _write_tokenizer(folder, None if roberta else 40)
    torch.manual_seed(0)
    kind, config = (RobertaModel, RobertaConfig) if roberta else (BertModel, BertConfig)
    kind(config(vocab_size=tokens, max_position_embeddings=40, pad_token_id=0, **sizes)).save_pretrained(folder)
    return folder


def _write_tokenizer(folder: Path, longest: int | None) -> int:
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    numbers = {word: number for number, word in enumerate([*special.values(), *_WORDS])}
    tokenizer = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", numbers["[CLS]"]), ("[SEP]", numbers["[SEP]"])]
    )
    length = {} if longest is None else {"model_max_length": longest}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special, **length).save_pretrained(folder)
    return len(numbers)
