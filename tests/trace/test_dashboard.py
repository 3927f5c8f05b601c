"""The Grafana dashboard: every query of it runs over the tables as they are, and shows what was put there."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from guard.trace.clickhouse import ClickHouseStore
from guard.trace.record import LossRecord, RequestRecord
from guard.trace.rows import rows
from guard.trace.store import parse_dsn
from tests.grafana import dashboard, queries

Make = Callable[..., RequestRecord]


def test_every_panel_has_something_to_show(server: Any, make: Make) -> None:
    store = ClickHouseStore(parse_dsn(server.dsn("dashboard")))
    store.migrate()
    now = time.time()
    first = make(1, outcome="failed", error_code="engines_failed")
    first.attempts[0].inter_token_p50_ms = 8.0
    for table, some in rows(enumerate([first, make(2), LossRecord("0", "disk", 3, now, now)]), "s").items():
        store.insert(table, some, "t")
    store._client.command(
        "INSERT INTO engine_metrics (at, engine, metric, value) "
        "VALUES (now(), 'primary', 'vllm:kv_cache_usage_perc', 0.5)"
    )
    found = {
        title: store.query(sql)
        for title, sql in queries(now - 600, now + 60, {"model": ["small"], "engine": ["primary", "second"]})
    }
    assert [title for title, answer in found.items() if not answer] == []
    assert {row["code"] for row in found["Findings by code and where"]} == {"repetition.token", "json.truncated"}
    assert [row["trace_id"] for row in found["The latest failed requests"]] == [first.trace_id]
    (broken,) = found["Promises broken: formats that an engine accepted and broke"]
    assert (broken["engine"], broken["share"]) == ("primary", 1.0)
    store.close()


def test_panels_do_not_lie_on_each_other() -> None:
    places = [panel["gridPos"] for panel in dashboard()["panels"]]
    cells = {(place["x"] + x, place["y"] + y) for place in places for x in range(place["w"]) for y in range(place["h"])}
    assert len(cells) == sum(place["w"] * place["h"] for place in places)
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in dashboard()["panels"]}) == len(places)
