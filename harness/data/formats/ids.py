"""Ids of images: whole numbers of 64 bits, as results databases and arrays hold them."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeGuard

from harness.utils.errors import BenchError

WHOLE_NUMBER: Final = "whole number of 64 bits"
_MAX_ID: Final = 2**63
_SHOWN: Final = 10


def is_image_id(value: object) -> TypeGuard[int]:
    """Whether a JSON value is a whole number of 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and -_MAX_ID <= value < _MAX_ID


def whole_number(value: object) -> int | None:
    """The id as a whole number, also from a text of digits with leading zeros; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,19}", value):
        value = int(value)
    return value if is_image_id(value) else None


def named(ids: Sequence[str], description: str, noun: str = "image") -> str:
    """The count and the first ten of `ids`."""
    ellipsis = ", ..." if len(ids) > _SHOWN else ""
    count = f"1 {noun}" if len(ids) == 1 else f"{len(ids)} {noun}s"
    return f"{count} {description} ({', '.join(ids[:_SHOWN])}{ellipsis})"


def image_ids(path: Path, images: Iterable[Mapping[str, Any]], key: str) -> list[int]:
    """The ids of a file's images, in its order; BenchError if one is missing, or there twice."""
    ids = [image.get(key) for image in images]
    valid = list(filter(is_image_id, ids))
    if invalid := [f"entry {index}" for index, image_id in enumerate(ids) if not is_image_id(image_id)]:
        description = f'without a {WHOLE_NUMBER} as "{key}"'
        raise BenchError(f"{path}: {named(invalid, description)}")
    if repeated := [str(image_id) for image_id, count in Counter(valid).items() if count > 1]:
        raise BenchError(f"{path}: {named(repeated, 'listed more than once')}")
    return valid
