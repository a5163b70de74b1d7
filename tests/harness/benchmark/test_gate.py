"""What the gate records of a tiny model: it repeats, rounding passes, and each layer sees the faults of its own."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from harness.benchmark import gate
from harness.benchmark.gate import Gate, record, train_weights
from harness.data.batches import CaptionBatches
from harness.data.images import ImagePreprocessing
from harness.data.scenes.dataset import ScenesConfig
from harness.inference import generate
from harness.training import trainer
from harness.utils.errors import BenchError
from harness.utils.progress import silent
from harness.utils.workspace import Workspace
from results.comparison.recording import FILE, Finding, Recording, Request, judge_recording
from tests.documentation.parsing import parse_bench
from tests.harness.conftest import ROOT, bench_or_raise
from zoo.models.expansionnet import ExpansionNet

MODEL = "transformer_base"
TINY = ("schedule.stages.0.epochs=4", "schedule.stages.0.batch_size=12", "size.d_model=16", "size.d_ff=16")
REQUEST = Request(models=(MODEL,), preset="first-steps", changes=TINY)


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder of a baseline, with the images in a workspace beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gate, "SCENES", ScenesConfig(train=30, val=4, test=6, nocaps_per_domain=1))
        patch.setattr(gate, "STEPS", 4)
        patch.setattr(gate, "REPLICAS", 2)
        folder = tmp_path_factory.mktemp("gate") / "baseline"
        folder.mkdir()
        opened = open_gate(folder)
        train_weights(opened, folder, silent())
        (folder / FILE).write_text(record(opened, folder, silent()).text(), encoding="utf-8")
        yield folder


def open_gate(folder: Path, request: Request = REQUEST) -> Gate:
    return Gate.open(request, Workspace(folder.parent / "workspace"), silent())


def findings(folder: Path, request: Request = REQUEST) -> tuple[Finding, ...]:
    expected = Recording.read(folder)
    return judge_recording(expected, record(open_gate(folder, request), folder, silent(), expected), 0.0).findings


def test_untouched_code_is_as_before(baseline: Path) -> None:
    expected = Recording.read(baseline)
    assert findings(baseline) == ()
    assert {each.layer for each in expected.series} == {"settings", "data", "metrics", "inference", "first_steps"}
    assert {each.quantity.partition(":")[0] for each in expected.series if each.axis == "step"} == {
        "xe",
        "muon",
        "scst",
    }
    assert not list(baseline.glob(".*")), "no temporary file stays"


def test_other_roundings_are_as_before(baseline: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = Gate.build

    def moved(self: Gate, model: str) -> Any:
        built = build(self, model)
        for weight in built.parameters():
            weight.data *= 1 + 2.0**-24
        return built

    monkeypatch.setattr(Gate, "build", moved)
    assert findings(baseline) == ()


def _begins_wrongly(patch: pytest.MonkeyPatch) -> None:
    search = generate.beam_search
    patch.setattr(generate, "beam_search", lambda *given, bos, **others: search(*given, bos=bos + 2, **others))


def _faster(patch: pytest.MonkeyPatch) -> None:
    setting = trainer.set_rate
    patch.setattr(trainer, "set_rate", lambda optimiser, rate: setting(optimiser, 1.1 * rate))


def _in_order(patch: pytest.MonkeyPatch) -> None:
    draw = CaptionBatches._draw
    patch.setattr(CaptionBatches, "_draw", lambda self, number: (sorted(draw(self, number)[0]), draw(self, number)[1]))


def _darker(patch: pytest.MonkeyPatch) -> None:
    see = ImagePreprocessing.__call__
    patch.setattr(ImagePreprocessing, "__call__", lambda self, image: np.float32(0.98) * see(self, image))


def _half_blind(patch: pytest.MonkeyPatch) -> None:
    encode = ExpansionNet.encode
    patch.setattr(
        ExpansionNet, "encode", lambda self, visual: encode(self, replace(visual, features=visual.features / 2))
    )


def _broken(patch: pytest.MonkeyPatch) -> None:
    def encode(*_: object) -> None:
        raise RuntimeError("shapes do not fit")

    patch.setattr(ExpansionNet, "encode", encode)


@pytest.mark.parametrize(
    ("fault", "layer", "what"),
    [
        (_begins_wrongly, "inference", "captions"),
        (_faster, "first_steps", "xe: weights of"),
        (_in_order, "first_steps", "xe: loss"),
        (_darker, "data", "pixels"),
        (_half_blind, "inference", "logits"),
        (_broken, "inference", "inference"),
        (lambda patch: patch.setattr("harness.metrics.rouge.BETA", 1.0), "metrics", "scores of"),
    ],
)
def test_a_fault_is_found_in_its_layer(
    baseline: Path, fault: Callable[[pytest.MonkeyPatch], None], layer: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch)
    if layer == "data":
        shutil.rmtree(baseline.parent / "workspace", ignore_errors=True)
    first = findings(baseline)[0]
    if layer == "data":
        shutil.rmtree(baseline.parent / "workspace")
    assert (first.layer, first.quantity.startswith(what)) == (layer, True), first


def test_a_changed_setting_is_the_first_finding(baseline: Path) -> None:
    first = findings(baseline, REQUEST.model_copy(update={"changes": (*TINY, "decoding.beam_size=1")}))[0]
    assert (first.layer, first.position, first.before, first.after) == (
        "settings",
        "preset.decoding.beam_size",
        "3",
        "1",
    )


def test_the_command_judges_and_tells_in_every_format(
    baseline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, said = bench_or_raise("regress", "--baseline", baseline, "--findings", tmp_path / "found")
    assert (code, "bench regress: Passed" in said) == (0, True)
    assert sorted(path.suffix for path in (tmp_path / "found").glob("*.*") if not path.name.startswith(".")) == [
        ".json",
        ".md",
        ".txt",
    ]
    _begins_wrongly(monkeypatch)
    code, said = bench_or_raise("regress", "--baseline", baseline, "--findings", tmp_path / "found")
    lines = [line for line in said.splitlines() if not line.startswith("bench regress --update")]
    assert (code, f"bench regress: Failed: {MODEL}: captions, image" in said) == (1, True)
    assert max(map(len, lines)) <= 80
    assert (tmp_path / "found" / "findings.md").read_text().startswith("### ❌ Failed: ")


def test_an_update_replaces_all_of_a_baseline(baseline: Path, tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    shutil.copytree(baseline, folder)
    (folder / "gone.safetensors").write_bytes(b"of a model that is no longer asked for")
    two = Recording.read(folder).request.model_copy(update={"models": (MODEL, "gone")})
    (folder / "recording.json").write_text(Recording.read(folder).model_copy(update={"request": two}).text())
    code, said = bench_or_raise("regress", "--update", "--baseline", folder, "--models", MODEL)
    assert (code, f"{MODEL}, xe: loss: rounding allows" in said) == (0, True)
    assert sorted(path.name for path in folder.iterdir()) == ["recording.json", f"{MODEL}.safetensors"]


def test_weights_that_are_no_baselines_are_not_replaced(tmp_path: Path) -> None:
    weights = tmp_path / f"{MODEL}.safetensors"
    weights.write_bytes(b"mine")
    with pytest.raises(BenchError, match="belongs to no baseline"):
        bench_or_raise("regress", "--update", "--baseline", tmp_path, "--models", MODEL)
    assert weights.read_bytes() == b"mine"


def test_models_that_are_not_trained_are_refused(baseline: Path) -> None:
    with pytest.raises(BenchError, match="human is not trained"):
        open_gate(baseline, Request(models=("human",), preset="first-steps"))


def test_the_committed_baseline_is_small_and_of_three_models() -> None:
    folder = ROOT / "baselines" / "gate"
    recording = Recording.read(folder)
    assert len(recording.request.models) == 3
    assert {f"{model}.safetensors" for model in recording.request.models} <= {path.name for path in folder.iterdir()}
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 1_000_000


def test_every_mutation_still_finds_its_text() -> None:
    script = ROOT / "benchmarks" / "regress_mutations.py"
    ended = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def workflows_to_copy(folder: Path) -> list[Path]:
    """The workflows of the documentation, written to files."""
    page = (ROOT / "docs" / "regression.md").read_text(encoding="utf-8")
    paths = []
    for number, text in enumerate(re.findall(r"```yaml\n(name: .*?)```", page, re.DOTALL)):
        paths.append(folder / f"{number}.yml")
        paths[-1].write_text(text, encoding="utf-8")
    return paths


def test_workflows_actions_and_the_citation_are_valid(tmp_path: Path) -> None:
    pytest.importorskip("check_jsonschema")
    checked = {
        "github-workflows": [*(ROOT / ".github" / "workflows").glob("*.yml"), *workflows_to_copy(tmp_path)],
        "github-actions": list((ROOT / ".github" / "actions").glob("*/action.yml")),
        "citation-file-format": [ROOT / "CITATION.cff"],
    }
    for schema, files in checked.items():
        command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{schema}", *files]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, ended.stdout


@pytest.mark.parametrize("job", ["regress", "against"])
def test_the_workflows_to_copy_judge_and_show_the_findings(job: str, tmp_path: Path) -> None:
    workflows = [yaml.safe_load(path.read_text(encoding="utf-8")) for path in workflows_to_copy(tmp_path)]
    [steps] = [workflow["jobs"][job]["steps"] for workflow in workflows if job in workflow["jobs"]]
    judge, show = steps[-2:]
    parse_bench(judge["run"].replace("${{ github.event.pull_request.base.sha }}", "COMMIT").split()[1:])
    (tmp_path / "findings").mkdir()
    (tmp_path / "findings" / "findings.md").write_text("### told\n", encoding="utf-8")
    summary = {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"), "PATH": "/usr/bin:/bin"}
    subprocess.run(["bash", "-eo", "pipefail", "-c", show["run"]], cwd=tmp_path, env=summary, check=True)
    assert (show["if"], (tmp_path / "summary.md").read_text(encoding="utf-8")) == ("always()", "### told\n")


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_judging_step_of_the_action_passes_the_exit_code_on(code: int, tmp_path: Path) -> None:
    stub = tmp_path / "bench"
    stub.write_text(
        '#!/bin/bash\nwhile [ "$1" ]; do [ "$1" = --findings ] && folder=$2; shift; done\n'
        f'mkdir -p "$folder"; [ {code} = 2 ] || echo "### told" >"$folder/findings.md"; echo said; exit {code}\n'
    )
    stub.chmod(0o755)
    action = yaml.safe_load((ROOT / ".github/actions/bench-regress/action.yml").read_text())
    [judge] = [step for step in action["runs"]["steps"] if step.get("id") == "judge"]
    summary, output = tmp_path / "summary.md", tmp_path / "output"
    variables = {
        "BENCH": "bench",
        "BASELINE": "b",
        "OPTIONS": "--plugin mine.py",
        "FINDINGS": "found",
        "GITHUB_STEP_SUMMARY": str(summary),
        "GITHUB_OUTPUT": str(output),
        "PATH": f"{tmp_path}:/usr/bin:/bin",
    }
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", judge["run"]]
    subprocess.run(shell, cwd=tmp_path, env=variables, check=True)
    assert output.read_text() == f"exit-code={code}\n"
    assert ("### told" if code < 2 else "said") in summary.read_text()
