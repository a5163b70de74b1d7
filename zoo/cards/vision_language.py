"""Cards of vision-language models from the transformers library: pretrained, and small ones trained from scratch."""

from typing import Any

from zoo.card import ModelCard, Pretraining, variants

CARDS: list[ModelCard] = []
_SIZES = {"d_model": 16, "d_ff": 32, "n_heads": 2, "n_encoder_layers": 1, "n_decoder_layers": 2, "max_len": 12}
_TINY: dict[str, Any] = {**_SIZES, "image_size": 32, "dropout": 0.0}
_SCRATCH = {"image_size": 96}

_VISUAL_GENOME = "Visual Genome holds 51,208 of COCO's images, some of its evaluation splits among them."
_FLICKR = "SBU's photographs are from Flickr, as all of this data set are; whether any are the same is not documented."
_OPEN_IMAGES = (
    "The images of nocaps are those of Open Images, from Flickr as SBU's are; whether any of them, or copies on the "
    "web, were seen is not documented."
)

_GIT = Pretraining(
    data_sets=(
        "WIT, 400 million images with texts from the web (CLIP, its image encoder)",
        "COCO, Visual Genome, CC3M and SBU: 10 million pairs, 4 million images",
        "COCO again, in fine-tuning",
    ),
    captions="About 10 million: human ones of COCO and of regions of Visual Genome, web texts of CC3M and SBU; last, "
    "COCO's alone.",
    captions_of=("COCO", "Visual Genome", "CC3M", "SBU", "WIT"),
    overlap={
        "coco": f"{_VISUAL_GENOME} Whether the latter were left out, neither model card nor repository says.",
        "nocaps": _OPEN_IMAGES,
        "flickr30k": _FLICKR,
        "flickr8k": _FLICKR,
    },
    source="model cards of microsoft/git-base (10 million pairs) and microsoft/git-base-coco; README of "
    "microsoft/GenerativeImage2Text (4 million images, fine-tuned on COCO); Wang et al., TMLR 2022, Table 11",
)
_BLIP = Pretraining(
    data_sets=(
        "ImageNet with labels (its image encoder)",
        "texts without images (BERT, its text model)",
        "COCO, Visual Genome, CC3M, CC12M, SBU and 115 million images of LAION: 129 million images",
    ),
    captions="Human ones of COCO (567,000) and of regions of Visual Genome (821,000), and texts of some 129 "
    "million web images, filtered and mixed with synthetic ones by models fine-tuned on COCO. Whether these weights "
    "were fine-tuned on COCO last is not documented: the model card says 'pretrained on COCO dataset', and the "
    "conversion script in transformers reads the checkpoint from before fine-tuning.",
    captions_of=("COCO", "Visual Genome", "CC3M", "CC12M", "SBU", "LAION"),
    overlap={
        "coco": f"{_VISUAL_GENOME} The authors left the latter out for ALBEF, whose data the paper names; their "
        "file for BLIP has more texts (821,000, not 769,000), and whether it leaves them out is not documented.",
        "nocaps": _OPEN_IMAGES,
        "flickr30k": _FLICKR,
        "flickr8k": _FLICKR,
    },
    source="Li et al., ICML 2022, Section 4.1 and appendix; the authors in the repositories salesforce/BLIP and "
    "salesforce/ALBEF; model card of Salesforce/blip-image-captioning-base",
)
_VIT_GPT2 = Pretraining(
    data_sets=(
        "ImageNet-21k with labels (ViT, its image encoder)",
        "WebText, texts without images (GPT-2, its decoder)",
        "COCO",
    ),
    captions="COCO's; how many is not documented.",
    captions_of=("COCO",),
    overlap={
        "coco": "Which split of COCO it was trained on is not documented. COCO 2017's training split holds most images "
        "of Karpathy's test split, with their captions."
    },
    source="model card of nlpconnect/vit-gpt2-image-captioning, which names ydshieh/vit-gpt2-coco-en-ckpts as its "
    "origin",
)

_MODELS: dict[str, dict[str, Any]] = {
    "git": {
        "entry": "zoo.models.vision_language:Git",
        "arguments": {"n_decoder_layers": 6},
        "hub": "microsoft/git-base-coco",
        "pretraining": _GIT,
        "paper": "Wang et al.: GIT: A Generative Image-to-text Transformer for Vision and Language, TMLR 2022",
        "year": 2022,
        "source": "https://github.com/microsoft/GenerativeImage2Text",
        "licence": "MIT",
    },
    "blip": {
        "entry": "zoo.models.vision_language:Blip",
        "arguments": {"image_size": 384, "dropout": 0.0},
        "hub": "Salesforce/blip-image-captioning-base",
        "pretraining": _BLIP,
        "paper": "Li et al.: BLIP: Bootstrapping Language-Image Pre-training, ICML 2022",
        "year": 2022,
        "source": "https://github.com/salesforce/BLIP",
        "licence": "BSD-3-Clause",
    },
    "vit_gpt2": {
        "entry": "zoo.models.vision_language:VitGpt2",
        "arguments": {},
        "hub": "nlpconnect/vit-gpt2-image-captioning",
        "pretraining": _VIT_GPT2,
        "paper": "Dosovitskiy et al.: An Image is Worth 16x16 Words, ICLR 2021; Radford et al.: GPT-2, 2019",
        "year": 2021,
        "source": "https://github.com/huggingface/transformers",
        "licence": "Apache-2.0",
    },
}

for _name, _about in _MODELS.items():
    _hub = _about.pop("hub")
    _seen = _about.pop("pretraining")
    _about |= {"visual": "pixels", "tiny": _TINY}
    _rows: dict[str, Any] = {
        f"{_name}/pretrained": (f"{_hub}, without training here", {}),
        f"{_name}/finetuned": (f"{_hub}, trained further", {}),
    }
    CARDS += variants(_rows, **_about, hub=_hub, pretraining=_seen)
    _small = ("the architecture at a small size, trained from scratch on pixels", _SCRATCH)
    CARDS += variants({f"{_name}/small": _small}, **_about, in_all=True)
