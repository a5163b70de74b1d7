"""A backbone and a captioner as one model: its tokens, freezing, and the authors' end-to-end checkpoints."""

import pytest
import timm
import torch

import zoo
from zoo.converter import from_official
from zoo.models.end_to_end import EndToEnd, grid_tokens

NAME = "expansionnet_v2/end-to-end"
SWIN = {
    "backbone": "swin_large_patch4_window12_384",
    "backbone_options": {"img_size": 32, "embed_dim": 12, "depths": (1, 2), "num_heads": (1, 2), "window_size": 4},
}
VIT = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 1, "num_heads": 2}


def tiny(**changes):
    torch.manual_seed(0)
    return zoo.create_model(NAME, vocab_size=11, visual_dim=0, **{**zoo.model_card(NAME).tiny, **changes})


def pixels(images=2):
    return torch.rand(images, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("backbone", "options"),
    [
        (SWIN["backbone"], SWIN["backbone_options"]),
        ("test_vit", VIT),
        ("resnet10t", zoo.model_card(NAME).tiny["backbone_options"]),
    ],
    ids=["NHWC", "tokens", "NCHW"],
)
def test_tokens_are_the_cells_row_by_row(backbone, options):
    """Cell (i, j) of a 4 x 4 grid is token 4 i + j, whichever way the backbone lays out its features."""
    model = timm.create_model(backbone, num_classes=0, **options).eval()
    with torch.no_grad():
        tokens, features = grid_tokens(model, pixels()), model.forward_features(pixels())
    assert tokens.shape == (2, 16, model.num_features)
    cells = {"NHWC": lambda i, j: features[:, i, j], "NCHW": lambda i, j: features[:, :, i, j]}
    layout = getattr(model, "output_fmt", "NCHW") if features.dim() == 4 else "tokens"
    for i in range(4):
        for j in range(4):
            expected = features[:, 1 + 4 * i + j] if layout == "tokens" else cells[layout](i, j)
            assert torch.equal(tokens[:, 4 * i + j], expected)


def test_a_frozen_backbone_neither_learns_nor_changes():
    model = tiny(drop_path=0.5).train()
    model.freeze_backbone()
    before = {name: tensor.clone() for name, tensor in model.backbone.state_dict().items()}
    with torch.no_grad():
        assert torch.equal(grid_tokens(model.backbone, pixels()), grid_tokens(model.backbone, pixels()))
    model(zoo.Visual(pixels=pixels()), torch.ones(2, 4, dtype=torch.long)).sum().backward()
    assert all(parameter.grad is None for parameter in model.backbone.parameters())
    assert all(parameter.grad is not None for parameter in model.body.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.backbone.state_dict().items())
    assert model.body.training
    assert not model.eval().train().backbone.training


def test_a_thawed_backbone_learns_and_keeps_statistics():
    model = tiny().train()
    model.freeze_backbone()
    model.freeze_backbone(False)
    before = {name: tensor.clone() for name, tensor in model.backbone.named_buffers()}
    model(zoo.Visual(pixels=pixels()), torch.ones(2, 4, dtype=torch.long)).sum().backward()
    assert all(parameter.grad is not None for parameter in model.backbone.parameters())
    assert any(not torch.equal(tensor, before[name]) for name, tensor in model.backbone.named_buffers())
    assert not model.eval().backbone.training


def test_drop_path_and_dropout_are_the_parts_own():
    model = tiny(**SWIN, drop_path=0.3)
    rates = [module.drop_prob for module in model.backbone.modules() if type(module).__name__ == "DropPath"]
    assert max(rates) == pytest.approx(0.3)
    model.set_dropout(0.25)
    assert {module.p for module in model.backbone.modules() if isinstance(module, torch.nn.Dropout)} == {0.0}
    assert {module.p for module in model.body.modules() if isinstance(module, torch.nn.Dropout)} == {0.25}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"backbone": "no_such_net"}, "timm has no model 'no_such_net'"),
        ({"backbone": "hf-hub:someone/net"}, "timm has no model 'hf-hub:someone/net'"),
        ({"backbone": "local-dir:/data/net"}, "timm has no model 'local-dir:/data/net'"),
        ({"backbone_options": {"checkpoint_path": "net.pth"}}, "has no option checkpoint_path"),
        ({"backbone_options": {"pretrained_cfg": {"file": "net.pth"}}}, "has no option pretrained_cfg"),
        ({"backbone_options": {"no_such_option": 1}}, "no_such_option"),
        ({"body": "blind", "static_lengths": (2,)}, "needs none"),
        ({"body": "expansionnet_v1", "static_lengths": (2,)}, "needs regions"),
        ({"body_size": 3}, "body_size"),
    ],
)
def test_what_cannot_be_built_is_told(wrong, message):
    with pytest.raises(zoo.ZooError, match=message):
        tiny(**wrong)


