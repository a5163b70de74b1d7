"""No setting that may move a score is outside the run key, and none that makes rows incomparable is unsigned."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
import torch
from pydantic import BaseModel, ValidationError

from harness.benchmark.context import open_context
from harness.benchmark.plan_runs import Planner
from harness.benchmark.rows import resolve_models
from harness.config.experiment import Experiment
from harness.config.features import FEATURES_NOT_IN_KEY, FeatureConfig
from harness.config.load import load_preset
from harness.config.preset import NOT_IN_KEY, NOT_SCORED, Preset
from harness.config.run import Conditions, MadeFrom, RunData, RunFiles, TrainedRun
from harness.data.scenes.dataset import ScenesConfig, prepare_scenes
from harness.key import built_with, code_of_model, identity, run_key
from harness.metrics.signature import EvaluationSettings, run_fields
from harness.utils.progress import silent
from harness.utils.workspace import Workspace
from results.records import CODE_FIELDS, CodeRecord, RunSpec

MODEL = "expansionnet_v2/end-to-end"
CODE = CodeRecord("aaaa", "bbbb", "1", {})

IN_KEY = {
    "models": "a run is of one model, which is in its key",
    "pretrained": "the signature's `feat`, `vocab` and `size` name the weights",
    "hub": "the signature's `prompt`, `clean`, `attn` and `prec`",
    "allow_subset": "the images that a file of captions has are the signature's `subset`",
    "plugins": "the digests of their code",
    "data": "the signature's digest of annotations, pictures and the ids that were left out",
    "tokenizer": "the signature's `tok`, and `vocab` of models that are trained",
    "language": "the signature's `meteor`, where it is not English",
    "features": "leaf by leaf, see below",
    "preset": "leaf by leaf, see below",
    "changes": "they are in the preset",
    "seeds": "a run is of one seed, which is in its key",
    "first_seed": "a run is of one seed, which is in its key",
    "budgets": "a run is of one budget, whose stages are in its preset",
    "tuned": "each model's values are in its preset, and how they were found in the signature's `tuned`",
    "precision": "the signature's `prec`",
}
MOVES_NO_SCORE = {
    "cards": "what is known of systems whose captions are scored",
    "metrics": "add metrics whose names hold what they depend on",
    "reuse": "which finished runs are re-used",
    "accept_mixed": "whether seeds of other versions of packages make one row, which is marked",
    "execution": "how many devices, processes and kernels share the work; rounding alone, recorded in the environment",
    "workspace": "where results are written",
    "db": "where results are written",
}


def test_every_field_of_an_experiment_is_accounted_for() -> None:
    assert set(Experiment.model_fields) == {*IN_KEY, *MOVES_NO_SCORE}


# A preset whose optional parts are all there, so that each of their settings is a leaf.
RICH = {
    "parameters": 40_000_000,
    "vocabulary": {"kind": "bpe", "merges": 20, "min_count": 2, "max_len": 18},
    "recipe": {
        "models": [MODEL],
        "captions": "expansionnet",
        "non_rgb": "black",
        "published": {"source": "a paper", "split": "karpathy-test", "scores": {"CIDEr-D": 140.4}},
    },
}
STAGE = {
    "name": "xe",
    "epochs": 2,
    "batch_size": 8,
    "learning_rate": {"peak": 0.01, "warmup_steps": 4, "annealing": "step"},
    "clip_norm": 1.0,
    "clip_value": 1.0,
    "patience": 3,
    "constant_rates": {"embedding": 0.1},
}
SAMPLING = STAGE | {
    "name": "sampling",
    "scheduled_sampling": {},
    "dropout_scale": 0.5,
    "learning_rate": {"peak": 0.01, "warmup_share": 0.1, "annealing": "step", "from_share": 0.5, "every_share": 0.1},
}


def rich_preset() -> Preset:
    plain = load_preset("expansionnet-v2-paper").model_dump(mode="json")
    plateau = STAGE | {"objective": "reinforce", "learning_rate": {"peak": 0.01, "annealing": "plateau"}}
    rewarded = STAGE | {"objective": "self_critical", "self_critical": {"sampling_dropout": True}}
    schedule = {"name": "rich", "summary": "of each kind", "stages": [STAGE, plateau, rewarded, SAMPLING]}
    return Preset.model_validate(plain | RICH | {"schedule": schedule})


@dataclass(frozen=True)
class Leaf:
    """A setting, and settings that differ from the original in it alone."""

    path: str
    changed: Any


def leaves(original: BaseModel) -> Iterator[Leaf]:
    """Every leaf of nested settings with one other value that is valid.

    AssertionError where none is found, unless the same setting of another stage has one.
    """
    stuck, found = {}, set()
    for path, annotation, value in _walk(original):
        tried = list(_others(annotation, value))
        valid = (_with(original, path.split("."), other) for other in tried)
        changed = next((settings for settings in valid if settings not in (None, original)), None)
        setting = ".".join(part for part in path.split(".") if not part.isdecimal())
        if changed is None:
            stuck[setting] = tried
            continue
        found.add(setting)
        yield Leaf(path, changed)
    found.add("schedule.stages.dictionary")  # of stages on sentence graphs, which no subwords have
    missed = {setting: tried for setting, tried in stuck.items() if setting not in found}
    assert not missed, f"no other valid value of {missed}: teach `_others` one"


def _walk(settings: BaseModel, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for name, field in type(settings).model_fields.items():
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from _walk(value, f"{prefix}{name}.")
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            for at, each in enumerate(value):
                yield from _walk(each, f"{prefix}{name}.{at}.")
        elif isinstance(value, dict) and name == "size":
            yield from ((f"{prefix}{name}.{key}", None, value[key]) for key in value)
        else:
            yield f"{prefix}{name}", field.annotation, value


def _others(annotation: Any, value: Any) -> Iterator[Any]:
    literals = [
        each for part in (annotation, *get_args(annotation)) if get_origin(part) is Literal for each in get_args(part)
    ]
    yield from (each for each in literals if each != value)
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield from (value + 1, value / 2, value * 2, value + 0.25)
    elif isinstance(value, str):
        yield value + "x"
    elif isinstance(value, tuple):
        yield from ((*value, "x"), tuple(each / 2 for each in value if isinstance(each, float)))
    elif isinstance(value, dict):
        yield {**value, "x": next(iter(value.values()), "y")}
    elif value is None:
        yield from (1, "half", {"source": "boxes"}, {})


def _with(original: BaseModel, path: list[str], value: Any) -> BaseModel | None:
    content = original.model_dump(mode="json")
    node: Any = content
    for part in path[:-1]:
        node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
    node[path[-1]] = value
    try:
        return type(original).model_validate(content)
    except ValidationError:
        return None


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """From a preset or features to the planned run, through all that `bench run` prepares."""
    data = prepare_scenes(tmp_path_factory.mktemp("data"), ScenesConfig(train=6, val=2, test=2, nocaps_per_domain=1))
    workspace = Workspace(tmp_path_factory.mktemp("workspace"))
    workspace.create()

    def plan(preset: Preset, features: FeatureConfig, sees: str = "none") -> RunSpec:
        described = RunData.model_validate({"sees": (sees,)})
        conditions = Conditions.of_inputs(str(data), None, features, described=described, preset=preset)
        context = open_context(conditions, workspace, silent())
        [spec] = Planner(conditions, context, workspace).plan(resolve_models([MODEL], workspace), 1)
        return spec

    return plan


def signed(cell: RunSpec) -> dict[str, str]:
    return {name: value for name, value in cell.signature.items() if name not in CODE_FIELDS}


def test_every_setting_of_a_preset_is_in_key_and_signature(planner: Any) -> None:
    original = rich_preset()
    plain = planner(original, FeatureConfig())
    seen = set()
    for leaf in leaves(original):
        seen.add(leaf.path)
        if leaf.path == "recipe.models":  # the model must stay one of the recipe's
            leaf = replace(leaf, changed=_with(original, ["recipe", "models"], (MODEL, "x")))
        cell = planner(leaf.changed, FeatureConfig())
        unkeyed, unsigned = (
            any(leaf.path == path or leaf.path.startswith(path + ".") for path in paths)
            for paths in (NOT_IN_KEY, NOT_SCORED)
        )
        assert (cell.key == plain.key) == unkeyed, f"{leaf.path}: is it in the run key?"
        assert (signed(cell) == signed(plain)) == unsigned, f"{leaf.path}: is it signed?"
    stale = [path for path in NOT_IN_KEY if not any(leaf == path or leaf.startswith(path + ".") for leaf in seen)]
    assert not stale, "exceptions that are no settings any more"
    assert len(seen) > 80


def test_every_setting_of_the_features_is_in_key_and_signature(planner: Any, tmp_path: Path) -> None:
    preset = rich_preset().model_copy(update={"recipe": None, "decoding": load_preset("quick").decoding})
    sentences = load_preset("quick-sentences")
    preset = preset.model_copy(update={"schedule": sentences.schedule, "vocabulary": sentences.vocabulary})
    for name in ("star", "moon"):
        images = {str(image): [{"objects": [[name]]}] for image in range(8)}
        content = {"format": "captionbench sentence graphs 1", "images": images}
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    seen = {"backbone": "test_resnet", "weights": "random", "image_size": 64, "regions": {"source": "boxes"}}
    original = FeatureConfig.model_validate({**seen, "sentence_graphs": tmp_path / "star.json"})
    boxes = tmp_path / "boxes.json"
    boxes.write_text('[{"image_id": 0, "bbox": [1, 1, 20, 20], "score": 0.5, "category_id": 1}]')
    weights = tmp_path / "weights.pth"
    import timm

    torch.manual_seed(7)
    torch.save(timm.create_model("test_resnet", pretrained=False, num_classes=0).state_dict(), weights)
    by_hand: dict[str, Any] = {
        "backbone": "test_vit",
        "weights": weights,
        "options": {"output_stride": "16"},
        "regions.source": boxes,
        "regions.keep": "fixed:2",
        "sentence_graphs": tmp_path / "moon.json",
    }
    plain = planner(preset, original, "regions")
    for path, annotation, value in _walk(original):
        if path == "graphs":  # signed for models that read them alone: test_visual_inputs.py
            continue
        others = [by_hand[path]] if path in by_hand else _others(annotation, value)
        changed = next(found for other in others if (found := _with(original, path.split("."), other)) is not None)
        cell = planner(preset, changed, "regions")
        assert cell.key != plain.key, path
        assert signed(cell) != signed(plain), path
    assert planner(preset, original.model_copy(update={"regions": None}), "grid").key != plain.key
    assert set(FEATURES_NOT_IN_KEY) <= {path for path, _, _ in _walk(original)}


def test_evaluation_settings_are_signed_unless_they_add_a_metric() -> None:
    plain = EvaluationSettings()
    changes: dict[str, Any] = {
        "tokenizer": "java",
        "domain_df": "subset",
        "language": "de",
        "meteor": False,
        "spice": True,
    }
    for field in fields(EvaluationSettings):
        changed = replace(plain, **{field.name: changes[field.name]})
        assert (run_fields(changed) == run_fields(plain)) == (field.name in {"meteor", "spice"}), field.name


def test_the_key_has_model_seed_settings_content_and_code() -> None:
    signature = {"beam": "3", "size": "quick#1", "v": "0.3.0", "rev": "1"}
    made_from = MadeFrom(preset="quick", digest=None, schedule="quick#2", size="quick#1")
    plain = TrainedRun(model="cgru", preset=load_preset("quick"), made_from=made_from)
    key = run_key(plain, signature, CODE)
    other_preset = load_preset("quick", ("schedule.stages.0.epochs=3",))
    for changed in (
        plain.model_copy(update={"model": "updown"}),
        plain.model_copy(update={"seed": 1}),
        plain.model_copy(update={"arguments": {"d_model": 8}}),
        plain.model_copy(update={"preset": other_preset}),
    ):
        assert run_key(changed, signature, CODE) != key
        assert identity(changed, signature) != identity(plain, signature)
    assert run_key(plain, signature | {"beam": "5"}, CODE) != key
    for code in (replace(CODE, model="cccc"), replace(CODE, revision="2")):
        assert run_key(plain, signature, code) != key
    same = {
        "made_from": made_from.model_copy(
            update={"preset": "mine", "budget": 2, "deviations": ("size.d_model: 1 → 2",)}
        ),
        "files": RunFiles(data="/elsewhere"),
        "execution": replace(plain.execution, jobs=4, device="cuda"),
    }
    for name, value in same.items():
        assert run_key(plain.model_copy(update={name: value}), signature, CODE) == key, name
    assert run_key(plain, signature | {"v": "9.9.9", "size": "mine#1"}, CODE) == key
    assert run_key(plain, signature | {"tuned": "3x2#1"}, CODE) != key, "it separates tables"
    harness = replace(CODE, harness="dddd", files={"a.py": "eeee"})
    assert run_key(plain, signature, harness) == key, "the results revision speaks for the harness"


def test_arguments_of_cards_are_in_the_key_those_of_parts_too() -> None:
    built = built_with("expansionnet_v2/end-to-end", {"d_model": 16})
    assert (built["drop_path"], built["d_model"]) == (0.1, 16)
    assert "static_lengths" in built["body built with"]
    assert "zoo/models/expansionnet.py" in code_of_model("expansionnet_v2/end-to-end", {}).files


def test_planned_runs_name_their_code(planner: Any) -> None:
    cell = planner(rich_preset(), FeatureConfig())
    assert cell.code is not None
    assert cell.signature["rev"] == cell.code.revision
    assert {"zoo/models/end_to_end.py", "harness/training/trainer.py", "zoo/decoding.py"} <= cell.code.files.keys()
