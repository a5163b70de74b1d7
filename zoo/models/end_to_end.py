"""A visual backbone and a captioner as one trainable model, on pixels.

ExpansionNet v2 (arXiv:2208.06551) is trained this way in its end-to-end stages, with a Swin
Transformer (Liu et al., ICCV 2021).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Self

from torch import Tensor, nn

from zoo.captioner import DecodingState, HasBackbone, Memory, Visual, VisualSpec
from zoo.errors import ZooError
from zoo.registry import create_model
from zoo.safety import refuse_unsafe_backbone


class EndToEnd(HasBackbone):
    """Any timm model, without its head, followed by any captioner on a grid.

    Args:
        visual_dim: ignored; the width of the tokens is the backbone's.
        backbone: a name of `timm.list_models()`, created with random weights.
        backbone_options: further arguments of that timm model, such as `img_size`.
        drop_path: stochastic depth of the backbone, for backbones that have it.
        body: a registered model whose visual tokens are a grid.
        body_arguments: overrides of that model's preset.
    """

    def __init__(
        self,
        *,
        vocab_size: int,
        visual_dim: int = 0,  # noqa: ARG002  # every model is created with it
        backbone: str,
        backbone_options: Mapping[str, Any] | None = None,
        drop_path: float = 0.0,
        body: str = "expansionnet_v2",
        **body_arguments: Any,
    ) -> None:
        super().__init__()
        self.backbone = _create_backbone(backbone, dict(backbone_options or {}), drop_path)
        dim: int = self.backbone.num_features  # type: ignore[assignment]  # timm's promise
        self.body = create_model(body, vocab_size=vocab_size, visual_dim=dim, **body_arguments)
        if self.body.visual.kind != "grid":
            raise ZooError(f"a backbone computes grid features, but {body} needs {self.body.visual.kind}")
        self.visual = VisualSpec("pixels", 0)
        self.vocab_size = vocab_size
        self.max_len = self.body.max_len
        self._frozen = False

    def freeze_backbone(self, frozen: bool = True) -> None:
        """Freeze the backbone: no gradients, and evaluation mode (norms, drop-path) even while training."""
        self._frozen = frozen
        self.backbone.requires_grad_(not frozen)
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the captioner; a frozen backbone stays in evaluation mode."""
        super().train(mode)
        self.backbone.train(mode and not self._frozen)
        return self

    def set_dropout(self, p: float) -> None:
        """Set the captioner's dropout; the backbone keeps its own."""
        self.body.set_dropout(p)

    def encode(self, visual: Visual) -> Memory:
        """See `Captioner.encode`; with a frozen backbone, its cached `features` are accepted in place of pixels."""
        if visual.pixels is None and visual.features is not None and self._frozen:
            return self.body.encode(visual)
        if visual.pixels is None:
            raise ZooError("this model needs pixels, but the input has none")
        pixels = visual.pixels.to(next(self.backbone.parameters()).dtype)
        return self.body.encode(Visual(grid_tokens(self.backbone, pixels)))

    def decode(self, memory: Memory, tokens: Tensor) -> Tensor:
        return self.body.decode(memory, tokens)

    def start(self, memory: Memory) -> DecodingState:
        return self.body.start(memory)

    def step(self, tokens: Tensor, state: DecodingState) -> tuple[Tensor, DecodingState]:
        return self.body.step(tokens, state)

    def cross_attention_modules(self) -> Sequence[nn.Module]:
        return self.body.cross_attention_modules()

    def region_attention_modules(self) -> Sequence[nn.Module]:
        return self.body.region_attention_modules()


def grid_tokens(backbone: nn.Module, pixels: Tensor) -> Tensor:
    """A timm model's last features as tokens (B, L, C), row by row, without class and register tokens."""
    features: Tensor = backbone.forward_features(pixels)  # type: ignore[operator]  # timm's interface
    if features.dim() == 3:
        return features[:, int(getattr(backbone, "num_prefix_tokens", 0)) :]
    if features.dim() != 4:
        raise ZooError(
            f"the backbone returns features of shape {tuple(features.shape)}, which are neither a map nor tokens"
        )
    if getattr(backbone, "output_fmt", "NCHW") == "NHWC":
        return features.flatten(1, 2)
    return features.flatten(2).transpose(1, 2)


def _create_backbone(name: str, options: dict[str, Any], drop_path: float) -> nn.Module:
    import timm  # takes a second to import, and models without a backbone do not need it

    if drop_path:
        options["drop_path_rate"] = drop_path
    refuse_unsafe_backbone(name, options)
    try:
        backbone: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **options)
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
        described = ", ".join(f"{key}={value!r}" for key, value in options.items()) or "(none)"
        raise ZooError(
            f"the backbone {name!r} cannot be built with options {described}: {error}",
            "backbone=... is a name of timm.list_models(), backbone_options=... arguments of that model",
        ) from error
    if hasattr(backbone, "head"):  # without classes some heads still have a norm, which would be an unused weight
        backbone.head = nn.Identity()
    return backbone
