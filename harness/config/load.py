"""Load what ships as YAML, by name: presets with overrides from the command line, schedules, pairs of papers."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from pydantic import BaseModel, ValidationError

from harness.config.preset import NOT_SCORED, Preset
from harness.config.schedule import Schedule, Stage
from harness.utils.errors import BenchError
from harness.utils.files import reason, shortened
from harness.utils.hashing import canonical_json, digest
from harness.utils.yaml_value import load_bounded, load_shipped, parse_yaml_value
from results.files import read_text

if TYPE_CHECKING:
    from results.comparison.pairs import PrintedPair

_LONGEST_PAIRS: Final = 200_000  # characters of a file
_SYNONYMS: Final = {
    **dict.fromkeys(("lr", "learning_rate", "max_lr", "learningrate"), "peak"),
    **dict.fromkeys(("beam", "beams", "num_beams", "beam_width"), "beam_size"),
    **dict.fromkeys(("batch", "bs", "train_batch_size"), "batch_size"),
    **dict.fromkeys(("epoch", "num_epochs", "max_epochs", "n_epochs"), "epochs"),
    **dict.fromkeys(("hidden", "hidden_size", "hidden_dim", "dim", "width", "embed_dim"), "d_model"),
    **dict.fromkeys(("layers", "num_layers", "n_layers"), "n_decoder_layers"),
    **dict.fromkeys(("heads", "num_heads"), "n_heads"),
    **dict.fromkeys(("warmup", "warm_up"), "warmup_steps"),
    **dict.fromkeys(("wd", "decay"), "weight_decay"),
    **dict.fromkeys(("grad_clip", "clip_grad", "clip"), "clip_norm"),
}
_ANY_SETTING: Final = "schedule.stages.0.epochs=3"
_HERE: Final = Path(__file__).parent
SHIPPED_PAIRS, PRESETS, SCHEDULES = (
    tuple(sorted(path.stem for path in (_HERE / kind).glob("*.yaml"))) for kind in ("pairs", "presets", "schedules")
)
_UNSCORED: dict[str, Any] = {"name": True}
"""Settings that no score depends on, nested as pydantic excludes them: the name, and what is left out of run keys."""
for _path in NOT_SCORED:
    _group, _, _name = _path.rpartition(".")
    if _group:
        _UNSCORED.setdefault(_group, {})[_name] = True
    else:
        _UNSCORED[_name] = True


def _text(kind: str, name: str) -> str:
    return (_HERE / kind / f"{name}.yaml").read_text(encoding="utf-8")


def _content(kind: str, name: str) -> dict[str, Any]:
    """The settings of a shipped file, with those that it inherits by `extends`."""
    content: dict[str, Any] = load_shipped(_text(kind, name))
    base = content.pop("extends", None)
    return content if base is None else _extended(_content(kind, base), content)


def _extended(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with changes; null removes a setting, and a stage overrides the stage of its name."""
    settings = dict(base)
    for name, value in changes.items():
        if value is None:
            settings.pop(name, None)
        elif isinstance(value, Mapping) and isinstance(base.get(name), Mapping):
            settings[name] = _extended(base[name], value)
        elif name == "stages" and "stages" in base and isinstance(value[0], Mapping):
            stages = {stage["name"]: stage for stage in base["stages"]}
            settings[name] = [_extended(stages.get(stage["name"], {}), stage) for stage in value]
        else:
            settings[name] = value
    return settings


def _schedule(name: str) -> dict[str, Any]:
    return {"name": name, **_content("schedules", name)}


def load_schedule(name: str) -> Schedule:
    """Read a schedule by name; BenchError if the name is unknown."""
    if name not in SCHEDULES:
        raise BenchError(f"no schedule or preset is named {name!r}", _did_you_mean(name, [*SCHEDULES, *PRESETS]))
    return Schedule.model_validate(_schedule(name))


def preset_summaries() -> dict[str, str]:
    """The summary of each shipped preset, which is the first line of its file."""
    first_lines = {name: _text("presets", name).partition("\n")[0] for name in PRESETS}
    return {name: str(load_shipped(line)["summary"]) for name, line in first_lines.items()}


def load_preset(name: str, overrides: tuple[str, ...] = (), changes: Mapping[str, Any] | None = None) -> Preset:
    """Read a preset, embed its schedule, and apply `KEY.PATH=VALUE` overrides, then values by `KEY.PATH`.

    Overrides are for example `schedule.stages.0.epochs=3` or `size.d_model=256`; values are read as YAML.
    `stages=[xe]` keeps only the named stages, in the schedule's order. BenchError for an unknown preset, key or value.
    """
    if name not in PRESETS:
        raise BenchError(f"unknown preset {name!r} (--preset)", _did_you_mean(name, PRESETS))
    content = _content("presets", name)
    content["schedule"] = _schedule(content["schedule"])
    _keep_stages(content)
    content["name"] = name
    for override in overrides:
        _apply(content, override)
    for path, value in (changes or {}).items():
        _set(content, path, value, f"{path}={canonical_json(value)}")
    _keep_stages(content)
    try:
        preset = Preset.model_validate(content)
    except ValidationError as error:
        raise _invalid_preset(name, error) from error
    if preset.schedule.budget != 1:
        raise BenchError("schedule.budget (--set) would only name a budget", "train longer by --budgets 2")
    return preset


