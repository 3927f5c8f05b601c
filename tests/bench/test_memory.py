"""A long answer costs the sidecar little memory. At full length: ``make bench-memory``."""

from __future__ import annotations

from tests.bench.memory import grown


def test_a_long_prompt_and_a_long_answer() -> None:
    """A fifth of the full length, and so far above what a small answer needs that a leak of it would show: the bytes of
    this answer alone are 3 MB on the wire, and 20,000 events of half a kilobyte would be ten."""
    [(mb, request, came)] = grown(40_000, 20_000)
    assert came >= 20_000
    assert mb - request < 6
