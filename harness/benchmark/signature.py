"""The conditions that a score depends on, read from the objects that the run uses.

Rows whose signatures differ are never ranked together. Model and seed are not part of it: they are what is compared.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import harness
from harness.config.preset import NOT_SCORED, Decoding, Preset
from harness.config.schedule import Schedule
from harness.config.tuning import Budget, SearchSpace
from harness.data.dataset import Dataset, Sample
from harness.data.vocabularies import SubwordVocabulary
from harness.data.vocabulary import Vocabulary, preparation_label
from harness.key import LIMIT_MARK, RESULTS_REVISION
from harness.metrics.signature import DEFAULT_SETTINGS, EvaluationSettings, run_fields
from harness.utils.hashing import digest
from zoo.card import NOT_DOCUMENTED, Pretraining

NOT_APPLICABLE = "none"


def data_field(
    dataset: Dataset, skipped: Iterable[int], *, without_restval: bool = False, limit: int | None = None
) -> str:
    """Name and digest of the data as used: annotations, images and the ids that were skipped.

    `without_restval` is stated if the data set has restval images, and so is a `limit` of the images that are scored.
    """
    skipped_ids = sorted(skipped)
    field = f"{dataset.name}#{digest([dataset.fingerprint, skipped_ids], 8)}"
    if skipped_ids:
        field += f",skipped:{len(skipped_ids)}"
    if without_restval and any(sample.restval for sample in dataset.samples):
        field += ",restval:dropped"
    if limit is not None:
        field += f"{LIMIT_MARK}{limit}"
    return field


def nrefs_field(evaluated: Mapping[str, Sequence[Sample]], held_out: int = 0) -> str:
    """Number of references an image is scored against: one number or the range, by split where splits differ."""
    by_split = {split: _count_references(samples, held_out) for split, samples in evaluated.items()}
    if len(set(by_split.values())) == 1:
        return next(iter(by_split.values()))
    return ",".join(f"{split}={count}" for split, count in by_split.items())


def _count_references(samples: Sequence[Sample], held_out: int) -> str:
    counts = {len(sample.captions) - held_out for sample in samples if len(sample.captions) > held_out}
    if not counts:
        return "0"
    return str(min(counts)) if len(counts) == 1 else f"{min(counts)}-{max(counts)}"


def vocabulary_field(vocabulary: Vocabulary, min_count: int) -> str:
    """How captions become tokens: preparation, merges learnt if any, threshold, and a digest of the entries."""
    merges = f"bpe{len(vocabulary.merges)}," if isinstance(vocabulary, SubwordVocabulary) else ""
    return f"{preparation_label(vocabulary.preparation)},{merges}min{min_count}#{vocabulary.digest()[:6]}"


@dataclass(frozen=True, slots=True)
class DataFields:
    """The fields of signatures that describe the data, most of them with a digest.

    `sentences` is the source of captions' scene graphs, if a stage learns from them.
    """

    data: str
    nrefs: str
    features: str
    vocabulary: str
    sentences: str | None = None


def model_signature(
    preset: Preset, fields: DataFields, *, precision: str, evaluation: EvaluationSettings = DEFAULT_SETTINGS
) -> dict[str, str]:
    """The signature of a trained model, in display order; in the paper track with every setting of the recipe."""
    recipe = preset.recipe
    # Above all, whether the end token counts in the reward.
    rewards = ",".join(dict.fromkeys(filter(None, (stage.reward_signature() for stage in preset.schedule.stages))))
    return {
        "data": fields.data,
        "nrefs": fields.nrefs,
        **run_fields(evaluation),
        "beam": str(preset.decoding.beam_size),
        "maxlen": str(preset.decoding.max_len),
        "lenpen": f"{preset.decoding.length_penalty:g}",
        "feat": fields.features,
        "vocab": fields.vocabulary,
        "trainlen": str(preset.vocabulary.max_len),
        **training_fields(preset),
        **({"reward": rewards} if rewards else {}),
        **({} if fields.sentences is None else {"sentences": fields.sentences}),
        "prec": precision,
        "track": "controlled" if recipe is None else "paper",
        **({} if recipe is None else {"recipe": ",".join(preset.paper_deviations()) or "as-usual"}),
        "rev": str(RESULTS_REVISION),
        "v": harness.__version__,
    }


def training_fields(preset: Preset) -> dict[str, str]:
    """The fields of size and schedule, which do not depend on the data."""
    return {"size": size_field(preset), "schedule": schedule_field(preset.schedule)}


def schedule_field(schedule: Schedule) -> str:
    """Name, budget if it is not 1, and a digest of every stage: `quick*2#1a2b3c`."""
    budget = "" if schedule.budget == 1 else f"*{schedule.budget}"
    return f"{schedule.name}{budget}#{digest(schedule.model_dump(mode='json', exclude={'name', 'summary'}), 6)}"


def size_field(preset: Preset) -> str:
    """The preset's settings of size, which are the same for all models; with `parameters`, widths differ."""
    if preset.parameters is None:
        return f"{preset.name}#{digest([preset.size, preset.small_models], 6)}"
    equal = [preset.size, preset.small_models, preset.parameters]
    target = preset.parameters if isinstance(preset.parameters, str) else f"{preset.parameters / 1e6:g}M"
    return f"{preset.name}:{target}#{digest(equal, 6)}"


