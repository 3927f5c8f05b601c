"""Constraints as masks over a vocabulary: which tokens may come next. Loads xgrammar, so only the torch engine's
threads import it.

Two back ends. xgrammar knows every kind of constraint; outlines-core builds one regex automaton, so it knows schemas,
regexes and choices. A mask reads the text that an answer goes on from before it allows anything, so that a resumed
answer stays constrained. What a back end cannot do is no error: there is no mask then, and the guard's own check stands
alone, as for any engine.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, Protocol

import torch
import xgrammar

from guard.constraint.native_noise import to_the_log
from guard.constraint.spec import Constraint
from guard.constraint.structural_check import modern
from guard.engines.dialect_constraints import XGRAMMAR_DROPS, choice_regex, dropped

CACHE_BYTES: Final = 64_000_000
CACHED_INDEXES: Final = 16
MAX_WHITESPACE: Final = 2
"""Characters of white space in one place: without a bound a model can fill its answer with it."""


class Mask(Protocol):
    def apply(self, logits: torch.Tensor) -> None:
        """Take the tokens that must not come next out of ``logits`` (one row over the vocabulary), in place."""
        ...

    def accept(self, token: int) -> bool:
        """The token that was chosen, which is no stop token. False: it was none of the allowed ones."""
        ...


class Backend(Protocol):
    def mask(self, constraint: Constraint, begun: str) -> Mask | None:
        """A mask that has read ``begun``, or None where this back end cannot apply the constraint from there on."""
        ...

    def dropped(self, constraint: Constraint) -> tuple[str, ...]:
        """Keywords of a schema that a mask does not hold."""
        ...


class XGrammarMask:
    def __init__(self, matcher: Any, vocabulary: int) -> None:
        self._matcher = matcher
        self._bits = xgrammar.allocate_token_bitmask(1, vocabulary)

    def apply(self, logits: torch.Tensor) -> None:
        if self._matcher.fill_next_token_bitmask(self._bits):
            xgrammar.apply_token_bitmask_inplace(logits.unsqueeze(0), self._bits.to(logits.device))

    def accept(self, token: int) -> bool:
        return bool(self._matcher.accept_token(token))


class XGrammar:
    """``info`` is the tokenizer's TokenizerInfo; ``stops`` are the token ids that end an answer."""

    def __init__(self, info: Any, stops: Sequence[int]) -> None:
        self._info = info
        self._stops = list(stops)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_limit_bytes=CACHE_BYTES)
        self._lock = threading.Lock()

    def mask(self, constraint: Constraint, begun: str) -> Mask | None:
        for compiled in self._compiled(constraint, begun):
            matcher = xgrammar.GrammarMatcher(compiled, override_stop_tokens=self._stops)
            if not begun or matcher.accept_string(begun):
                return XGrammarMask(matcher, self._info.vocab_size)
        return None

    def dropped(self, constraint: Constraint) -> tuple[str, ...]:
        return dropped(constraint, XGRAMMAR_DROPS) if constraint.kind == "json_schema" else ()

    def _compiled(self, constraint: Constraint, begun: str) -> Sequence[Any]:
        """The grammars to try in turn: where an answer goes on, its keys may have come in any order."""
        with self._lock, to_the_log():  # the compiler is not made for many at once
            try:
                return [compile_() for compile_ in self._ways(constraint, begun)]
            except Exception:  # the library's own errors have several types, and none is the caller's fault
                return []

    def _ways(self, constraint: Constraint, begun: str) -> list[Callable[[], Any]]:
        compiler, value = self._compiler, constraint.value

        def schema(of: Any, any_order: bool = False) -> Callable[[], Any]:
            return lambda: compiler.compile_grammar(_schema_grammar(json.dumps(of), any_order))

        match constraint.kind:
            case "json_schema":
                return [schema(value), schema(value, any_order=True)] if begun else [schema(value)]
            case "json_object":
                return [schema({"type": "object"})]
            case "regex":
                return [lambda: compiler.compile_regex(value)]
            case "choice":
                return [lambda: compiler.compile_regex(choice_regex(constraint))]
            case "grammar" if constraint.syntax == "lark":
                return [lambda: compiler.compile_lark(value)]
            case "grammar":
                return [lambda: compiler.compile_grammar(value)]
            case _:
                return [lambda: compiler.compile_structural_tag(json.dumps(modern(value)))]


def _schema_grammar(schema: str, any_order: bool) -> Any:
    grammar = xgrammar.Grammar.from_json_schema(
        schema, strict_mode=False, max_whitespace_cnt=MAX_WHITESPACE, any_order=any_order
    )
    text = str(grammar)
    return xgrammar.Grammar.from_ebnf(text.replace(_LOOSE, _TIGHT)) if _LOOSE in text else grammar


_LOOSE: Final = r"[^\"\\\r\n]"
_TIGHT: Final = r"[^\0-\x1f\"\\\r\n]"
"""The characters of a string with a bounded length: xgrammar 0.2 lets control characters through, which no JSON has."""


class OutlinesMask:
    def __init__(self, guide: Any) -> None:
        self._guide = guide

    def apply(self, logits: torch.Tensor) -> None:
        allowed = torch.tensor(self._guide.get_tokens(), dtype=torch.long, device=logits.device)
        kept = logits[allowed]
        logits.fill_(-torch.inf)
        logits[allowed] = kept

    def accept(self, token: int) -> bool:
        if token not in self._guide.get_tokens():
            return False
        self._guide.advance(token, return_tokens=False)
        return True


class Outlines:
    """``vocabulary`` maps the bytes of each token to its ids; ``encode`` cuts a text into tokens."""

    def __init__(self, tokens: Sequence[bytes], special: frozenset[int], stop: int, encode: Callable[[str], list[int]]):
        import outlines_core

        self._core = outlines_core
        vocabulary: dict[bytes, list[int]] = {}
        for number, token in enumerate(tokens):
            if token and number not in special and number != stop:
                vocabulary.setdefault(token, []).append(number)
        self._vocabulary = outlines_core.Vocabulary(stop, vocabulary)
        self._encode = encode
        self._index = lru_cache(CACHED_INDEXES)(self._new_index)

    def mask(self, constraint: Constraint, begun: str) -> Mask | None:
        try:
            guide = self._core.Guide(self._index(self._regex(constraint)))
            for token in self._encode(begun) if begun else ():
                guide.advance(token, return_tokens=False)
        except Exception:  # a regex that it does not know, a text that the regex does not allow
            return None
        return OutlinesMask(guide)

    def dropped(self, constraint: Constraint) -> tuple[str, ...]:
        return dropped(constraint, OUTLINES_DROPS) if constraint.kind == "json_schema" else ()

    def _new_index(self, regex: str) -> Any:
        return self._core.Index(regex, self._vocabulary)

    def _regex(self, constraint: Constraint) -> str:
        from outlines_core.json_schema import build_regex_from_schema

        match constraint.kind:
            case "json_schema":
                return str(build_regex_from_schema(json.dumps(constraint.value), WHITESPACE))
            case "regex":
                return str(constraint.value)
            case "choice":
                return choice_regex(constraint)
        raise ValueError(f"{constraint.kind} is no regex")


WHITESPACE: Final = f"[ \\n]{{0,{MAX_WHITESPACE}}}"
OUTLINES_DROPS: Final = XGRAMMAR_DROPS | {
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minProperties",
    "maxProperties",
    "patternProperties",
    "propertyNames",
    "additionalProperties",
}
