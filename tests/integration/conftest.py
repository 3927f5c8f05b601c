"""The whole thing at work: real processes, real sockets, the embedded store."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import engine_process
import pytest
from engine_process import LlamaCpp, start_engine


def _helper(name: str) -> None:
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)


_helper("sidecar_process")
_helper("chaos")

from replay_server import Reply, chunk, sse  # noqa: E402
from sidecar_process import Fault, Played, Sidecar  # noqa: E402

COLLAPSES_AFTER = 40


@pytest.fixture(scope="session")
def engine() -> Iterator[LlamaCpp]:
    """A real engine that no test kills. One thread: several of them spin against each other on a small machine."""
    if reason := engine_process.missing():
        pytest.skip(reason)
    one = start_engine(threads=1)
    yield one
    one.stop()


@pytest.fixture(scope="session")
def sidecar(engine: LlamaCpp, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sidecar]:
    """In front of the real engine: as ``steady``, and as ``shaky`` behind a fault that makes it collapse."""
    fault = Fault(engine.url, COLLAPSES_AFTER)
    with Sidecar(
        tmp_path_factory.mktemp("sidecar"),
        {"steady": engine.url, "shaky": fault.url},
        routes={"m": ["steady", "shaky"], "from-shaky": ["shaky", "steady"], "shaky": ["shaky"], "steady": ["steady"]},
        # its engines fail in test after test, and each begins as if they never had
        health={"mode": "observe"},
        limits={"retry_floor": 100_000},
    ) as running:
        yield running
        assert running.stop() == 0
    assert not running.faults
    fault.close()


@pytest.fixture(scope="session")
def _stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sidecar, Played, Played]]:
    one, two = Played(GOOD), Played(GOOD)
    timeouts = {"connect": 1, "first_token": 1, "between_tokens": 0.8, "total": 20}
    with Sidecar(
        tmp_path_factory.mktemp("stage"),
        {name: {"url": engine.url, "timeouts": timeouts} for name, engine in (("one", one), ("two", two))},
        dialect="vllm",
        limits={"max_body_bytes": 1_000_000, "retry_floor": 100_000},
        health={"mode": "observe"},
    ) as running:
        yield running, one, two
        assert running.stop() == 0
    assert not running.faults
    one.close()
    two.close()


@pytest.fixture
def stage(_stage: tuple[Sidecar, Played, Played]) -> tuple[Sidecar, Played, Played]:
    """A sidecar in front of two engines that play what a test tells them to; a good short answer until then. The
    models: ``m`` over both, ``one`` and ``two`` over one each. Bodies up to a megabyte, silence up to a second."""
    _, one, two = _stage
    one.play(GOOD)
    two.play(GOOD)
    return _stage


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
GOOD = Reply(sse(chunk(role="assistant"), chunk("All"), chunk(" is"), chunk(" well."), chunk(finish="stop"), USAGE))
