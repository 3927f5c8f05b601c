"""The drafts of JSON Schema, and the few questions about a schema that need no understanding of it."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import unquote

import jsonschema_rs

_DRAFTS: Final = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
VALIDATORS: Final[dict[int, Any]] = {
    4: jsonschema_rs.Draft4Validator,
    6: jsonschema_rs.Draft6Validator,
    7: jsonschema_rs.Draft7Validator,
    2019: jsonschema_rs.Draft201909Validator,
    2020: jsonschema_rs.Draft202012Validator,
}
REGISTRY_DRAFTS: Final = {
    4: jsonschema_rs.Draft4,
    6: jsonschema_rs.Draft6,
    7: jsonschema_rs.Draft7,
    2019: jsonschema_rs.Draft201909,
    2020: jsonschema_rs.Draft202012,
}


def draft_of(schema: Any) -> int | None:
    """The draft that ``$schema`` names (its year from 2019 on); 0 where nothing is said, None for an unknown one."""
    said = schema.get("$schema") if isinstance(schema, dict) else None
    if said is None:
        return 0
    if not isinstance(said, str):
        return None
    return _DRAFTS.get(said.split("://", 1)[-1].rstrip("#"))


def pointed_at(schema: Any, reference: str) -> tuple[tuple[str | int, ...], Any] | None:
    """The path that a reference within ``schema`` points to, and what stands there."""
    if not (reference == "#" or reference.startswith("#/")):
        return None
    path: list[str | int] = []
    at = schema
    for token in unquote(reference[1:]).split("/")[1:]:
        token = token.replace("~1", "/").replace("~0", "~")
        if isinstance(at, dict) and token in at:
            path.append(token)
            at = at[token]
        elif isinstance(at, list) and token.isdecimal() and int(token) < len(at):
            path.append(int(token))
            at = at[int(token)]
        else:
            return None
    return tuple(path), at


def at(schema: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        schema = schema[step]
    return schema


def has(schema: Any, keyword: str, *, below: bool = False) -> bool:
    """Whether an object in ``schema`` (``below``: not the outermost) has ``keyword`` with a string."""
    todo: list[Any] = [schema]
    first = below
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            if not first and isinstance(one.get(keyword), str):
                return True
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)
        first = False
    return False
