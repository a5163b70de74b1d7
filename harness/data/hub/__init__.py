"""Weights, image processors and tokenizers of the Hugging Face hub."""
