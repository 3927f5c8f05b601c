"""Engines' pages through the writer into the store: a fake engine's, a real one's, and one that does not answer."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from guard.trace.drain import Drain
from guard.trace.packing import decode
from guard.trace.record import AttemptRecord, RequestRecord, ScrapeRecord
from guard.trace.retention import RetentionRules
from guard.trace.scrape import Scraper, Source, Sources
from guard.trace.store import open_store
from guard.trace.surroundings import surroundings
from guard.trace.tracing import Tracing


class Engine:
    """Serves ``page`` on every path; ``asked`` counts."""

    def __init__(self) -> None:
        self.page = b"vllm:kv_cache_usage_perc 0.5\nvllm:num_requests_running 2\n"
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                self.send_response(200)
                self.end_headers()
                self.wfile.write(outer.page)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.server.shutdown()
    made.server.server_close()


def until(true: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def scraped(spool: Path) -> list[ScrapeRecord]:
    found = [decode(frame.kind, frame.payload) for batch in Drain(spool).batches() for frame in batch.frames]
    return [record for record in found if isinstance(record, ScrapeRecord)]


def test_pages_are_asked_at_an_interval(engine: Engine, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    pages = (Source("a", engine.url, "east"), Source("dead", "http://127.0.0.1:1/metrics"))
    scraper = Scraper(Sources(pages, 0.05), tmp_path)
    scraper.start()
    until(lambda: engine.asked >= 3)
    engine.page = b"<html>not today</html>"
    asked = engine.asked
    until(lambda: engine.asked >= asked + 2)
    scraper.stop()
    found = scraped(tmp_path)
    good = [record for record in found if record.engine == "a"]
    assert good[0].cluster == "east"
    assert {sample.metric: sample.value for sample in good[0].samples} == {
        "up": 1.0,
        "kv_cache_usage": 0.5,
        "requests_running": 2.0,
        "vllm:kv_cache_usage_perc": 0.5,
        "vllm:num_requests_running": 2.0,
    }
    assert abs(good[0].at - time.time()) < 30
    for record in (found[-1], good[-1]):
        assert [(sample.metric, sample.value) for sample in record.samples] == [("up", 0.0)]
    assert caplog.text.count("the metrics of engine dead") == 1
    assert caplog.text.count("the metrics of engine a at") == 1


def test_a_page_without_an_end(engine: Engine, tmp_path: Path) -> None:
    engine.page = b"a 1\n" * 2_000_000
    scraper = Scraper(Sources((Source("a", engine.url),), 0.05), tmp_path)
    scraper.start()
    until(lambda: engine.asked >= 2)
    scraper.stop()
    assert all([sample.metric for sample in record.samples] == ["up"] for record in scraped(tmp_path))


def test_requests_have_the_room_before_samples(engine: Engine, tmp_path: Path) -> None:
    """Half of the spool is not for samples: a store that is away for long costs them first."""
    engine.page = b"".join(b'vllm:x{n="%d"} 1\n' % n for n in range(900))
    scraper = Scraper(Sources((Source("a", engine.url),), 0.01, spool_max_bytes=400_000), tmp_path)
    scraper.start()
    until(lambda: scraper._spool.lost.get("bound", 0) > 3)
    scraper.stop()
    assert sum(path.stat().st_size for path in tmp_path.glob("*/*.seg")) <= 200_000


@pytest.mark.engine
async def test_a_real_engine_and_an_attempt_joined_in_the_store(llamacpp_engine: str, tmp_path: Path) -> None:
    sources = Sources((Source("real", f"{llamacpp_engine}/metrics", "east"),), 0.2)
    dsn = f"chdb://{tmp_path / 'store'}"
    tracing = Tracing(dsn, retention=RetentionRules(default="full"), sources=sources)
    await tracing.start()
    attempt = AttemptRecord(0, 1, "real", cluster="east", started_at=time.time(), duration_ms=10.0)
    tracing.write(RequestRecord("1" * 32, "r", time.time(), attempts=[attempt]))
    with open_store(dsn) as reader:
        until(lambda: reader.flush() and reader.query("SELECT count() AS n FROM engine_metrics")[0]["n"] > 20)
        found = reader.get_request("1" * 32)
        assert found is not None
        (around,) = surroundings(reader, found.attempts)
        names = {row["m"] for row in reader.query("SELECT DISTINCT metric AS m FROM engine_metrics")}
    await tracing.aclose()
    assert {"up", "requests_running", "requests_waiting", "llamacpp:requests_processing"} <= names
    assert (around.engine, around.waiting) == ("real", 0.0)
