"""Observations for tests, from words: each word with its space is a token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from replay.observation import Alternative, Cell, Observation, Sampling

GREEDY = Sampling(temperature=0.0, seed=1)


def token_id(piece: bytes) -> int:
    return int.from_bytes(piece.ljust(4)[:4], "big") + 7 * len(piece)


def spoken(
    text: str,
    cell: Cell | None = None,
    *,
    request: str = "r",
    steps: dict[int, Sequence[tuple[str, float]]] | None = None,
    logprobs: bool = True,
    **fields: Any,
) -> Observation:
    """``steps``: the best tokens of single steps as (word, log probability), the chosen one among them or not; every
    other step is certain (0, and -9 for a word that is never said)."""
    words = [word + " " for word in text.split()]
    pieces = tuple(word.encode() for word in words)
    chosen, top = [], []
    for index, piece in enumerate(pieces):
        listed = (steps or {}).get(index) or [(words[index], 0.0), ("never ", -9.0)]
        named = tuple(
            Alternative(token_id((word.strip() + " ").encode()), (word.strip() + " ").encode(), value)
            for word, value in sorted(listed, key=lambda each: -each[1])
        )
        top.append(named)
        chosen.append(next((each.logprob for each in named if each.piece == piece), named[-1].logprob - 6.0))
    return Observation(
        **(
            {
                "request_id": request,
                "cell": cell or Cell("a", precision="bf16", concurrency=1),
                "sampling": GREEDY,
                "text": {"content": "".join(words)},
                "token_ids": tuple(map(token_id, pieces)),
                "pieces": pieces,
                "logprobs": tuple(chosen) if logprobs else (),
                "top": tuple(top) if logprobs else (),
                "finish_reason": "stop",
            }
            | fields
        )
    )
