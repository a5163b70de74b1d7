"""How the checkpoints of `hf:` of a command caption: what they are asked, and in which arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from harness.inference.hub_checkpoint import ATTENTION, DTYPES, choose_rules
from harness.utils.errors import BenchError


@dataclass(frozen=True, slots=True)
class HubOptions:
    """The same for all checkpoints of a command; None is the default of each.

    Attributes:
        prompt: a template's name, or a text.
        clean: what is done to captions: rules of `harness.inference.hub_checkpoint`.
        attention: its implementation, one of `ATTENTION`.
        dtype: of weights and arithmetic, one of `DTYPES`; None: that of the run.
    """

    prompt: str | None = None
    clean: tuple[str, ...] = ()
    attention: str | None = None
    dtype: str | None = None

    @property
    def given(self) -> str | None:
        """The first option that is given, as it is typed; None where none is."""
        options = {"--prompt": self.prompt, "--hub-attention": self.attention, "--hub-dtype": self.dtype}
        found = next((name for name, value in options.items() if value is not None), None)
        return "--clean" if found is None and self.clean else found


AS_USUAL: Final = HubOptions()


def hub_options(prompt: str | None, clean: str | None, attention: str | None, dtype: str | None) -> HubOptions:
    """The options as they were typed.

    Raises:
        BenchError: a rule, an implementation or a type that does not exist.
    """
    for option, value, known in (("--hub-attention", attention, ATTENTION), ("--hub-dtype", dtype, tuple(DTYPES))):
        if value is not None and value not in known:
            raise BenchError(f"{option} {value!r} is unknown", f"choose {', '.join(known[:-1])} or {known[-1]}")
    return HubOptions(prompt, choose_rules(clean), attention, dtype)
