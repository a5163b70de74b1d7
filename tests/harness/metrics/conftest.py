"""COCO captions with their pycocoevalcap scores, one evaluator for all tests, and make-believe Java programs."""

import gzip
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from harness.metrics.evaluator import Evaluator
from harness.metrics.java import bundled_java

FIXTURES = Path(__file__).parents[2] / "fixtures" / "evaluation"


@dataclass(frozen=True)
class Coco:
    """Fixture set a: raw captions, their tokens, and what pycocoevalcap 1.2 makes of them."""

    references: dict[int, list[str]]
    candidates: dict[int, str]
    tokenized_references: dict[int, list[str]]
    tokenized_candidates: dict[int, str]
    corpus: dict[str, float]
    per_image: dict[str, dict[int, float]]


@pytest.fixture(scope="session")
def coco() -> Coco:
    images = _read("a_input.json.gz")["images"]
    expected = _read("a_expected.json.gz")
    ids, scores = expected["ids"], expected["scores"]
    names = {"METEOR": "meteor", "ROUGE-L": "rouge_l", "CIDEr-D": "cider"}
    bleu = scores["bleu"]
    return Coco(
        references={image["image_id"]: image["refs"] for image in images},
        candidates={image["image_id"]: image["cand"] for image in images},
        tokenized_references=dict(zip(ids, expected["tok_refs"], strict=True)),
        tokenized_candidates=dict(zip(ids, expected["tok_cand"], strict=True)),
        corpus={f"BLEU-{k + 1}": bleu["corpus"][k] for k in range(4)}
        | {name: scores[theirs]["corpus"] for name, theirs in names.items()},
        per_image={
            f"BLEU-{k + 1}": {i: row[k] for i, row in zip(ids, bleu["per_image"], strict=True)} for k in range(4)
        }
        | {name: dict(zip(ids, scores[theirs]["per_image"], strict=True)) for name, theirs in names.items()},
    )


@pytest.fixture(scope="session")
def evaluator(tmp_path_factory: pytest.TempPathFactory, coco: Coco) -> Iterator[Evaluator]:
    """One evaluator, hence one METEOR process, on the bundled runtime: no `java` on its PATH, and a German locale."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(tmp_path_factory.mktemp("empty")))
        patch.delenv("BENCH_JAVA", raising=False)
        patch.setenv("LC_ALL", "de_DE.UTF-8")
        shared = Evaluator()
        shared.warm_up([text for texts in coco.references.values() for text in texts], [*coco.candidates.values()])
        shared._meteors[0]._wait()
    with shared:
        yield shared


@pytest.fixture
def fake_java(tmp_path: Path) -> Callable[..., Path]:
    """Make a `java` that answers -version and does what is asked in shell for METEOR and for the tokenizer."""

    def make(*, tokenizer: str = f'exec "{bundled_java()}" "$@"', meteor: str = "exit 9") -> Path:
        script = tmp_path / "java"
        script.write_text(
            "#!/bin/sh\n"
            'case "$*" in\n'
            "-version) echo 'openjdk version \"0\"' >&2 ;;\n"
            f"*meteor-1.5.jar*) {meteor} ;;\n"
            f"*) {tokenizer} ;;\n"
            "esac\n"
        )
        script.chmod(0o755)
        return script

    return make


def _read(name: str) -> Any:
    with gzip.open(FIXTURES / name, "rt", encoding="utf-8") as file:
        return json.load(file)
