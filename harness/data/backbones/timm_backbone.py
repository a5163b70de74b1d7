"""Any timm model as a backbone, with weights from a file, from timm's hub, or random on request."""

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from torch import Tensor, nn

from harness.config.features import FeatureConfig
from harness.data.backbones.backbone import BUILT_IN
from harness.data.hub import quick_hub
from harness.data.images import ImagePreprocessing
from harness.utils.errors import BenchError
from harness.utils.files import require_file, shortened
from harness.utils.precision import autocast
from zoo.checkpoints import read_checkpoint
from zoo.converter import timm_swin, without_prefix
from zoo.errors import first_line
from zoo.safety import refuse_unsafe_backbone

Triple = tuple[float, float, float]
NORMALISATIONS: dict[str, tuple[Triple, Triple]] = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
}
PRECISIONS = ("fp32", "bf16")
OWN_OPTIONS = frozenset({"precision", "level"})  # of this class; all others are timm's
# Arguments of timm.create_model that would change the weights or the output of this class.
RESERVED = frozenset(
    {
        *("pretrained", "pretrained_cfg", "pretrained_cfg_overlay", "checkpoint_path", "cache_dir"),
        *("num_classes", "features_only", "out_indices", "in_chans", "img_size"),
        *("scriptable", "exportable", "no_jit"),
    }
)
_SWIN_MARK = "layers.0.downsample.reduction.weight"
_HUB_FILES = frozenset({"model.safetensors", "pytorch_model.bin"})


class TimmBackbone:
    """A timm model's last feature map, as cells; `config` as of `harness.data.backbones.opening.open_backbone`.

    Maps (B, C, h, w) and (B, h, w, C) and token rows (B, L, C) are distinguished by the model's own attributes;
    class and register tokens are left out. The option `precision=bf16` computes them under autocast. The option
    `level=4` gives the last map with a cell for each 2^4 x 2^4 pixels in place of the last map: of a ResNet-50 that is
    conv4_x ("res4f"), with 1,024 channels.
    """

    def __init__(self, config: FeatureConfig) -> None:
        self.name = config.backbone
        weights = config.weights
        self._precision = config.options.get("precision", "fp32")
        if self._precision not in PRECISIONS:
            raise BenchError(
                f"unknown precision {self._precision!r} of features", hint=f"use {' or '.join(PRECISIONS)}"
            )
        self.level = _level(config.options)
        self.arguments = _typed({key: value for key, value in config.options.items() if key not in OWN_OPTIONS})
        defaults: Any = timm.get_pretrained_cfg(self.name)
        size = config.image_size or int(defaults.input_size[-1])
        self._source = weights.name if isinstance(weights, Path) else weights or "timm"
        mean, std = _normalisation(config.normalisation, defaults)
        self.preprocessing = ImagePreprocessing(size, resize="squash", interpolation="bilinear", mean=mean, std=std)
        if defaults.fixed_input_size:
            self.arguments["img_size"] = size
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # the same random weights for every model and run
            self._model = _build(self.name, self.arguments, pretrained=weights is None)
        if isinstance(weights, Path):
            head = defaults.classifier or ()
            _load(self._model, weights, (head,) if isinstance(head, str) else tuple(head))
        # Convolutions on the CPU cost up to 40 % less in this layout; on a GPU it serves the tensor cores.
        self._model.eval().requires_grad_(False).to(memory_format=torch.channels_last)
        self._stage = None if self.level is None else _stage_of_level(self.name, self._model, self.level)
        self.grid, self.dim = self._measure(size)
        computed: dict[str, Any] = {} if self._precision == "fp32" else {"precision": self._precision}
        if self.level is not None:
            computed["level"] = self.level
        self.digest = _digest(self.name, self.arguments | computed, self._model)

    def __getstate__(self) -> dict[str, Any]:
        """State for pickling, without a device: each process chooses its own."""
        self.rest()
        return self.__dict__

    def rest(self) -> None:
        """Free its GPU memory, torch's cache included, until features are needed again."""
        self._model.cpu()
        torch.cuda.empty_cache()

    def state_dict(self) -> dict[str, Tensor]:
        """The weights, by timm's names."""
        return dict(self._model.state_dict())

    def describe(self) -> str:
        """Name, where the weights come from with their digest, input size, and a precision other than fp32."""
        name = self.name if self.level is None else f"{self.name} level {self.level}"
        described = f"{name}[{self._source}#{self.digest[:8]}]@{self.preprocessing.size}"
        return described if self._precision == "fp32" else f"{described} {self._precision}"

    def __call__(self, pixels: Tensor) -> Tensor:
        """(B, 3, S, S) normalised pixels to (B, h * w, C) float32."""
        return self._map(pixels).flatten(1, 2)

    @torch.inference_mode()
    def _map(self, pixels: Tensor) -> Tensor:
        """Features as (B, h, w, C)."""
        model: Any = self._model.to(pixels.device)
        images = pixels.contiguous(memory_format=torch.channels_last)
        if self._stage is not None:
            with autocast(pixels.device, self._precision):
                [stage_map] = model.forward_intermediates(
                    images, indices=[self._stage], output_fmt="NCHW", intermediates_only=True, stop_early=True
                )
            return stage_map.permute(0, 2, 3, 1).float()  # type: ignore[no-any-return]  # timm's interface
        with autocast(pixels.device, self._precision):
            features: Tensor = model.forward_features(images)
        if features.ndim == 4:
            if getattr(self._model, "output_fmt", "NCHW") == "NHWC":
                return features.float()
            return features.permute(0, 2, 3, 1).float()
        tokens = features[:, int(getattr(self._model, "num_prefix_tokens", 0)) :]
        embed = getattr(self._model, "patch_embed", None)
        height, width = getattr(embed, "grid_size", None) or (round(tokens.shape[1] ** 0.5),) * 2
        return tokens.reshape(len(tokens), height, width, -1).float()

    def _measure(self, size: int) -> tuple[tuple[int, int], int]:
        try:
            height, width, channels = self._map(torch.zeros(1, 3, size, size)).shape[1:]
        except (AssertionError, RuntimeError, IndexError, TypeError, AttributeError, ValueError) as error:
            raise BenchError(
                f"backbone {self.name} gives no feature map at {size} x {size} pixels: {error}",
                hint="choose another image size, or another backbone",
            ) from error
        return (height, width), channels


