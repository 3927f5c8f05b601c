"""EBNF as xgrammar reads it, written as llama.cpp's GBNF. Pure.

The two differ little: GBNF has no underscore or dot in a rule's name, and ends a rule at the end of its line. What GBNF
cannot say (look-ahead, xgrammar's function-like macros) raises Untranslatable.
"""

from __future__ import annotations

import re
from typing import Final

from guard.constraint.regex_gbnf import Untranslatable

_TOKEN: Final = re.compile(
    r"""
      (?P<space>   \s+ | \#[^\n]* )
    | (?P<define>  ::= )
    | (?P<name>    [A-Za-z_][A-Za-z0-9_.-]* )
    | (?P<string>  "(?:[^"\\\n]|\\.)*" )
    | (?P<class>   \[(?:[^\]\\]|\\.)*\] )
    | (?P<counted> \{\s*\d*\s*,?\s*\d*\s*\} )
    | (?P<ahead>   \(\s*= )
    | (?P<sign>    [()|*+?.] )
    """,
    re.VERBOSE | re.DOTALL,
)


def ebnf_to_gbnf(text: str) -> str:
    """The same rules, one a line. Raises Untranslatable, also for what is no grammar."""
    tokens = list(_tokens(text))
    names = {value for kind, value in tokens if kind == "name"}
    spelling = _spelling(names)
    rules: list[list[str]] = []
    for i, (kind, value) in enumerate(tokens):
        following = tokens[i + 1] if i + 1 < len(tokens) else ("", "")
        if kind == "define":
            continue
        if kind == "name":
            if following[0] == "define":
                rules.append([spelling[value], "::="])
                continue
            if following[1] == "(" and _is_macro(text, value):
                raise Untranslatable(f"{value}(...)")
            value = spelling[value]
        if not rules:
            raise Untranslatable("a grammar that begins without a rule")
        if kind == "counted" or value in ("*", "+", "?"):
            rules[-1][-1] += re.sub(r"\s+", "", value)
        else:
            rules[-1].append(value)
    return "\n".join(" ".join(rule) for rule in rules)


def _is_macro(text: str, name: str) -> bool:
    """A name with a bracket right behind it is a macro; with a space between, a rule and a group."""
    return re.search(rf"(?<![A-Za-z0-9_.-]){re.escape(name)}\(", text) is not None


def _tokens(text: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise Untranslatable(f"{text[at : at + 20]!r}")
        kind = str(match.lastgroup)
        if kind == "ahead":
            raise Untranslatable("look-ahead")
        if kind != "space":
            found.append((kind, match.group()))
        at = match.end()
    return found


def _spelling(names: set[str]) -> dict[str, str]:
    """A name for each that GBNF allows, no two alike."""
    plain = {name: name for name in names if "_" not in name and "." not in name}
    taken = set(plain)
    for name in sorted(names - plain.keys()):
        wanted = re.sub(r"[_.]", "-", name).strip("-") or "rule"
        while wanted in taken:
            wanted += "-x"
        taken.add(wanted)
        plain[name] = wanted
    return plain
