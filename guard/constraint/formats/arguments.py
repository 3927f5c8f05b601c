"""An arguments object that is built from named bare values, as its markup streams.

A value whose schema knows only strings streams; any other is whole before it can be typed. A key that comes twice is no
object any more: the call is broken.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from typing import Any

from guard.constraint.formats.cursor import Cursor
from guard.constraint.formats.jsoncalls import Broken
from guard.constraint.formats.values import STRING_ONLY, encode, quoted, types_at


class Offer:
    """The tools on offer, by name, as far as a parser needs them: what their arguments may be."""

    def __init__(self, schemas: Mapping[str, Any]) -> None:
        self.schemas = dict(schemas)
        self.names = frozenset(self.schemas)

    def schema(self, name: str) -> Any:
        return self.schemas.get(name)


class Building:
    """Says ``{"key": value, ...}`` piece by piece."""

    def __init__(self, c: Cursor, schema: Any) -> None:
        self._c = c
        self._schema = schema
        self._keys: set[str] = set()

    def streams(self, key: str) -> bool:
        return types_at(self._schema, key) == STRING_ONLY

    def key(self, key: str) -> None:
        if key in self._keys:
            raise Broken(f"the argument {key[:40]!r} came twice")
        self._c.args((", " if self._keys else "{") + json.dumps(key, ensure_ascii=False) + ": ")
        self._keys.add(key)

    def bare(self, key: str, raw: str) -> None:
        """A whole bare value, typed by the schema."""
        self.key(key)
        self._c.args(encode(raw, types_at(self._schema, key)))

    def encoded(self, key: str, text: str) -> None:
        """A whole value that is JSON already."""
        self.key(key)
        self._c.args(text)

    def close(self) -> None:
        self._c.args("}" if self._keys else "{}")
        self._c.end()

    def value_until(
        self, key: str, stops: tuple[str, ...], *, literal: bool | None = None
    ) -> Generator[None, None, str]:
        """A bare value up to one of the stops, which is read. ``literal``: whether it is a string, whatever the schema
        says. Raises Broken at the text's end."""
        c = self._c
        if self.streams(key) if literal is None else literal:
            self.key(key)
            c.args('"')
            stop = yield from c.until(stops, lambda piece: c.args(quoted(piece)))
            if not stop:
                raise Broken(f"the text ended in the argument {key[:40]!r}")
            c.args('"')
            return stop
        raw, stop = yield from c.collect(stops)
        if not stop:
            raise Broken(f"the text ended in the argument {key[:40]!r}")
        self.bare(key, raw)
        return stop
