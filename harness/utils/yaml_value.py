"""YAML that comes from outside: of bounded length and nesting."""

from typing import Any

import yaml

from harness.utils.errors import BenchError
from harness.utils.files import shortened

# libyaml's, where PyYAML was built with it, reads tuned values ten times as fast; both give the same values.
_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LONGEST = 2_000
_DEEPEST = 10


class Loader(_SAFE):  # type: ignore[misc]
    """Refuses a key that a mapping has twice, of which PyYAML takes the last value."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        written = [key for key, _ in node.value if key.value != "<<"]  # a key that << brings in may be here too
        mapping: dict[Any, Any] = super().construct_mapping(node, deep)
        lines: dict[Any, int] = {}
        for key_node in written:
            key = self.construct_object(key_node, deep=True)
            line = key_node.start_mark.line + 1
            if key in lines:
                problem = f"line {line} has the key {key!r} again, as line {lines[key]}"
                raise yaml.constructor.ConstructorError(problem=problem)
            lines[key] = line
        return mapping


def parse_yaml_value(setting: str, text: str) -> Any:
    """The value of `--set NAME=VALUE`, whose whole text `setting` is; BenchError where it is no YAML, long or deep.

    Aliases are refused, which a value has no use for: a few of them stand for more than memory holds.
    """
    hint = "for example --set size.d_model=256; quote text with special characters"
    if len(text) > _LONGEST:
        raise BenchError(
            f"--set {shortened(setting)!r}: the value has {len(text):,} characters, and at most {_LONGEST:,} are read",
            "change single settings, each with a --set of its own",
        )
    try:
        return load_bounded(text)
    except ValueError as error:
        raise BenchError(f"--set {shortened(setting)!r}: {error}", hint) from error


def load_shipped(text: str) -> Any:
    """The value of YAML that ships with the harness."""
    return yaml.load(text, Loader=_SAFE)


def load_bounded(text: str, longest: int | None = None) -> Any:
    """The value of YAML text, at most ten levels deep and without aliases; ValueError says why it is none."""
    if longest is not None and len(text) > longest:
        raise ValueError(f"it has {len(text):,} characters, and at most {longest:,} are read")
    try:
        refused = _why_refused(text)
        if refused is None:
            return yaml.load(text, Loader=Loader)
    # PyYAML's constructors raise the others, on values that do not suit their tag, as 2001-99-99 or !!int "".
    except (yaml.YAMLError, AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
        reason = " ".join((getattr(error, "problem", None) or str(error)).split())
        raise ValueError(f"it is not a YAML value: {shortened(reason)}") from error
    raise ValueError(refused)


def _why_refused(text: str) -> str | None:
    depth = 0
    for event in yaml.parse(text, Loader=Loader):
        if isinstance(event, yaml.AliasEvent):
            return f"aliases (*{shortened(str(event.anchor))}) are not read"
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            return f"more than {_DEEPEST} brackets are inside each other"
    return None
