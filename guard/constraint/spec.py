"""One canonical form for every format a caller can ask for.

A Constraint is data: it compiles to a checker (compile.py) and translates to each engine's dialect
(engines/dialects.py).

The rules of reading a request:

- A request asks for one format. Two that differ are refused, the same one said twice is not.
- Only shapes are checked here, in microseconds: whether a schema, a regex or a grammar makes sense is found out by
  compiling it, which is done off the event loop and under limits. Both refuse with the path of the caller's field.
- Null means: not said.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from hashlib import sha256
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

Kind = Literal["json_schema", "json_object", "regex", "choice", "grammar", "structural_tag"]

Said = tuple[str, Any]
"""A field's path and what the caller wrote there."""


class Constraint(Struct, frozen=True, dict=True):
    """``value``: the schema (a dict or a bool), None for json_object, the regex, a tuple of choices, the grammar's
    text, or the structural tag (a dict). ``syntax`` is ebnf, gbnf or lark for a grammar, else empty. ``param`` is the
    path of the caller's field, for errors; it is no part of what is asked."""

    kind: Kind
    value: Any = None
    syntax: str = ""
    name: str = ""
    strict: bool = True
    param: str = ""

    @cached_property
    def canonical(self) -> bytes:
        """What is asked, as JSON with sorted keys: equal for equal formats, whatever the order in which a schema's keys
        were written. ``name`` and ``strict`` are for engines only."""
        asked = [self.kind, self.syntax, self.value]
        try:
            return msgspec.json.encode(asked, order="deterministic")
        except (OverflowError, ValueError):  # an integer beyond 64 bits, half a surrogate pair
            return json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()
        except RecursionError:
            raise _too_deep(self.param) from None

    @cached_property
    def key(self) -> str:
        """The cache key: the SHA-256 of the canonical form, in hex."""
        return sha256(self.canonical).hexdigest()


FIELDS: Final = (
    "response_format",
    "structured_outputs",
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "guided_decoding",
    "guided_decoding_backend",
    "guided_whitespace_pattern",
    "grammar",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
)
"""The top-level fields that say something about the format, in any engine's dialect."""

_TUNING: Final = frozenset(
    {"whitespace_pattern", "disable_any_whitespace", "disable_additional_properties", "disable_fallback", "backend"}
)


def from_openai(body: Mapping[str, Any]) -> Constraint | None:
    """What an OpenAI-shaped request body asks of the answer's format, in whichever engine's dialect.

    Raises RequestError (code invalid_constraint) with the path of the field that is wrong.
    """
    found: Constraint | None = None
    for constraint in _asked(body):
        if found is None:
            found = constraint
        elif found.key != constraint.key:
            raise _refused(f"an answer has one format, but {found.param} asks for another one too", constraint.param)
    return found


def _asked(body: Mapping[str, Any]) -> Iterator[Constraint]:
    for field in FIELDS:
        value = body.get(field)
        if value is None:
            continue
        if field == "response_format":
            asked = _response_format(value, field)
            if asked is not None:
                yield asked
        elif field in ("structured_outputs", "guided_decoding"):
            yield from _options(value, field)
        elif field in _READERS:
            yield _READERS[field]((field, value))


def _response_format(value: Any, path: str) -> Constraint | None:
    form = _mapping((path, value))
    kind = form.get("type")
    match kind:
        case "text":
            return None
        case "json_object" | "json":
            # llama.cpp and TensorRT-LLM take a schema beside the type
            if form.get("schema") is not None:
                return schema((f"{path}.schema", form["schema"]))
            return Constraint("json_object", param=path)
        case "json_schema":
            return _named_schema(form, path)
        case "regex":
            return regex((f"{path}.regex", form.get("regex", form.get("pattern"))))
        case "ebnf" | "grammar":
            field = "ebnf" if form.get("ebnf") is not None else "grammar"
            return grammar((f"{path}.{field}", form.get(field)))
        case "structural_tag":
            return structural_tag((path, form))
        case None:
            raise _refused("is missing", f"{path}.type")
    raise _refused(f"{json.dumps(kind)[:60]} is no format that is known here", f"{path}.type")


def _named_schema(form: Mapping[str, Any], path: str) -> Constraint:
    """The OpenAI form, and llama.cpp's with the schema beside the type."""
    inner = form.get("json_schema")
    if inner is None:
        return schema((f"{path}.schema", form["schema"])) if form.get("schema") is not None else _missing(path)
    path = f"{path}.json_schema"
    named = _mapping((path, inner))
    if named.get("schema") is None:
        return _missing(path, "schema")
    name = named.get("name")
    if name is not None and not isinstance(name, str):
        raise _refused("must be a string", f"{path}.name")
    strict = named.get("strict")
    if strict is not None and not isinstance(strict, bool):
        raise _refused("must be true or false", f"{path}.strict")
    asked = schema((f"{path}.schema", named["schema"]))
    return msgspec.structs.replace(asked, name=name or "", strict=strict is not False)


