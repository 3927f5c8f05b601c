"""Where an engine broke what it had been asked to enforce: the evidence of engine bugs, counted.

An attempt counts as asked when the constraint was sent with it and it did not go on from anything (most engines start
the grammar again at its root then). What an engine's grammar is known to drop is no contradiction, and was never
recorded as one (guard/evidence.py).
"""

from __future__ import annotations

from msgspec import Struct

from guard.trace.store import TraceReader


class Contradiction(Struct):
    """``kind`` is the constraint's, ``code`` the finding's (for a schema ``schema.KEYWORD``). ``broken`` of ``asked``
    attempts; times are Unix seconds; ``trace_id`` is the latest one's."""

    engine: str
    version: str
    kind: str
    code: str
    broken: int
    asked: int
    first_at: float
    last_at: float
    trace_id: str


def contradictions(reader: TraceReader, since: float | None = None) -> list[Contradiction]:
    """The most frequent first. ``since`` is Unix seconds. Raises StoreError."""
    when = "started_at >= fromUnixTimestamp64Micro({since:Int64}, 'UTC')" if since is not None else "1"
    params = {"since": round(since * 1e6)} if since is not None else {}
    asked = {
        (row["engine"], row["engine_version"], row["constraint_kind"]): int(row["asked"])
        for row in reader.query(
            "SELECT engine, engine_version, constraint_kind, count() AS asked FROM attempts "
            f"PREWHERE constraint_kind != '' WHERE {when} AND resumed_at < 0 AND outcome != 'refused' "
            "AND NOT arrayExists(one -> one = constraint_kind OR startsWith(one, concat(constraint_kind, ':')), "
            "unenforced) GROUP BY engine, engine_version, constraint_kind",
            params,
        )
    }
    rows = reader.query(
        "SELECT engine, engine_version, contradiction, count() AS broken, "
        "toUnixTimestamp64Micro(min(started_at)) AS first_us, toUnixTimestamp64Micro(max(started_at)) AS last_us, "
        "argMax(trace_id, started_at) AS trace FROM attempts ARRAY JOIN contradictions AS contradiction "
        f"PREWHERE notEmpty(contradictions) WHERE {when} GROUP BY engine, engine_version, contradiction "
        "ORDER BY broken DESC, engine, engine_version, contradiction",
        params,
    )
    found = []
    for row in rows:
        kind, _, code = str(row["contradiction"]).partition(":")
        found.append(
            Contradiction(
                engine=row["engine"],
                version=row["engine_version"],
                kind=kind,
                code=code,
                broken=int(row["broken"]),
                asked=max(asked.get((row["engine"], row["engine_version"], kind), 0), int(row["broken"])),
                first_at=int(row["first_us"]) / 1e6,
                last_at=int(row["last_us"]) / 1e6,
                trace_id=row["trace"],
            )
        )
    return found
