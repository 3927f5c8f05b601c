"""What the sections of the configuration have in common: they are frozen, and an unknown key is a mistake."""

from __future__ import annotations

import re
from typing import Annotated, Any, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
)

Seconds = Annotated[float, Field(gt=0, le=86_400)]


MayBeOff = BeforeValidator(lambda value: "off" if value is False else value)
"""For a word that may be ``off``, which YAML reads as false."""


def formed(pattern: str, wanted: str) -> AfterValidator:
    """A text of this form; ``wanted`` says in words what it is to be. What was given instead is not repeated: an
    address may hold a password."""
    form = re.compile(pattern)

    def check(value: str) -> str:
        if not form.fullmatch(value):
            raise ValueError(f"must be {wanted}")
        return value

    return AfterValidator(check)


class Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*", mode="before")
    @classmethod
    def _a_truth_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML reads yes, no, on and off as truths, and Python takes those for 1 and 0."""
        if info.field_name is not None and _holds_truth(value):
            kinds = _kinds(cls.model_fields[info.field_name].annotation)
            if kinds & {int, float} and bool not in kinds:
                raise ValueError("must be a number (yes, no, on, off, true and false are none)")
        return value


def _kinds(annotation: Any) -> set[Any]:
    """The types that a value may be of."""
    parts = get_args(annotation)
    if parts:
        return set().union(*map(_kinds, parts))
    return {annotation} if isinstance(annotation, type) else set()


def _holds_truth(value: Any, depth: int = 3) -> bool:
    """``depth`` lists or mappings down: an alias may lead round in circles."""
    if isinstance(value, list | dict) and depth:
        return any(_holds_truth(one, depth - 1) for one in (value.values() if isinstance(value, dict) else value))
    return isinstance(value, bool)
