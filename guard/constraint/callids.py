"""The ids of a conversation's tool calls: each is used once, whoever made it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Final

_STEP: Final = 1000
_MOST_TRIES: Final = 1000


class CallIds:
    """``mint`` makes an id from a number; ``known`` are those that the conversation has used."""

    def __init__(self, mint: Callable[[int], str], known: Iterable[str]) -> None:
        self._mint = mint
        self._used = set(known)

    def used(self, given: str) -> bool:
        return given in self._used

    def take(self, given: str) -> str:
        self._used.add(given)
        return given

    def fresh(self, index: int) -> str:
        for number in range(index, index + _STEP * _MOST_TRIES, _STEP):
            minted = self._mint(number)
            if minted not in self._used:
                return self.take(minted)
        raise ValueError("mint gives one id for every number")

    def instead_of(self, given: str, name: str, index: int) -> str:
        """An id in the place of one that was used before. Kimi K2 numbers its calls through the conversation and its
        template reads name and number back, so there the next number is taken."""
        counted = re.fullmatch(rf"(functions\.{re.escape(name)}:)(\d{{1,9}})", given)
        if counted is None:
            return self.fresh(index)
        number = int(counted[2])
        while f"{counted[1]}{number}" in self._used:
            number += 1
        return self.take(f"{counted[1]}{number}")
