"""What serving loads, and what only those load who need it: seen in a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
HEAVY = (
    "torch",
    "transformers",
    "xgrammar",
    "outlines",
    "outlines_core",
    "chdb",
    "clickhouse_connect",
    "openai",
    "rich",
)


@pytest.mark.parametrize("module", ["guard.serve", "guard.cli", "detectors"])
def test_nothing_heavy_is_loaded_before_it_is_needed(module: str) -> None:
    code = f"import sys, {module}; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def test_detectors_need_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, detectors\n"
        "known = sys.stdlib_module_names | {'detectors', '__main__'}\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules} - known))"
    )
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"
