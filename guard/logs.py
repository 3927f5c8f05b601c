"""How the processes log: to standard error, a line a record, and never a word of what was asked or answered.

An exception's own words may quote a prompt or an answer (a parser names what it could not read). So of an exception
only its kind and the way to it are logged, with those it came from.
"""

from __future__ import annotations

import logging
import sys
import traceback
from types import TracebackType
from typing import Final

FORMAT: Final = "%(asctime)s %(levelname)s %(name)s %(message)s"

_Raised = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


class QuietFormatter(logging.Formatter):
    """Formats a traceback without the message at its end."""

    def formatException(self, ei: _Raised) -> str:
        lines: list[str] = []
        error: BaseException | None = ei[1]
        seen: set[int] = set()
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            frames = "".join(traceback.format_tb(error.__traceback__))
            lines.append(f"Traceback (most recent call last):\n{frames}{type(error).__qualname__}")
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n\ncaused by\n\n".join(lines)


def configure(level: str = "info") -> None:
    """For a whole process: everything from ``level`` on to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(QuietFormatter(FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler])
