"""The migrations: one source, shipped and shown."""

from __future__ import annotations

import re
from pathlib import Path

from guard.trace.schema import migrations, statements

DERIVED = re.compile(r"EXISTS (otel_traces|\w+_per_minute)")
"""Tables that views fill from the others."""

ROOT = Path(__file__).resolve().parents[2]


def test_what_deploy_shows_is_what_ships() -> None:
    shown = {path.name: path.read_text() for path in (ROOT / "deploy" / "clickhouse" / "ddl").glob("*.sql")}
    assert shown == {name: text for _, name, text in migrations()}


def test_versions_follow_one_another() -> None:
    assert [version for version, _, _ in migrations()] == list(range(1, len(migrations()) + 1))


def test_every_table_drops_days_and_knows_repetitions() -> None:
    tables = [statement for _, _, text in migrations() for statement in statements(text) if "CREATE TABLE" in statement]
    assert len(tables) >= 5
    for table in tables:
        assert "IF NOT EXISTS" in table  # a migration that was cut off is applied again
        assert re.search(r"TTL toDateTime\(\w+\) \+ INTERVAL \d+ DAY", table)
        assert "ttl_only_drop_parts = 1" in table
        assert "non_replicated_deduplication_window" in table
        if not DERIVED.search(table):
            assert {"spool_segment", "spool_offset", "spool_row"} <= set(table.split())


def test_the_readme_names_the_tables() -> None:
    readme = (ROOT / "deploy" / "clickhouse" / "README.md").read_text()
    for name in ("requests", "attempts", "findings", "outcomes", "losses", "engine_metrics", "otel_traces"):
        assert f"`{name}`" in readme
