"""Which engine of a route is asked. Pure.

- An engine whose breaker is open, that is draining or has all that it may have to do is not asked; where every
  breaker is open, those are that still answer now and then. One that asked to
  be left alone for a while is asked where no other is.
- ordered: the first of the route that can be asked; one that has just recovered gets its share of the requests only.
- least_loaded: the one with the fewest attempts under way, in proportion to its share while it is cold. Prompts that
  begin alike go to the same engine, whose prefix cache then knows them: rendezvous hashing (Thaler and Ravishankar,
  1998) gives each beginning a preferred engine that stays the same when others come and go. It is given up where that
  engine has more than ``SPREAD`` times the mean load to do, as in consistent hashing with bounded loads (Mirrokni,
  Thorup and Zadimoghaddam, 2018).
- After a failure, engines of another cluster or image come first: what made one fail may be what the other shares.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from guard.budget import RetryBudget
from guard.health.fleet import Fleet
from guard.request import GenerationRequest

HEAD_CHARS: Final = 1024
"""How much of a prompt's beginning decides where it goes: as a rule the system prompt, which is what is shared."""

SPREAD: Final = 1.5
REMEMBERED: Final = 200
LEAST_SEEN: Final = 20
"""First tokens that are remembered, and below which nothing is said of the next."""

_WORD: Final = (1 << 64) - 1


class Router:
    """Of one route over ``engines``, in their order. ``origins``: the cluster and the image of each, where known.
    ``budget``: what the route may spend on further attempts."""

    def __init__(
        self,
        engines: Sequence[str],
        fleet: Fleet,
        budget: RetryBudget,
        *,
        balanced: bool,
        origins: Mapping[str, tuple[str, ...]],
    ) -> None:
        self.budget = budget
        self.engines = tuple(engines)
        self._first_tokens: deque[float] = deque(maxlen=REMEMBERED)
        self._fleet = fleet
        self._balanced = balanced
        self._place = {name: i for i, name in enumerate(engines)}
        self._seed = {name: _hash(name.encode()) for name in engines}
        self._origin = {name: origins[name] for name in engines}

    def first(self, names: Sequence[str], request: GenerationRequest, now: float) -> str | None:
        """The engine for an answer's first attempt, of these; None where none of them can take one more."""
        fleet = self._fleet
        if not self._balanced:  # nearly always the first one
            cold = None
            for name in names:
                if self.free(name, now) and not fleet.busy(name, now):
                    if fleet.warm(name, now):
                        return name
                    cold = cold or name
            return cold or next((name for name in names if self.free(name, now)), None)
        able = [name for name in names if self.free(name, now)]
        if len(able) < 2:
            return able[0] if able else None
        loads = {name: self._load(name, now) for name in able}
        beginning = _hash(head(request))
        preferred = max(able, key=lambda name: _mixed(self._seed[name] ^ beginning))
        most = SPREAD * (sum(loads.values()) + 1) / len(able)
        if loads[preferred] + 1 <= max(1.0, most) and not fleet.busy(preferred, now):
            return preferred
        return min(able, key=lambda name: (fleet.busy(name, now), loads[name], self._place[name]))

    def placed(self, names: Sequence[str], engine: str, now: float) -> None:
        """The engine that ``first`` named is about to be asked: those that are still cold had, or near, their turn."""
        if self._balanced:
            return
        for name in names:
            if name == engine:
                self._fleet.turn(name, now, taken=True)
                return
            if self.free(name, now) and not self._fleet.busy(name, now):
                self._fleet.turn(name, now, taken=False)

    def spoke_after(self, seconds: float) -> None:
        """A first token came."""
        self._first_tokens.append(seconds)

    def late(self) -> float | None:
        """Seconds after which a first token is later than nearly all (the 95th percentile); None while too few came."""
        seen = self._first_tokens
        return sorted(seen)[int(len(seen) * 0.95)] if len(seen) >= LEAST_SEEN else None

    def takes(self, name: str, now: float) -> bool:
        """Whether it can be asked: it takes requests, or none of the route does and it still answers now and then."""
        fleet = self._fleet
        if fleet.takes(name, now):
            return True
        return fleet.last_resort(name) and not any(fleet.takes(other, now) for other in self._place)

    def rank(self, name: str, failed: str, now: float) -> tuple[Any, ...]:
        """Compares engines for an answer that has failed on ``failed``; the least is the best."""
        load = self._load(name, now) if self._balanced else 0.0
        return (
            self._fleet.busy(name, now),
            self._fleet.full(name),
            self._shared(name, failed),
            load,
            self._place[name],
        )

    def free(self, name: str, now: float) -> bool:
        """Whether it can take one more at once."""
        return self.takes(name, now) and not self._fleet.full(name)

    def _shared(self, name: str, failed: str) -> int:
        """How many of cluster and image two engines are known to have in common."""
        return sum(
            bool(one) and one == other for one, other in zip(self._origin[name], self._origin[failed], strict=True)
        )

    def _load(self, name: str, now: float) -> float:
        return self._fleet.under_way(name) / self._fleet.share(name, now)


def head(request: GenerationRequest) -> bytes:
    """The beginning of the prompt as far as it decides where the request goes. Token ids count as their numbers."""
    if request.kind == "completion":
        prompt = request.prompt
        text = prompt[:HEAD_CHARS] if isinstance(prompt, str) else str(prompt[: HEAD_CHARS // 4])
        return text.encode("utf-8", "replace")
    parts: list[str] = []
    left = HEAD_CHARS
    for text in (text for message in request.messages for text in _texts(message.get("content"))):
        parts.append(text[:left])
        left -= len(text)
        if left <= 0:
            break
    return "\0".join(parts).encode("utf-8", "replace")


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, list):
        yield from (part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def _hash(data: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little")


def _mixed(value: int) -> int:
    """The finaliser of SplitMix64 (Steele, Lea and Flood, 2014)."""
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _WORD
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _WORD
    return value ^ (value >> 31)
