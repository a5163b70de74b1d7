"""From the rows of a benchmark to the configuration of every run, and to what its row says of it."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import harness
from harness.benchmark.baselines import REFERENCE_ROWS
from harness.benchmark.context import BenchmarkData, RunContext
from harness.benchmark.hub_model import HubModel
from harness.benchmark.pretrained import Pretrained, folder_name, published_signature
from harness.benchmark.rows import RequestedModel
from harness.benchmark.saved_model import VOCABULARY, SavedModel
from harness.benchmark.signature import (
    nrefs_field,
    pretraining_field,
    reference_signature,
    schedule_field,
    size_field,
    stored_signature,
)
from harness.config.load import shipped_preset
from harness.config.preset import Preset
from harness.config.run import (
    CaptionsRun,
    Conditions,
    EnsembleRun,
    HubRun,
    MadeFrom,
    PretrainedRun,
    ReferenceRun,
    RunBase,
    RunConfig,
    StoredRun,
    TrainedRun,
)
from harness.config.tuning import AppliedTuning, Tuned, tuned_preset
from harness.data.regions.opening import needs_backbone
from harness.data.vocabularies import load_vocabulary
from harness.key import code_of, code_of_hub, code_of_model, run_key
from harness.utils.hashing import canonical_json, digest
from harness.utils.workspace import Workspace
from results.records import CodeRecord, RunSpec
from zoo import ModelCard, Pretraining, model_card


@dataclass(frozen=True)
class Planner:
    """Makes the runs of a benchmark: all that they have in common, and what they are made of.

    Attributes:
        conditions: of all runs; its preset is neither tuned nor under a budget.
        context: opened for these conditions.
        reuse: gives the finished runs that stand for members of ensembles.
    """

    conditions: Conditions
    context: RunContext
    workspace: Workspace
    tuned: Tuned | None = None
    reuse: Callable[[list[RunSpec]], list[RunSpec]] = list

    def plan(
        self, models: Sequence[RequestedModel], seeds: int, *, first_seed: int = 0, budgets: Sequence[int] = (1,)
    ) -> list[RunSpec]:
        """The runs in the order of execution: reference rows, then seed by seed, so that every model has a row early.

        Untrained rows come once, with the first seed. Trained ones come budget by budget, ascending. Ensembles come
        last: as many as the seeds are enough for, and one at least.
        """
        first = sorted((model for model in models if not model.parts), key=lambda model: model.kind != "reference")
        specs = []
        for budget in budgets:
            for seed in range(first_seed, first_seed + seeds):
                for model in first:
                    if model.kind == "trained":
                        specs.append(self.run(model, seed, budget))
                    elif (budget, seed) == (budgets[0], first_seed):
                        specs.append(self.run(model, 0))
        for model in models:
            if not model.parts:
                continue
            # Of stored runs alone all would be the same one.
            seeded = any(part.kind == "trained" for part in model.models)
            count = max(1, seeds // max(count for _, count in model.parts)) if seeded else 1
            for budget in budgets if seeded else budgets[:1]:
                specs += [self._ensemble(model, first_seed, index, budget) for index in range(count)]
        return specs

    def run(self, model: RequestedModel, seed: int, budget: int = 1) -> RunSpec:
        """One run of a row that is no ensemble."""
        tuning = None
        if model.kind == "trained" and self.tuned is not None:
            tuning = self.tuned.of(model.name)
        preset, made_from = self._preset(budget, tuning)
        common = self._common(preset, made_from)
        files = self.conditions.files
        context = self.context.with_preset(preset, made_from)
        config: RunConfig
        match model.kind:
            case "trained" if model.weights is None:
                arguments = _arguments(model.name, preset, context)
                config = TrainedRun(model=model.name, seed=seed, arguments=arguments, **common)
            case "trained" | "pretrained":
                assert model.weights is not None
                common["files"] = files.model_copy(update={"checkpoint": model.weights.local_folder()})
                name = model.weights.name()
                if model.kind == "trained":
                    config = TrainedRun(model=model.name, seed=seed, weights=name, **common)
                else:
                    config = PretrainedRun(model=model.name, weights=name, **common)
            case "hub":
                assert model.hub is not None
                config = model.hub.run(common)
            case "captions":
                assert model.captions is not None
                config = model.captions.run(common)
            case "stored":
                config = StoredRun(model=model.name, **common)
            case "reference":
                config = ReferenceRun(model=model.name, **common)
            case "ensemble":
                raise ValueError(f"{model.name} is an ensemble")
        signature, code = describe(config, context, self.workspace)
        record = record_of(config, context, self.workspace)
        if model.captions is not None:
            record = {"card": model.captions.record(context.data.dataset.name)}
        if tuning is not None and self.tuned is not None:
            record |= self.tuned.record(model.name, self.conditions.preset)
        return make_spec(config, signature, code, record)

    def _preset(self, budget: int, tuning: AppliedTuning | None) -> tuple[Preset, MadeFrom]:
        """The preset that is executed, and how it came about."""
        requested = self.conditions.preset
        untuned = requested.model_copy(
            update={"schedule": requested.schedule.times(budget), "features": None, "seeds": 1}
        )
        preset = untuned
        if tuning is not None:
            preset = tuned_preset(untuned, tuning.values, tuning.stages)
        shipped = shipped_preset(preset)
        made_from = MadeFrom(
            preset=requested.name,
            digest=shipped["digest"],
            deviations=tuple(shipped["deviations"]),
            schedule=schedule_field(untuned.schedule),
            size=size_field(untuned),
            budget=budget,
            tuned=tuning,
        )
        return preset, made_from

    def _common(self, preset: Preset, made_from: MadeFrom) -> dict[str, Any]:
        """The fields of every kind of run."""
        conditions = self.conditions
        return {
            "data": conditions.data.model_copy(update={"name": self.context.data.fields.data}),
            "features": conditions.features,
            "preset": preset,
            "precision": conditions.precision,
            "tokenizer": conditions.tokenizer,
            "language": conditions.language,
            "files": conditions.files,
            "execution": conditions.execution,
            "made_from": made_from,
        }

    def _ensemble(self, model: RequestedModel, first: int, index: int, budget: int) -> RunSpec:
        """Runs together, the `number`th of such ensembles: no two of a row share a seed of a trained model."""
        members = self.reuse(
            [
                self.run(part, first + index * count + seed, budget)
                for part, count in model.parts
                for seed in range(count)
            ]
        )
        presets = [(member.config or {}).get("preset") for member in members]
        preset, made_from = self._preset(budget, None)
        if presets[0] is not None and all(other == presets[0] for other in presets):
            preset = Preset.model_validate(presets[0])
        keys = tuple(member.model if member.kind == "stored" else member.key for member in members)
        config = EnsembleRun(model=model.name, seed=first + index, members=keys, **self._common(preset, made_from))
        signature, code = describe_members(members)
        return make_spec(config, signature, code, record_of_members(model.name, members))


def make_spec(config: RunConfig, signature: dict[str, str], code: CodeRecord, record: dict[str, Any]) -> RunSpec:
    """A planned run as the store keeps it."""
    return RunSpec(
        key=run_key(config, signature, code),
        model=config.model,
        role="reference" if config.kind == "reference" else "model",
        seed=config.seed,
        track=signature["track"],
        dataset=config.data.name,
        signature=signature,
        record=record,
        config=config.model_dump(mode="json"),
        code_version=harness.__version__,
        code=code,
        kind=config.kind,
    )


def describe(config: RunConfig, context: RunContext, workspace: Workspace) -> tuple[dict[str, str], CodeRecord]:
    """The conditions that a run's score depends on, and its code, from what it opens; not of an ensemble."""
    conditions = context.signature
    data = context.data
    match config:
        case TrainedRun(weights=None):
            return _trained_signature(config, context), code_of_model(config.model, config.arguments)
        case TrainedRun() | PretrainedRun():
            weights = published_weights(config)
            trained = config.kind == "trained"
            name = folder_name(weights.where)
            signature = published_signature(conditions, name, weights.pretraining(), trained=trained)
            return signature, code_of_model(config.model, {})
        case HubRun():
            return HubModel.of(config).signature(conditions), code_of_hub()
        case CaptionsRun():
            signature = reference_signature(conditions, nrefs=nrefs_field(data.evaluated)) | {"track": "captions"}
            if config.subset:
                signature["subset"] = config.subset
            if config.named_by is None:
                signature["ids"] = "position"
            return signature, code_of({})
        case StoredRun():
            return _stored_signature(config, context, workspace)
        case ReferenceRun():
            human = config.model == "human"
            signature = reference_signature(
                conditions,
                nrefs=nrefs_field(data.evaluated, held_out=int(human)),
                features=conditions["feat"] if config.model == "retrieval" else None,
                held_out="each" if human else None,
            )
            return signature, code_of({})
        case EnsembleRun():
            raise ValueError("an ensemble is described by its members")


