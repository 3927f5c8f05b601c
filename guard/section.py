"""What the sections of the configuration have in common: they are frozen, and an unknown key is a mistake."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Seconds = Annotated[float, Field(gt=0, le=86_400)]


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")
