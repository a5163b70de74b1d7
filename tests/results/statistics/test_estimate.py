"""What an estimate says of itself."""

import pytest

from results.statistics.estimate import Estimate


@pytest.mark.parametrize(("p", "significant"), [(None, False), (0.05, False), (0.0499, True)])
def test_it_is_significant_below_five_percent(p: float | None, significant: bool) -> None:
    assert Estimate(0.1, p=p).is_significant == significant


def test_from_the_other_side_bounds_change_places() -> None:
    change = Estimate(0.25, -0.5, 1.0, 0.3, 60)
    assert change.negated() == Estimate(-0.25, -1.0, 0.5, 0.3, 60)
    assert change.negated().negated() == change
    assert Estimate(None, reason="one seed").negated() == Estimate(None, reason="one seed")
    assert Estimate(0.25, reason="few images").negated() == Estimate(-0.25, reason="few images")
