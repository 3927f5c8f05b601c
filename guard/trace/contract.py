"""The contract of a trace sink: the pipeline gives it finished records and never waits for it.

``write`` returns once the record is safe on local disk (or, for the memory sink, in memory); it takes microseconds and
raises nothing: a sink that cannot keep a record counts it as lost and says so in its metrics.
"""

from __future__ import annotations

from typing import Protocol

from guard.trace.record import OutcomeRecord, RequestRecord


class TraceSink(Protocol):
    def write(self, record: RequestRecord) -> None: ...

    def write_outcome(self, record: OutcomeRecord) -> None: ...

    async def aclose(self) -> None:
        """Flush what can be flushed and stop; what remains stays on disk for the next start."""
        ...
