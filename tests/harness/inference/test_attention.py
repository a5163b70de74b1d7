"""Where words looked, as places of pictures: words of several tokens, cropped pictures, regions, PNGs, the store."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from harness.benchmark.caption_images import caption_dataset, of_files
from harness.data.dataset import Dataset, Sample
from harness.data.features import NullSource
from harness.data.hub import HubPreprocessing
from harness.data.images import ImagePreprocessing
from harness.data.vocabularies import SubwordVocabulary
from harness.data.vocabulary import BOS, EOS, UNK, Vocabulary
from harness.inference.attention import (
    PANEL,
    WHOLE,
    Box,
    attention_records,
    cells_within,
    check_attends,
    draw_attention,
    grid_of,
    looked_at_most,
    shown_parts,
    words_with_positions,
)
from harness.utils.errors import BenchError
from harness.utils.progress import Reporter
from results.records import AttentionRecord
from tests.harness.conftest import MakeRun, bench, bench_ok
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
    weights = attention_weights(model, visual, torch.tensor([[BOS, a, red], [BOS, 0, 0], [BOS, a, UNK]]))
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
    with pytest.raises(BenchError, match=f"{name} does not attend .*{words}"):
        check_attends(name, tiny(name), NullSource())


def test_a_sheet_has_a_panel_a_word(tmp_path: Path) -> None:
    picture = tmp_path / "grey.png"
    Image.new("RGB", (400, 200), "grey").save(picture)
    weights = tuple(tuple(float(place == word) for place in range(8)) for word in range(7))
    draw_attention(picture, AttentionRecord(1, ("Öl", "w" * 300, *"cdefg"), weights, grid=(2, 4)), tmp_path / "out.png")
    sheet = np.asarray(Image.open(tmp_path / "out.png")).astype(int)
    assert sheet.shape[1] == 6 * (PANEL + 8) + 8, "eight panels in two rows of at most six"
    panel = sheet[8 : 8 + PANEL // 2, 16 + PANEL : 16 + 2 * PANEL]
    red = panel[..., 0] - panel[..., 2]
    assert red[:40, :30].mean() > 100, "the first word looked at the top left"
    assert abs(red[-40:, -60:]).max() < 5


def test_the_encoder_s_panels_follow_with_their_place_framed(tmp_path: Path) -> None:
    picture = tmp_path / "grey.png"
    Image.new("RGB", (PANEL, PANEL), "grey").save(picture)
    record = AttentionRecord(1, ("a",), ((1.0, 0, 0, 0),), grid=(2, 2), sources=(3,), among=((0.0, 1.0, 0.0, 0.0),))
    draw_attention(picture, record, tmp_path / "out.png")
    sheet = np.asarray(Image.open(tmp_path / "out.png")).astype(int)
    assert sheet.shape[1] == 3 * (PANEL + 8) + 8
    panel = sheet[8 : 8 + PANEL, 24 + 2 * PANEL : 24 + 3 * PANEL]
    half = PANEL // 2
    red = panel[..., 0] - panel[..., 2]
    assert red[:40, -40:].mean() > 100, "from the frame it looks at the top right"
    assert (panel[half, half:] == 255).all(), "the frame is at the bottom right"
    assert (panel[half:, half] == 255).all()


def test_places_that_most_words_look_at_come_first() -> None:
    assert looked_at_most([[0.1, 0.9], [0.6, 0.4], [0.2, 0.8]]) == (1, 0)
    assert looked_at_most([[float(place == word) for place in range(9)] for word in range(9)]) == (0, 1, 2, 3, 4, 5)


def test_a_head_is_drawn_alone(pictures: list[Path], make_run: MakeRun, tmp_path: Path) -> None:
    folder, drawn = make_run(), []
    for words in ((), ("--head", 1), ("--head", 2)):
        out = tmp_path / f"drawn{len(drawn)}"
        bench_ok("attention", pictures[0], "--run", folder, "--out", out, *words)
        [sheet] = out.glob("*.png")
        drawn.append(sheet.read_bytes())
    assert len(set(drawn)) == 3
    done = bench("attention", pictures[0], "--run", folder, "--out", tmp_path / "x", "--head", 99)
    assert "there is no head 99" in str(done.exception)


def test_regions_keep_their_edges_and_the_first_is_framed(tmp_path: Path) -> None:
    picture = tmp_path / "grey.png"
    Image.new("RGB", (PANEL, PANEL), "grey").save(picture)
    boxes = ((0.0, 0.0, 0.5, 0.5), (0.5, 0.5, 1.2, 1.2), (0.9, 0.1, 0.9, 0.1))
    draw_attention(picture, AttentionRecord(1, ("a",), ((0.3, 0.7, 0.0),), boxes=boxes), tmp_path / "out.png")
    panel = np.asarray(Image.open(tmp_path / "out.png"))[8 : 8 + PANEL, 16 + PANEL : 16 + 2 * PANEL].astype(int)
    half = PANEL // 2
    red = panel[..., 0] - panel[..., 2]
    assert red[half + 5 : -5, half + 5 : -5].min() > red[5 : half - 5, 5 : half - 5].max() > 5
    assert abs(red[5 : half - 5, half + 5 : -5]).max() == 0
    assert (panel[half, half:] == 255).all()


def test_the_command_draws_a_png_a_picture(pictures: list[Path], make_run: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    blue = pictures[1]
    twin = Path(shutil.copy(blue, tmp_path / "other" / blue.name))
    folder, out = make_run(), tmp_path / "drawn"
    done = bench_ok("attention", blue, *pictures, twin, "--run", folder, "--out", out)
    lines = done.stdout.splitlines()
    names = ["blue-attention.png", "red-attention.png", "blue-2-attention.png"]
    assert lines[3:] == [f"attention drawn in {out / name}" for name in names]
    assert sorted(path.name for path in out.glob("*.png")) == sorted(names)
    assert bench("caption", blue, *pictures, twin, "--run", folder).stdout.splitlines() == lines[:3], (
        "captions stay what they are"
    )


def test_the_maps_belong_to_the_captions(pictures: list[Path], make_run: MakeRun) -> None:
    looked: dict[Path, AttentionRecord] = {}
    found = caption_dataset(of_files(pictures), make_run(), reporter=Reporter(), on_attention=looked.__setitem__)
    assert list(looked) == pictures
    for path, record in looked.items():
        assert record.image_id == pictures.index(path)
        assert " ".join(record.words) == found.captions[record.image_id]
        assert record.grid == (2, 2)
        np.testing.assert_allclose(np.sum(record.weights, 1), 1.0, atol=1e-5)


def test_a_model_without_attention_says_what_to_leave_out(pictures: list[Path], make_run: MakeRun) -> None:
    done = bench("attention", *pictures, "--run", make_run("show_tell"))
    assert "show_tell does not attend" in str(done.exception)
    assert "bench caption" in (getattr(done.exception, "hint", None) or "")
