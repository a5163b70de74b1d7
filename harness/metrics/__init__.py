"""Caption metrics: BLEU, METEOR, ROUGE-L, CIDEr-D and SPICE, with the exact scores of pycocoevalcap 1.2."""

from harness.metrics.evaluation import METRICS, OVERALL, Evaluation
from harness.metrics.evaluator import Evaluator
from harness.metrics.report import Report, evaluate
from harness.metrics.signature import EvaluationSettings, Signature

__all__ = [
    "METRICS",
    "OVERALL",
    "Evaluation",
    "EvaluationSettings",
    "Evaluator",
    "Report",
    "Signature",
    "evaluate",
]
