"""All further metrics of one system's captions; each that cannot be measured is NULL, with the reason and a hint."""

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
    """What further metrics are computed with; picklable. Without a model for CLIPScore or BERTScore these are NULL."""

    clip: HubWeights | None = None
    bert: HubWeights | None = None
    instances: tuple[Path, ...] = ()

    @classmethod
    def parse(cls, clip: str | None, bert: str | None, instances: Sequence[Path]) -> MoreSettings:
        """From the options `--clip`, `--bert` and `--instances`; BenchError where one names nothing."""
        return cls(
            None if clip is None else HubWeights.parse("--clip", clip),
            None if bert is None else HubWeights.parse("--bert", bert),
            tuple(instances),
        )

    def lacking(self, found: Mapping[str, Quantity], *also: str) -> dict[str, str]:
        """By stored name, why a metric that was asked for, by a model or file or in `also`, is NULL."""
        named = ((self.clip, CLIP_NAMES), (self.bert, (BERT_NAME,)), (self.instances, CHAIR.names), (True, also))
        asked = {name for given, names in named if given for name in names}
        return {
            name: quantity.reason or ""
            for name, quantity in found.items()
            if quantity.value is None and base_name(name) in asked
        }


@dataclass(frozen=True)
class ScoredCaptions:
    """A system's captions, by image id, with references but themselves, `sets` for self-CIDEr, and the pictures."""

    captions: Mapping[int, str]
    references: Mapping[int, Sequence[str]]
    sets: Mapping[int, Sequence[str]] = field(default_factory=dict)
    images: Mapping[int, Path] = field(default_factory=dict)


class MoreEvaluator:
    """Computes the further metrics of one system after another; models are opened once, on first use.

    COCO's objects of `settings`, BenchError where their file cannot be used, go before `objects` of the data set.
    `words` say how captions become words, and in which language they are.
    """

    def __init__(
        self,
        settings: MoreSettings,
        objects: KnownObjects | None,
        device: str | None = None,
        *,
        words: EvaluationSettings = DEFAULT_SETTINGS,
    ) -> None:
        self.settings, self._device = settings, device
        self._tokenize, self._is_english = python_tokenizer(words.tokenizer), words.is_english
        self.objects = objects_of_coco(settings.instances) if settings.instances else objects

    def measure(self, system: ScoredCaptions) -> Measured:
        """Every metric of `results.metrics`, in its order."""
        captions, references = system.captions, system.references
        found = measure_diversity(captions, self._tokenize)
        found |= measure_self_cider(system.sets, references, self._tokenize)
        if self._is_english:
            found |= measure_hallucination(captions, references, self.objects)
        else:
            found |= not_measured(CHAIR.names, _ENGLISH_OBJECTS)
        bert = self._bert
        by_bert = bert if isinstance(bert, Measured) else bert.measure(captions, references)
        return found | self._by_clip(system) | by_bert

    def names(self) -> set[str]:
        """The stored names of what a caption of each image has a value of, as far as models and files are named."""
        found = set(WORD_NAMES)
        if self.objects is not None and self._is_english:
            found |= {stored_name(name, f"objects:{self.objects.label}") for name in CHAIR.names}
        for scorer, named, names in (
            (self._clip, self.settings.clip, CLIP_NAMES),
            (self._bert, self.settings.bert, (BERT_NAME,)),
        ):
            if isinstance(scorer, Measured):
                found |= scorer.values.keys() if named is not None else set()
            else:
                found |= {stored_name(name, scorer.depends_on) for name in names}
        return found

    @cached_property
    def _clip(self) -> ClipScorer | Measured:
        """The model, or the NULLs that there are without it."""
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
    """The model, or why there is none and what to type."""
    import torch

    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        return scorer(weights, place)
    except (BenchError, ZooError) as error:
        said = f"{error} ({error.hint})" if error.hint else str(error)
        return not_measured(names, said, f"{weights.option.removeprefix('--')}:{weights.asked}")


def measure_hallucination(
    captions: Mapping[int, str], references: Mapping[int, Sequence[str]], objects: KnownObjects | None
) -> Measured:
    """CHAIR-i and CHAIR-s; NULL where the objects of an image are unknown."""
    if objects is None:
        return not_measured(CHAIR.names, UNKNOWN)
    depends_on = f"objects:{objects.label}"
    if reason := objects.lacking(captions):
        return not_measured(CHAIR.names, reason, depends_on)
    statistics = chair(captions, {image_id: references[image_id] for image_id in captions}, objects)
    found = measured(statistics, list(captions), depends_on, means=["CHAIR-s"])
    if not statistics.values[:, 1].any():
        found.values[stored_name("CHAIR-i", depends_on)] = Quantity(None, _NOTHING_NAMED)
    return found
