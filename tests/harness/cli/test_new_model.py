"""`bench new-model`, and the page that shows what it writes."""

from pathlib import Path

import pytest
import torch

from harness.cli.new_model import named
from harness.utils.errors import BenchError
from harness.utils.plugins import load_plugin
from tests.harness.conftest import TINY, DrawScenes, bench_ok, bench_or_raise, run_counts, run_words
from tests.zoo import test_laws
from zoo import create_model
from zoo.laws import BrokenLawError, check_laws

LOGITS, HIDDEN = "self.vocabulary(self.dropout(hidden))", 'state.rows["hidden"]'
BEAMS = "hidden.view(len(cells), -1, hidden.shape[-1])"
IN_IMAGES = {  # the hidden state of a beam, among what the beams of an image share
    '"mask": memory.mask}, rows={"hidden": mean}': '"mask": memory.mask, "hidden": mean}, rows={}',
    HIDDEN: 'state.images["hidden"]',
    "        queries =": "        hidden = hidden.repeat_interleave(len(tokens) // len(hidden), 0)\n        queries =",
    'state.images, {"hidden": hidden}': '{**state.images, "hidden": hidden}, {}',
}
OTHER_BEAMS = f"{BEAMS}.mean(1, True).expand_as({BEAMS}).flatten(0, 1)"


@pytest.mark.parametrize(
    ("changes", "broken"),
    [
        ({"stack(logits, 1)": "stack(logits, 1) + self.vocabulary(self.words(tokens.roll(-1, 1)))"}, "later words"),
        ({"stack(logits, 1)": "stack(logits, 1) * 1.01"}, "different logits for the same words"),
        (IN_IMAGES, "another beam's state"),
        ({"        hidden = self.gru": f"        hidden = {OTHER_BEAMS}\n        hidden = self.gru"}, "other captions"),
        ({"self.cells(features), mask": "self.cells(features - features.mean(0)), mask"}, "alone"),
        ({"~mask[:, None]": "~mask[:, None] & False"}, "alone"),
        ({LOGITS: f"{LOGITS} * float('inf')"}, "NaN"),
        ({LOGITS: f"{LOGITS}[:, 1:]"}, "shape"),
        ({"self.dropout(hidden)": "torch.nn.functional.dropout(hidden, 0.5)"}, "the same input"),
        ({"self.vocab_size = vocab_size": "self.vocab_size = vocab_size + 1"}, "vocab_size"),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_model_that_breaks_a_law_is_told_which(
    tmp_path: Path, changes: dict[str, str], broken: str, dtype: torch.dtype
) -> None:
    source = named("mine", "mine")
    for old, new in changes.items():
        assert old in source
        source = source.replace(old, new)
    (tmp_path / "mine.py").write_text(source)
    load_plugin(str(tmp_path / "mine.py"))
    torch.manual_seed(0)
    model = create_model("mine", vocab_size=23, visual_dim=6).to(dtype).eval()
    visual = test_laws.look(model, dtype=dtype)
    with pytest.raises(BrokenLawError, match=broken):
        check_laws(model, visual, vocab_size=23, begin=1)


@pytest.mark.parametrize("name", ["memory", "visual_spec"])
def test_a_name_that_would_hide_what_the_file_imports_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BenchError, match="would hide"):
        bench_or_raise("new-model", name, "--out", tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.usefixtures("quick_runs")
def test_a_model_is_written_and_trains(tmp_path: Path, draw_scenes: DrawScenes) -> None:
    said = bench_ok("new-model", "sparse_gru", "--out", tmp_path / "models").stdout
    plugin, test = tmp_path / "models" / "sparse_gru.py", tmp_path / "models" / "test_sparse_gru.py"
    assert f"bench run --models sparse_gru,transformer_base --plugin {plugin}" in said
    assert "class SparseGru(Captioner):" in plugin.read_text()
    assert "mine" not in (plugin.read_text() + test.read_text()).lower()
    words = run_words(draw_scenes(train=24, val=4, test=6), tmp_path / "workspace", "sparse_gru", TINY)
    said = bench_ok(*words, "--backbone", "filterbank", "--jobs", 1, "--plugin", plugin).stdout
    assert run_counts(said).items() >= {"finished": 1, "re-used": 0, "failed": 0}.items()


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "test_gnu.py").write_text("mine")
    with pytest.raises(BenchError, match=r"test_gnu\.py"):
        bench_or_raise("new-model", "gnu", "--out", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["test_gnu.py"]
    assert (tmp_path / "test_gnu.py").read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("Gnu", "lower-case letters"),
        ("2gnu", "beginning with a letter"),
        ("a/b", "lower-case letters"),
        ("lambda", "a word or a module of Python"),
        ("torch", "a word or a module of Python"),
        ("show_tell", "a model of the zoo already"),
        ("human", "stands for something else"),
    ],
)
def test_names_that_cannot_be_are_refused(tmp_path: Path, name: str, why: str) -> None:
    with pytest.raises(BenchError, match=why):
        bench_or_raise("new-model", name, "--out", tmp_path)
    assert not list(tmp_path.iterdir())
