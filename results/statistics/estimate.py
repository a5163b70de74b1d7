"""A number with its uncertainty."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % interval, in the unit of the value; `reason` says why a value or its interval is missing.

    Attributes:
        p: two-sided, where the value was tested against 0.
        n: number of images that it is of.
    """

    value: float | None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    n: int | None = None
    reason: str = ""