def describe_members(members: Sequence[RunSpec]) -> tuple[dict[str, str], CodeRecord]:
    """As `describe`, of several runs together."""
    signature = {
        field: "+".join(dict.fromkeys(member.signature[field] for member in members if field in member.signature))
        for field in dict.fromkeys(field for member in members for field in member.signature)
    }
    codes = [member.code for member in members if member.code is not None]
    code = replace(
        codes[0],
        model=digest(sorted({code.model or "" for code in codes}), 10),
        files={path: file_digest for code_record in codes for path, file_digest in code_record.files.items()},
    )
    return signature, code


def record_of(config: RunConfig, context: RunContext, workspace: Workspace) -> dict[str, Any]:
    """What only describes a run, for reports; of captions and ensembles nothing."""
    match config:
        case TrainedRun(weights=None):
            _, unmatched = config.preset.matched_widths(config.model, **context.sizes)
            evaluated = {split: len(samples) for split, samples in context.data.evaluated.items()}
            described = {"card": _card(config.model, model_card(config.model).pretraining), "evaluated": evaluated}
            return {**described, "unmatched": unmatched} if unmatched else described
        case TrainedRun() | PretrainedRun():
            return {"card": _card(config.model, published_weights(config).pretraining())}
        case HubRun():
            return {"card": HubModel.of(config).card()}
        case StoredRun():
            saved = SavedModel.load(workspace.run_folder(config.model))
            card = _card(saved.model, _pretraining_of(saved))
            return {"card": card, "arguments": saved.arguments, "stored": saved.model_dump(mode="json")}
        case ReferenceRun():
            return {"what": REFERENCE_ROWS[config.model]}
        case CaptionsRun() | EnsembleRun():
            return {}


