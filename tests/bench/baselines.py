"""What others use against loops, written from their descriptions, to be measured on the same texts.

Each takes the pieces of an answer (about one token each) and says after how many characters it would have stopped it,
or None.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from typing import Final

_TOKEN: Final = re.compile(
    r"<[^<>\s]{1,30}>|[\u2e80-\uffff]|\s?[A-Za-z]{1,8}|\s?[^\W\d_A-Za-z\u2e80-\uffff]{1,3}|\d{1,3}|\n+|\s+|[^\w\s]|\w"
)


def pieces(text: str) -> list[str]:
    """About what a tokenizer of today makes of a text."""
    found = _TOKEN.findall(text)
    assert sum(map(len, found)) == len(text), "the pieces must add up to the text"
    return found


def exact_suffix(tokens: Sequence[str], *, count: int, longest: int = 20) -> int | None:
    """vLLM's repetition_detection: the answer ends in ``count`` equal copies of at most ``longest`` tokens.

    Kept as the length of the match at every distance, which gives the same answer as comparing slices.
    """
    matched = [0] * (longest + 1)
    chars = 0
    for i, token in enumerate(tokens):
        chars += len(token)
        for size in range(1, min(longest, i) + 1):
            if tokens[i - size] == token:
                matched[size] += 1
                if matched[size] >= size * (count - 1):
                    return chars
            else:
                matched[size] = 0
    return None


def identical_chunks(tokens: Sequence[str]) -> int | None:
    """LiteLLM's REPEATED_STREAMING_CHUNK_LIMIT: a hundred equal chunks in a row, each longer than two characters."""
    last, row, chars = "", 0, 0
    for token in tokens:
        chars += len(token)
        row = row + 1 if token == last and len(token) > 2 else 1
        last = token
        if row >= 100:
            return chars
    return None


def compression(tokens: Sequence[str], *, ratio: float = 2.4, window: int = 1_000) -> int | None:
    """Whisper's rule: text that zlib makes 2.4 times smaller is a loop. Looked at over the last thousand characters."""
    text = "".join(tokens)
    for end in range(400, len(text) + 200, 200):
        data = text[max(0, end - window) : end].encode("utf-8", "replace")
        if len(data) / len(zlib.compress(data)) > ratio:
            return min(end, len(text))
    return None


RULES: Final[dict[str, Callable[[Sequence[str]], int | None]]] = {
    "vLLM rule, count 4": lambda tokens: exact_suffix(tokens, count=4),
    "vLLM rule, count 8": lambda tokens: exact_suffix(tokens, count=8),
    "LiteLLM, 100 chunks": identical_chunks,
    "zlib ratio 2.4": compression,
}
