"""Stanford's PTB tokenizer in Java as COCO's evaluation runs it: lower case, punctuation removed.

Same tokens as `pycocoevalcap.tokenizer.ptbtokenizer`, without its faults: captions are passed by standard input (no
file in the installed package), the exit status is checked, and a different number of lines is an error rather than a
shift.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Final

from harness.data.formats import sanitise_caption
from harness.metrics.java import JavaError, java_command, java_environment

# The bracket names are upper case and the tokens lower case, so that brackets stay as tokens "-lrb-": a quirk of the
# original (pycocoevalcap/tokenizer/ptbtokenizer.py) that published scores depend on.
PUNCTUATION: Final = frozenset(
    ["''", "'", "``", "`", "-LRB-", "-RRB-", "-LCB-", "-RCB-", ".", "?", "!", ",", ":", "-", "--", "...", ";"]
)
_HEAP_MB: Final = 512


def tokenizer_jar() -> Path:
    """Path of the Stanford CoreNLP 3.4.1 jar inside pycocoevalcap."""
    return Path(str(resources.files("pycocoevalcap") / "tokenizer" / "stanford-corenlp-3.4.1.jar"))


def tokenize_java(captions: Sequence[str], *, java: Path, timeout_s: float) -> list[str]:
    """Tokens of each caption, joined by spaces, in the order given.

    Whether a final full stop is kept depends on the next line, so equal captions in another order can get other
    tokens: callers fix the order.

    Raises:
        JavaError: the tokenizer fails, takes longer than `timeout_s` or returns another number of lines.
    """
    if not captions:
        return []
    text = "\n".join(sanitise_caption(caption) for caption in captions)
    program = ("-cp", str(tokenizer_jar()), "edu.stanford.nlp.process.PTBTokenizer")
    options = ("-preserveLines", "-lowerCase", "-encoding", "UTF-8")
    try:
        done = subprocess.run(
            java_command(java, *program, *options, heap_mb=_HEAP_MB),
            input=text.encode(),
            capture_output=True,
            timeout=timeout_s,
            env=java_environment(),
            check=False,
        )
    except OSError as error:
        raise JavaError(f"PTB tokenizer: {java} cannot be started: {error.strerror or error}") from error
    except subprocess.TimeoutExpired as error:
        raise JavaError(f"PTB tokenizer: no answer from {java} within {timeout_s:g} s") from error
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip()[-300:]
        raise JavaError(f"PTB tokenizer: {java} ended with status {done.returncode}{': ' + said if said else ''}")
    lines = done.stdout.decode("utf-8", "replace").split("\n")
    if len(lines) != len(captions):
        raise JavaError(f"PTB tokenizer: {len(captions)} captions went in, {len(lines)} lines came out")
    return [_without_punctuation(line) for line in lines]


def _without_punctuation(line: str) -> str:
    return " ".join(token for token in line.rstrip().split(" ") if token not in PUNCTUATION)
