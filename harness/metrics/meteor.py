"""METEOR 1.5, from the statistics of each segment, which its Java program computes in a child process.

Denkowski and Lavie, "Meteor Universal", WMT 2014, with the parameters of the language. The jar returns 23 statistics
for each caption (edu.cmu.meteor.scorer.MeteorStats). A segment's score is a function of them, and a corpus's score is
the same function of their sum, not the mean over segments, so that the score of a subset needs no further run.

The jar's table has 5.3 million pairs of phrases, and reading them takes most of its time. A pair matches only if one of
its phrases is in a caption and the other in a reference, so other pairs can be left out: as long as the order of those
that stay is kept, every statistic stays the same. The table is cached as arrays of word numbers in the user's cache,
where filtering it takes half a second.

More than half of the remaining time is the jar's normalisation, which it repeats for every pair of caption and
reference. Captions of letters only are already normal; for each of the others, the jar's `Normalizer` is called once.

Other languages than English get an empty table (`harness.metrics.languages`), and normalisation wherever the jar has
rules for it.
"""

import gzip
import io
import itertools
import queue
import re
import subprocess
import tempfile
import threading
import zipfile
from array import array
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import IO, Final, Self

import numpy as np
from numpy.typing import NDArray

from harness.data.formats.references import METEOR_SEPARATOR, sanitise_meteor_field
from harness.metrics.java import JavaError, java_command, java_environment, run_java
from harness.metrics.languages import ENGLISH, MeteorLanguage
from harness.metrics.ptb import tokenize_ptb
from harness.utils.atomic import replacing
from harness.utils.workspace import locked, user_cache
from results.files import check_regular
from results.statistics.significance import Array, Metric, Statistics

STATISTICS: Final = 23
_CHUNKS: Final = 20
_FORMAT: Final = 1
_PAIRS_READ, _PAIRS_WRITTEN = 500, 200_000  # chunk sizes, small enough for the processor's cache
_HASH_BITS: Final = 25  # of the hashes of phrases
_MULTIPLIER: Final = np.uint32(0x9E3779B1)  # odd
_PLAIN: Final = re.compile("([a-z]+( [a-z]+)*)?")
_HEAP_MB: Final = 1024  # half of it suffices for captions, all of it for thousands of matching words
# Only Java's quick compiler: 5,000 captions take a third less time, and 20,000 the same as with the optimising one. One
# thread for garbage collection: several would take a tenth more processor time, and twice the memory.
_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_GRACE_S: Final = 5.0


def meteor(answers: Array, language: MeteorLanguage = ENGLISH) -> Statistics:
    """METEOR from the jar's output (N, 23).

    The single chunk of a segment that equals its reference is set to 0, so that it has no fragmentation.
    """
    matches = answers[:, 4:20].reshape(-1, 4, 2, 2)  # stage, content or function, test or reference
    perfect = (matches.sum(axis=(1, 2)) == answers[:, 0:2]).all(axis=1) & (answers[:, _CHUNKS] == 1)
    cleaned = answers.copy()
    cleaned[perfect, _CHUNKS] = 0.0
    return Statistics(METEOR if language == ENGLISH else _metric(language), cleaned)


def _score(language: MeteorLanguage, totals: Array) -> Array:
    """The formula for (..., 23): lengths and function words of (test, reference), matches, chunks, matched words."""
    alpha, beta, gamma, delta = language.parameters
    statistics = totals.reshape(-1, STATISTICS)
    lengths = statistics[:, 0:2]
    function_words = statistics[:, 2:4]
    content_matches, function_matches = np.moveaxis(statistics[:, 4:20].reshape(-1, 4, 2, 2), 2, 0)
    weighted = np.array(language.weights) @ (delta * content_matches + (1 - delta) * function_matches)
    available = delta * (lengths - function_words) + (1 - delta) * function_words
    with np.errstate(divide="ignore", invalid="ignore"):
        precision, recall = (weighted / available).T
        f_mean = 1.0 / ((1.0 - alpha) / precision + alpha / recall)
        fragmentation = statistics[:, _CHUNKS] / (statistics[:, 21:23].sum(axis=1) / 2)
        penalty = gamma * fragmentation**beta
        score = f_mean * (1.0 - penalty)
    return np.where(np.isnan(score), 0.0, np.maximum(score, 0.0)).reshape(*totals.shape[:-1], 1)


