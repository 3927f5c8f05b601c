"""One canonical form for every format a caller can ask for.

A Constraint is data: it compiles to a checker (compile.py) and translates to each engine's dialect (dialect.py).
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct

Kind = Literal["json_schema", "json_object", "regex", "choice", "grammar", "structural_tag"]


class Constraint(Struct, frozen=True):
    """``value``: the schema (a dict or a bool), None for json_object, the regex, a tuple of choices, the grammar's
    text, or the structural tag (a dict). ``syntax`` is ebnf, gbnf or lark for a grammar, else empty."""

    kind: Kind
    value: Any = None
    syntax: str = ""
    name: str = ""
    strict: bool = True
