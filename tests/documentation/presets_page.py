"""What each preset and schedule differs in: `python -m tests.documentation.presets_page` writes `docs/presets.md`."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from harness.config.load import PRESETS, SCHEDULES

_ROOT = Path(__file__).resolve().parents[2]
PAGE, _FOLDER = _ROOT / "docs" / "presets.md", _ROOT / "harness" / "config"
_HEAD = """\
# Presets and schedules

```sh
bench run --preset smoke --set decoding.beam_size=3 --models updown --save changed.yaml
cat changed.yaml
```

```text
experiment: changed.yaml; run it with: bench run changed.yaml
models: [updown]
preset: smoke
set: {{decoding.beam_size: 3}}
```

A preset is a YAML file of `harness/config/presets/`: sizes, vocabulary, decoding, and the name of a schedule of
`harness/config/schedules/`, which has the stages of training. `extends: NAME` inherits every setting that
the file does not give itself; null removes a setting, and a stage overrides the stage of its name. A preset for
self-critical training is three lines:

```yaml
{example}```

`bench schedules NAME` prints all settings of one, and `bench run --preset NAME --set KEY=VALUE` changes some.

The tables below are generated from the files by `python -m tests.documentation.presets_page`.
"""


def _settings(content: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """The settings of a file, one by one, as `name value`."""
    for name, value in content.items():
        if isinstance(value, Mapping) and value:
            yield from _settings(value, f"{path}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], Mapping):
            for stage in value:
                changes = {field: inner for field, inner in stage.items() if field != "name"}
                yield from _settings(changes, f"{stage['name']}.") if changes else ()
        else:
            yield f"`{path}{name}` {_shown(value)}"


def _shown(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(f"`{part}`" if isinstance(part, str) else str(part) for part in value)
    if value is None:
        return "left out"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _rows(kind: str, names: Iterable[str]) -> Iterator[str]:
    yield "| Name | Extends | Its own settings |"
    yield "|---|---|---|"
    for name in names:
        content = yaml.safe_load((_FOLDER / kind / f"{name}.yaml").read_text(encoding="utf-8"))
        summary, base = content.pop("summary"), content.pop("extends", "")
        content.get("recipe", {}).pop("published", None)  # numbers of a paper, no settings
        settings = "; ".join(_settings(content)).replace("|", "\\|")
        yield f"| **{name}**: {summary} | {base} | {settings} |"


def page() -> str:
    """The whole page."""
    example = (_FOLDER / "presets" / "matched-width-scst.yaml").read_text(encoding="utf-8")
    parts = [_HEAD.format(example=example), "## Presets\n", *_rows("presets", PRESETS), ""]
    return "\n".join([*parts, "## Schedules\n", *_rows("schedules", SCHEDULES)]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
