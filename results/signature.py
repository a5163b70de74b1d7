"""Signatures as text: what a score depends on besides the captions, to be copied beside it, as in sacreBLEU."""

from collections.abc import Mapping


def format_signature(fields: Mapping[str, str], metric: str = "", split: str | None = None) -> str:
    """The fields of a signature in their order, after the metric and the split, where these are given.

    Example:
        >>> format_signature({"nrefs": "5", "beam": "3"}, "CIDEr-D", "test")
        'CIDEr-D|split:test|nrefs:5|beam:3'
    """
    parts = [metric] if metric else []
    if split is not None and "split" not in fields:
        parts.append(f"split:{split}")
    parts += [f"{name}:{value}" for name, value in fields.items()]
    return "|".join(parts)


def parse_signature(text: str) -> dict[str, str]:
    """The fields of a signature that `format_signature` wrote without a metric."""
    return dict(part.split(":", 1) for part in text.split("|"))


def format_fields(fields: Mapping[str, str], separator: str = ", ") -> str:
    """Some fields of a signature within a sentence.

    Example:
        >>> format_fields({"beam": "3", "track": "paper"})
        'beam: 3, track: paper'
    """
    return separator.join(f"{name}: {value}" for name, value in fields.items())
