"""The METEOR jar as a child process, started once for many systems, with a timeout on every answer.

Three daemon threads handle the child's pipes (writer, reader, drain of stderr), so that neither side can block the
other; the caller only waits on a queue, with a timeout. The child ends at end of file on its standard input, hence also
when this process is killed.
"""

from __future__ import annotations

import contextlib
import queue
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from types import TracebackType
from typing import IO, Final, Self, TypeVar

import numpy as np

from harness.data.formats import METEOR_SEPARATOR, sanitise_meteor_field
from harness.metrics.contract import Array
from harness.metrics.java import JavaError, java_command, java_environment
from harness.metrics.meteor.metric import STATISTICS

_HEAP_MB: Final = 1024  # half of it suffices for captions, all of it for thousands of matching words
# Java's quick compiler alone: 5,000 captions take a third less time, and 20,000 the same as with its thorough one.
_COMPILER: Final = "-XX:TieredStopAtLevel=1"
_GRACE_S: Final = 5.0
_PROGRESS_EVERY: Final = 100
_T = TypeVar("_T")


def meteor_jar() -> Path:
    """Path of the METEOR 1.5 jar inside pycocoevalcap."""
    return Path(str(resources.files("pycocoevalcap") / "meteor" / "meteor-1.5.jar"))


def meteor_paraphrases() -> Path:
    """Path of the jar's paraphrase table."""
    return meteor_jar().parent / "data" / "paraphrase-en.gz"


class MeteorProcess:
    """One JVM that answers statistics, about 1 ms a caption.

    Args:
        java: the runtime.
        timeout_s: longest wait for the next answer, start-up included.
        paraphrases: an open file of paraphrases to use instead of the jar's table, which takes 6 to 8 s to read; it may
            be closed afterwards, and needs no name.

    Raises:
        JavaError: from the constructor when the process cannot be started.
    """

    def __init__(self, java: Path, *, timeout_s: float, paraphrases: IO[bytes] | None = None) -> None:
        self._timeout_s = timeout_s
        options = ["-", "-", "-stdio", "-l", "en", "-norm"]
        if paraphrases is not None:
            paraphrases.seek(0)
            options += ["-a", f"/dev/fd/{paraphrases.fileno()}"]
        command = java_command(java, _COMPILER, "-jar", str(meteor_jar()), *options, heap_mb=_HEAP_MB)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=java_environment(),
                pass_fds=[] if paraphrases is None else [paraphrases.fileno()],
            )
        except OSError as error:
            raise JavaError(f"METEOR: {java} cannot be started: {error.strerror or error}") from error
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        assert stdin is not None
        assert stdout is not None
        assert stderr is not None
        self._stdin: IO[bytes] = stdin
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._said: deque[bytes] = deque(maxlen=5)
        self._writer: threading.Thread | None = None
        self._reader = _start_thread(self._read, stdout)
        self._stderr_drain = _start_thread(self._drain, stderr)

    @property
    def pid(self) -> int:
        """Process id of the JVM."""
        return self._process.pid

    def statistics(
        self,
        references: Mapping[int, Sequence[str]],
        candidates: Mapping[int, str],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Array:
        """METEOR's (N, 23) statistics of tokenised captions, in the order of `candidates`.

        `progress` is called with (done, total) captions.

        Raises:
            JavaError: the process has ended, gives no answer for `timeout_s` or an unexpected one; it is then closed.
        """
        questions = (_question(references[image_id], caption) for image_id, caption in candidates.items())
        self._writer = _start_thread(self._write, questions)
        answers = np.empty((len(candidates), STATISTICS))
        try:
            for number in range(len(candidates)):
                answers[number] = self._answer()
                if progress and (number + 1) % _PROGRESS_EVERY == 0:
                    progress(number + 1, len(candidates))
        except JavaError:
            self.close()
            raise
        self._writer.join()
        return answers

    def close(self) -> None:
        """End the process and its threads; safe to call twice."""
        self._process.kill()  # first: it frees a writer that waits for a full pipe, and with it the pipe's lock
        self._process.wait(_GRACE_S)
        if self._writer is not None:
            self._writer.join(_GRACE_S)
        if self._writer is None or not self._writer.is_alive():
            with contextlib.suppress(OSError):  # what a dead child did not read cannot be flushed
                self._stdin.close()  # the end of a JVM whose `java` was a script, so that only the script was killed
        for thread in (self._reader, self._stderr_drain):
            thread.join(_GRACE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _answer(self) -> list[float]:
        try:
            line = self._answers.get(timeout=self._timeout_s)
        except queue.Empty:
            raise JavaError(f"METEOR: no answer within {self._timeout_s:g} s") from None
        if line is None:
            self._answers.put(None)  # later calls see the end too
            raise JavaError(f"METEOR: the Java process ended with status {self._status()}{self._last_words()}")
        try:
            numbers = [float(word) for word in line.split()]
        except ValueError:
            numbers = []
        if len(numbers) != STATISTICS:
            raise JavaError(f"METEOR: unexpected answer {line.decode('utf-8', 'replace').strip()[:100]!r}")
        return numbers

    def _status(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        return self._process.returncode

    def _last_words(self) -> str:
        self._stderr_drain.join(_GRACE_S)
        said = b" / ".join(line.strip() for line in self._said).decode("utf-8", "replace")
        return f": {said[-300:]}" if said else ""

    def _write(self, lines: Iterable[bytes]) -> None:
        # A child that ended or was closed shows up on the reading side, with its exit status.
        with contextlib.suppress(OSError, ValueError):
            self._stdin.writelines(lines)
            self._stdin.flush()

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._answers.put(line)
        self._answers.put(None)

    def _drain(self, stderr: IO[bytes]) -> None:
        with stderr:
            self._said.extend(line for line in stderr if not line.startswith(b"\tat "))  # traces hide the message


def _start_thread(work: Callable[[_T], None], argument: _T) -> threading.Thread:
    thread = threading.Thread(target=work, args=(argument,), daemon=True)
    thread.start()
    return thread


def _question(references: Sequence[str], candidate: str) -> bytes:
    fields = ["SCORE", *map(sanitise_meteor_field, references), sanitise_meteor_field(candidate)]
    return (f" {METEOR_SEPARATOR} ".join(fields) + "\n").encode()