def _invalid_preset(name: str, error: ValidationError) -> BenchError:
    """The first error of a preset's settings, with a valid `--set` as hint."""
    first = error.errors(include_url=False)[0]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] != "value_error":
        path = ".".join(str(part) for part in first["loc"])
        text = " ".join(repr(first["input"]).split())
        message = f"{shortened(path)}: {message.lower()} (got {shortened(text)})"
    hint = f"check --set; for example --set {_example(name, first['loc'])}"
    if first["type"] == "extra_forbidden":
        near = nearest_settings(str(first["loc"][-1]), name)
        if near:
            value = first["input"] if isinstance(first["input"], int | float | str) else "VALUE"
            hint = " or ".join(f"--set {path}={value}" for path in near)
    return BenchError(f"preset {name!r}: {message}", shortened(hint))


def check_recipe(preset: Preset, model: str) -> None:
    """As `Preset.check_model`; the hint names the presets that cover the model."""
    try:
        preset.check_model(model)
    except BenchError as error:
        recipes = {name: _load_shipped(name).recipe for name in PRESETS}
        presets = [name for name, recipe in recipes.items() if recipe is not None and recipe.covers(model)]
        if not presets or preset.recipe is None:
            raise
        models = ",".join(preset.recipe.models)
        raise BenchError(
            str(error), f"type --models '{models}', or --preset {' or --preset '.join(presets)}"
        ) from error


def _did_you_mean(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, sorted(set(names)), n=3)
    return f"did you mean {' or '.join(near)}?" if near else "`bench schedules` lists schedules and presets"


def nearest_settings(word: str, preset: str = "quick") -> list[str]:
    """At most three settings of a preset that a word such as `lr` or `batch-size` may mean; of stages, the first's."""
    word = word.lstrip("-").replace("-", "_").lower()
    word = _SYNONYMS.get(word, word)
    shipped = dict(_settings(_load_shipped(preset), ""))
    names = {path.rpartition(".")[2] for path in shipped}
    near = [word] if word in names else difflib.get_close_matches(word, sorted(names), n=3, cutoff=0.7)
    paths = [path for name in near for path in shipped if path.rpartition(".")[2] == name or path == name]
    return [path for path in paths if not path.startswith("schedule.stages.") or ".stages.0." in path][:3]


def _settings(node: object, path: str) -> Iterator[tuple[str, object]]:
    """The dotted path and the value of every setting below a node."""
    children = _children(node)
    if children is None:
        yield path, node
        return
    for name, child in children.items():
        yield from _settings(child, f"{path}.{name}".removeprefix("."))


def _children(node: object) -> dict[str, object] | None:
    """The settings of a group, by name; None for a value."""
    if isinstance(node, BaseModel):
        return {name: getattr(node, name) for name in type(node).model_fields}
    if _are_stages(node):
        return {str(index): stage for index, stage in enumerate(node)}
    return node if isinstance(node, dict) else None


def _keep_stages(content: dict[str, Any]) -> None:
    """Remove the stages that `stages` does not name, if it is set."""
    if "stages" not in content:
        return
    kept_names = content.pop("stages")
    schedule = content["schedule"]
    stages = schedule.get("stages") if isinstance(schedule, dict) else None
    if not stages or not isinstance(stages, list):
        return  # validating the preset reports the error
    if not all(isinstance(stage, dict) and "name" in stage for stage in stages):
        return
    names = [stage["name"] for stage in stages]
    if not kept_names or not isinstance(kept_names, list) or not all(name in names for name in kept_names):
        raise BenchError(
            f"stages: {shortened(str(kept_names))!r} is not a list of this schedule's stages",
            f"--set 'stages=[{names[0]}]' keeps one of {', '.join(map(str, names))}",
        )
    schedule["stages"] = [stage for stage in stages if stage["name"] in kept_names]


def _example(name: str, location: tuple[int | str, ...]) -> str:
    """A valid `--set`: the shipped value at a location or the first one below it, else of another setting."""
    prefix = ".".join(map(str, location)) + "."
    for path, value in _settings(_load_shipped(name), ""):
        if f"{path}.".startswith(prefix) or prefix.startswith(f"{path}."):  # an element of a list is set with the list
            return f"{path}={canonical_json(value)}" if isinstance(value, int | float | tuple) else _ANY_SETTING
    return _ANY_SETTING


