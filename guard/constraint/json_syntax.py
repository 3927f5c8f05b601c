"""RFC 8259 JSON, read as it arrives.

Exact: what this reader takes is what the RFC's grammar takes, no more (no NaN, no trailing comma, no control character
in a string, no byte order mark) and no less. Every prefix that it takes can go on to be a document, so the offset of an
error is the length of the longest good prefix. Nothing is nested in calls: depth costs a list entry.

What was read, a sink hears (json_sink.py).
"""

from __future__ import annotations

import re
from typing import Any, Final

from guard.constraint.json_number import INTEGER, MINUS, STEPS, WHOLE, ZERO, number
from guard.constraint.json_sink import ARRAY, FALSE, NULL, NUMBER, OBJECT, STRING, TRUE, UNHEARD, Sink
from guard.constraint.json_string import ESCAPE, FOLLOWS, LETTERS, is_half, is_pair, joined, judgeable


class JsonError(Exception):
    """The character at ``at`` cannot stand there."""

    def __init__(self, at: int, message: str) -> None:
        self.at = at
        self.message = message


_STOP = re.compile(r'["\\\x00-\x1f]').search
_SPACE = re.compile(r"[ \t\n\r]*").match
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?=[^0-9.eE])").match
_LITERALS: Final[dict[str, tuple[int, str, Any]]] = {
    "t": (TRUE, "true", True),
    "f": (FALSE, "false", False),
    "n": (NULL, "null", None),
}

# What is expected next.
_VALUE, _FIRST_ITEM, _FIRST_KEY, _NEXT_KEY, _COLON, _AFTER, _STRING, _ESCAPED, _NUMERAL, _LITERAL, DONE = range(11)
_EXPECTED: Final = {
    _VALUE: "a value",
    _FIRST_ITEM: "a value or ']'",
    _FIRST_KEY: "a key or '}'",
    _NEXT_KEY: "a key",
    _COLON: "':'",
}