def _level(options: Mapping[str, str]) -> int | None:
    """The option `level`, None where it is not given; BenchError where it is no number from 1 to 9."""
    text = options.get("level")
    if text is None:
        return None
    if not re.fullmatch("[1-9]", text):
        raise BenchError(
            f"--backbone-option level={shortened(text)} is no level: a level is a number from 1 to 9",
            "write level=4 for the last map with a cell for each 16 x 16 pixels",
        )
    return int(text)


def _stage_of_level(name: str, model: Any, level: int) -> int:
    """The index, in timm's order of feature maps, of the last one with a stride of 2^level pixels."""
    strides = [int(stage["reduction"]) for stage in getattr(model, "feature_info", [])]
    if not strides or not hasattr(model, "forward_intermediates"):
        raise BenchError(
            f"backbone {name} has no levels: timm gives its last features alone",
            "leave out --backbone-option level, or choose another backbone",
        )
    stages = [index for index, stride in enumerate(strides) if stride == 2**level]
    if not stages:
        levels = sorted({stride.bit_length() - 1 for stride in strides})
        raise BenchError(
            f"backbone {name} has no level {level}: its maps have strides of {', '.join(map(str, strides))} pixels",
            f"write --backbone-option level={levels[-1]}; its levels are {', '.join(map(str, levels))}",
        )
    return stages[-1]


def _typed(options: Mapping[str, str]) -> dict[str, Any]:
    """Parse options as bool, int, float or str, whichever fits first."""
    typed: dict[str, Any] = {}
    for key, text in options.items():
        if key in RESERVED:
            raise BenchError(f"backbone option {key!r} is set by the benchmark itself", hint="leave it out")
        typed[key] = {"true": True, "false": False}.get(text.lower(), text)
        for number in (float, int):
            with suppress(ValueError):
                typed[key] = number(text)
    return typed


