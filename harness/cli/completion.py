"""What the shell completes: names of models in a list with commas, and presets. Imports no torch."""

from __future__ import annotations


def complete_models(incomplete: str) -> list[str]:
    """The list so far with each name, family or pattern that its last word may become."""
    from zoo.registry import list_models

    before, comma, word = incomplete.rpartition(",")
    names = list_models()
    families = sorted({f"{name.partition('/')[0]}/*" for name in names if "/" in name})
    taken = {name.strip() for name in before.split(",")}
    known = ("all", *_references(), *names, *families)
    return [f"{before}{comma}{name}" for name in known if name.startswith(word) and name not in taken]


def complete_preset(incomplete: str) -> list[str]:
    """The presets that begin so."""
    from harness.config.load import list_presets

    return [name for name in list_presets() if name.startswith(incomplete)]


def _references() -> tuple[str, ...]:
    """Rows that are not models, as `harness.benchmark.baselines.REFERENCE_ROWS` has them."""
    return ("human", "majority", "retrieval")
