"""A number with its uncertainty."""

from dataclasses import dataclass, replace
from typing import Final, Self

ALPHA: Final = 0.05


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

    @property
    def is_significant(self) -> bool:
        """Whether it was tested, with p below 5 %."""
        return self.p is not None and self.p < ALPHA

    def negated(self) -> Self:
        """The difference seen from the other side."""
        value, low, high = (None if bound is None else -bound for bound in (self.value, self.high, self.low))
        return replace(self, value=value, low=low, high=high)
