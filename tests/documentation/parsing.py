"""What a command of the documentation is held to before it is run: options, files and extras that exist."""

import importlib.util
import re
import tomllib
from collections.abc import Sequence
from typing import Any

from tests.documentation.pages import ROOT, commands_of
from tests.harness.conftest import root_command

_OPTION = re.compile(r"(?<![\w-])--?[a-z][\w-]*")
_NOT_OURS = ("ray", "scontrol", "sbatch")  # programs of others, whose words are not ours to know
_LAUNCHERS = ("torchrun", "srun")
_PYTEST_VALUES = ("-n", "-k", "-m")


def check(words: Sequence[str]) -> None:
    """Fail where a command names what does not exist; nothing is executed.

    Raises:
        Exception: what the command line itself says of its words, or an assertion.
    """
    match words:
        case ["bench", *rest]:
            parse_bench(rest)
        case ["python", "-m", "harness.cli", *rest]:
            parse_bench(rest)
        case ["pytest", *rest] | ["python", "-m", "pytest", *rest]:
            _check_tests(rest)
        case ["python", "-m", module, *_]:
            assert importlib.util.find_spec(module), f"no module {module}"
        case ["uv", "sync", *rest]:
            _check_extras(rest)
        case [launcher, *rest] if launcher in _LAUNCHERS:
            if "-m" in rest:
                check(["python", *rest[rest.index("-m") :]])
            elif "bash" in rest:
                for inner in commands_of(rest[-1]):
                    check(inner)
        case ["pip", "install", "uv"] | ["echo" | "cat", *_]:
            pass
        case [program, *_] if program in _NOT_OURS:
            pass
        case _:
            raise AssertionError(f"no rule says what {words[0]} is: {' '.join(words)}")


def parse_bench(words: Sequence[str]) -> None:
    """Parse `bench WORDS` with the command line's own parser."""
    command, path, rest = resolve(words)
    if "--help" not in rest:  # it would print and leave
        command.make_context(" ".join(path), list(rest))


def resolve(words: Sequence[str]) -> tuple[Any, list[str], Sequence[str]]:
    """The subcommand that `bench WORDS` means, its name, and the words that follow it."""
    command, path = root_command(), ["bench"]
    while words and hasattr(command, "commands") and not words[0].startswith("-"):
        assert words[0] in command.commands, f"bench has no command {' '.join([*path[1:], words[0]])}"
        path, command, words = [*path, words[0]], command.commands[words[0]], words[1:]
    return command, path, words


def unknown_options(text: str) -> set[str]:
    """Options in a text such as `bench run --seeds 3` that its subcommand does not have."""
    words = [word for word in text.split()[1:] if re.fullmatch(r"[a-z][a-z-]*", word)]
    command = root_command()
    for word in words:
        if word not in getattr(command, "commands", {}):
            break
        command = command.commands[word]
    known = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return set(_OPTION.findall(text)) - known - {"--help"}


def _check_tests(words: Sequence[str]) -> None:
    values = {at + 1 for at, word in enumerate(words) if word in _PYTEST_VALUES}
    for at, word in enumerate(words):
        if at not in values and not word.startswith("-") and not word.startswith("test_mine"):
            assert (ROOT / word).exists(), f"no tests {word}"


def _check_extras(words: Sequence[str]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {words[at + 1] for at, word in enumerate(words) if word == "--extra"}
    assert wanted <= set(project["optional-dependencies"]), wanted
