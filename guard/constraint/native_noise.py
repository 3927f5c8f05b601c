"""What xgrammar's compiler writes to the process's own standard error goes to the log instead.

It is C++ and knows no logging: what it warns of (a keyword that its grammar drops) would stand among the operator's
lines, unformatted. The descriptor itself is turned for as long as a compile takes, one compile at a time; what anything
else wrote meanwhile is written on.
"""

from __future__ import annotations

import logging
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_LOG: Final = logging.getLogger(__name__)
_LOCK: Final = threading.Lock()
_STDERR: Final = 2
_LINE: Final = re.compile(rb"\[\d\d:\d\d:\d\d\] \S+?([^/\s]+\.(?:cc|h)):\d+: (?:Warning: )?(.*)")


@contextmanager
def to_the_log() -> Iterator[None]:
    """Around a compile. Each thing is logged once a compile, however often it was said."""
    with _LOCK, tempfile.TemporaryFile() as caught:
        _flush()
        kept = os.dup(_STDERR)
        try:
            os.dup2(caught.fileno(), _STDERR)
            try:
                yield
            finally:
                _flush()
                os.dup2(kept, _STDERR)
                caught.seek(0)
                _sort(caught.read(), kept)
        finally:
            os.close(kept)


def _sort(text: bytes, stderr: int) -> None:
    said: dict[str, None] = {}
    for line in text.splitlines(keepends=True):
        found = _LINE.match(line)
        if found is None:
            os.write(stderr, line)
        else:
            said[f"{found[1].decode()}: {found[2].decode('utf-8', 'replace').strip()}"] = None
    for message in said:
        _LOG.info(message)


def _flush() -> None:
    if sys.stderr is not None:
        sys.stderr.flush()
