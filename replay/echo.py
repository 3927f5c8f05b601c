"""Known-answer tasks: an identifier to be repeated. Pure.

A model that copies at all copies with wide margins, so rounding does not change the answer: a character dropped or
replaced was lost in the computation. Identifiers are drawn from a hash of the seed, so that equal runs ask the same.
"""

from __future__ import annotations

import hashlib

from replay.source import Source

_LETTERS = "abcdefghjkmnpqrstuvwxyz23456789"
_LENGTH = 12


def echo_task(model: str, seed: int, number: int) -> Source:
    digest = hashlib.sha256(f"{seed}:{number}".encode()).digest()
    name = "c_" + "".join(_LETTERS[byte % len(_LETTERS)] for byte in digest[:_LENGTH])
    asked = f"Repeat this identifier exactly, and write nothing else: {name}"
    body = {
        "model": model,
        "messages": [{"role": "user", "content": asked}],
        "temperature": 0,
        "max_tokens": 48,
        "stream": True,
    }
    return Source(f"echo-{number + 1}", "chat", body, expected=name)