def _normalisation(name: str | None, defaults: Any) -> tuple[Triple, Triple]:
    """Mean and standard deviation of the channels, for values in [0, 1]."""
    return (tuple(defaults.mean), tuple(defaults.std)) if name is None else NORMALISATIONS[name]


def _build(name: str, arguments: dict[str, Any], *, pretrained: bool) -> nn.Module:
    try:
        refuse_unsafe_backbone(name, arguments)
        model: nn.Module = timm.create_model(name, pretrained=False, num_classes=0, **arguments)
    except Exception as error:  # hundreds of constructors, each with its own complaints about its arguments
        options = " ".join(f"{key}={value}" for key, value in arguments.items())
        raise BenchError(
            f"backbone {name} cannot be built with options {options or '(none)'}: {error}",
            hint="options are keyword arguments of the timm model, for instance pad_type=same",
        ) from error
    if not pretrained:
        return model
    try:
        with quick_hub():
            model = timm.create_model(name, pretrained=True, num_classes=0, **arguments)
    except Exception as error:  # no network, no such file, a full disk: the hub's clients raise anything
        raise BenchError(
            f"the pretrained weights of backbone {name} could not be fetched: {first_line(error)}",
            hint="give a checkpoint: --backbone-weights FILE (.safetensors or .pth), or use --backbone filterbank",
        ) from error
    return model


def _load(model: nn.Module, path: Path, heads: tuple[str, ...]) -> None:
    """Load strictly, except the classifier's entries, which a backbone does not need."""
    require_file(path, "--backbone-weights")
    expected = model.state_dict()
    stored = without_prefix(read_checkpoint(path, "backbone weights", ("state_dict", "model")))
    if _SWIN_MARK in stored and _SWIN_MARK not in expected:
        stored = timm_swin({key: value for key, value in stored.items() if not key.startswith("head.")}, "")
    weights = {
        key: value.float() if value.is_floating_point() else value
        for key, value in stored.items()
        if key in expected or not key.startswith(tuple(f"{head}." for head in heads))
    }
    # Counters of batch norms are absent from old checkpoints and unused in evaluation mode.
    problems = [f"missing {key}" for key in expected if key not in weights and not key.endswith(".num_batches_tracked")]
    problems += [f"unexpected {key}" for key in weights if key not in expected]
    problems += [
        f"{key} is {tuple(weights[key].shape)} instead of {tuple(value.shape)}"
        for key, value in expected.items()
        if key in weights and weights[key].shape != value.shape
    ]
    if problems:
        suffix = f" and {len(problems) - 4} more" if len(problems) > 4 else ""
        raise BenchError(
            f"backbone weights {path} do not fit the model: {'; '.join(problems[:4])}{suffix}",
            hint="check that --backbone names the architecture that the weights were trained with, and its options",
        )
    model.load_state_dict(weights, strict=False)


