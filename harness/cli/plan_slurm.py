"""`bench plan --slurm`: planned runs as an array of Slurm: each element is a `bench work KEY` by this interpreter."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence

from harness.utils.errors import BenchError

PER_NODE = 8
"""Most devices of a node."""
WARNING_S = 120
"""How long before its end a job is told, to save and to be queued again."""

_SCRIPT = """\
#!/bin/bash
# Written by `bench plan --slurm`. The options of sbatch replace those below:
#   sbatch --time=4:00:00 {name}
# Extract features once before (`bench data features`), or the first job does while the others wait for it.
#SBATCH --job-name=captionbench
#SBATCH --array=0-{last}
#SBATCH --nodes={nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={gpus}
#SBATCH --cpus-per-task={cpus}
#SBATCH --time=24:00:00
#SBATCH --requeue
#SBATCH --signal=B:USR1@{warning}
#SBATCH --open-mode=append
#SBATCH --output=captionbench-%A_%a.log

keys=({keys})
words=({words})

work() {{
    {command} "${{keys[SLURM_ARRAY_TASK_ID]}}" "${{words[@]}}" "$@"
}}

# Slurm warns this shell before the time is over: the run is ended as by SIGTERM, and queued again to go on.
requeue() {{
    pkill -TERM -P "$child"
    wait "$child"
    scontrol requeue "${{SLURM_ARRAY_JOB_ID}}_$SLURM_ARRAY_TASK_ID"
    exit 143
}}
trap requeue USR1

work "$@" &
child=$!
wait "$child"
"""
_ONE = "srun {python} -m harness.cli work"
_ON_ONE_NODE = "srun {python} -m torch.distributed.run --standalone --nproc-per-node {per_node} -m harness.cli work"
_ON_SEVERAL = """\
local head
    head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
    srun {python} -m torch.distributed.run --nnodes {nodes} --nproc-per-node {per_node} --rdzv-backend c10d \\
        --rdzv-id "$SLURM_JOB_ID" --rdzv-endpoint "$head:29500" -m harness.cli work"""


def sbatch_script(name: str, keys: Sequence[str], devices: int, words: Sequence[str], *, on_gpus: bool) -> str:
    """The script.

    Args:
        name: of the file.
        keys: of the runs, in the order of execution.
        devices: that train one model together.
        words: further ones of `bench work`.
        on_gpus: whether these devices are GPUs.

    Raises:
        BenchError: the devices do not fill nodes.
    """
    nodes = nodes_of(devices)
    per_node = devices // nodes
    command = _ONE if devices == 1 else _ON_ONE_NODE if nodes == 1 else _ON_SEVERAL
    return _SCRIPT.format(
        name=shlex.quote(name if name.isprintable() else "FILE"),
        last=len(keys) - 1,
        nodes=nodes,
        gpus=per_node if on_gpus else 0,
        cpus=4 * per_node,
        warning=WARNING_S,
        keys=" ".join(map(shlex.quote, keys)),
        words=" ".join(map(shlex.quote, words)),
        command=command.format(nodes=nodes, per_node=per_node, python=shlex.quote(sys.executable)),
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