def _options(value: Any, path: str) -> Iterator[Constraint]:
    """vLLM's structured_outputs, and guided_decoding as Dynamo and older clients write it."""
    for option, said in _mapping((path, value)).items():
        if said is None or option in _TUNING:
            continue
        here = f"{path}.{option}"
        if option == "json_object":
            if not isinstance(said, bool):
                raise _refused("must be true or false", here)
            if said:
                yield Constraint("json_object", param=here)
        elif option in _OPTIONS:
            yield _OPTIONS[option]((here, said))
        else:
            raise _refused("is no option that is known here", here)


# --- one kind each; also for callers that hold a value of a known kind ------------------------------------------------


def schema(said: Said) -> Constraint:
    """A JSON schema: an object, true or false, or one of these as JSON text."""
    path, value = said
    if isinstance(value, str):
        value = _parsed(path, value)
    if not isinstance(value, dict | bool):
        raise _refused("a schema is an object, true or false", path)
    return Constraint("json_schema", value, param=path)


def regex(said: Said) -> Constraint:
    return Constraint("regex", _text(said), param=said[0])


def choice(said: Said) -> Constraint:
    path, value = said
    if not isinstance(value, list | tuple) or not value:
        raise _refused("must be a list of at least one string", path)
    for index, one in enumerate(value):
        if not isinstance(one, str):
            raise _refused("must be a string", f"{path}[{index}]")
    return Constraint("choice", tuple(dict.fromkeys(value)), param=path)


def grammar(said: Said) -> Constraint:
    """EBNF as xgrammar takes it, GBNF as llama.cpp does, or Lark; which one is told from its rule arrows."""
    path, _ = said
    text = _text(said)
    return Constraint("grammar", text, syntax="ebnf" if "::=" in text else "lark", param=path)


def gbnf(said: Said) -> Constraint:
    return Constraint("grammar", _text(said), syntax="gbnf", param=said[0])


def ebnf(said: Said) -> Constraint:
    return Constraint("grammar", _text(said), syntax="ebnf", param=said[0])


def lark(said: Said) -> Constraint:
    return Constraint("grammar", _text(said), syntax="lark", param=said[0])


def structural_tag(said: Said) -> Constraint:
    """Both forms: ``{"format": ...}`` and the older ``{"structures": [...], "triggers": [...]}``; also as JSON text."""
    path, value = said
    if isinstance(value, str):
        value = _parsed(path, value)
    tag = dict(_mapping((path, value)))
    tag["type"] = "structural_tag"
    if isinstance(tag.get("format"), dict):
        return Constraint("structural_tag", tag, param=path)
    if isinstance(tag.get("structures"), list) and isinstance(tag.get("triggers"), list):
        return Constraint("structural_tag", tag, param=path)
    raise _refused("needs a format, or structures and triggers", path)


_READERS: Final[dict[str, Callable[[Said], Constraint]]] = {
    "guided_json": schema,
    "guided_regex": regex,
    "guided_choice": choice,
    "guided_grammar": grammar,
    "grammar": gbnf,
    "json_schema": schema,
    "regex": regex,
    "ebnf": ebnf,
    "structural_tag": structural_tag,
}
_OPTIONS: Final[dict[str, Callable[[Said], Constraint]]] = {
    "json": schema,
    "json_schema": schema,
    "regex": regex,
    "choice": choice,
    "grammar": grammar,
    "ebnf": ebnf,
    "structural_tag": structural_tag,
}


HALF_CHARACTERS: Final = "holds half of a surrogate pair, which is no character"


def _parsed(path: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise _refused(f"is a string, but no JSON: {error}", path) from None
    except RecursionError:
        raise _too_deep(path) from None
    if half_characters(text, value):
        raise _refused(HALF_CHARACTERS, path)
    return value


def half_characters(text: str, value: Any) -> bool:
    """Whether what was read from this JSON text escapes what UTF-8 cannot carry on."""
    if "\\ud" not in text.lower():
        return False
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return True
    return False


def _text(said: Said) -> str:
    path, value = said
    if not isinstance(value, str) or not value:
        raise _refused("must be a string that is not empty", path)
    return value


def _mapping(said: Said) -> Mapping[str, Any]:
    path, value = said
    if not isinstance(value, dict):
        raise _refused("must be an object", path)
    return cast(Mapping[str, Any], value)


def _missing(path: str, field: str = "json_schema") -> Constraint:
    raise _refused("is missing", f"{path}.{field}")


def _refused(message: str, path: str, code: str = "invalid_constraint") -> Exception:
    from guard.request import RequestError  # that module builds on this one

    where = re.sub(r"\s+", " ", message)
    return RequestError(f"{path}: {where}" if path else where, param=path, code=code)


def _too_deep(path: str) -> Exception:
    return _refused("is nested too deeply to be read", path, "constraint_too_complex")
