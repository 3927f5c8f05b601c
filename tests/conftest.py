"""What every test may ask for."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# a busy machine is no failure: examples have no deadline
settings.register_profile("outguard", deadline=None)
settings.load_profile("outguard")


def _helper(name: str, path: str) -> None:
    """Make a module of helpers importable by its bare name (a folder on sys.path would shadow packages)."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).parent / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


_helper("engine_process", "engine_process.py")
_helper("clickhouse_server", "clickhouse_server.py")
_helper("joining", "engines/joining.py")
_helper("replay_server", "engines/replay_server.py")
_helper("tokenizer_files", "tokenizer_files.py")
_helper("torch_models", "engines/torch_models.py")
_helper("replayed", "replay/replayed.py")
_helper("browser", "replay/browser.py")

SHARED = Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recordings, cases and suites that lies beside a developer's checkout."""
    if not SHARED.is_dir():
        pytest.skip("the folder shared/ (recordings, cases, suites) is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def llamacpp_engine() -> Iterator[str]:
    """The URL of a real llama.cpp engine with SmolLM2-135M, shared by the session: do not kill it (a test that kills
    its engine starts its own, see engine_process.py)."""
    import engine_process

    if reason := engine_process.missing():
        pytest.skip(reason)
    engine = engine_process.start_engine()
    yield engine.url
    engine.stop()
