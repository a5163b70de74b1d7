"""CIDEr-D of a domain with the document frequencies of the split and with its own: both, always."""

from __future__ import annotations

from typing import Any

import pytest

from harness.metrics.contract import METRICS, OVERALL
from harness.metrics.evaluator import Evaluator, with_intervals
from harness.metrics.rounds import held_out_rounds
from harness.metrics.signature import EvaluationSettings

BY_DOMAIN, BY_SPLIT = "CIDEr-D (df:domain)", "CIDEr-D (df:split)"


@pytest.fixture
def some(coco: Any) -> tuple[dict[int, Any], dict[int, str], dict[int, str]]:
    """Sixty images of two domains, with references and captions."""
    ids = list(coco.references)[:60]
    domains = {image: "in-domain" if number % 3 else "out-domain" for number, image in enumerate(ids)}
    return {i: coco.references[i] for i in ids}, {i: coco.candidates[i] for i in ids}, domains


def evaluator(domain_df: Any) -> Evaluator:
    """Without METEOR."""
    return Evaluator(settings=EvaluationSettings(meteor=False, domain_df=domain_df))


def test_each_setting_gives_the_other_s_score_under_a_name_of_its_own(some: Any) -> None:
    with evaluator("all") as shared, evaluator("subset") as alone:
        one, other = shared.evaluate(*some), alone.evaluate(*some)
        references, captions, domains = some
        for domain in ("in-domain", "out-domain"):
            members = [image for image, name in domains.items() if name == domain]
            separate = shared.evaluate({i: references[i] for i in members}, {i: captions[i] for i in members})
            assert one.scores[domain][BY_DOMAIN].value == pytest.approx(
                separate.scores[OVERALL]["CIDEr-D"].value, abs=1e-12, rel=0
            )
            assert one.scores[domain][BY_DOMAIN] == other.scores[domain]["CIDEr-D"]
            assert one.scores[domain]["CIDEr-D"] == other.scores[domain][BY_SPLIT]
            assert one.scores[domain]["CIDEr-D"] != one.scores[domain][BY_DOMAIN]
            assert list(one.scores[domain]) == [*METRICS, BY_DOMAIN]
    assert list(one.scores[OVERALL]) == list(METRICS)
    assert set(one.per_image) <= set(METRICS)


def test_both_have_intervals_and_people_have_both(some: Any) -> None:
    references, captions, domains = some
    with evaluator("all") as found:
        score = with_intervals(found.evaluate(references, captions, domains))
        people = found.evaluate_rounds(references, {}, domains, lambda tokens, _: held_out_rounds(tokens))
    for domain in ("in-domain", "out-domain"):
        low, value, high = (getattr(score.scores[domain][BY_DOMAIN], name) for name in ("low", "value", "high"))
        assert low < value < high
        assert people.scores[domain][BY_DOMAIN].value != people.scores[domain]["CIDEr-D"].value
