"""Where words looked, as places of pictures: words of several tokens, cropped pictures, regions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from harness.data.dataset import Dataset, Sample
from harness.data.features import NullSource
from harness.data.hub import HubPreprocessing
from harness.data.images import ImagePreprocessing
from harness.data.vocabularies import SubwordVocabulary
from harness.data.vocabulary import BOS, EOS, UNK, Vocabulary
from harness.inference.attention import (
    WHOLE,
    Box,
    attention_records,
    cells_within,
    check_attends,
    grid_of,
    shown_parts,
    words_with_positions,
)
from harness.utils.errors import BenchError
from results.records import AttentionRecord
from zoo import Visual, VisualSpec, create_model, model_card
from zoo.attention_maps import attention_weights

VOCABULARY = Vocabulary(("a", "red", "ball"))


class Cells:
    """Random pixels, of which a model on pixels makes its own cells."""

    def visual(self, image_ids: Sequence[int], spec: VisualSpec) -> Visual:  # noqa: ARG002
        generator = torch.Generator().manual_seed(7)
        return Visual(pixels=torch.rand(9, 3, 32, 32, generator=generator)[list(image_ids)])


def tiny(name: str) -> Any:
    torch.manual_seed(0)
    return create_model(name, vocab_size=len(VOCABULARY), visual_dim=6, **model_card(name).tiny).eval()


def records(model: Any, said: dict[int, list[int]], part: Box = WHOLE) -> list[AttentionRecord]:
    return list(attention_records(model, VOCABULARY, Cells(), said, lambda _: part, device=torch.device("cpu")))


def test_a_word_s_weights_are_those_of_the_step_that_says_it() -> None:
    model = tiny("blip/small")
    a, red, ball = 4, 5, 6
    said = {1: [a, red, ball, EOS, red], 3: [ball, EOS], 4: [EOS], 5: [a, UNK, ball]}
    found = {record.image_id: record for record in records(model, said)}
    assert list(found) == [1, 3, 5], "a caption without a word has nothing to show"
    assert found[1].words == ("a", "red", "ball")
    assert found[5].words == ("a", "<unk>", "ball")
    visual = Cells().visual([1, 3, 5], VisualSpec("pixels", 0))
    tokens = torch.tensor([[BOS, a, red], [BOS, 0, 0], [BOS, a, UNK]])
    weights = attention_weights(model, visual, tokens)
    assert weights is not None
    np.testing.assert_allclose(found[1].weights, weights[0], atol=1e-6)
    np.testing.assert_allclose(found[3].weights, weights[1, :1], atol=1e-6)
    np.testing.assert_allclose(found[5].weights, weights[2], atol=1e-6)
    assert found[1].grid == (2, 2)
    assert found[1].boxes is None


def test_pieces_of_a_word_look_together() -> None:
    pieces = SubwordVocabulary((" b", "al", "l", " c"))
    tokens = [4, 5, 6, 7, pieces.unk, 4]
    assert words_with_positions(pieces, tokens) == [("ball", [0, 1, 2]), ("<unk>", [3, 4]), ("b", [5])]
    assert words_with_positions(VOCABULARY, [4, UNK, 5]) == [("a", [0]), ("<unk>", [1]), ("red", [2])]
    assert words_with_positions(VOCABULARY, []) == []


def test_cells_of_a_cropped_picture_become_boxes_within_it(tmp_path: Path) -> None:
    Image.new("RGB", (80, 40)).save(tmp_path / "wide.png")
    dataset = Dataset("d", tmp_path, (Sample(1, "wide.png", "test", ()),), "d")
    assert shown_parts(dataset, ImagePreprocessing(20))(1) == WHOLE
    part = shown_parts(dataset, ImagePreprocessing(20, resize="shortest-centre-crop"))(1)
    assert part == (0.25, 0.0, 0.75, 1.0)
    [record] = records(tiny("blip/small"), {1: [4, EOS]}, part)
    assert record.grid is None
    assert record.boxes == cells_within((2, 2), part)
    assert cells_within((2, 2), part)[1] == (0.5, 0.0, 0.75, 0.5)


@pytest.mark.parametrize(
    ("changes", "seen"),
    [
        ({"do_center_crop": False, "size": {"height": 20, "width": 20}}, (0, 0, 80, 40)),
        ({"do_center_crop": True, "size": {"shortest_edge": 20}}, (20, 0, 60, 40)),
        ({"do_center_crop": True, "size": {"height": 40, "width": 40}}, (20, 10, 60, 30)),
    ],
)
def test_a_pretrained_model_s_processor_says_what_it_leaves(
    tmp_path: Path, changes: dict[str, Any], seen: tuple[float, ...]
) -> None:
    config = {"image_processor_type": "CLIPImageProcessor", "crop_size": {"height": 20, "width": 20}, **changes}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(config))
    found = HubPreprocessing(tmp_path)
    assert found.seen(80, 40) == seen
    picture = np.zeros((40, 80, 3), np.uint8)
    left, top, right, bottom = map(int, seen)
    picture[top:bottom, left:right] = 255
    shown = found(Image.fromarray(picture))
    assert shown.shape == (3, 20, 20)
    assert shown[:, 3:-3, 3:-3].min() > 1.5, "nothing else is seen"


def test_cells_that_fit_no_picture_are_refused() -> None:
    with pytest.raises(BenchError, match="7 visual tokens"):
        grid_of(7, 224, 224)


@pytest.mark.parametrize(
    ("name", "words"), [("blind", "gets nothing"), ("show_tell", "one vector an image"), ("cgru", "one vector")]
)
def test_models_that_do_not_attend_say_so(name: str, words: str) -> None:
    with pytest.raises(BenchError, match=f"does not attend .*{words}"):
        check_attends(tiny(name), NullSource())
