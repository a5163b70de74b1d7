"""What `bench regress` found: printed, and written in every format into the folder of `--findings`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from harness.cli.output import OutputFolder, deliver

if TYPE_CHECKING:
    from rich.console import Console

FILES: Final = ("findings.txt", "findings.md", "findings.json")


@dataclass(frozen=True)
class Findings:
    """The findings in every format, and the exit code: 0 as before, 1 a finding, 2 not judged."""

    exit_code: int
    show: Callable[[Console], None]
    markdown: str
    content: dict[str, Any]


def remove_earlier_findings(folder: Path) -> None:
    """Remove the files of an earlier command: they would be read as this one's if it ends with an error."""
    written = OutputFolder(folder, "--findings")
    for path in [written.check(name) for name in FILES]:
        path.unlink(missing_ok=True)


def deliver_findings(findings: Findings, folder: Path | None) -> None:
    from rich.console import Console

    findings.show(Console(highlight=False))
    if folder is not None:
        content = {"exit_code": findings.exit_code, **findings.content}
        as_json = json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        texts: tuple[str | Callable[[Console], None], ...] = (findings.show, findings.markdown, as_json)
        written = OutputFolder(folder, "--findings")
        for name, text in zip(FILES, texts, strict=True):
            deliver(text, written.check(name), "--findings")
            written.record(name)
