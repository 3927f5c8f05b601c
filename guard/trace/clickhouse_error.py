"""What ClickHouse's errors mean for rows and questions, by number: its words may quote the rows, and are not told."""

from __future__ import annotations

import re
from typing import Final

from clickhouse_connect.driver.exceptions import ClickHouseError

from guard.trace.store import StoreError, Target, Unavailable

REFUSALS: Final = frozenset({6, 25, 26, 27, 32, 33, 38, 41, 53, 69, 70, 72, 117, 128, 130, 131, 321, 349, 469})
"""Error numbers that are about the rows (not parsable, out of range, too large), not about the store."""

AWAY: Final = frozenset({159, 160, 164, 202, 210, 241, 243, 252, 439, 516})
"""Error numbers of a store that is away, full or busy."""


def code_of(error: BaseException) -> int | None:
    code = getattr(error, "code", None)
    if isinstance(code, int):
        return code
    match = re.search(r"\bcode:? (\d+)", str(error), re.IGNORECASE)
    return int(match[1]) if match else None


def away(error: BaseException, target: Target) -> StoreError:
    """Only the number and the kind: the engine's own words may quote the rows."""
    if isinstance(error, StoreError):
        return error
    code = code_of(error) if isinstance(error, ClickHouseError) else None
    what = f"error {code} {_name(error)}".rstrip() if code else type(error).__name__
    return Unavailable(f"the trace store {target.shown} is not available ({what})", code)


def _name(error: BaseException) -> str:
    match = re.search(r"\(([A-Z][A-Z_0-9]{3,})\)", str(error))
    return match[1] if match else ""


def brief(error: BaseException) -> str:
    text = re.sub(r"\(version [^)]*\)|\(for url [^)]*\)", "", str(error)).strip()
    text = re.sub(r"(Code: \d+\. DB::Exception: )+|Received ClickHouse exception, .*?server response: ", "", text)
    return text[:500]
