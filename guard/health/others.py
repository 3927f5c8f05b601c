"""What the other workers behind the same address have under way, wait for and know. Pure: what it is shared through is
the edge's (guard/shared.py).

Each worker writes what is its own and reads what the others wrote; none writes for another. Times are seconds on the
machine's monotonic clock, which all of them read.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Final, NamedTuple, Protocol


class Known(NamedTuple):
    """What a worker knows of an engine: its breaker as it has stood since ``changed`` (``opened_at`` is -inf while it
    is closed), and until when it asked to be left alone."""

    changed: float = 0.0
    opened_at: float = -math.inf
    level: int = 0
    closed_at: float = -math.inf
    busy_until: float = 0.0
    cause: str = ""


class Others(Protocol):
    """``first`` and ``waiting``: who waits is ranked by since when it does; the least has waited longest."""

    @property
    def any(self) -> bool:
        """Whether there may be others at all."""
        ...

    def alone(self) -> AbstractContextManager[object]:
        """While no other worker looks for a place: looking and taking are one step."""
        ...

    def has(self, engine: str, under_way: int, trials: int) -> None: ...

    def under_way(self, engine: str) -> int:
        """Attempts of the others on this engine."""
        ...

    def trials(self, engine: str) -> int: ...

    def knows(self, engine: str, known: Known) -> None: ...

    def news(self, engine: str) -> Known:
        """The latest that another worker knows of its breaker, and the longest that it is to be left alone."""
        ...

    def tenant_has(self, tenant: str, requests: int) -> None: ...

    def of_tenant(self, tenant: str) -> int: ...

    def waits(self, route: str, rank: float | None) -> None:
        """Who has waited longest here for this route; None: nobody waits."""
        ...

    def waiting(self, routes: Iterable[str]) -> tuple[float, int] | None:
        """The rank of who has waited longest for one of these routes elsewhere, and where."""
        ...

    def turn(self, where: int) -> None:
        """A place has come free that is another worker's turn to take."""
        ...

    def spent(self, route: str, requests: int, retries: int, now: float) -> None: ...

    def spent_elsewhere(self, route: str, now: float, window: float) -> tuple[int, int]:
        """Requests and retries of the others, told within the last ``window`` seconds."""
        ...


class Nobody:
    """One process alone."""

    any = False

    def alone(self) -> AbstractContextManager[object]:
        return _NOTHING

    def has(self, engine: str, under_way: int, trials: int) -> None:
        pass

    def under_way(self, engine: str) -> int:
        return 0

    def trials(self, engine: str) -> int:
        return 0

    def knows(self, engine: str, known: Known) -> None:
        pass

    def news(self, engine: str) -> Known:
        return _UNKNOWN

    def tenant_has(self, tenant: str, requests: int) -> None:
        pass

    def of_tenant(self, tenant: str) -> int:
        return 0

    def waits(self, route: str, rank: float | None) -> None:
        pass

    def waiting(self, routes: Iterable[str]) -> tuple[float, int] | None:
        return None

    def turn(self, where: int) -> None:
        pass

    def spent(self, route: str, requests: int, retries: int, now: float) -> None:
        pass

    def spent_elsewhere(self, route: str, now: float, window: float) -> tuple[int, int]:
        return 0, 0


_NOTHING: Final = nullcontext()
_UNKNOWN: Final = Known()
NOBODY: Final[Others] = Nobody()
