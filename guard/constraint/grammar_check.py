"""Grammars: EBNF and GBNF by a recogniser of our own (pushdown.py), which follows every reading; Lark by llguidance,
whose language it is: its terminals are read the longest first.

llguidance is driven by bytes: its tokenizer has the 256 bytes for tokens, and each pair of printable ASCII characters,
because it counts its work by tokens. Its own limits bound what a grammar may take, when it is compiled and at every
step; a matcher that meets them says so instead of guessing.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any, Final

import llguidance

from guard.constraint.automaton import MOST_STATES, TooLarge
from guard.constraint.contract import Checker
from guard.constraint.gbnf import GrammarError, TooDeep, parse
from guard.constraint.json_check import Release
from guard.constraint.limits import Limits, invalid, too_complex
from guard.constraint.pushdown import Pushdown, PushdownMatcher
from guard.constraint.spec import Constraint
from guard.constraint.text_check import TextChecker

_END: Final = 256
_MOST_FORCED: Final = 2_000
_LIMITS: Final = llguidance.LLParserLimits(
    initial_lexer_fuel=1_000_000,
    step_lexer_fuel=200_000,
    step_max_items=200_000,
    max_items_in_row=20_000,
    max_lexer_states=50_000,
    max_grammar_size=200_000,
    precompute_large_lexemes=False,
    verbose_errors=False,
)
_LIMIT_WORDS: Final = re.compile(r"too (?:complex|many|large|big)|fuel|limit|exceed|size", re.IGNORECASE)


_PRINTABLE: Final = [chr(code) for code in range(32, 127)]
_PAIRS: Final = {
    one + other: number for number, (one, other) in enumerate(product(_PRINTABLE, repeat=2), start=_END + 1)
}


class _Bytes:
    """The tokenizer that llguidance asks for, of bytes and of pairs of them."""

    eos_token_id = _END
    bos_token_id = None
    tokens: tuple[bytes, ...] = (
        *(bytes([byte]) for byte in range(256)),
        b"<end>",
        *(pair.encode() for pair in _PAIRS),
    )
    special_token_ids: tuple[int, ...] = (_END,)

    def __call__(self, text: bytes) -> list[int]:
        return list(text)


@cache
def _tokenizer() -> Any:
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(_Bytes()), slices=[])


class GrammarMatcher:
    def __init__(self, matcher: Any) -> None:
        self._matcher = matcher

    def push(self, text: str) -> int:
        size = len(text)
        tokens = [_PAIRS.get(text[at : at + 2], 0) for at in range(0, size - 1, 2)]
        if 0 in tokens:
            return self._push_bytes(text)
        if size % 2:
            last = text[-1]
            if not last.isascii():
                return self._push_bytes(text)
            tokens.append(ord(last))
        taken: int = self._matcher.try_consume_tokens(tokens)
        if taken == len(tokens):
            return size
        at = 2 * taken
        if not self._matcher.is_error() and at + 1 < size:  # the first of a pair may be right
            at += self._matcher.try_consume_tokens([ord(text[at])])
        return at

    def _push_bytes(self, text: str) -> int:
        data = text.encode("utf-8", "surrogatepass")
        taken: int = self._matcher.try_consume_tokens(list(data))
        if taken == len(data):
            return len(text)
        whole = data[:taken].decode("utf-8", "ignore")
        if not self._matcher.is_error():
            self._matcher.rollback(taken - len(whole.encode()))
        return len(whole)

    def accepts(self) -> bool:
        return bool(self._matcher.is_accepting())

    def forced(self) -> str:
        forced: bytes = self._matcher.compute_ff_bytes()
        return forced[:_MOST_FORCED].decode("utf-8", "ignore")

    def failure(self) -> str:
        return _first_line(self._matcher.get_error()) if self._matcher.is_error() else ""


def grammar_maker(constraint: Constraint, limits: Limits) -> Callable[[Release, bool], Checker]:
    text, param = constraint.value, constraint.param
    if len(text) > limits.grammar_chars:
        raise too_complex(param, f"the grammar has {len(text)} characters, and may have {limits.grammar_chars}")
    if constraint.syntax != "lark":
        try:
            pushdown = Pushdown(parse(text))
        except GrammarError as error:
            raise invalid(param, f"no valid grammar: {error}") from None
        except TooDeep:
            raise too_complex(param, "the grammar nests or repeats more than may be") from None
        except TooLarge:
            raise too_complex(param, f"the grammar expands to more than {MOST_STATES} states") from None
        return lambda release, _: TextChecker(lambda: PushdownMatcher(pushdown), "grammar", "grammar", release)
    return _maker(llguidance.LLMatcher.grammar_from_lark(text), "grammar", "grammar", param)


def rust_regex_maker(constraint: Constraint, limits: Limits, why: str) -> Callable[[Release, bool], Checker]:
    """``why``: what Python's own dialect had against the pattern."""
    grammar = llguidance.LLMatcher.grammar_from_regex(constraint.value)
    try:
        return _maker(grammar, "regex", "regex", constraint.param)
    except Exception as error:
        if getattr(error, "code", "") == "constraint_too_complex":
            raise
        raise invalid(constraint.param, f"no valid regex: {why}") from None


def _maker(grammar: str, family: str, what: str, param: str) -> Callable[[Release, bool], Checker]:
    first = llguidance.LLMatcher(_tokenizer(), grammar, log_level=0, limits=_LIMITS)
    if first.is_error():
        message = _first_line(first.get_error())
        if _LIMIT_WORDS.search(message):
            raise too_complex(param, f"the {what} takes more than may be: {message}")
        raise invalid(param, f"no valid {what}: {message}")
    return lambda release, _: TextChecker(lambda: GrammarMatcher(first.deep_copy()), family, what, release)


def _first_line(message: str) -> str:
    line = message.strip().split("\n", 1)[0]
    return line if len(line) <= 300 else line[:300] + "…"
