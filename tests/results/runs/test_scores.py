"""The scores of a run in long form."""

from results.records import Quantity
from results.runs.scores import OVERALL, RunScores, ScoreKey

SCORES = RunScores(
    {
        ScoreKey("test", OVERALL, "CIDEr-D"): Quantity(0.5),
        ScoreKey("test", "near", "CIDEr-D"): Quantity(0.75),
        ScoreKey("test", OVERALL, "caption_words"): Quantity(9.5),
        ScoreKey("test", OVERALL, "facts-F (object)"): Quantity(0.25),
        ScoreKey("test", "far", "facts-F (object)"): Quantity(0.125),
        ScoreKey("nocaps", OVERALL, "caption_words"): Quantity(8.5),
    }
)


def test_a_split_has_usual_metrics() -> None:
    assert SCORES.splits == ["test"]
    assert SCORES.by_domain("test") == {OVERALL: {"CIDEr-D": Quantity(0.5)}, "near": {"CIDEr-D": Quantity(0.75)}}


def test_kinds_of_metrics_stand_apart() -> None:
    assert SCORES.metrics("test", kind="further") == {"caption_words": Quantity(9.5)}
    assert SCORES.metrics("test", "far", "fact") == {"facts-F (object)": Quantity(0.125)}
    assert SCORES.domains("test", "fact") == [OVERALL, "far"]
    assert SCORES.metrics("nocaps") == {}


def test_a_score_is_found_by_what_it_is_of() -> None:
    assert SCORES.get("test", "CIDEr-D") == Quantity(0.5)
    assert SCORES.get("test", "CIDEr-D", "near") == Quantity(0.75)
    assert SCORES.get("test", "METEOR") is None
    assert list(SCORES.only(["CIDEr-D"]).rows) == [("test", OVERALL, "CIDEr-D"), ("test", "near", "CIDEr-D")]