def _apply(content: dict[str, Any], override: str) -> None:
    """Set one `KEY.PATH=VALUE` in nested settings."""
    path, separator, text = override.partition("=")
    if not separator:
        raise BenchError(
            f"--set {shortened(override)!r} has no '='", "write --set KEY.PATH=VALUE, as in --set size.d_model=256"
        )
    _set(content, path, parse_yaml_value(override, text), override)


def _set(content: dict[str, Any], path: str, value: Any, override: str) -> None:
    """Set a value at a dotted path; BenchError that names the `override` if the path does not exist."""
    *parents, last = path.split(".")
    node: Any = content
    try:
        for part in parents:
            node = node[_list_index(part)] if isinstance(node, list) else node.setdefault(part, {})
        if isinstance(node, list):
            node[_list_index(last)] = value
        else:
            node[last] = value
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise BenchError(
            f"--set {shortened(override)!r}: no such setting", f"write --set KEY.PATH=VALUE, as in --set {_ANY_SETTING}"
        ) from error


def _list_index(part: str) -> int:
    """An index from 0; ValueError for a negative one, and for other spellings that `int` accepts, such as 1_0."""
    if not (part.isascii() and part.isdecimal()):
        raise ValueError(f"{part!r} is not an index of a list")
    return int(part)


def preset_digest(preset: Preset) -> str:
    """A short digest over every setting of a preset that scores depend on."""
    return digest(preset.model_dump(mode="json", exclude=_UNSCORED))


def shipped_preset(preset: Preset) -> dict[str, Any]:
    """The `digest` of the shipped preset of the same name, and the `deviations` from it, for a run's record.

    Deviations are dotted settings with both values ("decoding.beam_size: 5 → 3"), in the order of the settings; there
    are none if every setting that scores depend on is the same. If no preset of this name ships, the digest is None and
    the only deviation says so.
    """
    if preset.name not in PRESETS:
        return {"digest": None, "deviations": [f"preset: {preset.name} does not ship with the harness"]}
    shipped = _load_shipped(preset.name)
    return {"digest": preset_digest(shipped), "deviations": list(_deviations(shipped, preset, "", _UNSCORED))}


@cache
def _load_shipped(name: str) -> Preset:
    return load_preset(name)


def _deviations(shipped: object, used: object, path: str, ignored: Mapping[str, Any]) -> Iterator[str]:
    theirs = _children(shipped)
    ours = _children(used)
    other_stages = _are_stages(shipped) and _are_stages(used) and len(shipped) != len(used)
    if theirs is None or ours is None or other_stages:
        if shipped != used:
            yield f"{path}: {_shown(shipped, ignored)} → {_shown(used, ignored)}"
        return
    unset = "the model's own"  # sizes that a preset leaves out
    for name in theirs | ours:
        if ignored.get(name) is not True:
            deeper = f"{path}.{name}".lstrip(".")
            yield from _deviations(theirs.get(name, unset), ours.get(name, unset), deeper, ignored.get(name, {}))


def _are_stages(value: object) -> TypeGuard[tuple[Stage, ...]]:
    return isinstance(value, tuple) and all(isinstance(stage, Stage) for stage in value)


def _shown(value: object, ignored: Mapping[str, Any]) -> str:
    if _are_stages(value):
        return ", ".join(stage.name for stage in value)
    if isinstance(value, BaseModel):
        value = value.model_dump(mode="json", exclude=dict(ignored))
    return value if isinstance(value, str) else canonical_json(value)


def load_pairs(name: str) -> tuple[PrintedPair, ...]:
    """The pairs of a YAML file, or the shipped pairs of this name; BenchError names the wrong entry."""
    from results.comparison.pairs import PAIRS  # with numpy, which presets do not need

    hint = 'write a list as: - {a: updown, b: att2all, printed: 14.1, source: "Table 4"}'
    try:
        text = _text("pairs", name) if name in SHIPPED_PAIRS else read_text(Path(name))
    except (OSError, ValueError) as error:
        raise BenchError(
            f"--pairs {shortened(name)} cannot be read: {reason(error)}",
            f"name a YAML file, or pairs that ship: {', '.join(SHIPPED_PAIRS)}",
        ) from error
    try:
        return PAIRS.validate_python(load_bounded(text, longest=_LONGEST_PAIRS))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        entry = ".".join(str(part) for part in first["loc"]) or "the file"
        message = first["msg"].removeprefix("Value error, ")
        raise BenchError(
            f"--pairs {shortened(name)}, entry {shortened(entry)}: {message[:1].lower()}{message[1:]}", hint
        ) from error
    except ValueError as error:
        raise BenchError(f"--pairs {shortened(name)}: {error}", hint) from error