class JsonReader:
    """Feed text; ``feed`` returns how much of it belongs to the document, white space after it included.

    ``mode`` DONE: the document is whole, and what comes now is not part of it. ``lone_surrogates`` counts escapes of
    half a pair: the grammar has them, Unicode does not, so values have the replacement character there. ``escape`` is
    an escape that is not whole yet. The sink may set ``budget`` (in ``start`` and ``key_start``: how many characters of
    this string it need not hear) and ``quiet``.
    """

    __slots__ = (
        "_at",
        "_in_key",
        "_literal",
        "_parts",
        "_phase",
        "_sink",
        "_stack",
        "_start",
        "_surrogates",
        "base",
        "budget",
        "escape",
        "lone_surrogates",
        "mode",
        "plain",
        "quiet",
    )

    def __init__(self, sink: Sink, base: int = 0) -> None:
        self._sink = sink
        self.mode = _VALUE
        self._stack: list[int] = []
        self._parts: list[str] = []
        self._start = 0
        self._at = 0
        self._in_key = False
        self._surrogates = False
        self.escape = ""
        self._phase = 0
        self._literal: tuple[int, str, Any] = (NULL, "", None)
        self.base = base
        self.budget = UNHEARD
        self.quiet = False
        self.plain = False
        self.lone_surrogates = 0

    @property
    def offset(self) -> int:
        """Where the next character stands."""
        return self.base + self._at

    @property
    def depth(self) -> int:
        return len(self._stack)

    @property
    def place(self) -> str:
        """What may come next: value, first_item, first_key, key, colon, after, string, number, literal or done."""
        names = (
            "value",
            "first_item",
            "first_key",
            "key",
            "colon",
            "after",
            "string",
            "string",
            "number",
            "literal",
            "done",
        )
        return names[self.mode]

    @property
    def in_key(self) -> bool:
        return self._in_key and self.mode in (_STRING, _ESCAPED)

    @property
    def partial(self) -> str:
        """The decoded text so far of the string or key that is being read, the rest of a literal, a number so far."""
        if self.mode == _LITERAL:
            return self._literal[1][len(self._parts) :]
        text = "".join(self._parts)
        return judgeable(text) if self._surrogates else text

    def feed(self, text: str) -> int:
        """Raises JsonError at the first character that no JSON document has there."""
        mode = self.mode
        if mode == _STRING and _STOP(text) is None:
            # most of a long answer is this
            if text:
                n = len(text)
                self._parts.append(text)
                at = self.base + self._at
                self._at += n
                self.budget -= n
                if self.budget < 0:
                    self._sink.text(text, at)
                return n
            return 0
        sink = self._sink
        base = self.base + self._at
        i = 0
        n = len(text)
        while i < n:
            if mode == _STRING:
                stop = _STOP(text, i)
                j, c = (n, "") if stop is None else (stop.start(), stop[0])
                if c == '"' and not self._parts:
                    self.plain = True
                    plain = text[i:j]
                    i = j + 1
                    if self._in_key:
                        self._in_key = False
                        mode = _COLON
                        sink.key(plain, self._start, base + i)
                    else:
                        mode = _AFTER if self._stack else DONE
                        sink.scalar(STRING, plain, self._start, base + i)
                    continue
                if j > i:
                    piece = text[i:j]
                    self._parts.append(piece)
                    self.budget -= j - i
                    if self.budget < 0:
                        sink.text(piece, base + i)
                    if j == n:
                        break
                if c == '"':
                    i = j + 1
                    mode = self._close_string(base + i)
                elif c == "\\":
                    escape = ESCAPE(text, j)
                    if escape is None:
                        i = j
                        mode = _ESCAPED
                    else:
                        self._unescape(escape[1], escape[2], base + j)
                        i = escape.end()
                else:
                    raise JsonError(base + j, f"a string cannot hold the control character U+{ord(c):04X} as it is")
                continue
            c = text[i]
            if mode == _AFTER:
                if c == ",":
                    if not self.quiet:
                        sink.comma(base + i)
                    mode = _NEXT_KEY if self._stack[-1] == OBJECT else _VALUE
                    i += 1
                    continue
                if c == "}" or c == "]":
                    kind = OBJECT if c == "}" else ARRAY
                    if self._stack[-1] == kind:
                        self._stack.pop()
                        mode = _AFTER if self._stack else DONE
                        sink.end(kind, base + i)
                        i += 1
                        continue
                if c in " \t\n\r":
                    i = _SPACE(text, i).end()  # type: ignore[union-attr]
                    continue
                bracket = "'}'" if self._stack[-1] == OBJECT else "']'"
                raise JsonError(base + i, f"',' or {bracket} was expected, not {_shown(c)}")
            if _FIRST_KEY <= mode <= _NEXT_KEY:
                if c == '"':
                    self._in_key = True
                    self._start = base + i
                    self._parts = []
                    self.budget = UNHEARD
                    mode = _STRING
                    if not self.quiet:
                        sink.key_start(base + i)
                    i += 1
                    continue
                if c == "}" and mode == _FIRST_KEY:
                    self._stack.pop()
                    mode = _AFTER if self._stack else DONE
                    sink.end(OBJECT, base + i)
                    i += 1
                    continue
            elif mode == _COLON:
                if c == ":":
                    mode = _VALUE
                    i += 1
                    continue
            elif mode <= _FIRST_ITEM:
                if c == '"':
                    self._in_key = False
                    self._start = base + i
                    self._parts = []
                    self.budget = UNHEARD
                    mode = _STRING
                    sink.start(STRING, base + i)
                    i += 1
                    continue
                if c == "{":
                    self._stack.append(OBJECT)
                    mode = _FIRST_KEY
                    sink.start(OBJECT, base + i)
                    i += 1
                    continue
                if c == "[":
                    self._stack.append(ARRAY)
                    mode = _FIRST_ITEM
                    sink.start(ARRAY, base + i)
                    i += 1
                    continue
                if c in "-0123456789":
                    self._start = base + i
                    sink.start(NUMBER, base + i)
                    whole = _NUMBER(text, i)
                    if whole is not None:
                        written = whole[0]
                        i += len(written)
                        mode = _AFTER if self._stack else DONE
                        value = int(written) if len(written) < 12 and written.isdigit() else number(written)
                        sink.scalar(NUMBER, value, self._start, base + i)
                        continue
                    self._phase = MINUS if c == "-" else ZERO if c == "0" else INTEGER
                    self._parts = [c]
                    mode = _NUMERAL
                    i += 1
                    continue
                if c in "tfn":
                    self._literal = _LITERALS[c]
                    self._start = base + i
                    self._parts = [c]
                    mode = _LITERAL
                    sink.start(self._literal[0], base + i)
                    i += 1
                    continue
                if c == "]" and mode == _FIRST_ITEM:
                    self._stack.pop()
                    mode = _AFTER if self._stack else DONE
                    sink.end(ARRAY, base + i)
                    i += 1
                    continue
            elif mode == _LITERAL:
                kind, word, literal = self._literal
                if word[len(self._parts)] != c:
                    raise JsonError(base + i, f"{word} was expected, not {_shown(''.join(self._parts) + c)}")
                self._parts.append(c)
                i += 1
                if len(self._parts) == len(word):
                    mode = _AFTER if self._stack else DONE
                    sink.scalar(kind, literal, self._start, base + i)
                continue
            elif mode == _NUMERAL:
                phase = STEPS[self._phase].get(c)
                if phase is not None:
                    self._phase = phase
                    self._parts.append(c)
                    i += 1
                elif self._phase in WHOLE:
                    mode = _AFTER if self._stack else DONE
                    sink.scalar(NUMBER, number("".join(self._parts)), self._start, base + i)
                else:
                    raise JsonError(base + i, f"a digit was expected, not {_shown(c)}")
                continue
            elif mode == _ESCAPED:
                mode, i = self._escape_on(text, i, base)
                continue
            elif mode == DONE:
                i = _SPACE(text, i).end()  # type: ignore[union-attr]
                break
            if c in " \t\n\r":
                i = _SPACE(text, i).end()  # type: ignore[union-attr]
                continue
            raise JsonError(base + i, f"{_EXPECTED[mode]} was expected, not {_shown(c)}")
        else:
            self.mode = mode
            self._at += n
            return n
        self.mode = mode
        used = n if mode == _STRING else i
        self._at += used
        return used

    def finish(self) -> bool:
        """The text has ended. Says whether it was a whole document: a number at its root is ended by nothing else."""
        if self.mode == _NUMERAL and not self._stack and self._phase in WHOLE:
            self.mode = DONE
            self._sink.scalar(NUMBER, number("".join(self._parts)), self._start, self.base + self._at)
        return self.mode == DONE

    # --- strings -----------------------------------------------------------------------------------------------------

    def _close_string(self, end: int) -> int:
        self.plain = False
        value = "".join(self._parts)
        if self._surrogates:
            self._surrogates = False
            value, lone = joined(value)
            self.lone_surrogates += lone
        if self._in_key:
            self._in_key = False
            self._sink.key(value, self._start, end)
            return _COLON
        mode = _AFTER if self._stack else DONE
        self._sink.scalar(STRING, value, self._start, end)
        return mode

    def _unescape(self, letter: str | None, digits: str | None, at: int) -> None:
        if letter is not None:
            piece = LETTERS[letter]
        else:
            piece = chr(int(digits or "0", 16))
            if is_half(piece):
                self._surrogates = True
                if self._parts and is_pair(self._parts[-1], piece):
                    self.budget += 1  # the pair is one character
        self._parts.append(piece)
        self.budget -= 1
        if self.budget < 0:
            self._sink.text(piece, at)

    def _escape_on(self, text: str, i: int, base: int) -> tuple[int, int]:
        """One more character of an escape that a piece's end had cut, or that is none."""
        c = text[i]
        had = self.escape
        if c not in FOLLOWS[len(had)]:
            self.escape = ""
            raise JsonError(base + i, f"{_shown(had + c)} is no escape that a JSON string knows")
        had += c
        i += 1
        if len(had) == 1 or (had[1] == "u" and len(had) < 6):
            self.escape = had
            return _ESCAPED, i
        self.escape = ""
        self._unescape(None if had[1] == "u" else had[1], had[2:] or None, base + i - len(had))
        return _STRING, i


def _shown(text: str) -> str:
    return repr(text) if text.isprintable() else ascii(text)
