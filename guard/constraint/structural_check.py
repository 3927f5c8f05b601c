"""Structural tags, by xgrammar, which reads them as the engines do; the JSON in them by its schema (tagged_json.py).

xgrammar brings torch: importing it takes some four seconds, so it is loaded by the first request that asks for a
structural tag, in the thread that compiles it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from typing import Any

from guard.constraint.compile import compile_constraint
from guard.constraint.contract import Checker
from guard.constraint.json_check import Release
from guard.constraint.limits import Limits, depth_of, invalid, too_complex
from guard.constraint.native_noise import to_the_log
from guard.constraint.spec import Constraint
from guard.constraint.tagged_json import TaggedChecker, documents_of, marked
from guard.constraint.text_check import TextChecker

_LOCK = threading.Lock()
_NOISE = re.compile(r"^\[\d\d:\d\d:\d\d\] \S+: (?:Check failed: \(.*?\) is false: )?", re.DOTALL)


class StructuralMatcher:
    """``accept_string`` takes all of a piece or nothing: where it stops is found by halves."""

    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def push(self, text: str) -> int:
        if self._matcher.accept_string(text):
            return len(text)
        low, high = 0, len(text) - 1
        while low < high:
            middle = (low + high + 1) // 2
            if self._matcher.fork().accept_string(text[:middle]):
                low = middle
            else:
                high = middle - 1
        if low:
            self._matcher.accept_string(text[:low])
        return low

    def accepts(self) -> bool:
        return bool(self._matcher.is_completed())

    def forced(self) -> str:
        return str(self._matcher.find_jump_forward_string())

    def fork(self) -> StructuralMatcher:
        return StructuralMatcher(self._matcher.fork())

    def failure(self) -> str:
        return ""


def structural_tag_maker(constraint: Constraint, limits: Limits) -> Callable[[Release, bool], Checker]:
    param = constraint.param
    if depth_of(constraint.value, limits.depth) > limits.depth:
        raise too_complex(param, f"the structural tag nests deeper than {limits.depth} levels")
    if len(constraint.canonical) > limits.bytes:
        size = len(constraint.canonical)
        raise too_complex(param, f"the structural tag has {size} bytes, and may have {limits.bytes}")
    try:
        import xgrammar
    except ImportError:
        raise invalid(param, "structural tags need xgrammar, which is not installed (outguard[torch])") from None
    plain, found, before = marked(modern(constraint.value))
    schemas = documents_of(found, lambda one: compile_constraint(Constraint("json_schema", one, param=param), limits))
    tag = json.dumps(plain)
    with _LOCK, to_the_log():  # the compiler is not made for many at once
        compiler = xgrammar.GrammarCompiler(xgrammar.TokenizerInfo([]), max_threads=1, cache_enabled=False)
        try:
            grammar = compiler.compile_structural_tag(tag)
        except Exception as error:  # the library's own errors have several types
            message = _NOISE.sub("", str(error).strip()).split("\n", 1)[0][:300]
            raise invalid(param, f"no valid structural tag: {message}") from None

    def new_matcher() -> StructuralMatcher:
        return StructuralMatcher(xgrammar.GrammarMatcher(grammar, terminate_without_stop_token=True))

    if not schemas:
        return lambda release, _: TextChecker(new_matcher, "grammar", "structural tag", release)
    return lambda release, _: TaggedChecker(new_matcher, schemas, before, release)


def modern(tag: dict[str, Any]) -> dict[str, Any]:
    """The older form, with structures and triggers, in the words of the newer."""
    if "format" in tag:
        return tag
    tags = [
        {
            "begin": one.get("begin", ""),
            "content": {"type": "json_schema", "json_schema": one.get("schema", True)},
            "end": one.get("end", ""),
        }
        for one in tag.get("structures", [])
        if isinstance(one, dict)
    ]
    return {
        "type": "structural_tag",
        "format": {"type": "triggered_tags", "triggers": tag.get("triggers", []), "tags": tags},
    }
