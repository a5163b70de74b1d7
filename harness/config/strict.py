"""The base of all settings."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


class Strict(BaseModel):
    """Frozen settings that reject unknown keys, infinity and NaN.

    `omit_if_default` names settings that were added after results had been stored: a dump omits them while they have
    their default, so that run keys and signatures that do not use them stay the same.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
    omit_if_default: ClassVar[frozenset[str]] = frozenset()

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        content: dict[str, Any] = dump(self)
        unused = self._unused()
        return {name: value for name, value in content.items() if name not in unused}

    def _unused(self) -> set[str]:
        """The settings that a dump omits."""
        fields = type(self).model_fields
        return {name for name in self.omit_if_default if getattr(self, name) == fields[name].get_default()}