def _digest(name: str, arguments: Mapping[str, Any], model: nn.Module) -> str:
    """Digest of architecture, options and every tensor, independent of the checkpoint's file format."""
    digest = hashlib.sha256(json.dumps([name.partition(".")[0], dict(arguments)], sort_keys=True).encode())
    for key, value in sorted(model.state_dict().items()):
        digest.update(f"{key} {value.dtype} {tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


class _Expected(NamedTuple):
    """The preprocessing that the weights expect, according to `source`; None where it does not state one."""

    source: str
    mean: tuple[float, ...] | None
    std: tuple[float, ...] | None
    same_padding: bool


def preprocessing_doubts(config: FeatureConfig) -> list[str]:
    """Warnings of settings that contradict the preprocessing that the weights expect, each with the option to use.

    With other padding or another normalisation than in training, weights give features without an error, but worse
    captions. The expected preprocessing is known from the weights' own files or from timm.
    """
    name = config.backbone
    weights = config.weights
    if name in BUILT_IN or weights == "random":
        return []
    expected = (
        _expected_by_hub_config(weights) or _expected_by_timm(name, weights) or _expected_by_tf_name(name, weights)
    )
    if expected is None:
        return []
    normalisation = _normalisation(config.normalisation, timm.get_pretrained_cfg(name))
    title = name if weights is None else weights.name
    doubts = []
    pads_same = config.options.get("pad_type", "same" if name.startswith("tf_") else "") == "same"
    if expected.same_padding and not pads_same:
        doubts.append(
            f"{title}: by {expected.source} images are padded as TensorFlow does, and here as PyTorch does: "
            "add --backbone-option pad_type=same"
        )
    if (
        expected.mean is not None
        and expected.std is not None
        and (tuple(expected.mean), tuple(expected.std)) != normalisation
    ):
        matching_name = next(
            (key for key, value in NORMALISATIONS.items() if value == (expected.mean, expected.std)), None
        )
        doubts.append(
            f"{title}: by {expected.source} images have mean {_numbers(expected.mean)} and deviation "
            f"{_numbers(expected.std)}, and here {_numbers(normalisation[0])} and {_numbers(normalisation[1])}: "
            + (f"add --normalisation {matching_name}" if matching_name else "no --normalisation has these")
        )
    return doubts


def _expected_by_hub_config(weights: Path | None) -> _Expected | None:
    """The preprocessing in the config.json beside weights, in a folder as timm's on the hub."""
    if weights is None or weights.name not in _HUB_FILES:
        return None
    try:
        content = json.loads(weights.with_name("config.json").read_text(encoding="utf-8"))
        described = content["pretrained_cfg"]
        architecture = str(content["architecture"])
        mean, std = (tuple(float(value) for value in described[key]) for key in ("mean", "std"))
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return _Expected("the config.json beside it", mean, std, architecture.startswith("tf_"))


def _expected_by_timm(name: str, weights: Path | None) -> _Expected | None:
    """timm's preprocessing for weights that it fetches, or that the file's name or the backbone's tag identifies."""
    config_name = name
    if weights is not None:
        stem = _plain(weights.stem)
        architectures = {name.partition(".")[0], f"tf_{name.partition('.')[0]}"}
        tagged_names: list[str] = [
            tagged_name for tagged_name in timm.list_pretrained() if tagged_name.partition(".")[0] in architectures
        ]
        released: dict[str, Any] = {tagged_name: timm.get_pretrained_cfg(tagged_name) for tagged_name in tagged_names}
        matching = [
            tagged_name for tagged_name, config in released.items() if stem == _plain(Path(config.url or "").stem)
        ]
        matching = matching[:1] or [
            tagged_name for tagged_name in tagged_names if f"{stem}_".startswith(f"{_plain(tagged_name)}_")
        ]
        config_name = max(matching, key=len) if matching else name if "." in name else ""
    config: Any = timm.get_pretrained_cfg(config_name) if config_name else None
    if config is None:  # opening the backbone raises an error for it
        return None
    return _Expected(f"timm's {config_name}", tuple(config.mean), tuple(config.std), config_name.startswith("tf_"))


def _expected_by_tf_name(name: str, weights: Path | None) -> _Expected | None:
    """The preprocessing of timm's models with TensorFlow weights, for a file of that family with `tf` in its name."""
    family = re.match("[a-z]+", name)
    if weights is None or family is None or "tf" not in _plain(weights.stem).split("_"):
        return None
    relatives = timm.list_pretrained(f"tf_{family[0]}*")
    if not relatives:
        return None
    configs: list[Any] = [timm.get_pretrained_cfg(relative) for relative in relatives]
    normalisations = {(tuple(config.mean), tuple(config.std)) for config in configs}
    mean, std = normalisations.pop() if len(normalisations) == 1 else (None, None)
    return _Expected(f"the tf in its name (TensorFlow's, as timm's {relatives[0]})", mean, std, True)


def _plain(text: str) -> str:
    """A file's name without the digest at its end, in lower-case letters, digits and underscores."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub("-[0-9a-f]{8}$", "", text).lower())


def _numbers(values: tuple[float, ...]) -> str:
    same = len(set(values)) == 1
    return f"{values[0]:g}" if same else "(" + ", ".join(f"{value:.3g}" for value in values) + ")"
