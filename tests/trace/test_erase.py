"""Erasing removes what was meant and nothing else: from the store, the spool and what was set aside, to the byte."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from guard.cli import main
from guard.trace.accounts import verify
from guard.trace.clickhouse import ClickHouseStore
from guard.trace.delivery import Delivery
from guard.trace.drain import Drain
from guard.trace.erase import Selection, means
from guard.trace.erasing import erase_aside, erase_spool
from guard.trace.memory import MemoryStore
from guard.trace.record import OutcomeRecord, RequestRecord, SketchRecord
from guard.trace.rows import rows
from guard.trace.spool import Spool
from guard.trace.store import Store, open_store, parse_dsn

Make = Callable[..., RequestRecord]
_databases = (f"erase_{n}" for n in itertools.count())
NOW = round(time.time(), 3)
Kept = RequestRecord | OutcomeRecord | SketchRecord
OLD = NOW - 20 * 86_400


def several(make: Make) -> list[Kept]:
    """Two tenants, two ages, two requests in one trace, verdicts about some."""
    acme, old, other = make(1), make(2, started_at=OLD), make(3, tenant="other")
    also = make(4, tenant="other", trace_id=acme.trace_id)
    last = make(5, tenant="other", started_at=OLD)
    for record in (old, last):
        for attempt in record.attempts:
            attempt.started_at = record.started_at
    told = [OutcomeRecord(one.trace_id, "call", one.started_at + 1, True) for one in (acme, old, other, last)]
    kept = [
        SketchRecord(one.trace_id, one.request_id, one.started_at, one.tenant, "m", "prompt", 0, 0, 9, 3, [1], [2])
        for one in (acme, old, also)
    ]
    return [acme, old, other, also, last, *told, OutcomeRecord("f" * 32, "call", OLD, True), *kept]


def selections(make: Make) -> list[Selection]:
    return [
        Selection(trace=make(1).trace_id),
        Selection(trace="0" * 32),
        Selection(tenant="acme"),
        Selection(tenant=""),
        Selection(before=NOW - 86_400),
        Selection(tenant="other", before=NOW - 86_400),
        Selection(tenant="it's {x} \\ '"),
    ]


@pytest.mark.parametrize("number", range(7))
def test_what_is_meant_and_nothing_else(number: int, make: Make) -> None:
    erase_and_look(MemoryStore(), selections(make)[number], make)


def test_what_is_meant_and_nothing_else_on_a_server(server: Any, make: Make) -> None:
    """All at once, each in a database of its own: most of it is waiting for the server to delete old parts."""

    def on_a_server(selection: Selection) -> None:
        store = ClickHouseStore(parse_dsn(server.dsn(next(_databases))))
        store.migrate()
        erase_and_look(store, selection, make)

    with ThreadPoolExecutor(7) as pool:
        list(pool.map(on_a_server, selections(make)))


def erase_and_look(store: Store, selection: Selection, make: Make) -> None:
    everything = several(make)
    records: Any = [msgspec.structs.replace(record) for record in everything]
    for table, some in rows(enumerate(records), "s").items():
        if some:
            store.insert(table, some, "t")
    traces = {one.trace_id for one in everything if isinstance(one, RequestRecord) and means(selection, one)}
    meant = {place for place, one in enumerate(everything) if means(selection, one, traces)}
    counted = store.erase(selection, dry_run=True)
    assert store.present("requests", "s", 0, 5) == {(n, 0) for n in range(5)}
    erased = store.erase(selection)
    assert erased.rows == counted.rows
    assert erased.gone
    kinds = {"outcomes": OutcomeRecord, "sketches": SketchRecord}
    for table in ("requests", "attempts", "findings", "outcomes", "sketches"):
        left = {place for place, _ in store.present(table, "s", 0, 100)}
        assert left == {
            place
            for place, one in enumerate(everything)
            if type(one) is kinds.get(table, RequestRecord) and place not in meant
        }
    if isinstance(store, ClickHouseStore):
        spans = store.query("SELECT DISTINCT TraceId FROM otel_traces")
        assert {row["TraceId"] for row in spans} == {
            one.trace_id for one in everything if isinstance(one, RequestRecord)
        } - traces
        assert store.erase(selection).rows == dict.fromkeys(erased.rows, 0)
    store.close()


@pytest.mark.parametrize(("trace", "tenant", "before"), [("", None, 0.0), ("a", "b", 0.0), ("a", None, 1.0)])
def test_a_selection_that_means_everything_or_two_things(trace: str, tenant: str | None, before: float) -> None:
    with pytest.raises(ValueError, match=r"is needed|erased whole"):
        Selection(trace, tenant, before)


def test_records_in_the_spool_are_overwritten_and_the_rest_is_stored(make: Make, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for number in range(6):
        spool.write(make(number, tenant="acme" if number % 2 else "other", request_body=f'"canary{number}"'))
        spool.write_outcome(OutcomeRecord(make(number).trace_id, "call", NOW, False, f"canary{number}"))
    drain = Drain(tmp_path / "spool")
    selection = Selection(tenant="acme")
    before = sum(path.stat().st_size for path in tmp_path.rglob("*.seg"))
    assert erase_spool(drain, selection, lambda _: set(), dry_run=True) == 6
    assert erase_spool(drain, selection, lambda _: set()) == 6
    assert erase_spool(drain, selection, lambda _: set()) == 0
    data = b"".join(path.read_bytes() for path in tmp_path.rglob("*.seg"))
    assert len(data) == before
    assert {n for n in range(6) if b"canary%d" % n in data} == {0, 2, 4}
    spool.write(make(7))  # the worker goes on in the same segment
    store = MemoryStore()
    delivery = Delivery(store, tmp_path / "aside")
    for batch in drain.batches():
        assert not batch.damage
        delivery.send(delivery.prepare(batch))
        drain.commit(batch)
    assert (delivery.delivered, delivery.refused) == (7, 0)
    assert {one.request_id for one in store.list_requests()} == {"req-0", "req-2", "req-4", "req-7"}
    drain.close()


def test_verdicts_about_requests_that_are_stored_already(make: Make, tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    for number in range(2):
        spool.write_outcome(OutcomeRecord(make(number).trace_id, "call", NOW, True))
    drain = Drain(tmp_path / "spool")
    asked: list[list[str]] = []

    def theirs(traces: list[str]) -> set[str]:
        asked.append(traces)
        return {make(1).trace_id}

    assert erase_spool(drain, Selection(tenant="acme"), theirs) == 1
    assert asked == [sorted(make(n).trace_id for n in range(2))]


def test_what_was_set_aside(make: Make, tmp_path: Path) -> None:
    for name, text in (("a", '{"tenant": "acme"}'), ("b", '{"tenant": "other"}'), ("c", f'"{make(1).trace_id}"')):
        (tmp_path / f"{name}.row").write_text(text)
        (tmp_path / f"{name}.why").write_text("too large")
    assert erase_aside(tmp_path, Selection(tenant="acme"), dry_run=True) == 1
    assert erase_aside(tmp_path, Selection(tenant="acme")) == 1
    assert erase_aside(tmp_path, Selection(trace=make(1).trace_id)) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.row", "b.why"]
    assert erase_aside(tmp_path, Selection(before=NOW - 86_400)) == 0
    assert erase_aside(tmp_path, Selection(before=time.time() + 60)) == 1
    assert erase_aside(tmp_path / "nowhere", Selection(tenant="acme")) == 0


# --- outguard traces erase -------------------------------------------------------------------------------------------


def traces(config: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["traces", *arguments, "--config", str(config)])


@pytest.mark.parametrize("kind", ["embedded", "server"])
def test_no_byte_is_left(kind: str, server: Any, make: Make, tmp_path: Path, start_writer: Callable[..., Any]) -> None:
    place = server.directory if kind == "server" else tmp_path / "store"
    dsn = server.dsn(next(_databases)) if kind == "server" else f"chdb://{place}"
    config = tmp_path / "outguard.yaml"
    config.write_text(
        'engines: [{name: a, url: "http://127.0.0.1:1"}]\nroutes: [{model: m, engines: [a]}]\n'
        f'trace: {{store: "{dsn}", spool: "{tmp_path / "spool"}"}}\n'
    )
    spool = Spool(tmp_path / "spool")
    start_writer(dsn, tmp_path / "spool")
    canary = f"canary-{kind}-5c1f"
    for number in range(20):
        mine = number % 2 == 0
        spool.write(
            make(
                number,
                tenant="acme" if mine else "other",
                request_body=json.dumps({"model": "m", "prompt": f"{canary if mine else 'kept'} {number}"}),
                output_text=canary if mine else "kept",
            )
        )
    (tmp_path / "spool" / "aside").mkdir(exist_ok=True)
    (tmp_path / "spool" / "aside" / "s-1-requests-0.row").write_text(json.dumps({"tenant": "acme", "x": canary}))
    deadline = time.monotonic() + 60
    while "req-19" not in traces(config, "list", "--json").stdout:  # stored by now
        assert time.monotonic() < deadline
        time.sleep(0.2)
    spool.write(make(40, request_body=f'"{canary}"', output_text=canary))
    counted = traces(config, "erase", "--tenant", "acme", "--dry-run", "--json")
    assert counted.exit_code == 0, counted.stderr
    done = traces(config, "erase", "--tenant", "acme", "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["rows"]["requests"] == told["spooled"] == 11
    assert told["aside"] == 1
    assert told["gone"]
    found = [
        path
        for root in (place, tmp_path)
        for path in root.rglob("*")
        if path.is_file() and canary.encode() in path.read_bytes()
    ]
    assert found == []
    with open_store(dsn, tmp_path / "spool") as reader:
        assert {one.tenant for one in reader.list_requests()} == {"other"}
        assert len(reader.list_requests()) == 10
        accounts = verify(reader, tmp_path / "spool")
        assert (accounts.differences, accounts.requests) == ([], 21)
    again = traces(config, "erase", "--tenant", "acme")
    assert again.exit_code == 1
    if kind == "embedded":
        return
    one = make(1)
    done = traces(config, "erase", "--trace", one.trace_id[:14])
    assert done.exit_code == 0, done.stderr
    assert "1 rows of requests erased" in done.stdout
    assert traces(config, "show", one.trace_id).exit_code == 1


def test_the_command_says_why_not(server: Any, make: Make, tmp_path: Path) -> None:
    config = tmp_path / "outguard.yaml"
    head = 'engines: [{name: a, url: "http://127.0.0.1:1"}]\nroutes: [{model: m, engines: [a]}]\n'
    config.write_text(f'{head}trace: {{store: "{server.dsn(next(_databases))}", spool: "{tmp_path / "spool"}"}}\n')
    empty = (("--tenant", ""), ("--tenant", " ", "--older-than", "1d"), ("--trace", ""))  # variables that are not set
    for arguments in ((), ("--trace", "aa", "--tenant", "b"), ("--older-than", "soon"), *empty):
        assert traces(config, "erase", *arguments).exit_code == 2
