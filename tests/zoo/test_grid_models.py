"""Arguments of RSTNet and DLCT beside those of the released code, and what the models refuse."""

from dataclasses import replace

import pytest
import torch

import zoo
from tests.zoo.test_laws import IMAGES, look, tiny, words
from zoo.layers.geometry import grid_cells, pair_geometry
from zoo.models.dlct import alignment


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(0)


@torch.no_grad()
def test_codes_of_places_can_be_left_out():
    model = tiny("dlct", codes=False)
    seen = look(model)
    assert not model.encode(seen).features.chunk(2, -1)[1].any()
    assert "box_code.weight" not in model.state_dict()
    moved = replace(seen, boxes=seen.boxes / 2)  # geometry and alignment see it all the same
    assert not torch.allclose(model(moved, words(IMAGES)), model(seen, words(IMAGES)))


@pytest.mark.parametrize("name", ["rstnet", "dlct"])
@torch.no_grad()
def test_geometry_of_the_boxes_is_another(name):
    seen, tokens = look(tiny(name)), words(IMAGES)
    torch.manual_seed(1)
    released = tiny(name)
    other = tiny(name, pixel_sizes=False)
    other.load_state_dict(released.state_dict())
    assert not torch.allclose(other(seen, tokens), released(seen, tokens))


def test_sizes_in_pixels_make_all_boxes_nearly_equal():
    boxes = torch.tensor([[[0.0, 0.0, 0.1, 0.1], [0.0, 0.0, 0.9, 0.9]]], dtype=torch.float64)
    ratio = (0.1 + 1) / (0.9 + 1), 0.9 / 0.1
    for pixels, expected in zip((True, False), ratio, strict=True):
        found = pair_geometry(boxes, boxes, pixel_sizes=pixels)[0, 0, 1]
        phase = 100 * torch.tensor(expected, dtype=torch.float64).log()
        torch.testing.assert_close(found[16], phase.sin())


def test_cells_are_numbered_row_by_row():
    cells = grid_cells(2, 3, like=torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close(cells[4], torch.tensor([1 / 3, 1 / 2, 2 / 3, 1], dtype=torch.float64))


@pytest.mark.parametrize(
    ("name", "wrong", "message"),
    [
        ("rstnet", {"leak": True}, "leak is of BERT, and there is none"),
        ("dlct", {"grid_side": 0}, "grid_side must be at least 1, not 0"),
    ],
)
def test_wrong_arguments_are_refused(name, wrong, message):
    with pytest.raises(zoo.ZooError, match=message):
        tiny(name, **wrong)


@pytest.mark.parametrize(("name", "part"), [("rstnet", "boxes"), ("dlct", "boxes"), ("dlct", "grid")])
def test_what_is_not_shown_is_asked_for(name, part):
    model = tiny(name)
    with pytest.raises(zoo.ZooError, match="this model needs"):
        model.encode(replace(look(model), **{part: None}))


def test_an_edge_on_a_line_belongs_to_the_next_cell():
    cells = grid_cells(4, 4, like=torch.zeros(1))
    boxes = torch.tensor([[[0.25, 0.0, 0.5, 0.2], [0.9, 0.9, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]])
    found = [row.nonzero().flatten().tolist() for row in alignment(boxes, cells[None])[0]]
    assert found == [[1, 2], [15], [15]]
