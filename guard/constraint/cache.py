"""Compiled constraints, kept; and compiled off the event loop.

The rules:

- A constraint that was compiled is found by its key, whatever the order in which its schema was written.
- Compiling runs in a thread of its own, a few at a time. What may be hostile by its size is first compiled by a process
  that may spend so many seconds and megabytes (probe.py) and no more; only what that process could build is built here.
- The cache is bounded by entries and by the bytes of the constraints in it; what was used longest ago goes first.
- A refusal is not kept: it was cheap.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

from guard.constraint.compile import DEFAULTS, CompiledConstraint, compile_constraint
from guard.constraint.limits import Limits
from guard.constraint.probe import is_suspect, probe
from guard.constraint.spec import Constraint


class ConstraintCache:
    """``entries`` and ``total_bytes`` bound what is kept; ``workers`` how many compile at once."""

    def __init__(
        self, limits: Limits = DEFAULTS, *, entries: int = 1_000, total_bytes: int = 64 << 20, workers: int = 2
    ) -> None:
        self._limits = limits
        self._entries = entries
        self._total_bytes = total_bytes
        self._kept: OrderedDict[str, CompiledConstraint] = OrderedDict()
        self._bytes = 0
        self._running: dict[str, asyncio.Future[CompiledConstraint]] = {}
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="compile")
        self._probes = asyncio.Semaphore(workers)
        self.hits = 0
        self.misses = 0

    def __len__(self) -> int:
        return len(self._kept)

    async def compile(self, constraint: Constraint) -> CompiledConstraint:
        """Raises RequestError: invalid_constraint, or constraint_too_complex."""
        key = constraint.key
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
            self.hits += 1
            return found
        running = self._running.get(key)
        if running is None:
            self.misses += 1
            running = self._running[key] = asyncio.ensure_future(self._compile(constraint))
            running.add_done_callback(lambda done: self._finished(key, done))
        # one caller that goes away does not take the result from the others
        return await asyncio.shield(running)

    def _finished(self, key: str, done: asyncio.Future[CompiledConstraint]) -> None:
        self._running.pop(key, None)
        if not done.cancelled():
            done.exception()  # every caller may have gone away

    async def _compile(self, constraint: Constraint) -> CompiledConstraint:
        loop = asyncio.get_running_loop()
        if is_suspect(constraint):
            async with self._probes:
                await probe(constraint, self._limits)
        compiled = await loop.run_in_executor(self._pool, compile_constraint, constraint, self._limits)
        self._keep(compiled)
        return compiled

    def _keep(self, compiled: CompiledConstraint) -> None:
        if compiled.size > self._total_bytes:
            return
        self._kept[compiled.key] = compiled
        self._bytes += compiled.size
        while len(self._kept) > self._entries or self._bytes > self._total_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= dropped.size

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