def _metric(language: MeteorLanguage) -> Metric:
    return Metric(("METEOR",), partial(_score, language))


METEOR: Final = _metric(ENGLISH)
Mask = NDArray[np.bool_]
Numbers = NDArray[np.integer]
Hashes = NDArray[np.uint32]


@dataclass(frozen=True)
class Phrases:
    """Concatenated phrases: their words' `numbers`, and the number of words of each."""

    numbers: Numbers
    lengths: Numbers

    @cached_property
    def starts(self) -> Numbers:
        """Where each phrase begins in `numbers`."""
        return np.cumsum(self.lengths, dtype=np.int32) - self.lengths

    def all_in(self, words: Mask) -> Mask:
        """Which phrases consist of the given words only."""
        return np.logical_and.reduceat(words[self.numbers], self.starts) if len(self.lengths) else np.zeros(0, bool)

    def hashes(self, indices: Numbers) -> Hashes:
        """Hashes of the phrases with these indices, equal to those of `hashes_of_runs` for the same words."""
        lengths = self.lengths[indices].astype(np.int32)
        first_words = np.cumsum(lengths, dtype=np.int32) - lengths
        places = np.arange(int(lengths.sum()), dtype=np.int32)
        position = places - np.repeat(first_words, lengths)
        words = self.numbers[places + np.repeat(self.starts[indices] - first_words, lengths)]
        terms = (words + np.uint32(1)) * _powers(int(lengths.max(initial=0)))[position]
        return (
            _shortened(np.add.reduceat(terms, first_words, dtype=np.uint32)) if len(terms) else np.zeros(0, np.uint32)
        )


def hashes_of_runs(numbers: Numbers, longest: int) -> Iterator[Hashes]:
    """Hashes of all runs of 1 to `longest` words, by length. Runs do not include -1 in `numbers`."""
    padded = np.concatenate([numbers, np.full(longest, -1)])
    within = np.ones(len(numbers), bool)
    total = np.zeros(len(numbers), np.uint32)
    for position, power in enumerate(_powers(longest)):
        words = padded[position : position + len(numbers)]
        within &= words >= 0
        total += (words + 1).astype(np.uint32) * power
        yield _shortened(total[within])


def _shortened(hashes: Hashes) -> Hashes:
    """The upper bits, which depend on all bits of a sum."""
    return hashes >> np.uint32(32 - _HASH_BITS)


def _powers(count: int) -> Hashes:
    return np.cumprod(np.full(count, _MULTIPLIER), dtype=np.uint32)


