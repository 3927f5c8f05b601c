"""How much memory an object and all that it alone holds take."""

from __future__ import annotations

import sys
from typing import Any


def footprint(thing: Any, seen: set[int] | None = None) -> int:
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, type) or callable(thing) or thing is None:
        return 0
    seen.add(id(thing))
    size = sys.getsizeof(thing)
    if isinstance(thing, dict):
        return size + sum(footprint(key, seen) + footprint(value, seen) for key, value in thing.items())
    if isinstance(thing, (str, bytes, int, float)):
        return size
    if isinstance(thing, (list, tuple, set, frozenset)) or hasattr(thing, "popleft"):
        return size + sum(footprint(item, seen) for item in thing)
    names = {name for kind in type(thing).__mro__ for name in getattr(kind, "__slots__", ())}
    held = [getattr(thing, name) for name in names if hasattr(thing, name)] + [getattr(thing, "__dict__", None)]
    return size + sum(footprint(item, seen) for item in held)
