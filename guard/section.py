"""What the sections of the configuration have in common: they are frozen, and an unknown key is a mistake."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400)]


MayBeOff = BeforeValidator(lambda value: "off" if value is False else value)
"""For a word that may be ``off``, which YAML reads as false."""


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
