"""What executing a run needs beside its spec: JSON that stands in the store, so that any process can execute it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from pydantic import ValidationError, model_validator

from harness.benchmark.identity.revision import RESULTS_REVISION
from harness.config.execution import ExecutionConfig
from harness.config.features import FeatureConfig
from harness.config.preset import Preset
from harness.config.schedule import Strict
from harness.config.tuning import AppliedTuning
from harness.data.images import without_stored_control
from harness.utils.errors import BenchError
from harness.utils.files import absolute, expanded
from results.records import RunSpec
from zoo.captioner import GraphKind, VisualKind


class Opening(Strict):
    """What is opened before any model: data, features and vocabulary, the same for all runs of a benchmark.

    Attributes:
        models: the words of `bench run --models`.
        data: as `bench run --data` takes it.
        preset: untuned.
        sees: the kind of visual input of each model of the benchmark, by its name.
        device, precision: chosen, not `auto`; a device without a number is any of its kind.
        revision: the results revision of the code that planned.
    """

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"models"})
    models: tuple[str, ...] = ()
    data: str
    images: Path | None = None
    preset: Preset
    features: FeatureConfig
    sees: Mapping[str, VisualKind]
    graphs: tuple[GraphKind, ...] = ()
    skip_bad_images: bool = False
    device: str = "cpu"
    precision: str = "fp32"
    spice: bool = False
    revision: str = str(RESULTS_REVISION)

    @model_validator(mode="before")
    @classmethod
    def _of_release_1(cls, stored: Any) -> Any:
        return without_stored_control(stored)

    def resolved(self) -> Self:
        """The same with absolute paths, for processes in other folders."""
        data = absolute(expanded(self.data))
        changed: dict[str, object] = {"features": self.features.resolved()}
        if data.exists():
            changed["data"] = str(data)
        if self.images is not None:
            changed["images"] = absolute(expanded(self.images))
        return self.model_copy(update=changed)


class RunConfig(Strict):
    """What a run's row says of its execution (`RunSpec.execution`); what is scored is in its `config`."""

    omit_if_default: ClassVar[frozenset[str]] = frozenset({"captions"})
    opening: Opening
    execution: ExecutionConfig = ExecutionConfig()
    tuned: AppliedTuning | None = None
    captions: Path | None = None

    @classmethod
    def of(cls, spec: RunSpec) -> Self:
        """Of a stored run; BenchError where the row does not say how it is executed, or not in this release's words."""
        try:
            return cls.model_validate_json(json.dumps(spec.execution))
        except ValidationError as error:
            raise BenchError(
                f"run {spec.key} does not say how it is executed: {error.errors()[0]['msg']}",
                "plan it again by the `bench run` that it is of",
            ) from error
