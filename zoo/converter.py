"""Build models with the weights that their authors released.

A model's file ends with its `CONVERTER`, which maps names and layouts, and reads sizes off the shapes of tensors.

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

TensorAxis = tuple[str, int]
Tensors = dict[str, Tensor]
UNKNOWN = "UNK"
NEVER = -1e4  # logit of tokens that are never generated: their probability is 0 in every floating-point type
_HINT = "the model must be the checkpoint's"
_LSTM = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")


@dataclass(frozen=True, kw_only=True)
class Converter:
    """Converts the weights of one released code; subclasses convert layouts that differ in more than names.

    The authors' names may begin with `module.`, which training on several devices adds.

    Attributes:
        source: what messages call the released code or model.
        renames: patterns of the authors' names and their replacements, applied one after the other.
        unused: pattern of names that are left out.
        size_axes: for each size, the tensor and axis that have it.
        stacks: for each number of layers, the prefix of their tensors' names.
        fixed: arguments that the weights were trained with.
        padded_positions: whether the table of positions, whose length is `max_len`, has a row for padding.
        required: further tensors that must exist.
        shared_number: embedding and output layer of a code whose number 0 is begin, end and padding at once, and whose
            words have the numbers 1 .. V.
        backbone: prefix of the names of a Swin Transformer; models on pixels use it, others leave it out.
        families: the models of this file with such weights, including variants; all of them if empty.
        hint: what to check where the tensors do not fit.
    """

    source: str
    renames: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = ()
    unused: str = r"$^"
    size_axes: Mapping[str, TensorAxis] = field(default_factory=dict)
    stacks: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, Any] = field(default_factory=dict)
    padded_positions: bool = False
    required: tuple[str, ...] = ()
    shared_number: tuple[str, str] | None = None
    backbone: str | None = None
    families: tuple[str, ...] = ()
    hint: str = _HINT

    def name(self, official: str) -> str:
        """The zoo's name of a parameter, given the authors' name; unknown names are unchanged."""
        for pattern, replacement in self.renames:
            official = re.sub(pattern, replacement, official)
        return official

    def tensors(self, official: Mapping[str, Tensor]) -> Tensors:
        """The authors' tensors, or their gradients, under the zoo's names and in its layout; unknown names stay."""
        return {self.name(key): tensor for key, tensor in official.items() if not re.search(self.unused, key)}

    def sizes(self, official: Mapping[str, Tensor]) -> dict[str, Any]:
        """The arguments of `create_model` for these weights; ZooError if this is not a state dict of the family."""
        sizes: dict[str, Any] = self.read_sizes(official, self.size_axes)
        sizes |= {size: count_layers(official, stack) for size, stack in self.stacks.items()}
        if self.padded_positions:
            sizes["max_len"] -= 1
        return {**sizes, **self.fixed}

    def read_sizes(self, official: Mapping[str, Tensor], size_axes: Mapping[str, TensorAxis]) -> dict[str, int]:
        """Read sizes off the shapes of tensors; ZooError if a tensor is missing or has too few axes."""
        hint = "pass the checkpoint's 'model_state_dict'"
        required = {*self.required, *(key for key, _ in size_axes.values())}
        missing = sorted(required - set(official))
        if missing:
            raise ZooError(f"this is not a state dict of {self.source}: {', '.join(missing)} missing", hint)
        for key, axis in size_axes.values():
            if official[key].ndim <= axis:
                shape = tuple(official[key].shape)
                raise ZooError(f"this is not a state dict of {self.source}: {key} has the shape {shape}", hint)
        return {size: official[key].shape[axis] for size, (key, axis) in size_axes.items()}

    def select(self, name: str, official: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> Tensors:  # noqa: ARG002
        """The converted tensors that the model `name` with these arguments has; a checkpoint may have more."""
        tensors = self.tensors(official)
        if self.backbone is None or model_card(name).visual != "pixels":
            return tensors
        body = {f"body.{key}": tensor for key, tensor in tensors.items()}
        backbone = {f"backbone.{key}": tensor for key, tensor in timm_swin(official, self.backbone).items()}
        return body | backbone

    def build(self, name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
        """See `from_official`."""
        official = without_prefix(state_dict)
        of_card = {size: value for size, value in model_card(name).arguments.items() if size in self.fixed}
        sizes = {**self.sizes(official), **of_card, **sizes}
        tensors = self.select(name, official, sizes)
        model = create_model(name, **sizes)
        parameters = model.state_dict()
        problems = [f"{key}: unknown to {name}" for key in sorted(tensors) if key not in parameters]
        for key, parameter in parameters.items():
            if key not in tensors:
                problems.append(f"{key}: not in the state dict")
            elif tensors[key].shape != parameter.shape:
                shape = tuple(tensors[key].shape)
                problems.append(f"{key}: shape {shape}, but {name} has {tuple(parameter.shape)}")
        if problems:
            raise ZooError(f"the state dict does not fit {name}:\n  " + "\n  ".join(problems), self.hint)
        dtype = next(tensor.dtype for tensor in tensors.values() if tensor.is_floating_point())
        model.to(torch.promote_types(dtype, torch.float32))
        model.load_state_dict(tensors)
        return model

    def separate_specials(self, state_dict: Mapping[str, Tensor], words: Sequence[str]) -> tuple[Tensors, list[str]]:
        """Give begin, end and padding, which share number 0, rows of their own.

        Padding becomes 0, begin 1, end 2 and the unknown word 3. Begin gets the embedding of 0, and end its logit.
        Padding and begin are never generated; nor is the unknown word where the authors' words have none.

        Args:
            state_dict: the authors' tensors.
            words: the authors' words, from number 1 on.

        Returns:
            The tensors, and the words from number 4 on.

        Raises:
            ZooError: a tensor is missing, or there are not as many words as rows after the first.
        """
        assert self.shared_number is not None
        official = without_prefix(state_dict)
        embedding, output = self.shared_number
        weight = f"{output}.weight"
        bias = f"{output}.bias"
        keys = (embedding, weight, bias)
        n_rows = self.read_sizes(official, {key: (key, 0) for key in keys})
        if set(n_rows.values()) != {len(words) + 1}:
            raise ZooError(
                f"the checkpoint has {n_rows[weight] - 1} words after the number 0, but the vocabulary {len(words)}",
                "give the vocabulary that this checkpoint was trained with, without an entry for the number 0",
            )
        numbers = {word: number for number, word in enumerate(words, 1)}
        unknown = numbers.pop(UNKNOWN, None)
        rows = torch.tensor([0, 0, 0, unknown or 0, *numbers.values()])
        separate = official | {key: official[key][rows] for key in keys}
        never_generated = [0, 1] if unknown else [0, 1, 3]
        separate[weight][never_generated] = 0.0
        separate[bias][never_generated] = NEVER
        return separate, list(numbers)


def from_official(name: str, state_dict: Mapping[str, Tensor], **sizes: Any) -> Captioner:
    """Build a registered model with the authors' weights, in their floating-point type, float32 at least.

    Args:
        name: a registered model, a variant too.
        state_dict: the tensors of a checkpoint under the authors' names; see `zoo.checkpoints.read_checkpoint`.
        sizes: arguments of `create_model` that shapes do not determine, such as `n_heads`, if they differ from the
            card's; see the converter.

    Raises:
        ZooError: there is no converter, or tensors are missing, unknown or of another shape; the message lists them.
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
    """The models, without their variants, whose released weights can be converted; imports all model modules."""
    return sorted({name.partition("/")[0] for name, card in registered_cards().items() if _find_converter(card)})


