"""Compute further metrics of captions; one that cannot be measured is None, with a reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from harness.data.hub import HubWeights
from harness.data.images import BadImage
from harness.metrics.chair import CHAIR, UNKNOWN, KnownObjects, chair, objects_of_coco
from harness.metrics.more.diversity import NAMES as WORD_NAMES
from harness.metrics.more.diversity import measure_diversity, measure_self_cider
from harness.metrics.more.measured import BERT_NAME, CLIP_NAMES, Measured, measured, not_measured, stored_name
from harness.metrics.ptb import python_tokenizer
from harness.metrics.signature import DEFAULT_SETTINGS, EvaluationSettings
from harness.utils.errors import BenchError
from results.metrics import base_name
from results.records import Quantity
from zoo.errors import ZooError

if TYPE_CHECKING:
    import torch

    from harness.metrics.more.bert import BertScorer
    from harness.metrics.more.clip import ClipScorer

T = TypeVar("T")

NO_CLIP: Final = "no CLIP model is named: --clip FOLDER, or --clip openai/clip-vit-large-patch14"
NO_BERT: Final = "no BERT model is named: --bert FOLDER, or --bert FacebookAI/roberta-large"
_ENGLISH_OBJECTS: Final = "the words of its objects are English"
_NOTHING_NAMED: Final = "no caption names an object of the list"


@dataclass(frozen=True)
class MoreSettings:
    """Models and files of further metrics. Without a model, CLIPScore or BERTScore is None."""

    clip: HubWeights | None = None
    bert: HubWeights | None = None
    instances: tuple[Path, ...] = ()

    @classmethod
    def parse(cls, clip: str | None, bert: str | None, instances: Sequence[Path]) -> MoreSettings:
        """From the options `--clip`, `--bert` and `--instances`; BenchError where one is invalid."""
        return cls(
            None if clip is None else HubWeights.parse("--clip", clip),
            None if bert is None else HubWeights.parse("--bert", bert),
            tuple(instances),
        )

    def missing_reasons(self, values: Mapping[str, Quantity], *requested: str) -> dict[str, str]:
        """The reasons, by stored name, of metrics that are None although requested.

        Metrics are requested by these settings, or by name.
        """
        names = set(requested)
        if self.clip:
            names.update(CLIP_NAMES)
        if self.bert:
            names.add(BERT_NAME)
        if self.instances:
            names.update(CHAIR.names)
        return {
            name: quantity.reason or ""
            for name, quantity in values.items()
            if quantity.value is None and base_name(name) in names
        }


@dataclass(frozen=True)
class ScoredCaptions:
    """A system's captions with the data that metrics need, all by image id.

    Attributes:
        references: without the captions themselves.
        sets: several captions per image, for self-CIDEr.
        images: image files.
    """

    captions: Mapping[int, str]
    references: Mapping[int, Sequence[str]]
    sets: Mapping[int, Sequence[str]] = field(default_factory=dict)
    images: Mapping[int, Path] = field(default_factory=dict)


class MoreEvaluator:
    """Computes further metrics of systems, one after another; models are opened once, on first use.

    Args:
        objects: those of the data set, if known; COCO's objects in `settings` replace them (BenchError where their
            file cannot be used).
        words: tokenizer and language of the captions.
    """

    def __init__(
        self,
        settings: MoreSettings,
        objects: KnownObjects | None,
        device: str | None = None,
        *,
        words: EvaluationSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.settings = settings
        self._device = device
        self._tokenize = python_tokenizer(words.tokenizer)
        self._is_english = words.is_english
        self.objects = objects_of_coco(settings.instances) if settings.instances else objects

    def measure(self, system: ScoredCaptions) -> Measured:
        """Every metric of `results.metrics`, in its order."""
        captions = system.captions
        references = system.references
        results = measure_diversity(captions, self._tokenize)
        results |= measure_self_cider(system.sets, references, self._tokenize)
        if self._is_english:
            results |= measure_hallucination(captions, references, self.objects)
        else:
            results |= not_measured(CHAIR.names, _ENGLISH_OBJECTS)
        bert = self._bert
        by_bert = bert if isinstance(bert, Measured) else bert.measure(captions, references)
        return results | self._by_clip(system) | by_bert

    def names(self) -> set[str]:
        """The stored names of all metrics that these settings can measure with one caption per image."""
        stored_names = set(WORD_NAMES)
        if self.objects is not None and self._is_english:
            stored_names |= {stored_name(name, f"objects:{self.objects.label}") for name in CHAIR.names}
        for scorer, weights, names in (
            (self._clip, self.settings.clip, CLIP_NAMES),
            (self._bert, self.settings.bert, (BERT_NAME,)),
        ):
            if isinstance(scorer, Measured):
                stored_names |= scorer.values.keys() if weights is not None else set()
            else:
                stored_names |= {stored_name(name, scorer.depends_on) for name in names}
        return stored_names

    @cached_property
    def _clip(self) -> ClipScorer | Measured:
        """The model, or None for its metrics where there is no model."""
        if self.settings.clip is None:
            return not_measured(CLIP_NAMES, NO_CLIP)
        from harness.metrics.more.clip import ClipScorer

        return _opened(ClipScorer, self.settings.clip, self._device, CLIP_NAMES)

    @cached_property
    def _bert(self) -> BertScorer | Measured:
        if self.settings.bert is None:
            return not_measured([BERT_NAME], NO_BERT)
        from harness.metrics.more.bert import BertScorer

        return _opened(BertScorer, self.settings.bert, self._device, [BERT_NAME])

    def _by_clip(self, system: ScoredCaptions) -> Measured:
        scorer = self._clip
        if isinstance(scorer, Measured):
            return scorer
        try:
            return scorer.measure(system.captions, system.references, system.images)
        except BadImage as error:
            return not_measured(CLIP_NAMES, f"an image cannot be read: {error}", scorer.depends_on)


def _opened(
    scorer: Callable[[HubWeights, torch.device], T], weights: HubWeights, device: str | None, names: Sequence[str]
) -> T | Measured:
    """The scorer, or None for its metrics, with the reason and a hint, where it cannot be opened."""
    import torch

    torch_device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        return scorer(weights, torch_device)
    except (BenchError, ZooError) as error:
        reason = f"{error} ({error.hint})" if error.hint else str(error)
        return not_measured(names, reason, f"{weights.option.removeprefix('--')}:{weights.display_name}")


def measure_hallucination(
    captions: Mapping[int, str], references: Mapping[int, Sequence[str]], objects: KnownObjects | None
) -> Measured:
    """CHAIR-i and CHAIR-s; None where the objects of an image are unknown."""
    if objects is None:
        return not_measured(CHAIR.names, UNKNOWN)
    depends_on = f"objects:{objects.label}"
    reason = objects.missing_reason(captions)
    if reason is not None:
        return not_measured(CHAIR.names, reason, depends_on)
    statistics = chair(captions, {image_id: references[image_id] for image_id in captions}, objects)
    results = measured(statistics, list(captions), depends_on, means=["CHAIR-s"])
    if not statistics.values[:, 1].any():
        results.values[stored_name("CHAIR-i", depends_on)] = Quantity(None, _NOTHING_NAMED)
    return results
