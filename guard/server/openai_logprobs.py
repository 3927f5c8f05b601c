"""Log probabilities in the two shapes of the API. Pure.

The guard carries the chat shape, one entry a token. The completions API has four parallel lists instead, with the
offset of each token in the text of its choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Entry = dict[str, Any]


def chat_logprobs(channel: str, entries: Sequence[Entry] | None) -> dict[str, Any] | None:
    if entries is None:
        return None
    refused = channel == "refusal"
    return {"content": None if refused else list(entries), "refusal": list(entries) if refused else None}


class LegacyLogprobs:
    """The lists of one choice, piece by piece."""

    __slots__ = ("_offset",)

    def __init__(self) -> None:
        self._offset = 0

    def take(self, entries: Sequence[Entry] | None) -> dict[str, Any] | None:
        if entries is None:
            return None
        lists: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        for entry in entries:
            token = str(entry.get("token", ""))
            top = entry.get("top_logprobs") or [entry]
            lists["tokens"].append(token)
            lists["token_logprobs"].append(entry.get("logprob"))
            lists["top_logprobs"].append({str(one.get("token", "")): one.get("logprob") for one in top})
            lists["text_offset"].append(self._offset)
            self._offset += len(token)
        return lists
