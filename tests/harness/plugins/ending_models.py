"""A plug-in that prints, with models whose code would end the program: when they are built, and when they are used."""

import sys
from dataclasses import replace
from typing import Any

from zoo import Memory, Visual, model_card, register_model
from zoo.models.expansionnet import ExpansionNet


class Odd(BaseException):
    """No Exception."""


class ExitsBuilt(ExpansionNet):
    """Ends the program in its constructor."""

    def __init__(self, **_arguments: Any) -> None:
        sys.exit(0)


class ExitsUsed(ExpansionNet):
    """Prints, then ends the program in its forward pass."""

    def encode(self, visual: Visual) -> Memory:  # noqa: ARG002
        sys.stdout.write('{"results": []}\n')
        sys.exit(0)


class RaisesOdd(ExpansionNet):
    """Raises what `except Exception` lets through."""

    def encode(self, visual: Visual) -> Memory:
        raise Odd(visual.batch_size)


class Prints(ExpansionNet):
    """Works, and prints meanwhile."""

    def encode(self, visual: Visual) -> Memory:
        sys.stdout.write("encoding\n")
        return super().encode(visual)


for _entry in (ExitsBuilt, ExitsUsed, RaisesOdd, Prints):
    register_model(replace(model_card("transformer_base"), name=f"ending_{_entry.__name__.lower()}", entry=_entry))
sys.stdout.write("loading \N{SNOWMAN}\n")
