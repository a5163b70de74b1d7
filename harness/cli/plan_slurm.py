"""`bench plan --slurm`: the planned runs as an array of Slurm, one element a run."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.utils.errors import BenchError

PER_NODE = 8
"""Most devices of a node."""
WARNING_S = 120
"""How long before its end a job is told, to save and to be queued again."""
_MARGIN, _UNKNOWN_H, _LEAST_H = 2.0, 24, 1

_SCRIPT = """\
#!/bin/bash
# Written by `bench plan --slurm`. What is added goes to `bench run`, and sbatch's options replace those below:
#   sbatch {name} --data dataset_coco.json --backbone resnet101 --db postgresql://USER@HOST/NAME
# Extract features once before (`bench data features`), or the first job does while the others wait for it.
#SBATCH --job-name=captionbench
#SBATCH --array=0-{last}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={per_node}
#SBATCH --cpus-per-task={cpus}
#SBATCH --time={hours}:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@{warning}
#SBATCH --open-mode=append
#SBATCH --output=captionbench-%A_%a.log

models=({models})
seeds=({seeds})
words=({words})

run() {{
    {command} \\
        --models "${{models[SLURM_ARRAY_TASK_ID]}}" --first-seed "${{seeds[SLURM_ARRAY_TASK_ID]}}" --seeds 1 \\
        "${{words[@]}}" "$@"
}}

# Slurm warns this shell before the time is over: the run is ended as by SIGTERM, and queued again to go on.
requeue() {{
    pkill -TERM -P "$child"
    wait "$child"
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
    exit 143
}}
trap requeue USR1

run "$@" &
child=$!
wait "$child"
"""
_ONE = "srun bench run"
_ON_ONE_NODE = "srun torchrun --standalone --nproc-per-node {per_node} -m harness.cli run"
_ON_SEVERAL = """\
local head
    head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    srun torchrun --nnodes {nodes} --nproc-per-node {per_node} --rdzv-backend c10d \\
        --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$head:29500" -m harness.cli run"""


@dataclass(frozen=True, slots=True)
class PlannedRuns:
    """What the array executes.

    Attributes:
        models: trained ones.
        others: rows without training, which share the last element.
        devices: that train one model together.
        seconds: an estimate of a run of each model; empty where there is none.
    """

    models: Sequence[str]
    others: Sequence[str]
    first_seed: int
    seeds: int
    devices: int
    seconds: Mapping[str, float]


def sbatch_script(name: str, planned: PlannedRuns, words: Sequence[str]) -> str:
    """The script; seed by seed, so that every model has a row early.

    Args:
        name: of the file.
        words: further ones of `bench run`.

    Raises:
        BenchError: the devices do not fill nodes.
    """
    nodes = nodes_of(planned.devices)
    seeds = range(planned.first_seed, planned.first_seed + planned.seeds)
    elements = [(model, seed) for seed in seeds for model in planned.models]
    if planned.others:
        elements.append((",".join(planned.others), planned.first_seed))
    longest = max(planned.seconds.values(), default=None)
    hours = _UNKNOWN_H if longest is None else max(math.ceil(_MARGIN * longest / 3600), _LEAST_H)
    per_node = planned.devices // nodes
    command = _ONE if planned.devices == 1 else _ON_ONE_NODE if nodes == 1 else _ON_SEVERAL
    return _SCRIPT.format(
        name=shlex.quote(name if name.isprintable() else "FILE"),
        last=len(elements) - 1,
        nodes=nodes,
        per_node=per_node,
        cpus=4 * per_node,
        hours=hours,
        warning=WARNING_S,
        models=" ".join(shlex.quote(model) for model, _ in elements),
        seeds=" ".join(str(seed) for _, seed in elements),
        words=" ".join(map(shlex.quote, words)),
        command=command.format(nodes=nodes, per_node=per_node),
    )


def nodes_of(devices: int) -> int:
    """Nodes that the devices which train one model together fill; BenchError where they do not."""
    nodes = math.ceil(devices / PER_NODE)
    if devices % nodes:
        raise BenchError(
            f"--devices {devices} are not the same number on each of {nodes} nodes of {PER_NODE}",
            f"write --devices {nodes * PER_NODE}",
        )
    return nodes


def check_slurm(file: Path | None, control: str | None) -> None:
    """BenchError where `--slurm` is given with what it does not write."""
    if file is not None and control is not None:
        raise BenchError(
            "--slurm and --control contradict each other: a control is compared with all rows at once",
            "leave --control out; when the array has ended, bench run --control trains what is missing",
        )
