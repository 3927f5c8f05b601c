"""What every test may ask for."""

from __future__ import annotations

from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings, cases and suites that lies beside a developer's checkout."""
    if not SHARED.is_dir():
        pytest.skip("the folder shared/ (recordings, cases, suites) is not beside this checkout")
    return SHARED
