"""A METEOR process shared by many systems: its paraphrases, and its restarts."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path

from harness.metrics.contract import Array
from harness.metrics.java import JavaError
from harness.metrics.meteor.paraphrases import Mask, ParaphraseTable, paraphrase_table
from harness.metrics.meteor.process import MeteorProcess, meteor_paraphrases
from harness.metrics.ptb.python import tokenize_ptb


class MeteorSession:
    """One METEOR process for many systems, restarted after a failure or for words without their paraphrases.

    Args:
        find_java: returns the runtime, or raises JavaError.
        timeout_s: longest time to wait for each answer.
    """

    def __init__(self, find_java: Callable[[], Path], *, timeout_s: float) -> None:
        self._find_java, self._timeout_s = find_java, timeout_s
        self._process: MeteorProcess | None = None
        self._table: ParaphraseTable | None = None
        self._covered: Mask | None = None  # the table's words that the process has the paraphrases of
        self._preparing: threading.Thread | None = None

    def prepare(self, captions: Sequence[str]) -> None:
        """Start in the background for these words. A Java that does not work is reported by `statistics`, not here."""

        def work() -> None:
            with suppress(JavaError):
                self._start(tokenize_ptb(captions))

        self._preparing = threading.Thread(target=work, daemon=True)
        self._preparing.start()

    def statistics(
        self,
        references: Mapping[int, Sequence[str]],
        candidates: Mapping[int, str],
        *,
        progress: Callable[[int, int], None] | None = None,
    ) -> Array:
        """METEOR's (N, 23) statistics of tokenised captions, in the order of `candidates`.

        Raises:
            JavaError: there is no working Java, or the process fails; the next call starts another.
        """
        process = self.start(chain(chain.from_iterable(references.values()), candidates.values()))
        try:
            return process.statistics(references, candidates, progress=progress)
        except JavaError:
            self._process = None
            raise

    def start(self, captions: Iterable[str]) -> MeteorProcess:
        """The process for tokenised captions: the current one, unless it lacks paraphrases of their words.

        Raises:
            JavaError: it cannot be started.
        """
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        return self._start(captions)

    def close(self) -> None:
        """End the process, even one that is still being prepared; safe to call twice."""
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None
        self._end_process()

    def _start(self, captions: Iterable[str]) -> MeteorProcess:
        java = self._find_java()
        try:
            self._table = self._table or paraphrase_table(meteor_paraphrases())
            needed = self._table.occurring(captions)
            covered = needed if self._covered is None else needed | self._covered
            if self._process is None or (covered != self._covered).any():
                self._end_process()
                with (
                    tempfile.TemporaryFile() as paraphrases
                ):  # without a name, it is deleted when the last process closes it
                    self._table.write(paraphrases, covered)
                    self._process = MeteorProcess(java, timeout_s=self._timeout_s, paraphrases=paraphrases)
                self._covered = covered
        except OSError as error:
            raise JavaError(f"METEOR: its paraphrases cannot be prepared: {error.strerror or error}") from error
        return self._process

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
