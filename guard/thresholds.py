"""The section ``thresholds`` of a policy: what it takes to condemn an answer, as far as an operator may want to say it.

Everything else in detectors/policy.py follows from what repeats and stays as it was set on the corpus.
"""

from __future__ import annotations

from functools import cached_property
from typing import Annotated

from pydantic import Field, model_validator

from detectors import Policy as Bars
from detectors.policy import DEFAULT
from guard.section import Section

Copies = Annotated[int, Field(ge=3, le=10_000)]
Chars = Annotated[int, Field(ge=16, le=1_000_000)]


class Thresholds(Section):
    """Copies count the first one too. ``patience`` multiplies every bar of repetition and white space: 2 waits twice as
    long. ``token_copies``: one token again and again; ``phrase_copies``: a phrase, a sentence, a paragraph of prose;
    ``code_copies``: code, markup, rows with several different words; ``row_copies``: plain rows; ``near_copies``: what
    differs in numbers and white space only. ``newlines``: in a row; ``json_blank_chars``: white space in one gap of a
    JSON document; ``blank_chars``: in one gap of text; ``trailing_blank_chars``: behind the last word of an answer.
    ``mojibake_points``: a pair of wrongly decoded characters in a word counts two, one that stands alone one."""

    patience: Annotated[float, Field(ge=0.25, le=20)] = DEFAULT.patience
    token_copies: Copies = DEFAULT.token_copies
    phrase_copies: Copies = DEFAULT.phrase_copies
    code_copies: Copies = DEFAULT.code_copies
    row_copies: Copies = DEFAULT.row_copies
    near_copies: Copies = DEFAULT.near_copies
    newlines: Annotated[int, Field(ge=8, le=100_000)] = DEFAULT.newlines
    json_blank_chars: Chars = DEFAULT.json_blank_chars
    blank_chars: Chars = DEFAULT.blank_chars
    trailing_blank_chars: Chars = DEFAULT.trailing_blank_chars
    mojibake_points: Annotated[int, Field(ge=1, le=1_000)] = DEFAULT.mojibake_points

    @model_validator(mode="after")
    def _fit_together(self) -> Thresholds:
        if self.trailing_blank_chars > self.blank_chars:
            raise ValueError(
                f"trailing_blank_chars ({self.trailing_blank_chars}) is more than blank_chars ({self.blank_chars})"
            )
        if self.row_copies < self.code_copies:
            raise ValueError(f"row_copies ({self.row_copies}) is less than code_copies ({self.code_copies})")
        return self

    @cached_property
    def bars(self) -> Bars:
        """As the detectors take them. What is set off a stated one keeps its proportion to it."""
        shares = {
            "special_copies": self.token_copies / DEFAULT.token_copies,
            "word_copies": self.phrase_copies / DEFAULT.phrase_copies,
            "rich_code_copies": self.code_copies / DEFAULT.code_copies,
            "short_code_copies": self.code_copies / DEFAULT.code_copies,
            "quoted_copies": self.row_copies / DEFAULT.row_copies,
            "rich_near_copies": self.near_copies / DEFAULT.near_copies,
            "newline_flood": self.newlines / DEFAULT.newlines,
            "leading_newlines": self.newlines / DEFAULT.newlines,
            "trailing_newlines": self.newlines / DEFAULT.newlines,
        }
        scaled = {name: max(3, round(getattr(DEFAULT, name) * share)) for name, share in shares.items()}
        return Bars(**self.model_dump(), **scaled)
