"""The queries of the dashboard, with the data source's macros and the variables filled in as Grafana does it."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

DASHBOARD = Path(__file__).resolve().parents[1] / "deploy" / "grafana" / "outguard.json"


def dashboard() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(DASHBOARD.read_text())
    return loaded


def queries(
    start: float, end: float, variables: Mapping[str, Sequence[str]], points: int = 500
) -> list[tuple[str, str]]:
    """(title, SQL) of every panel and variable, over a stretch of time in Unix seconds."""
    loaded = dashboard()
    found = [(panel["title"], target["rawSql"]) for panel in loaded["panels"] for target in panel["targets"]]
    found += [(f"variable {v['name']}", v["query"]) for v in loaded["templating"]["list"] if v["type"] == "query"]
    return [(title, expanded(sql, start, end, variables, points)) for title, sql in found]


def expanded(sql: str, start: float, end: float, variables: Mapping[str, Sequence[str]], points: int) -> str:
    step = max(60, round((end - start) / points))
    low, high = int(start), int(end)
    sql = re.sub(r"\$__timeFilter\((\w+)\)", rf"\1 >= toDateTime({low}) AND \1 <= toDateTime({high})", sql)
    sql = re.sub(
        r"\$__timeFilter_ms\((\w+)\)",
        rf"\1 >= fromUnixTimestamp64Milli({low}000) AND \1 <= fromUnixTimestamp64Milli({high}000)",
        sql,
    )
    sql = re.sub(r"\$__timeInterval\((\w+)\)", rf"toStartOfInterval(toDateTime(\1), INTERVAL {step} second)", sql)
    for name, values in variables.items():
        sql = sql.replace(f"${{{name}:singlequote}}", ",".join(f"'{value}'" for value in values))
    assert "$" not in sql, f"a macro or variable is not known: {sql}"
    return sql
