"""A model with released weights is added by its file and its card: nothing else of the package changes."""

import subprocess
import sys
from pathlib import Path

import zoo

ROOT = Path(zoo.__file__).resolve().parents[1]
MODEL = '''
"""A mean of regions as an input of an LSTM at every word."""

from torch import Tensor, nn
from torch.nn import functional as F

from zoo.captioner import Memory, Visual, VisualSpec
from zoo.converter import Converter
from zoo.layers.lstm import LSTMCell
from zoo.layers.pooling import mean_of_valid
from zoo.recurrent import RecurrentCaptioner, Rows


class MeanLSTM(RecurrentCaptioner):
    """h = LSTM([word; mean], h); p = softmax(W h)."""

    per_row = ("image",)

    def __init__(self, *, vocab_size: int, visual_dim: int, d_model: int = 32, max_len: int = 20) -> None:
        super().__init__(VisualSpec("regions", visual_dim), vocab_size, max_len, d_model)
        self.embedding = nn.Embedding(vocab_size, d_model)
        self.image_gates = nn.Linear(visual_dim, 4 * d_model, bias=False)
        self.lstm = LSTMCell(d_model, d_model, d_model)
        self.output_dropout = nn.Dropout(0.5)
        self.vocabulary = nn.Linear(d_model, vocab_size)

    def encode(self, visual: Visual) -> Memory:
        features, mask = self.valid_features(visual)
        image = F.linear(mean_of_valid(features, mask), self.image_gates.weight, self.lstm.both_biases())
        return Memory(features, mask, {"image": image})

    def advance(self, inputs: Tensor, rows: Rows, images: dict[str, Tensor]) -> tuple[Tensor, Rows]:
        hidden, cell = self.lstm(inputs, rows["hidden"], rows["cell"])
        return hidden, {"hidden": hidden, "cell": cell}


CONVERTER = Converter(
    source="MeanLSTM",
    renames=(
        (r"^word\\.", "embedding."),
        (r"^visual\\.", "image_gates."),
        (r"^cell\\.i2h\\.", "lstm.input."),
        (r"^cell\\.h2h\\.", "lstm.recurrent."),
        (r"^logit\\.", "vocabulary."),
    ),
    size_axes={"vocab_size": ("logit.weight", 0), "d_model": ("logit.weight", 1), "visual_dim": ("visual.weight", 1)},
)
'''
CARD = '''
"""Card of MeanLSTM."""

from zoo.card import ModelCard, ReleasedWeights, trained_on_coco

CARDS = [
    ModelCard(
        name="mean_lstm",
        entry="zoo.models.mean_lstm:MeanLSTM",
        summary="The mean of the regions at every word",
        paper="none",
        year=2026,
        source="none",
        licence="MIT",
        visual="regions",
        arguments={"d_model": 32},
        tiny={"d_model": 8, "max_len": 12},
        released=ReleasedWeights(pretraining=trained_on_coco("none", "none"), beam_size=3, preparation="words"),
    )
]
'''
CHECK = """
import sys

import zoo

assert "mean_lstm" in zoo.list_models() and "mean_lstm" in zoo.select_models("all")
assert "torch" not in sys.modules

import torch

from harness.benchmark.import_weights import import_weights
from harness.config.features import FeatureConfig
from harness.key import model_files
from harness.utils.errors import BenchError
from harness.utils.workspace import Workspace
from pathlib import Path
from zoo.converter import converter_of, convertible_families, from_official
from zoo.laws import check_laws

model = zoo.create_model("mean_lstm", vocab_size=9, visual_dim=6, d_model=8).double().eval()
visual = zoo.Visual(torch.rand(3, 4, 6).double(), torch.ones(3, 4, dtype=torch.bool))
check_laws(model, visual, vocab_size=9, begin=1)
assert "zoo/models/mean_lstm.py" in model_files([zoo.model_card("mean_lstm")])

names = {converter_of("mean_lstm").name(name): name for name in (
    "word.weight", "visual.weight", "cell.i2h.weight", "cell.i2h.bias", "cell.h2h.weight", "cell.h2h.bias",
    "logit.weight", "logit.bias",
)}
official = {names[name]: tensor for name, tensor in model.state_dict().items()}
tokens = torch.randint(3, 9, (3, 5))
assert torch.equal(from_official("mean_lstm", official).eval()(visual, tokens), model(visual, tokens))
assert "mean_lstm" in convertible_families()

place = Workspace(Path("workspace"))
try:
    import_weights("blind", Path("a"), Path("b"), workspace=place, features=FeatureConfig(), arguments={})
except BenchError as error:
    assert "mean_lstm" in error.hint, error.hint
else:
    raise AssertionError("blind has no released weights")
print("added")
"""


def test_a_model_is_its_file_and_its_card(copy: Path) -> None:
    (copy / "zoo" / "models" / "mean_lstm.py").write_text(MODEL, encoding="utf-8")
    (copy / "zoo" / "cards" / "mean_lstm.py").write_text(CARD, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(copy)!r})\n{CHECK}"],
        cwd=copy,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ["added"], "")
