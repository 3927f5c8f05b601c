"""The bench must not rot, and what it measures stays a few microseconds."""

from __future__ import annotations

import pytest

from tests.bench.traffic import CONFIG, measure


@pytest.mark.parametrize("how", [{"places": 0, "balance": "ordered", "hedge": "null"}])
async def test_a_request_costs_little(how: dict[str, object]) -> None:
    assert 0 < await measure(CONFIG.format(**how), 200) < 200  # a tenth of that on a quiet machine
