"""What the scores of a stage's validations are, and which may be compared."""

from __future__ import annotations

from harness.config.schedule import Stage


def gives_ciders(stage: Stage) -> bool:
    """Whether a stage's validations give CIDEr-D; those of sentence graphs give a score of their own."""
    return stage.objective != "sentence_graph"


def start_is_unknown(before: Stage, stage: Stage) -> bool:
    """Whether the stage `before` ended with no score that this one's can be compared with."""
    if not gives_ciders(before) and gives_ciders(stage) and stage.objective != "cross_entropy":
        return True
    return before.validation_beam_size != stage.validation_beam_size
