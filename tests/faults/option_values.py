"""All commands, with which words each is tried, and the classes of values that `test_options.py` tries."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.harness.conftest import root_command

CLASSES = {"empty": "", "number": "-1", "text": "a\x1b[31m\x07\rb", "path": "folder"}
"""One value of each class: what an unset variable leaves, a number out of range, control characters, a folder."""

# Words with which each command ends within seconds, whatever the option that is tried: on small files and results, or
# at an error that comes after all options were looked at.
_RESULTS = "--workspace store"
COMMANDS = {
    "attention": "a.png --run nowhere",
    "caption": "a.png --run nowhere",
    "caption-data": "karpathy.json --run nowhere",
    "compare": f"a-s0 b-s0 {_RESULTS}",
    "cost measure": "--models none-of-this-name",
    "data convert": "references.json --images . --split-by hash:100/0/0 --skip-bad-images --out converted.json",
    "data download": "flickr8k --what images",  # which is refused before anything is fetched
    "data features": "no-pictures.json",
    "data list": "",
    "data nocaps": "karpathy.json references.json --out joined.json",
    "data verify": "karpathy.json --workspace w",
    "db merge": f"other/bench.sqlite {_RESULTS}",
    "db publish": f"out.sqlite {_RESULTS}",
    "db show": f"a-s0 {_RESULTS}",
    "db upgrade": _RESULTS,
    "doctor": "",
    "evaluate": "predictions.json --references references.json --no-meteor",
    "export figures": f"{_RESULTS} --out figures",
    "export leaderboard": _RESULTS,
    "export run": f"a-s0 {_RESULTS}",
    "export submission": "predictions.json --server coco --images references.json --out sent --split val2014",
    "flops": "--models blind --caption-length 2 --regions 1 --visual-dim 4 --vocab-size 5",
    "flops-table": "--format nothing",
    "import-weights": "expansionnet_v2 nowhere.pth --vocabulary nowhere.json --workspace w",
    "judgements": "predictions.json --no-meteor",
    "models list": "blind",
    "models show": "blind",
    "new-model": "own",
    "plan": "--models human",
    "prefetch model": "git/pretrained",
    "prefetch spice": "--from nowhere.zip",
    "regress": "--baseline nowhere",
    "report": f"{_RESULTS} --out pages",
    "run": "--models blind --preset smoke --data no-pictures.json --backbone filterbank --workspace w",
    "schedules": "smoke",
    "work": f"nowhere {_RESULTS}",
    "tune": "--models blind --preset smoke --data no-pictures.json --backbone filterbank --workspace w --trials 1",
}

LEGAL = {
    "compare --out": {"number", "text"},
    "data convert --out": {"number", "text"},
    "data list --workspace": {"number", "text", "path"},
    "data nocaps --folder": {"number", "path"},  # of pictures that may come later
    "data nocaps --out": {"number", "text"},
    "data verify --workspace": {"number", "text", "path"},
    "db merge --db": {"number", "text"},
    "db merge --workspace": {"number", "text", "path"},
    "db publish OUT": {"text"},
    "doctor --workspace": {"number", "text", "path"},
    "evaluate --out": {"number", "text"},
    "export figures --out": {"number", "text", "path"},
    "export leaderboard --out": {"number", "text"},
    "new-model --out": {"number", "text", "path"},
    "new-model NAME": {"path"},
    "plan --bert": {"path"},
    "plan --clip": {"path"},  # a folder, whose model is looked for when captions are scored
    "plan --db": {"number", "text"},  # bench run would make it
    "plan --regions": {"path"},  # what it holds is looked at with the pictures
    "plan --workspace": {"number", "text", "path"},
    "run --save": {"number", "text"},
    "report --images": {"path"},
    "report --out": {"number", "text", "path"},
}
"""Classes with which a command does what it is asked for, by command and option; every other must not exit with 0."""


def commands(command: Any = None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each command behind the words that name it, in the order of the help."""
    command = command or root_command()
    if hasattr(command, "commands"):
        for name, inner in command.commands.items():
            yield from commands(inner, f"{path} {name}".strip())
    else:
        yield path, command


def placed(path: str, values: Mapping[str, str]) -> list[str]:
    """The words of a command with values for these parameters, by name."""
    words, place = COMMANDS[path].split(), 0
    for parameter in dict(commands())[path].params:
        value = values.get(parameter.name)
        if parameter.param_type_name == "argument":
            if value is not None:
                given = place < len(words) and not words[place].startswith("-")
                words[place : place + given] = [value]
            place += 1
        elif value is not None:
            given = next((at for at, word in enumerate(words) if word in parameter.opts), len(words))
            words[given : given + 2] = [parameter.opts[0], value]
    return [*path.split(), *words]
