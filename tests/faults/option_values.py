"""All commands, with which words each is tried, and the classes of values that `test_options.py` tries."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.harness.conftest import root_command

CLASSES = {
    "empty": "",
    "blank": " ",
    "negative": "-1",
    "zero": "0",
    "huge": "9" * 20,
    "long-number": "9" * 5000,
    "nan": "nan",
    "infinite": "inf",
    "unicode": "\u00c4\u202e\U0001f600\u2019",
    "undecodable": "\udcff",
    "markup": "[red]{0}%s'\"<b>\n",
    "escape": "a\x1b[31m\x07\rb",
    "missing": "nowhere/at/all",
    "folder": "folder",
    "pipe": "pipe",
    "device": "/dev/zero",
    "linked-device": "zero.npy",
    "loop": "loop",
    "no-user": "~nobody-of-this-name/file",
    "over-long": "x" * 300,
}

# Words with which each command ends within seconds, whatever the option that is tried: on small files and results, or
# at an error that comes after all options were looked at.
_RESULTS = "--workspace store"
COMMANDS = {
    "caption": "a.png --run nowhere",
    "claims": f"nowhere.yaml {_RESULTS}",
    "compare": f"a-s0 b-s0 {_RESULTS}",
    "cost measure": "--models none-of-this-name",
    "cost runs": _RESULTS,
    "data convert": "references.json --images . --split-by hash:100/0/0 --skip-bad-images --out converted.json",
    "data download": "flickr8k --what images",  # which is refused before anything is fetched
    "data features": "no-pictures.json",
    "data list": "",
    "data nocaps": "karpathy.json references.json --out joined.json",
    "data verify": "karpathy.json --workspace w",
    "db merge": f"other/bench.sqlite {_RESULTS}",
    "db publish": f"out.sqlite {_RESULTS}",
    "db upgrade": _RESULTS,
    "doctor": "",
    "evaluate": "predictions.json --references references.json --no-meteor",
    "export figures": f"{_RESULTS} --out figures",
    "export leaderboard": _RESULTS,
    "export submission": "predictions.json --server coco --images references.json --out sent --split val2014",
    "flops": "--models blind --caption-length 2 --regions 1 --visual-dim 4 --vocab-size 5",
    "import-weights": "expansionnet_v2 nowhere.pth --vocabulary nowhere.json --workspace w",
    "models list": "blind",
    "models show": "blind",
    "new-model": "own",
    "plan": "--models human",
    "prefetch model": "git/pretrained",
    "prefetch spice": "--from nowhere.zip",
    "regress": f"--train --baseline nowhere {_RESULTS}",
    "report": f"{_RESULTS} --out pages",
    "run": "--models blind --preset smoke --data no-pictures.json --backbone filterbank --workspace w",
    "schedules": "smoke",
    "work": f"nowhere {_RESULTS}",
    "tune": "--models blind --preset smoke --data no-pictures.json --backbone filterbank --workspace w --trials 1",
}

_ANY = set(CLASSES) - {"empty", "blank"}  # which no command takes
_NUMBERS = {"negative", "zero", "huge", "nan", "infinite"}
_NEW_NAMES = {*_NUMBERS, "unicode", "undecodable", "markup", "escape", "missing", "no-user"}
_OUT = _NEW_NAMES | {"device", "linked-device"}
_FOLDERS = _NEW_NAMES | {"folder"}
_READ_WORKSPACES = _FOLDERS
_WORKSPACES = _READ_WORKSPACES - {"undecodable"}  # which no database could name
LEGAL = {
    "compare --captions": {"zero"},
    "compare --out": _OUT,
    "data convert --out": _OUT,
    "data list --workspace": _READ_WORKSPACES | {"pipe", "device", "linked-device", "loop"},  # whether one is there
    "data nocaps --folder": _ANY
    - {"unicode", "undecodable", "markup", "escape", "device"},  # of pictures that may come later
    "data nocaps --out": _OUT,
    "data verify --workspace": _WORKSPACES,
    "db merge --db": _READ_WORKSPACES - {"folder", "missing", "no-user"},
    "db merge --workspace": _WORKSPACES,
    "db publish OUT": _NUMBERS - {"negative"} | {"unicode", "undecodable", "markup", "escape"},
    "doctor --workspace": _READ_WORKSPACES | {"loop"},
    "evaluate --out": _OUT,
    "export figures --out": _FOLDERS,
    "export leaderboard --margin": {"zero"},
    "export leaderboard --out": _OUT,
    "new-model --out": _FOLDERS,
    "new-model NAME": {"folder", "pipe", "loop", "nan", "infinite"},
    "plan --db": _READ_WORKSPACES - {"folder", "missing", "no-user"},  # bench run would make it
    "plan --first-seed": {"zero"},
    "plan --regions": {"folder"},  # what it holds is looked at with the pictures
    "plan --workspace": _WORKSPACES,
    "report --margin": {"zero"},  # then no difference is too small to count
    "report --out": _FOLDERS,
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
                words[place : place + 1] = [value]
            place += 1
        elif value is not None:
            given = next((at for at, word in enumerate(words) if word in parameter.opts), len(words))
            words[given : given + 2] = [parameter.opts[0], value]
    return [*path.split(), *words]
