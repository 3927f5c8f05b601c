"""A batch into the store exactly once: refused rows set aside, repetitions dropped, tokens without rows noticed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from guard.trace.delivery import IN_VAIN, Delivery
from guard.trace.drain import Batch, Drain
from guard.trace.memory import MemoryStore
from guard.trace.record import LossRecord, OutcomeRecord, RequestRecord
from guard.trace.rows import Row, Values
from guard.trace.spool import Spool
from guard.trace.store import Refused, Unavailable

Make = Callable[..., RequestRecord]


class Picky(MemoryStore):
    """Refuses a batch that holds certain words, as a parser does: all of it."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words
        self.calls: list[tuple[str, int, str]] = []

    def insert(self, table: str, rows: Sequence[Row], token: str) -> None:
        self.calls.append((table, len(rows), token))
        if any(word in row.values for row in rows for word in self.words):
            raise Refused("code 72", 72) from ValueError("cannot parse 'the row'")
        super().insert(table, rows, token)


class Forgetful(MemoryStore):
    """Writes down the token, and is killed before the rows are there."""

    def __init__(self, deaths: int) -> None:
        super().__init__()
        self.deaths = deaths

    def insert(self, table: str, rows: Sequence[Row], token: str) -> None:
        if self.deaths:
            self.deaths -= 1
            super().insert(table, [], token)
            raise Unavailable("gone")
        super().insert(table, rows, token)


@pytest.fixture
def batch(tmp_path: Path, make: Make) -> Batch:
    spool = Spool(tmp_path / "spool")
    for number in range(7):
        spool.write(make(number))
    spool.write_outcome(OutcomeRecord("t", "call", 5.0, True, "fine"))
    spool.close()
    return next(Drain(tmp_path / "spool").batches())


def deliver(delivery: Delivery, batch: Batch) -> int:
    prepared = delivery.prepare(batch)
    delivery.send(prepared)
    return prepared.records


def count(store: MemoryStore) -> dict[str, int]:
    return {table: len(rows) for table, rows in store._rows.items() if rows}


def test_a_batch_becomes_rows_of_every_table(batch: Batch, tmp_path: Path, make: Make) -> None:
    store = MemoryStore()
    delivery = Delivery(store, tmp_path / "aside")
    assert deliver(delivery, batch) == 8
    assert count(store) == {"requests": 7, "attempts": 14, "findings": 14, "outcomes": 1}
    found = store.get_request(make(3).trace_id)
    assert found is not None
    assert [attempt.engine for attempt in found.attempts] == ["primary", "second"]
    places = [(row["spool_offset"], row["spool_row"]) for row in store._rows["findings"]]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize("again", [False, True])
def test_the_same_batch_twice_is_stored_once(batch: Batch, tmp_path: Path, again: bool) -> None:
    store = MemoryStore()
    deliver(Delivery(store, tmp_path), batch)
    deliver(Delivery(store, tmp_path), batch._replace(again=again))
    assert count(store)["requests"] == 7


def test_a_batch_under_other_names_is_still_stored_once_when_it_is_in_doubt(batch: Batch, tmp_path: Path) -> None:
    store = MemoryStore()
    deliver(Delivery(store, tmp_path), batch)
    store._tokens.clear()  # so old that the store has forgotten it
    deliver(Delivery(store, tmp_path), batch._replace(again=True))
    assert count(store) == {"requests": 7, "attempts": 14, "findings": 14, "outcomes": 1}


def test_a_token_without_its_rows_is_noticed(batch: Batch, tmp_path: Path) -> None:
    store = Forgetful(deaths=1)
    delivery = Delivery(store, tmp_path)
    with pytest.raises(Unavailable):
        deliver(delivery, batch)
    delivery.send(delivery.prepare(batch), again=True)
    assert count(store) == {"requests": 7, "attempts": 14, "findings": 14, "outcomes": 1}


def test_refused_rows_are_set_aside_by_name_and_the_others_stored(batch: Batch, tmp_path: Path) -> None:
    store = Picky("req-2", "req-5")
    delivery = Delivery(store, tmp_path / "aside")
    deliver(delivery, batch)
    assert count(store)["requests"] == 5
    assert delivery.refused == 10  # two requests, their four attempts and four findings
    kept = sorted(path.name for path in (tmp_path / "aside").iterdir())
    assert [name for name in kept if "requests" in name and name.endswith(".row")] == sorted(
        f"{batch.segment}-{batch.frames[n].start}-requests-0.row" for n in (2, 5)
    )
    why = next((tmp_path / "aside").glob("*.why")).read_text()
    assert "cannot parse" in why
    again = Picky("req-2", "req-5")
    again._tokens, again._rows = store._tokens, store._rows
    deliver(Delivery(again, tmp_path / "aside"), batch._replace(again=True))
    assert count(again)["requests"] == 5
    assert sorted(path.name for path in (tmp_path / "aside").iterdir()) == kept


def test_halves_have_the_same_names_every_time(batch: Batch, tmp_path: Path) -> None:
    first, second = Picky("req-2"), Picky("req-2")
    deliver(Delivery(first, tmp_path), batch)
    deliver(Delivery(second, tmp_path), batch)
    assert first.calls == second.calls


