"""What the signature's fields and the rows of references mean, in a sentence each."""

FIELDS = {
    "data": "data set, with a digest of its annotations, pictures and left-out images",
    "split": "the images that were scored",
    "subset": "the part of the split that was scored, where captions are missing",
    "ids": "position: captions named no images, and were taken in the order of the references",
    "nrefs": "reference captions per image",
    "tok": "tokenizer of captions and references before scoring",
    "df": "where CIDEr-D's document frequencies come from; split: the references of all scored images",
    "meteor": "METEOR's language, where it is not that of the tokenizer; without-paraphrases: its table is not there",
    "beam": "beam size of the decoding; 1 is greedy",
    "maxlen": "most tokens of a generated caption",
    "trainlen": "most tokens of a caption in training",
    "lenpen": "length penalty of the beam search",
    "feat": "what the models see: features with their settings, or pixels",
    "preprocessing": "in control runs of captionbench 1: how their preprocessing differs from that of the features' "
    "backbone; the resize filter, or the factor of a scaling before the resize",
    "graph": "scene graphs beside the regions: source, settings and a digest; rows without it read none",
    "vocab": "vocabulary: preparation, threshold, and a digest of its entries",
    "size": "sizes of the models, with a digest",
    "schedule": "training schedule, with a digest of every stage",
    "tuned": "settings tuned for each model: trials, updates of each, finalists by further seeds, a digest of the "
    "search; without it, none were",
    "reward": "what training rewards, where it does",
    "sentences": "scene graphs of captions that a stage learns from: parsed by rules, or of a file, with its digest",
    "pretraining": "what the weights were trained on before the run; none: nothing but what the run trains on",
    "prompt": "what a checkpoint of the hub is asked: a template's name, with a digest of text and layout",
    "search": "whose beam search decodes, where it is not captionbench's own",
    "clean": "rules that shortened what a checkpoint of the hub says, where there are any",
    "attn": "how a checkpoint of the hub computes attention, where it is not its usual way",
    "prec": "arithmetic of training, validation and captioning",
    "track": "controlled: all models trained alike; paper: each by its own paper's recipe; systems: not trained here",
    "recipe": "settings of a paper's recipe that differ from the shared ones",
    "rev": "results revision of the code: raised when the same settings may give other captions or scores",
    "v": "release of captionbench",
}

ROLES = {
    "blind": ("baseline", "A trained model that sees no image: what language alone is worth here."),
    "majority": ("baseline", "One training caption, the one that scores best, for every image; needs no training."),
    "human": (
        "human level",
        "Each reference of an image in turn, scored against the others, and the mean: it has one reference fewer. "
        "Models are scored against the same references in a small table of their own. The caption shown is the first.",
    ),
    "retrieval": ("nearest image", "The caption of the training image with the most similar features."),
}
