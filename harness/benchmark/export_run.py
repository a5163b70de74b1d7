"""One finished run as a zip: its configuration, versions, weights, captions, scores and plug-ins."""

from __future__ import annotations

import json
import zipfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from harness.benchmark.saved_model import FILE, VOCABULARY
from harness.config.archive import PLUGINS, RUN, SCORES, VERSIONS
from harness.config.run import config_of, write_run
from harness.key import files_of_plugin
from harness.training.checkpoint import WEIGHTS
from harness.utils.atomic import replacing
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from results.records import RunSpec
from results.runs.reading import captions_of, one_run
from results.runs.run import Run
from results.store.store import Store

MODEL: Final = "model"
_MOMENT: Final = (1980, 1, 1, 0, 0, 0)  # of every member, so that the same run is the same file


def export_run(store: Store, key: str, workspace: Workspace, out: Path) -> list[str]:
    """Write the zip of a finished run; gives sentences on what it lacks.

    Raises:
        BenchError: the run is not finished, is an ensemble, does not say how it is executed, or its plug-in was
            changed since.
    """
    spec = store.spec(key)
    run = one_run(store, key)
    if run.status != "finished":
        raise BenchError(f"run {key} is {run.state}, and has no results", "let `bench run` finish it first")
    config = config_of(spec)
    if config.kind == "ensemble":
        raise BenchError(
            f"run {key} is an ensemble, whose weights are those of its members",
            f"export these: bench export run {config.members[0]}",
        )
    lacks: list[str] = []
    plugins: dict[str, Path] = {}
    for plugin in config.execution.plugins:
        if plugin.endswith(".py"):
            plugins |= {f"{PLUGINS}/{name}": path for name, path in _files_of_plugin(Path(plugin), spec).items()}
        else:
            lacks.append(
                f"without the code of the plug-in {plugin}, which is a module: install it on the other machine"
            )
    folder = workspace.run_folder(key)
    model = {f"{MODEL}/{name}": folder / name for name in (FILE, VOCABULARY, WEIGHTS) if (folder / name).is_file()}
    if f"{MODEL}/{WEIGHTS}" not in model and config.kind == "trained":
        lacks.append(f"without weights: {folder / WEIGHTS} is not there")
    if config.kind in {"pretrained", "hub"}:
        lacks.append(f"without weights: they are the published ones of {config.weights}")
    texts = {
        RUN: write_run(config),
        VERSIONS: _json(_versions(run, spec)),
        SCORES: _json(_scores(run)),
        "captions.json": _json(_captions(store, run)),
        "README.txt": _readme(out.name, run, plugins),
    }
    with replacing(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in texts.items():
            archive.writestr(_member(name), text)
        for name, path in {**model, **plugins}.items():
            with path.open("rb") as source, archive.open(_member(name), "w", force_zip64=True) as target:
                while block := source.read(2**20):
                    target.write(block)
    return lacks


def _member(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name, _MOMENT)
    info.compress_type = zipfile.ZIP_STORED if name.endswith(".safetensors") else zipfile.ZIP_DEFLATED
    info.external_attr = 0o644 << 16
    return info


def _files_of_plugin(plugin: Path, spec: RunSpec) -> dict[str, Path]:
    """By name, the files of a plug-in; BenchError if one is gone, or is another than the run was made with."""
    if not plugin.is_file():
        raise BenchError(f"run {spec.key}: its plug-in {plugin} is no longer there", "put it back, then export again")
    files, changed = files_of_plugin(plugin, spec.code)
    if changed:
        raise BenchError(
            f"run {spec.key}: its plug-in was changed after the run: {', '.join(changed)}",
            "put the file of then back, or run again with the new one, and export that run",
        )
    return files


def _json(content: Any) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _versions(run: Run, spec: RunSpec) -> dict[str, Any]:
    return {
        "key": run.key,
        "captionbench": run.code_version,
        "finished_at": run.ended.isoformat(),
        "environment": run.environment,
        "signature": spec.signature,
        "code": None if spec.code is None else asdict(spec.code),
    }


def _scores(run: Run) -> dict[str, Any]:
    scores = [
        {"split": key.split, "domain": key.domain, "metric": key.metric, **asdict(quantity)}
        for key, quantity in run.scores.rows.items()
    ]
    return {"scores": scores, "costs": {name: asdict(cost) for name, cost in run.costs.items()}}


def _captions(store: Store, run: Run) -> dict[str, list[dict[str, Any]]]:
    return {
        split: [{"image_id": image, "caption": caption} for image, caption in sorted(captions.items())]
        for split, captions in captions_of(store, run).items()
    }


def _readme(name: str, run: Run, plugins: dict[str, Path]) -> str:
    lines = [
        f"The run {run.key} of captionbench {run.made_by}: {run.model}, seed {run.seed}, on {run.dataset}.",
        "",
        f"Execute it again: bench run {name}",
        f"with data that lie elsewhere: bench run {name} --set files.data=FOLDER",
        "",
        f"{RUN}: its configuration. {VERSIONS}: versions and machine. {SCORES}: scores and costs.",
        f"captions.json: its captions by split. {MODEL}/: its weights, for bench caption --run FOLDER/{MODEL}.",
    ]
    if plugins:
        lines.append(f"{PLUGINS}/: code that the run needs. Read it before you name it by --plugin.")
    return "\n".join(lines) + "\n"