def test_a_payload_that_is_no_record_is_set_aside(tmp_path: Path, make: Make) -> None:
    spool = Spool(tmp_path / "spool")
    spool.write(make(1))
    spool.write_outcome(make(2))  # type: ignore[arg-type]  # a record under the wrong kind
    spool.close()
    store = MemoryStore()
    delivery = Delivery(store, tmp_path / "aside")
    assert deliver(delivery, next(Drain(tmp_path / "spool").batches())) == 1
    assert delivery.refused == 1
    assert len(list((tmp_path / "aside").glob("*-record.row"))) == 1


def test_losses_are_rows_too(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool._lose("bound")
    spool.close()
    store = MemoryStore()
    deliver(Delivery(store, tmp_path), next(Drain(tmp_path / "spool").batches()))
    row = store._rows["losses"][0]
    assert (row["worker"], row["reason"], row["count"]) == ("0", "bound", 1)
    assert set(LossRecord.__struct_fields__) <= row.keys()


class Unfit(Picky):
    """Cannot even make a block of some values, as when a column does not hold them."""

    def encode(self, table: str, values: Sequence[Values]) -> list[Row]:
        if any(word in column for column in values for word in self.words):
            raise Refused("OverflowError")
        return super().encode(table, values)


def test_values_that_fit_no_block_are_set_aside_like_those_that_are_refused(batch: Batch, tmp_path: Path) -> None:
    store, other = Unfit("req-2", "req-5"), Picky("req-2", "req-5")
    deliver(Delivery(store, tmp_path / "aside"), batch)
    deliver(Delivery(other, tmp_path / "other"), batch)
    assert count(store) == count(other) == {"requests": 5, "attempts": 10, "findings": 10, "outcomes": 1}
    assert sorted(path.name for path in (tmp_path / "aside").iterdir()) == sorted(
        path.name for path in (tmp_path / "other").iterdir()
    )


class Late(MemoryStore):
    """Is away while a batch is made ready, and back when it is sent."""

    def encode(self, table: str, values: Sequence[Values]) -> list[Row]:
        raise Unavailable("gone")


def test_a_store_that_is_away_while_a_batch_is_made_ready_takes_it_later(batch: Batch, tmp_path: Path) -> None:
    store = Late()
    deliver(Delivery(store, tmp_path), batch)
    assert count(store) == {"requests": 7, "attempts": 14, "findings": 14, "outcomes": 1}


def test_a_batch_may_be_larger_than_what_becomes_a_block(
    batch: Batch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("guard.trace.delivery.AT_ONCE", 3)
    store = Picky("req-5")
    prepared = Delivery(store, tmp_path).prepare(batch)
    assert [len(block) for block in prepared.blocks["requests"]] == [3, 3, 1]
    assert deliver(Delivery(store, tmp_path), batch) == 8
    assert count(store) == {"requests": 6, "attempts": 12, "findings": 12, "outcomes": 1}


def spooled(folder: Path, make: Make, *numbers: int) -> Batch:
    spool = Spool(folder)
    for number in numbers:
        spool.write(make(number))
    spool.close()
    return next(Drain(folder).batches())


class Changed(MemoryStore):
    """Somebody has changed the columns of a table."""

    table = "requests"

    def insert(self, table: str, rows: Sequence[Row], token: str) -> None:
        if table == self.table:
            raise Refused("code 53", 53)
        super().insert(table, rows, token)


@pytest.mark.parametrize("each", [1, 3, 200])
def test_a_table_that_takes_no_row_sets_few_aside_and_the_others_wait(tmp_path: Path, make: Make, each: int) -> None:
    store = Changed()
    delivery = Delivery(store, tmp_path / "aside")
    batches = [spooled(tmp_path / str(n), make, *range(each)) for n in range(max(1, 200 // each))]
    refused = []
    for batch in batches:
        try:
            deliver(delivery, batch)
        except Unavailable:
            refused.append(batch)
    aside = len(list((tmp_path / "aside").glob("*.row")))
    assert aside < IN_VAIN
    with pytest.raises(Unavailable, match=r"takes no rows of requests \(code 53\)"):
        delivery.send(delivery.prepare(refused[0]), again=True)
    store.table = ""
    for batch in refused:
        delivery.send(delivery.prepare(batch), again=True)
    assert count(store)["requests"] + aside == sum(len(batch.frames) for batch in batches)


@pytest.mark.parametrize("bad", [range(200), range(100, 300), range(0, 300, 2)])
def test_many_bad_rows_beside_good_ones_are_no_fault_of_the_table(tmp_path: Path, make: Make, bad: range) -> None:
    batch = spooled(tmp_path / "spool", make, *range(300))
    store = Picky(*(f"req-{number}" for number in bad))
    delivery = Delivery(store, tmp_path / "aside")
    deliver(delivery, batch)
    assert count(store)["requests"] == 300 - len(bad)
    assert len(list((tmp_path / "aside").glob("*-requests-0.row"))) == len(bad)
