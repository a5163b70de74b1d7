"""docs/notebook.md and the recipe of docs/graph_models.md: their code runs, and shows what is so, on made-up runs."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from results import ImageRecord, Quantity, RunSpec, SplitResult, Store
from tests.documentation.pages import text_of

PAGE = Path(__file__).resolve().parents[3] / "docs" / "notebook.md"
BLOCK = re.compile(r"^```python\n(?P<code>.*?)^```\n(?:\n```text\n(?P<shown>.*?)^```\n)?", re.MULTILINE | re.DOTALL)

PICTURES = [
    ("a red ball left of a blue cube", "in-domain"),
    ("a green cone above a table", "in-domain"),
    ("two yellow cubes", "in-domain"),
    ("a blue ball inside a box", "near-domain"),
    ("a red cone right of a green ball", "near-domain"),
    ("three small balls", "near-domain"),
    ("a purple ring on a cube", "out-domain"),
    ("a white star under a table", "out-domain"),
]
QUALITY = {"expansionnet_v2": 1.1, "transformer_base": 0.9, "blind": 0.2, "human": 1.8}
PARAMETERS = {"expansionnet_v2": 2.3e6, "transformer_base": 1.6e6, "blind": 1.0e6}
GMAC = {"expansionnet_v2": 0.13, "transformer_base": 0.09, "blind": 0.02}
LUCK = (0.0, 0.02, -0.03)  # of each seed
MISTAKES = {
    ("expansionnet_v2", 2): ("a green cone on a table", 0.8),
    ("transformer_base", 8): ("a white star above a table", 0.6),
}  # captions and scores by model and image; others are right


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    """Three models of three seeds and a person in `workspace/bench.sqlite` of the working folder."""
    (tmp_path / "workspace").mkdir()
    monkeypatch.chdir(tmp_path)
    images = tuple(
        ImageRecord(place, f"test/{place}.png", "test", (said,), domain)
        for place, (said, domain) in enumerate(PICTURES, start=1)
    )
    with Store("workspace/bench.sqlite") as store:
        store.record_dataset(make.dataset(images=images))
        for model in PARAMETERS:
            for seed in range(3):
                finish(store, make, make.spec(model, seed))
                for epoch in range(1, 9):
                    cider = None if epoch % 2 else (QUALITY[model] + LUCK[seed]) * (1 - 0.4**epoch)
                    store.record_epoch(f"{model}-{seed}", make.epoch(epoch, step=50 * epoch, val_cider=cider))
        finish(store, make, make.spec("human", 0, role="reference", signature={"nrefs": "4"}))


def finish(store: Store, make: Any, spec: RunSpec) -> None:
    """A run whose scores vary with the picture and the seed."""
    said, by_image = {}, {}
    for image, (caption, _) in enumerate(PICTURES, start=1):
        right = "a red ball" if spec.model == "blind" else caption
        said[image], quality = MISTAKES.get((spec.model, image), (right, QUALITY[spec.model] * (0.8 + 0.05 * image)))
        by_image[image] = quality + LUCK[spec.seed]
    cider = sum(by_image.values()) / len(by_image)
    scores = {
        "CIDEr-D": Quantity(cider, low=0.9 * cider, high=1.1 * cider),
        "SPICE": Quantity(None, "its models are not installed"),
    }
    costs = {}
    if spec.role == "model":
        costs = {
            "parameters": Quantity(PARAMETERS[spec.model]),
            "gmac_beam": Quantity(GMAC[spec.model], unit="GMAC"),
            "latency_median": Quantity(0.1 * GMAC[spec.model] + 0.001 * spec.seed, unit="s"),
            "energy_per_image": Quantity(None, "no energy counter", "J"),
        }
    store.plan([spec])
    store.finish(
        spec.key,
        make.outcome(splits=(SplitResult("test", said, {"overall": scores}, {"CIDEr-D": by_image}),), costs=costs),
    )


def run(code: str, names: dict[str, Any]) -> str:
    """Run a block; gives the text of its last expression, as a notebook shows it."""
    *before, last = ast.parse(code).body
    exec(compile(ast.Module(before, []), str(PAGE), "exec"), names)  # noqa: S102
    if not isinstance(last, ast.Expr):
        exec(compile(ast.Module([last], []), str(PAGE), "exec"), names)  # noqa: S102
        return ""
    value = eval(compile(ast.Expression(last.value), str(PAGE), "eval"), names)  # noqa: S307
    return "" if value is None else repr(value)


def stripped(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


@pytest.mark.usefixtures("workspace")
def test_the_page_shows_what_its_code_gives() -> None:
    blocks = [block for block in BLOCK.finditer(PAGE.read_text(encoding="utf-8")) if "baselines/" not in block["code"]]
    assert len(blocks) == 7
    names: dict[str, Any] = {}
    for block in blocks:
        assert stripped(run(block["code"], names)) == stripped(block["shown"] or ""), block["code"]


@pytest.mark.usefixtures("workspace")
def test_the_rows_of_two_tables_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    page = text_of("docs/graph_models.md")
    [code] = [block["code"] for block in BLOCK.finditer(page) if "results.open" in block["code"]]
    run(code, {})
    assert "blind, graph: none less expansionnet_v2, graph: none: -" in capsys.readouterr().out
