"""Scores of captions: BLEU, METEOR, ROUGE-L and CIDEr-D exactly as pycocoevalcap 1.2 computes them."""

from harness.metrics.evaluator import DF, METRICS, OVERALL, Evaluation, Evaluator

__all__ = ["DF", "METRICS", "OVERALL", "Evaluation", "Evaluator"]
