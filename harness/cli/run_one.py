"""`bench run RUN.yaml`: the configuration of one run, of which only `files` and `execution` may be changed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from harness.cli.experiments import typed_options
from harness.config.archive import PLUGINS
from harness.config.experiment import PRESET_OF_SCENES
from harness.utils.errors import BenchError
from harness.utils.files import absolute, expanded, shortened
from harness.utils.yaml_value import parse_yaml_value

if TYPE_CHECKING:
    from harness.config.archive import RunArchive
    from harness.config.run import RunConfig

_EXECUTION: Final = {"device": "device", "devices": "devices", "log": "log"}
"""The field of a run's execution that each option sets."""
_ALLOWED: Final = {"file", "change", "plugin", "workspace", "db", "reuse", *_EXECUTION}


def read_run(
    context: typer.Context, file: Path, content: dict[str, Any], archive: RunArchive | None = None
) -> RunConfig:
    """The run of a file's content, with the options that were typed; loads plug-ins.

    Args:
        archive: the zip file that the content was read from, if it was.

    Raises:
        BenchError: an option would change the run itself, or a plug-in of the run was not typed.
    """
    typed = typed_options(context)
    if refused := sorted(typed.keys() - _ALLOWED):
        option = f"--{refused[0].replace('_', '-')}"
        raise BenchError(
            f"{option} would change the run that {file} configures",
            "leave it out; allowed are --set files.NAME=PATH, --set execution.NAME=VALUE, --device and --plugin",
        )
    execution = {**content.get("execution", {})}
    if "device" in typed or "cuda" in str(execution.get("device")):
        from harness.benchmark.plan import choose_device

        execution["device"] = str(choose_device(str(typed.get("device", execution.get("device")))))
    execution |= {field: typed[option] for option, field in _EXECUTION.items() if option in typed and field != "device"}
    files = {name: _relative_to(file, value) for name, value in content.get("files", {}).items()}
    for change in typed.get("change") or ():
        name, equals, text = change.partition("=")
        part, _, field = name.partition(".")
        if not equals or part not in {"files", "execution"} or not field:
            raise BenchError(
                f"--set {shortened(change)}: only files and execution of a run's configuration may be changed",
                "for example --set files.data=/data/flickr8k",
            )
        if part == "files":
            files[field] = str(absolute(expanded(text))) if text not in PRESET_OF_SCENES else text
        else:
            execution[field] = parse_yaml_value(change, text)

    for name in ("data", "images"):
        path = files.get(name)
        if path is not None and path not in PRESET_OF_SCENES and not Path(path).exists():
            raise BenchError(
                f"{file}: files.{name} is not on this machine: {shortened(str(path))}",
                f"give its path: bench run {file} --set files.{name}=PATH",
            )

    from harness.config.run import parse_run
    from harness.key import plugin_digests
    from harness.utils.plugins import absolute_plugins, load_plugins

    plugins = tuple(typed.get("plugin") or ())
    load_plugins(plugins)
    needed = execution.get("plugins")
    if needed and not plugins and archive is not None and archive.plugins:
        folder = file.stem
        arguments = [f"--plugin {folder}/{PLUGINS}/{Path(name).name}" for name in needed if name.endswith(".py")]
        raise BenchError(
            f"{file} contains code of plug-ins, which runs only if you name it: {', '.join(archive.plugins)}",
            f"unpack and read it: python -m zipfile -e {file} {folder}; then: bench run {file} {' '.join(arguments)}",
        )
    if needed and not plugins:
        raise BenchError(
            f"{file}: the run needs plug-ins, whose code runs only if you name it: {', '.join(needed)}",
            f"add --plugin {needed[0]}",
        )
    execution |= {"plugins": absolute_plugins(plugins), "digests": plugin_digests(), "jobs": 1}
    return parse_run({**content, "files": files, "execution": execution}, str(file))


def _relative_to(file: Path, value: Any) -> Any:
    """A path of the configuration, which is relative to the folder of its file."""
    if not isinstance(value, str) or value in PRESET_OF_SCENES:
        return value
    return str(file.absolute().parent / expanded(value))