def published_weights(config: RunBase) -> Pretrained:
    """The published weights of a run."""
    assert isinstance(config, TrainedRun | PretrainedRun)
    assert config.weights is not None
    folder = config.files.checkpoint
    return Pretrained(config.model, config.weights if folder is None else str(folder))


def _arguments(model: str, preset: Preset, context: RunContext) -> dict[str, Any]:
    """The arguments that a model is created with under a preset, on these data."""
    card = model_card(model)
    data = context.data
    arguments = preset.model_arguments(model, **context.sizes)
    if card.visual == "regions+grid" and data.grid is not None and data.grid.dim != data.visual_dim:
        arguments = {**arguments, "grid_dim": data.grid.dim}
    if card.graph != "none" and data.graphs is not None:  # sizes that follow from the scene graphs it reads
        count = len(context.graph_entries(card.graph))
        sizes = {"n_graph_words": count} if card.graph == "words" else {"n_labels": 1 + count}
        arguments = {**arguments, **sizes}
    plain: dict[str, Any] = json.loads(canonical_json(arguments))  # a row keeps lists, not tuples
    return plain


def _trained_signature(config: TrainedRun, context: RunContext) -> dict[str, str]:
    card = model_card(config.model)
    signature = context.signature | pretraining_field(card.pretraining)
    if card.visual == "pixels" and not card.has_backbone:  # it learns to see by itself
        signature["feat"] = f"pixels[{context.inputs.preprocessing.key()}]"
    else:
        signature["feat"] = _seen(card, signature["feat"], context.data)
    return signature | _graph_field(card, context.data)