@dataclass(frozen=True)
class ParaphraseTable:
    """Pairs of paraphrases, as word numbers.

    Attributes:
        words: the W distinct words.
        first: first phrases of the pairs; consecutive pairs with the same first phrase share one.
        repeats: number of consecutive pairs of each first phrase.
        second: second phrases of the pairs.
    """

    words: tuple[bytes, ...]
    first: Phrases
    repeats: Numbers
    second: Phrases

    @classmethod
    def read(cls, path: Path) -> Self:
        """From the jar's gzipped file: three lines a pair, a probability that the jar ignores and the two phrases."""
        words: defaultdict[bytes, int] = defaultdict(itertools.count().__next__)
        columns = [(array("I"), array("B")) for _ in range(2)]
        repeats = array("I")
        with gzip.open(path) as compressed, io.BufferedReader(compressed, 1 << 20) as lines:
            while block := list(itertools.islice(lines, 3 * _PAIRS_READ)):
                runs = {phrase: run for run, phrase in enumerate(dict.fromkeys(block[1::3]))}
                repeats.extend(np.bincount(list(map(runs.__getitem__, block[1::3]))).tolist())
                for (numbers, lengths), phrases in zip(columns, (list(runs), block[2::3]), strict=True):
                    numbers.extend(map(words.__getitem__, b"".join(phrases).split()))
                    lengths.extend([phrase.count(b" ") + 1 for phrase in phrases])
        kind = np.min_scalar_type(len(words))
        first, second = (Phrases(np.array(numbers, kind), np.array(lengths)) for numbers, lengths in columns)
        return cls(tuple(words), first, np.array(repeats), second)

    @classmethod
    def empty(cls) -> Self:
        """A table without pairs."""
        none = np.zeros(0, np.uint8)
        return cls((), Phrases(none, none), none, Phrases(none, none))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Load a file of `save`; ValueError, OSError, KeyError or BadZipFile for other files."""
        check_regular(path)
        with np.load(path) as file:
            first, second = (Phrases(file[name], file[f"{name}_lengths"]) for name in ("first", "second"))
            return cls(tuple(file["words"].tobytes().split(b"\n")), first, file["repeats"], second)

    def save(self, path: Path) -> None:
        """Write the arrays, about 40 MB, atomically."""
        arrays = {"words": np.frombuffer(b"\n".join(self.words), np.uint8), "repeats": self.repeats}
        for name, phrases in (("first", self.first), ("second", self.second)):
            arrays |= {name: phrases.numbers, f"{name}_lengths": phrases.lengths}
        with replacing(path) as part, part.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    def matching(self, references: Iterable[str], words: Iterable[str]) -> Numbers:
        """The indices of pairs whose words are all among `words`, and with a phrase that is in a reference."""
        occurring = np.zeros(len(self.words), bool)
        occurring[[self.numbers[word] for word in words if word in self.numbers]] = True
        tokens = [self.numbers.get(word, -1) for text in references for word in (*text.lower().split(" "), "")]
        longest = int(max(self.first.lengths.max(initial=0), self.second.lengths.max(initial=0)))
        # A hash collision may keep a pair that cannot match, which changes no result.
        in_reference = np.zeros(1 << _HASH_BITS, bool)
        for hashes in hashes_of_runs(np.array(tokens, np.int64), longest):
            in_reference[hashes] = True
        occurs = self.first.all_in(occurring)
        first_in_reference = np.zeros(len(occurs), bool)
        first_in_reference[occurs] = in_reference[self.first.hashes(np.flatnonzero(occurs))]
        candidates: Numbers = np.flatnonzero(occurs[self._run] & self.second.all_in(occurring))
        second_in_reference = in_reference[self.second.hashes(candidates)]
        matching: Numbers = candidates[first_in_reference[self._run[candidates]] | second_in_reference]
        return matching

    def write(self, target: IO[bytes], pairs: Numbers) -> None:
        """Write the pairs with these ascending indices in the jar's gzipped format."""
        # A word within a phrase, at the end of a pair's first, and at the end of its second, before the next pair.
        forms = np.array([word + after for after in (b" ", b"\n", b"\n0\n") for word in self.words], object)
        text = [b"0\n"]
        for start in range(0, len(pairs), _PAIRS_WRITTEN):
            chunk: Numbers = pairs[start : start + _PAIRS_WRITTEN]
            sides: tuple[tuple[Phrases, Numbers], ...] = ((self.first, self._run[chunk]), (self.second, chunk))
            lengths = np.column_stack([phrases.lengths[indices] for phrases, indices in sides]).astype(np.int32)
            phrase_ends = np.cumsum(lengths, dtype=np.int32).reshape(-1, 2)
            form = np.empty(phrase_ends[-1, -1], np.int32)
            for side, (phrases, indices) in enumerate(sides):
                count = lengths[:, side]
                phrase_end = phrase_ends[:, side]
                form[_ranges(phrase_end - count, count)] = phrases.numbers[_ranges(phrases.starts[indices], count)]
                form[phrase_end - 1] += (side + 1) * len(self.words)
            text.append(b"".join(forms[form]))
        with gzip.open(target, "wb", compresslevel=0) as file:
            file.write(b"".join(text)[: -len(b"0\n")])

    @cached_property
    def _run(self) -> Numbers:
        """The index of each pair's first phrase."""
        return np.repeat(np.arange(len(self.repeats), dtype=np.int32), self.repeats)

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The number of each word."""
        return {word.decode("utf-8", "replace"): number for number, word in enumerate(self.words)}


def paraphrase_table(source: Path) -> ParaphraseTable:
    """The jar's table `source`, from the user's cache where it can be; OSError where it cannot be read."""
    with source.open("rb") as file:
        file.seek(-8, io.SEEK_END)
        content = file.read().hex()  # gzip's checksum and length of the content
    cached = user_cache() / "meteor" / f"{source.name.removesuffix('.gz')}-{content}-{_FORMAT}.npz"
    if (table := _load(cached)) is not None:
        return table
    with suppress(OSError), locked(cached.with_suffix(".lock"), lambda: None):  # a cache that cannot be written
        if (table := _load(cached)) is None:
            table = ParaphraseTable.read(source)
            with suppress(OSError):
                table.save(cached)
        return table
    return ParaphraseTable.read(source)


def _load(cached: Path) -> ParaphraseTable | None:
    with suppress(OSError, ValueError, KeyError, zipfile.BadZipFile):
        return ParaphraseTable.load(cached)
    return None


def _ranges(starts: Numbers, lengths: Numbers) -> Numbers:
    """Concatenated ranges of consecutive numbers, given their starts and lengths."""
    before = np.cumsum(lengths, dtype=lengths.dtype) - lengths
    return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()), dtype=lengths.dtype)


def words_of(captions: Iterable[str]) -> set[str]:
    """The distinct lower-case words of normalised captions."""
    return {word for caption in captions for word in caption.lower().split(" ")}


def meteor_jar() -> Path:
    """Path of the METEOR 1.5 jar inside pycocoevalcap."""
    return Path(str(resources.files("pycocoevalcap") / "meteor" / "meteor-1.5.jar"))


def meteor_paraphrases() -> Path:
    """Path of the jar's paraphrase table."""
    return meteor_jar().parent / "data" / "paraphrase-en.gz"