def test_what_a_frozen_backbone_gave_before_stands_for_pixels():
    model = tiny().eval()
    pixels = torch.rand(2, 3, 64, 64)
    with torch.no_grad():
        features = grid_tokens(model.backbone, pixels)
        model.freeze_backbone()
        cached = model.encode(zoo.Visual(features, torch.ones(features.shape[:2], dtype=torch.bool)))
        assert torch.equal(cached.features, model.encode(zoo.Visual(pixels=pixels)).features)


def swin_checkpoint(weights):
    """Random weights under the names of Swin's authors, two stages of one and two blocks, 12 and 24 channels."""
    shapes = {"patch_embed.proj.weight": (12, 3, 4, 4), "patch_embed.proj.bias": (12,), "norm.weight": (24,)}
    shapes |= {"patch_embed.norm.weight": (12,), "patch_embed.norm.bias": (12,), "norm.bias": (24,)}
    shapes |= {"layers.0.downsample.reduction.weight": (24, 48)}
    shapes |= {f"layers.0.downsample.norm.{part}": (48,) for part in ("weight", "bias")}
    for stage, block, width, heads in ((0, 0, 12, 1), (1, 0, 24, 2), (1, 1, 24, 2)):
        place = f"layers.{stage}.blocks.{block}."
        shapes |= {f"{place}{norm}.{part}": (width,) for norm in ("norm1", "norm2") for part in ("weight", "bias")}
        shapes |= {
            place + "attn.relative_position_bias_table": (49, heads),
            place + "attn.relative_position_index": (16, 16),
            place + "attn.qkv.weight": (3 * width, width),
            place + "attn.qkv.bias": (3 * width,),
            place + "attn.proj.weight": (width, width),
            place + "attn.proj.bias": (width,),
            place + "mlp.fc1.weight": (4 * width, width),
            place + "mlp.fc1.bias": (4 * width,),
            place + "mlp.fc2.weight": (width, 4 * width),
            place + "mlp.fc2.bias": (width,),
        }
    shapes["layers.0.blocks.0.attn_mask"] = (4, 16, 16)
    generator = torch.Generator().manual_seed(1)
    swin = {f"swin_transf.{key}": torch.rand(shape, generator=generator).double() for key, shape in shapes.items()}
    body = {**weights, "input_linear.weight": torch.rand(32, 24, generator=generator).double()}
    return {**body, **swin}


@pytest.fixture
def checkpoint(official):
    return swin_checkpoint(official("expansionnet_model").group("param/"))


SIZES = {"n_heads": 4, "static_lengths": (2, 4, 3)}


def test_an_end_to_end_checkpoint_fills_backbone_and_body(checkpoint):
    model = from_official(NAME, checkpoint, **SIZES, **SWIN).eval()
    assert isinstance(model, EndToEnd)
    merged = model.backbone.state_dict()["layers.1.downsample.reduction.weight"]
    assert torch.equal(merged, checkpoint["swin_transf.layers.0.downsample.reduction.weight"])
    body = from_official("expansionnet_v2", checkpoint, **SIZES).eval()
    tokens = torch.tensor([[1, 5, 7], [1, 6, 3]])
    with torch.no_grad():
        cells = grid_tokens(model.backbone, pixels().double())
        # Pixels of another precision are taken in the weights' own.
        assert model(zoo.Visual(pixels=pixels()), tokens).dtype == torch.float64
        torch.testing.assert_close(model(zoo.Visual(pixels=pixels().double()), tokens), body(zoo.Visual(cells), tokens))