def tuned_field(space: SearchSpace, budget: Budget, preset: Preset) -> str:
    """How settings were tuned: trials, updates of each, and a digest of search and preset.

    If a single stage was searched, its name follows a colon. Files of captionbench 1 may have finalists by further
    seeds.
    """
    searched = [space.model_dump(mode="json"), budget.model_dump(mode="json"), preset.dump_without(NOT_SCORED)]
    finals = f"+{budget.finalists}x{budget.seeds}" if budget.finalists else ""
    stage = f":{space.stage}" if space.stage else ""
    return f"{budget.trials}x{budget.updates}{finals}#{digest(searched, 6)}{stage}"


def reference_signature(
    conditions: dict[str, str], *, nrefs: str, features: str | None = None, held_out: str | None = None
) -> dict[str, str]:
    """The signature of a reference row: the model rows' conditions without those of training and decoding.

    `held_out` describes the references that were held out and scored against the others, if any.
    """
    trained = ("beam", "maxlen", "lenpen", "feat", "vocab", "trainlen", "size", "schedule", "prec")
    unused = dict.fromkeys((*trained, *({"recipe", "reward", "sentences"} & conditions.keys())), NOT_APPLICABLE)
    left_out = {"heldout": held_out} if held_out else {}
    return conditions | unused | {"nrefs": nrefs, "feat": features or NOT_APPLICABLE} | left_out


def pretraining_field(pretraining: Pretraining | None) -> dict[str, str]:
    """The data that the weights were pretrained on; no field for weights without pretraining."""
    if pretraining is None:
        return {}
    if pretraining == NOT_DOCUMENTED:
        return {"pretraining": "not documented"}
    data_sets = ",".join(pretraining.captions_of)
    return {"pretraining": f"captions of {data_sets}" if data_sets else "no captions"}


def stored_signature(
    conditions: dict[str, str], *, key: str, decoding: Decoding, features: str, vocabulary: str
) -> dict[str, str]:
    """The signature of a stored run that is scored again; its key stands for its training.

    No two stored runs share a signature, because their trainings may differ.
    """
    unusual = ",".join(decoding.paper_deviations())
    return {name: value for name, value in conditions.items() if name not in ("reward", "sentences")} | {
        "beam": str(decoding.beam_size),
        "maxlen": str(decoding.max_len),
        "lenpen": f"{decoding.length_penalty:g}",
        "feat": features,
        "vocab": vocabulary,
        "trainlen": NOT_APPLICABLE,
        "size": "stored",
        "schedule": f"stored:{key}",
        "track": "paper",
        "recipe": unusual or "as-usual",
    }