class MeteorProcess:
    """A JVM that computes METEOR's statistics in about 1 ms per caption, started once for many systems.

    Two daemon threads write to and read from the child's pipes, so that neither side can block the other; the caller
    only waits on a queue, with a timeout. The child's standard error goes to a file. The child ends at end of file on
    its standard input, and so also when this process is killed.

    Args:
        timeout_s: maximum time until the next answer, start-up included.
        paraphrases: an open file of paraphrases to use instead of the jar's table, which takes 6 to 8 s to read. It may
            be closed after construction.
        normalise: whether the jar normalises captions, which it repeats for every answer; see `MeteorNormalizer`.
        language: of the captions.
    """

    def __init__(
        self,
        java: Path,
        *,
        timeout_s: float,
        paraphrases: IO[bytes] | None = None,
        normalise: bool = False,
        language: MeteorLanguage = ENGLISH,
    ) -> None:
        self._timeout_s = timeout_s
        options = ["-", "-", "-stdio", "-l", language.code]
        if normalise:
            options.append("-norm")
        if paraphrases is not None:
            paraphrases.seek(0)
            options += ["-a", f"/dev/fd/{paraphrases.fileno()}"]
        command = java_command(java, *_JVM, "-jar", str(meteor_jar()), *options, heap_mb=_HEAP_MB)
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process runs
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                env=java_environment(),
                pass_fds=[] if paraphrases is None else [paraphrases.fileno()],
            )
        except OSError as error:
            raise JavaError(f"METEOR: {java} cannot be started: {error.strerror or error}") from error
        stdin = self._process.stdin
        stdout = self._process.stdout
        assert stdin is not None
        assert stdout is not None
        self._stdin: IO[bytes] = stdin
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._writer: threading.Thread | None = None
        self._reader = _start_thread(self._read, stdout)

    def statistics(self, references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> Array:
        """METEOR's statistics (N, 23) of tokenised captions, in the order of `candidates`.

        JavaError where the process has ended, does not answer in time or answers unexpectedly; then it is closed.
        """
        questions = (_question(references[image_id], caption) for image_id, caption in candidates.items())
        self._writer = _start_thread(self._write, questions)
        answers = np.empty((len(candidates), STATISTICS))
        try:
            for index in range(len(candidates)):
                answers[index] = self._answer()
        except JavaError:
            self.close()
            raise
        self._writer.join()
        return answers

    def close(self) -> None:
        """End the process and its threads; safe to call twice."""
        self._process.kill()  # first, since it unblocks a writer that waits for a full pipe and holds its lock
        self._process.wait(_GRACE_S)
        if self._writer is not None:
            self._writer.join(_GRACE_S)
        if self._writer is None or not self._writer.is_alive():
            with suppress(OSError):  # flushing to a dead child fails
                self._stdin.close()  # ends a JVM whose `java` is a script, of which only the script was killed
        self._reader.join(_GRACE_S)

    def _answer(self) -> list[float]:
        try:
            line = self._answers.get(timeout=self._timeout_s)
        except queue.Empty:
            raise JavaError(f"METEOR: no answer within {self._timeout_s:g} s") from None
        if line is None:
            self._answers.put(None)  # for later calls
            raise JavaError(f"METEOR: the Java process ended with status {self._end()}")
        try:
            numbers = [float(word) for word in line.split()]
        except ValueError:
            numbers = []
        if len(numbers) != STATISTICS:
            raise JavaError(f"METEOR: unexpected answer {line.decode('utf-8', 'replace').strip()[:100]!r}")
        return numbers

    def _end(self) -> str:
        """The exit status, and the last lines of standard error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_GRACE_S)
        self._stderr.seek(0)
        lines = [line.strip() for line in self._stderr if not line.startswith(b"\tat ")]  # without stack traces
        message = b" / ".join(lines[-5:]).decode("utf-8", "replace")
        return f"{self._process.returncode}" + (f": {message[-300:]}" if message else "")

    def _write(self, lines: Iterable[bytes]) -> None:
        # The reading side reports a child that ended, with its exit status.
        with suppress(OSError, ValueError):
            self._stdin.writelines(lines)
            self._stdin.flush()

    def _read(self, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._answers.put(line)
        self._answers.put(None)


def _start_thread(work: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=work, args=arguments, daemon=True)
    thread.start()
    return thread


def _question(references: Sequence[str], candidate: str) -> bytes:
    return (f" {METEOR_SEPARATOR} ".join(["SCORE", *references, candidate]) + "\n").encode()


class MeteorNormalizer:
    """Normalises captions as METEOR's `-norm` does, with the jar's own class, and caches the results."""

    def __init__(self, language: MeteorLanguage, *, timeout_s: float) -> None:
        self._language = language
        self._timeout_s = timeout_s
        self._normalised: dict[str, str] = {}

    def normalise(self, captions: Iterable[str], java: Path) -> dict[str, str]:
        """The normal form of each caption; JavaError where the program fails."""
        distinct = dict.fromkeys(captions)
        new = [caption for caption in distinct if not self._is_normal(caption) and caption not in self._normalised]
        if new:
            self._normalised.update(zip(new, self._run_normalizer(new, java), strict=True))
        return {caption: self._normalised.get(caption, caption) for caption in distinct}

    def _is_normal(self, caption: str) -> bool:
        """Whether a caption is certainly normal: of English letters and single spaces, or in another language."""
        return not self._language.normalises or (self._language == ENGLISH and _PLAIN.fullmatch(caption) is not None)

    def _run_normalizer(self, captions: Sequence[str], java: Path) -> list[str]:
        program = ("-cp", str(meteor_jar()), "edu.cmu.meteor.util.Normalizer", self._language.code, "true")
        command = java_command(java, *_JVM, "-Dstdout.encoding=UTF-8", *program, heap_mb=_HEAP_MB)
        text = "".join(f"{caption}\n" for caption in captions)
        done = run_java("METEOR's normalizer", command, timeout_s=self._timeout_s, stdin=text.encode())
        lines = done.stdout.decode("utf-8", "replace").replace("\r\n", "\n").split("\n")[:-1]
        if len(lines) != len(captions):
            raise JavaError(f"METEOR's normalizer: {len(captions)} captions went in, {len(lines)} lines came out")
        return lines


class MeteorSession:
    """A METEOR process for many systems, restarted after a failure, or for words that it lacks paraphrases of."""

    def __init__(self, find_java: Callable[[], Path], *, timeout_s: float, language: MeteorLanguage = ENGLISH) -> None:
        self._find_java = find_java
        self._timeout_s = timeout_s
        self._language = language
        self._normalizer = MeteorNormalizer(language, timeout_s=timeout_s)
        self._process: MeteorProcess | None = None
        self._table: ParaphraseTable | None = None
        # The process has the paraphrases of these normalised references and words of the table.
        self._references: set[str] = set()
        self._words: set[str] = set()
        self._expected: set[str] = set()
        self._preparing: threading.Thread | None = None

    def prepare(self, references: Sequence[str], captions: Sequence[str]) -> None:
        """Start in the background for references and for the words of captions, both not tokenised.

        If Java does not work, `statistics` reports it.
        """

        def start() -> None:
            with suppress(JavaError):
                java = self._find_java()
                tokens = tokenize_ptb([*references, *captions])
                normal = self._normalizer.normalise(tokens, java)
                self._start(java, {normal[text] for text in tokens[: len(references)]}, normal.values())

        self._preparing = _start_thread(start)

    def expect(self, words: Collection[str]) -> None:
        """Announce words of later captions, so that the process is not restarted for them."""
        self._expected.update(words)

    def statistics(self, references: Mapping[int, Sequence[str]], candidates: Mapping[int, str]) -> Array:
        """As `MeteorProcess.statistics`; JavaError also without a working Java. The next call then starts anew."""
        self._wait()
        java = self._find_java()
        fields = {text: sanitise_meteor_field(text) for text in chain(*references.values(), candidates.values())}
        normal = self._normalizer.normalise(fields.values(), java)
        normalised = {image_id: [normal[fields[text]] for text in references[image_id]] for image_id in candidates}
        captions = {image_id: normal[fields[text]] for image_id, text in candidates.items()}
        process = self._start(java, set(chain.from_iterable(normalised.values())), captions.values())
        try:
            return process.statistics(normalised, captions)
        except JavaError:
            self._process = None
            raise

    def close(self) -> None:
        """End the process, even one that is still being prepared; safe to call twice."""
        self._wait()
        self._end_process()

    def _start(self, java: Path, references: Collection[str], captions: Iterable[str]) -> MeteorProcess:
        """A process for normalised captions: the current one if it has their paraphrases, or else a new one."""
        try:
            self._table = self._table or self._paraphrases()
            words = words_of(chain(references, captions)) & self._table.numbers.keys()
            is_covered = self._references.issuperset(references) and self._words.issuperset(words)
            if self._process is None or not is_covered:
                self._end_process()
                self._references.update(references)
                self._words.update(words | (self._expected & self._table.numbers.keys()))
                # Without a name, it is deleted when the last process closes it.
                with tempfile.TemporaryFile() as paraphrases:
                    self._table.write(paraphrases, self._table.matching(self._references, self._words))
                    self._process = MeteorProcess(
                        java, timeout_s=self._timeout_s, paraphrases=paraphrases, language=self._language
                    )
        except OSError as error:
            raise JavaError(f"METEOR: its paraphrases cannot be prepared: {error.strerror or error}") from error
        return self._process

    def _paraphrases(self) -> ParaphraseTable:
        return paraphrase_table(meteor_paraphrases()) if self._language == ENGLISH else ParaphraseTable.empty()

    def _wait(self) -> None:
        if self._preparing is not None:
            self._preparing.join()
            self._preparing = None

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None