def _find_converter(card: ModelCard) -> Converter | None:
    """The `CONVERTER` in the module of a model, or of its body if it has a backbone; None if there is none."""
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
    """Tensors by their names without the prefix `module.`, which training on several devices adds."""
    return {key.removeprefix("module."): tensor for key, tensor in official.items()}


def count_layers(official: Mapping[str, Tensor], stack: str) -> int:
    """Number of layers whose tensors are called `stack`.INDEX.something."""
    prefix = f"{stack}."
    return len({key.removeprefix(prefix).split(".")[0] for key in official if key.startswith(prefix)})


def lstm_names(*cells: str) -> tuple[str, ...]:
    """Names of the four tensors of each of torch's LSTM cells."""
    return tuple(f"{cell}.{part}" for cell in cells for part in _LSTM)


def reorder_gates(tensor: Tensor) -> Tensor:
    """Reorder rows from torch's gates (input, forget, candidate, output) to those of `zoo.layers.lstm`."""
    input_gate, forget_gate, candidate, output_gate = tensor.chunk(4)
    return torch.cat((input_gate, forget_gate, output_gate, candidate))


def convert_lstm(official: Mapping[str, Tensor], cell: str, name: str, d_input: int | None = None) -> Tensors:
    """Convert torch's LSTM cell `cell` to the zoo's `name`.

    Input channels from `d_input` on, if given, are past states, and become part of the recurrent weight.
    """
    inputs, past, bias, past_bias = (reorder_gates(official[key]) for key in lstm_names(cell))
    d_input = inputs.shape[1] if d_input is None else d_input
    return {
        f"{name}.input.weight": inputs[:, :d_input],
        f"{name}.input.bias": bias,
        f"{name}.recurrent.weight": torch.cat((inputs[:, d_input:], past), 1),
        f"{name}.recurrent.bias": past_bias,
    }


def convert_attention_lstm(official: Mapping[str, Tensor], cell: str, prefix: str, d_word: int) -> Tensors:
    """Convert an LSTM cell over [language state; image; word] to `lstm` and `image_gates`, whose names get `prefix`."""
    inputs = official[f"{cell}.weight_ih"]
    d_state = official[f"{cell}.weight_hh"].shape[1]
    words_then_state = torch.cat((inputs[:, -d_word:], inputs[:, :d_state]), 1)
    lstm = convert_lstm({**official, f"{cell}.weight_ih": words_then_state}, cell, f"{prefix}lstm", d_word)
    return lstm | {f"{prefix}image_gates.weight": reorder_gates(inputs[:, d_state:-d_word])}


def timm_swin(official: Mapping[str, Tensor], prefix: str) -> Tensors:
    """The tensors of a Swin Transformer (https://github.com/microsoft/Swin-Transformer, MIT) by timm's names.

    The authors merge patches at the end of a stage, timm at the beginning of the next one. Buffers that timm computes
    from the sizes are left out.

    Args:
        prefix: prefix of the tensors' names, which is removed.
    """
    patch_merging = re.compile(r"(?<=layers\.)\d+(?=\.downsample\.)")
    tensors = {}
    for key, tensor in official.items():
        if key.startswith(prefix) and not key.endswith(("attn_mask", "relative_position_index")):
            name = key.removeprefix(prefix)
            tensors[patch_merging.sub(lambda stage: str(int(stage[0]) + 1), name)] = tensor
    return tensors
