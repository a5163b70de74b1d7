"""Caption metrics: BLEU, METEOR, ROUGE-L, CIDEr-D and SPICE, with the exact scores of pycocoevalcap 1.2."""
