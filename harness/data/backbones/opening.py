"""Open a frozen image encoder by name: a built-in one, or any of timm's."""

import difflib

from harness.config.features import FeatureConfig
from harness.config.limits import MAX_SIDE
from harness.data.backbones.backbone import BUILT_IN, Backbone
from harness.data.backbones.filterbank import FilterBank
from harness.data.backbones.scenesnet import ScenesNet
from harness.utils.errors import BenchError
from harness.utils.files import shortened


def open_backbone(config: FeatureConfig) -> Backbone:
    """Open `filterbank`, `scenesnet` or a timm model, with or without a pretrained tag, frozen, to be evaluated.

    Without `weights` timm's own pretrained ones are fetched. `options` are settings of the filterbank (`grid`),
    `precision` and `level` of `TimmBackbone`, or keyword arguments of the timm model (`pad_type=same`). `image_size` is
    the side of the square input; that and the normalisation ("half" is x / 127.5 - 1) are the backbone's own where
    there is none. BenchError for an unknown name or option, or missing or mismatching weights, ZooError for unreadable
    ones.
    """
    name = config.backbone
    if name in BUILT_IN:
        return _open_built_in(config)

    # timm takes seconds to import, and the default does not need it.
    import timm
    from timm.models import get_arch_pretrained_cfgs

    from harness.data.backbones.timm_backbone import TimmBackbone

    architecture, _, tag = name.partition(".")
    if not timm.is_model(name):
        candidates = [*BUILT_IN, *timm.list_models()]
        near = difflib.get_close_matches(architecture, candidates, n=3, cutoff=0.5)
        raise BenchError(
            f"unknown backbone {shortened(name)!r}",
            hint=f"did you mean {' or '.join(near)}?" if near else "use filterbank, scenesnet or a model of timm's",
        )
    if "." in name and name not in (candidates := sorted(get_arch_pretrained_cfgs(architecture))):
        near = difflib.get_close_matches(name, candidates, n=3) or candidates[:5]
        raise BenchError(
            f"backbone {architecture} has no pretrained weights tagged {shortened(tag)!r}",
            hint=f"did you mean {' or '.join(near)}? {architecture} alone has timm's default weights",
        )
    return TimmBackbone(config)


def _open_built_in(config: FeatureConfig) -> Backbone:
    """The filterbank or scenesnet; what they have fixed is refused."""
    name = config.backbone
    options = dict(config.options)
    if config.weights is not None or config.normalisation is not None:
        option = "--backbone-weights" if config.weights is not None else "normalisation"
        raise BenchError(f"{name} takes no {option}: it is fixed", hint="leave it out")
    if name == ScenesNet.name:
        if options:
            raise BenchError("scenesnet has no options", hint="leave out --backbone-option")
        return ScenesNet(config.image_size or 96)
    grid = options.pop("grid", "8")
    if options:
        raise BenchError(f"the filterbank has no option {', '.join(sorted(options))}", hint="its only option is grid=8")
    if not (grid.isdecimal() and len(grid) < 4 and 0 < int(grid) <= MAX_SIDE // 12):
        raise BenchError(
            f"the filterbank's grid must be 1 to {MAX_SIDE // 12}, not {shortened(grid)!r}", "write grid=8"
        )
    return FilterBank(int(grid), config.image_size or 12 * int(grid))
