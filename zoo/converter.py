"""Build models with the weights that their authors released.

Each model's file ends with its `CONVERTER`: names, layouts, and the sizes that shapes tell.

    >>> weights = read_checkpoint(Path("checkpoint.pth"))  # of zoo.checkpoints
    >>> model = from_official("expansionnet_v2", weights)
"""

import importlib
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from zoo.captioner import Captioner
from zoo.card import ModelCard
from zoo.errors import ZooError
from zoo.registry import create_model, model_card, registered_cards

Place = tuple[str, int]
Tensors = dict[str, Tensor]
UNKNOWN = "UNK"
NEVER = -1e4  # logit of what no caption holds: its probability is exactly 0 in every floating-point type
_HINT = "the model must be the checkpoint's"
_LSTM = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@dataclass(frozen=True, kw_only=True)
class Converter:
    """A family whose tensors have other names; a subclass tells what names and shapes alone do not.

    Names may begin with `module.`, as several devices write them.

    Attributes:
        what: what the weights are of, as messages say.
        parts: patterns of the authors' names, and what stands for them in the zoo's, applied one after the other.
        unused: pattern of names that are left out.
        where: sizes by the tensor and axis that tell them.
        stacks: numbers of layers by the beginning of their tensors' names.
        fixed: arguments that the weights were trained with.
        padded: whether the table of positions, which tells `max_len`, has a row for padding.
        needed: further tensors that must exist.
        shared_number: embedding and layer of logits, in a family whose number 0 is begin, end and padding at once;
            its words have the numbers 1 .. V.
        backbone: beginning of the names of a Swin Transformer, which a model on pixels has, and others leave out.
        families: the models of this file that have such weights, each with its variants; all of them if empty.
        hint: what to look at where the tensors do not fit.
    """

    what: str
    parts: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = ()
    unused: str = r"$^"
    where: Mapping[str, Place] = field(default_factory=dict)
    stacks: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    padded: bool = False
    needed: tuple[str, ...] = ()
    shared_number: tuple[str, str] | None = None
    backbone: str | None = None
    families: tuple[str, ...] = ()
    hint: str = _HINT

    def name(self, official: str) -> str:
        """The zoo's name of a parameter, given the authors'; unknown ones are kept."""
        for pattern, own in self.parts:
            official = re.sub(pattern, own, official)
        return official

    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        """The authors' tensors, or their gradients, under the zoo's names and in its layout; unknown ones are kept."""
        return {self.name(key): tensor for key, tensor in official.items() if not re.search(self.unused, key)}

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        """The arguments of `create_model` for these weights; ZooError if this is not a state dict of the family."""
        sizes: dict[str, Any] = self.read(official, self.where)
        sizes |= {size: count_layers(official, stack) for size, stack in self.stacks.items()}
        if self.padded:
            sizes["max_len"] -= 1
        return {**sizes, **self.fixed}

    def read(self, official: Mapping[str, Tensor], where: Mapping[str, Place]) -> dict[str, int]:
        """Sizes read off shapes; ZooError if a tensor is missing or has too few axes."""
        hint = "pass the checkpoint's 'model_state_dict'"
        if missing := sorted({*self.needed, *(key for key, _ in where.values())} - set(official)):
            raise ZooError(f"this is not a state dict of {self.what}: {', '.join(missing)} missing", hint)
        for key, axis in where.values():
            if official[key].ndim <= axis:
                shape = tuple(official[key].shape)
                raise ZooError(f"this is not a state dict of {self.what}: {key} has the shape {shape}", hint)
        return {size: official[key].shape[axis] for size, (key, axis) in where.items()}

    def selected(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:  # noqa: ARG002
        """The tensors of a registered model with these arguments, where a checkpoint has more."""
        found = self.tensors(official)
        if self.backbone is None or model_card(name).visual != "pixels":
            return found
        backbone = timm_swin(official, self.backbone)
        return {f"body.{own}": tensor for own, tensor in found.items()} | {
            f"backbone.{own}": tensor for own, tensor in backbone.items()
        }

    def build(self, name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
        """See `from_official`."""
        official = without_prefix(state_dict)
        chosen = {size: value for size, value in model_card(name).arguments.items() if size in self.fixed}
        sizes = {**self.sizes(official), **chosen, **sizes}
        found = self.selected(name, official, sizes)
        model = create_model(name, **sizes)
        wanted = model.state_dict()
        problems = [f"{own}: unknown to {name}" for own in sorted(found) if own not in wanted]
        for own, parameter in wanted.items():
            if own not in found:
                problems.append(f"{own}: not in the state dict")
            elif (shape := found[own].shape) != parameter.shape:
                problems.append(f"{own}: shape {tuple(shape)}, but {name} has {tuple(parameter.shape)}")
        if problems:
            raise ZooError(f"the state dict does not fit {name}:\n  " + "\n  ".join(problems), self.hint)
        stored = next(tensor.dtype for tensor in found.values() if tensor.is_floating_point())
        model.to(torch.promote_types(stored, torch.float32))
        model.load_state_dict(found)
        return model

    def separate_specials(self, state_dict: Mapping[str, Tensor], words: Sequence[str]) -> tuple[Tensors, list[str]]:
        """Give begin, end and padding rows of their own where they share number 0; also the words from number 4 on.

        Padding is then 0, begin 1, end 2, the unknown word 3. Begin is embedded as 0 was, and the end has its logit.
        Padding and begin are never generated; nor is the unknown word, where the authors' words have none.

        Args:
            state_dict: the authors' tensors.
            words: the authors', from number 1 on.

        Raises:
            ZooError: a tensor is missing, or there are not as many words as rows after the first.
        """
        assert self.shared_number is not None
        official, (embedding, output) = without_prefix(state_dict), self.shared_number
        names = (embedding, f"{output}.weight", f"{output}.bias")
        rows_of = self.read(official, {name: (name, 0) for name in names})
        if set(rows_of.values()) != {len(words) + 1}:
            raise ZooError(
                f"the checkpoint has {rows_of[names[1]] - 1} words after the number 0, but the vocabulary {len(words)}",
                "give the vocabulary that this checkpoint was trained with, without an entry for the number 0",
            )
        numbers = {word: number for number, word in enumerate(words, 1)}
        unknown = numbers.pop(UNKNOWN, None)
        rows = torch.tensor([0, 0, 0, unknown or 0, *numbers.values()])
        separate = official | {name: official[name][rows] for name in names}
        silent = [0, 1] if unknown else [0, 1, 3]
        separate[names[1]][silent] = 0.0
        separate[names[2]][silent] = NEVER
        return separate, list(numbers)


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """Build a registered model with the authors' weights, in their floating-point type, float32 at least.

    Args:
        name: a registered model, a variant too.
        state_dict: the tensors of a checkpoint under the authors' names; see `zoo.checkpoints.read_checkpoint`.
        sizes: arguments of `create_model` that shapes do not determine, such as `n_heads`, if they differ from the
            preset's; see the converter.

    Raises:
        ZooError: there is no converter, or some tensors are missing, unknown or of another shape, which are all named.
    """
    return converter_of(name).build(name, state_dict, **sizes)


def read_sizes(name: str, state_dict: Mapping[str, Tensor]) -> dict[str, Any]:
    """The arguments of `create_model` that the shapes of the authors' tensors determine."""
    return converter_of(name).sizes(without_prefix(state_dict))


def converter_of(name: str) -> Converter:
    """The converter of a registered model's released weights; ZooError if there is none."""
    converter = _find_converter(model_card(name))
    if converter is None:
        raise ZooError(
            f"there is no converter for released weights of {name!r}",
            f"there are converters for {', '.join(convertible_families())}",
        )
    return converter


def convertible_families() -> list[str]:
    """The models, without their variants, whose released weights can be converted; imports the modules of all."""
    return sorted({name.partition("/")[0] for name, card in registered_cards().items() if _find_converter(card)})


def _find_converter(card: ModelCard) -> Converter | None:
    """The `CONVERTER` beside a model's class, None if there is none; behind a backbone, that of its body."""
    if card.has_backbone and "body" in card.arguments:
        card = model_card(card.arguments["body"])
    if isinstance(card.entry, str):
        module = importlib.import_module(card.entry.partition(":")[0])
    else:
        module = sys.modules[card.entry.__module__]
    converter: Converter | None = getattr(module, "CONVERTER", None)
    if converter is not None and converter.families and card.name.partition("/")[0] not in converter.families:
        return None
    return converter


def without_prefix(official: Mapping[str, Tensor]) -> Tensors:
    """Tensors by their names without `module.`, which a model that was trained on several devices has before all."""
    return {key.removeprefix("module."): tensor for key, tensor in official.items()}


def count_layers(official: Mapping[str, Tensor], stack: str) -> int:
    """Number of layers whose tensors are called `stack`.INDEX.something."""
    rest = (key.removeprefix(f"{stack}.") for key in official if key.startswith(f"{stack}."))
    return len({key.split(".")[0] for key in rest})


def lstm_names(*cells: str) -> tuple[str, ...]:
    """Names of the four tensors of each of torch's LSTM cells."""
    return tuple(f"{cell}.{part}" for cell in cells for part in _LSTM)


def candidate_last(tensor: Tensor) -> Tensor:
    """Rows in torch's order of gates, input, forget, candidate, output, to the zoo's (`zoo.layers.lstm`)."""
    let_in, keep, candidate, let_out = tensor.chunk(4)
    return torch.cat((let_in, keep, let_out, candidate))


def zoo_lstm(official: Mapping[str, Tensor], cell: str, own: str, width: int | None = None) -> Tensors:
    """An LSTM cell of torch's as `own`; what its input has beyond `width` channels, if given, are past states."""
    inputs, past, bias, past_bias = (candidate_last(official[name]) for name in lstm_names(cell))
    width = inputs.shape[1] if width is None else width
    return {
        f"{own}.input.weight": inputs[:, :width],
        f"{own}.input.bias": bias,
        f"{own}.recurrent.weight": torch.cat((inputs[:, width:], past), 1),
        f"{own}.recurrent.bias": past_bias,
    }


def zoo_attention_lstm(official: Mapping[str, Tensor], cell: str, own: str, words: int) -> Tensors:
    """An LSTM cell over [language state; image; word], whose word has so many channels, and its gates of the image."""
    inputs, width = official[f"{cell}.weight_ih"], official[f"{cell}.weight_hh"].shape[1]
    turned = {**official, f"{cell}.weight_ih": torch.cat((inputs[:, -words:], inputs[:, :width]), 1)}
    gates = {f"{own}image_gates.weight": candidate_last(inputs[:, width:-words])}
    return zoo_lstm(turned, cell, f"{own}lstm", words) | gates


def timm_swin(official: Mapping[str, Tensor], prefix: str) -> Tensors:
    """The tensors of a Swin Transformer (https://github.com/microsoft/Swin-Transformer, MIT) by timm's names.

    The authors merge patches at the end of a stage, timm at the beginning of the next one; what timm computes from the
    sizes is left out.

    Args:
        prefix: of the tensors' names, which is taken off.
    """
    merging = re.compile(r"(?<=layers\.)\d+(?=\.downsample\.)")
    return {
        merging.sub(lambda stage: str(int(stage[0]) + 1), key.removeprefix(prefix)): tensor
        for key, tensor in official.items()
        if key.startswith(prefix) and not key.endswith(("attn_mask", "relative_position_index"))
    }