def _seen(card: ModelCard, features: str, data: BenchmarkData) -> str:
    """The features that a model sees: of two streams more than the others do, so that it is not ranked among them.

    A grid that regions were cut from is the backbone's, which the features name; one of a file has a digest of its own.
    """
    if card.visual != "regions+grid":
        return features
    regions = data.feature_config.regions
    grid = data.grid
    of_file = grid is not None and regions is not None and not needs_backbone(regions.source)
    return f"{features}+grid#{grid.digest[:8]}" if grid is not None and of_file else f"{features}+grid"


def _graph_field(card: ModelCard, data: BenchmarkData) -> dict[str, str]:
    """The scene graphs that a model reads; no field for those that read none."""
    return {} if card.graph == "none" or data.graphs is None else {"graph": data.graphs.described[card.graph]}


def _stored_signature(
    config: StoredRun, context: RunContext, workspace: Workspace
) -> tuple[dict[str, str], CodeRecord]:
    folder = workspace.run_folder(config.model)
    saved = SavedModel.load(folder)
    card = model_card(saved.model)
    features = f"pixels[{saved.preprocessing.key()}]"
    if card.visual != "pixels":
        features = _seen(card, context.signature["feat"], context.data)
    signature = stored_signature(
        context.signature,
        key=config.model,
        decoding=saved.decoding,
        features=features,
        vocabulary=f"stored#{load_vocabulary(folder / VOCABULARY).digest()[:6]}",
    )
    signature |= pretraining_field(_pretraining_of(saved)) | _graph_field(card, context.data)
    return signature, code_of_model(saved.model, saved.arguments)


def _pretraining_of(saved: SavedModel) -> Pretraining | None:
    card = model_card(saved.model)
    published = Pretrained(saved.model, saved.pretrained or card.hub).pretraining() if card.hub else card.pretraining
    return saved.pretraining or published


def record_of_members(name: str, members: Sequence[RunSpec]) -> dict[str, Any]:
    """What reports say of an ensemble: what its members have in common, and the card of the first."""
    names = list(dict.fromkeys(member.model for member in members))
    cards = [member.record["card"] for member in members]
    pretrainings = [pretraining for card in cards if (pretraining := card.get("pretraining"))]
    card = {
        **cards[0],
        **({"pretraining": _seen_by_any(pretrainings)} if pretrainings else {}),
        "name": name,
        "family": cards[0]["family"] if len(names) == 1 else "ensemble",
        "model": names[0] if len(names) == 1 else "",
        "summary": f"The mean of {len(members)} models' probabilities at each word: {', '.join(names)}.",
    }
    evaluated = members[0].record.get("evaluated")
    return {"card": card} if evaluated is None else {"card": card, "evaluated": evaluated}


def _seen_by_any(pretrainings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The pretraining of several models together: what any of them has seen."""
    return {
        **{
            name: list(dict.fromkeys(data_set for pretraining in pretrainings for data_set in pretraining[name]))
            for name in ("data_sets", "captions_of")
        },
        **{
            name: "; ".join(dict.fromkeys(pretraining[name] for pretraining in pretrainings))
            for name in ("captions", "source")
        },
        "overlap": {data: why for pretraining in pretrainings for data, why in pretraining["overlap"].items()},
    }


def _card(model: str, pretraining: Pretraining | None) -> dict[str, Any]:
    """What reports say of a model, kept with its results: they need neither registry nor the plug-in it came from.

    `pretraining` is that of the weights which the run was given.
    """
    card = model_card(model)
    described = {name: getattr(card, name) for name in ("name", "paper", "year", "source", "summary", "visual")}
    pretraining_field = {} if pretraining is None else {"pretraining": asdict(pretraining)}
    return {"family": model.partition("/")[0], **described, **pretraining_field}
