"""Read scores of `bench evaluate --out`, to compare other scores with them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from harness.utils.errors import BenchError
from results.comparison.evaluations import differing_conditions
from results.files import read_model
from results.statistics.image_scores import ImageScores

_HINT: Final = "bench evaluate CAPTIONS --references FILE --out scores.json writes one"


class StoredScores(BaseModel):
    """The fields of scores.json that a comparison needs; images are named as in the references."""

    model_config = ConfigDict(frozen=True, allow_inf_nan=False, strict=True)
    signature: str = Field(min_length=1, pattern=r"^[^|:]+:[^|]*(\|[^|:]+:[^|]*)*$")
    scores: dict[str, float | None]
    reasons: dict[str, str]
    per_image: dict[str, dict[str, float]]
    influences: dict[str, dict[str, float]] = Field(default_factory=dict)

    def image_scores(self, ids: Mapping[str, int]) -> ImageScores:
        """The scores with image ids for the names in `ids`; BenchError where a metric has other images."""
        for metric, by_image in (*self.per_image.items(), *self.influences.items()):
            if by_image.keys() != ids.keys():
                raise BenchError(f"its {metric} is of other images", _HINT)
        for metric, score in self.scores.items():
            if score is not None and metric not in self.per_image:
                raise BenchError(f"it has no {metric} of single images", _HINT)
        return ImageScores(
            signature=self.signature,
            scores={metric: score for metric, score in self.scores.items() if score is not None},
            reasons=self.reasons,
            per_image=_by_id(self.per_image, ids),
            influences=_by_id(self.influences, ids),
        )


def read_scores(path: Path) -> StoredScores:
    """Read scores.json; StoreError where it cannot be read, or is another file."""
    return read_model(StoredScores, path, "file of scores", _HINT)


def refuse_other_conditions(name: str, before: str, after: str, hint: str) -> None:
    """BenchError where the signature `before`, of `name`, differs from `after` in what every score depends on."""
    if differing := differing_conditions(before, after):
        fields = ", ".join(
            f"{field} is {before_value}, not {after_value}" for field, (before_value, after_value) in differing.items()
        )
        raise BenchError(f"{name} was scored under other conditions: {fields}", hint)


def _by_id(numbers: Mapping[str, Mapping[str, float]], ids: Mapping[str, int]) -> dict[str, dict[int, float]]:
    return {metric: {ids[image]: value for image, value in by_image.items()} for metric, by_image in numbers.items()}
