"""Metrics beside the usual ones: diversity, hallucinated objects, and scores by CLIP and BERT models."""
