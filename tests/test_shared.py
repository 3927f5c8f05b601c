"""The table through which workers know of each other: what one wrote the others read; what one had is given back."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time

import pytest

from guard.admission import Job
from guard.budget import RetryBudget
from guard.config import Policy, parse_config
from guard.entrance import Entrance
from guard.health.fleet import LOOK, Fleet
from guard.health.others import Known
from guard.health.settings import HealthSettings
from guard.health.verdict import Verdict
from guard.request import GenerationRequest
from guard.routing import Router
from guard.shared import TENANTS, Seat, Table

CONFIG = parse_config(
    "engines: [{name: a, url: 'http://x:1'}, {name: b, url: 'http://x:2'}]\n"
    "routes: [{model: m, engines: [a, b]}, {model: k, engines: [b]}]\n"
)


class Workers:
    """The seats of some, at one table."""

    def __init__(self, count: int) -> None:
        self.table = Table()
        self.numbers = [self.table.seat() for _ in range(count)]
        self.seats = [Seat(self.table.fd, number, *self.table.places(CONFIG)) for number in self.numbers]


@pytest.fixture
def workers() -> Workers:
    return Workers(3)


def test_counts_are_summed_over_the_others_and_given_back(workers: Workers) -> None:
    a, b, c = workers.seats
    a.has("a", 3, 1)
    b.has("a", 2, 0)
    b.has("b", 7, 0)
    a.tenant_has("x", 4)
    b.tenant_has("x", 5)
    assert [seat.under_way("a") for seat in (a, b, c)] == [2, 3, 5]
    assert [seat.trials("a") for seat in (a, b, c)] == [0, 1, 1]
    assert [seat.of_tenant("x") for seat in (a, b, c)] == [5, 4, 9]
    assert a.of_tenant("y") == 0
    workers.table.clear(workers.numbers[1])
    assert (a.under_way("a"), c.under_way("a"), c.under_way("b"), c.of_tenant("x")) == (0, 3, 0, 4)
    assert workers.table.seat() == workers.numbers[1]  # and somebody may sit there again


def test_many_tenants_come_and_go(workers: Workers) -> None:
    a, b, _ = workers.seats
    for number in range(3 * TENANTS):
        a.tenant_has(f"t{number}", 1)
        if number >= 500:
            a.tenant_has(f"t{number - 500}", 0)
        assert b.of_tenant(f"t{number}") == 1
    assert b.of_tenant("t0") == 0


def test_the_latest_that_is_known_of_an_engine_is_heard(workers: Workers) -> None:
    a, b, c = workers.seats
    assert c.news("a") == Known()
    a.knows("a", Known(5.0, 5.0, 1, busy_until=9.0, cause="repetition.single_token_from_start"))
    b.knows("a", Known(4.0, 4.0, 2, busy_until=20.0, cause="stream.cut"))
    assert c.news("a") == Known(5.0, 5.0, 1, busy_until=20.0, cause="repetition.single_token_from_start")
    b.knows("a", Known(6.0, cause="x" * 200))
    assert c.news("a")._replace(cause="") == Known(6.0, busy_until=9.0)
    assert c.news("b") == Known()


def test_who_waits_longest_is_known_elsewhere(workers: Workers) -> None:
    a, b, c = workers.seats
    assert a.waiting(["m", "k"]) is None
    a.waits("m", 10.0)
    b.waits("k", 9.0)
    assert a.waiting(["m"]) is None
    assert c.waiting(["m"]) == (10.0, workers.numbers[0])
    assert c.waiting(["m", "k"]) == (9.0, workers.numbers[1])
    b.waits("k", None)
    assert c.waiting(["m", "k"]) == (10.0, workers.numbers[0])


def test_what_finds_no_place_in_the_table_is_each_workers_own(workers: Workers) -> None:
    a, b, _ = workers.seats
    a.has("z", 3, 0)
    a.knows("z", Known(5.0, 5.0))
    a.waits("z", 1.0)
    a.spent("z", 1, 1, 0.0)
    assert (b.under_way("z"), b.news("z"), b.waiting(["z"])) == (0, Known(), None)
    assert b.spent_elsewhere("z", 0.0, 30.0) == (0, 0)


def test_an_engine_that_moves_begins_anew() -> None:
    table = Table()
    places, _ = table.places(CONFIG)
    moved = CONFIG.model_copy(update={"engines": (CONFIG.engines[0].model_copy(update={"url": "http://y:1"}),)})
    assert table.places(CONFIG)[0] == places
    assert table.places(moved)[0]["a"] not in places.values()


def test_the_lock_keeps_another_process_out_and_is_free_when_its_holder_dies(workers: Workers) -> None:
    script = (
        "import sys\n"
        "from guard.shared import Seat\n"
        "seat = Seat(int(sys.argv[1]), 1, {'a': 0}, {})\n"
        "with seat.alone():\n"
        "    with seat.alone():\n"
        "        pass\n"
        "    print('held', flush=True)\n"
        "    sys.stdin.read()\n"
    )
    fd = workers.table.fd
    command = [sys.executable, "-c", script, str(fd)]
    with subprocess.Popen(command, pass_fds=(fd,), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        taking = subprocess.Popen(
            [sys.executable, "-c", script.replace("sys.stdin.read()", ""), str(fd)],
            pass_fds=(fd,),
            stdout=subprocess.PIPE,
        )
        with pytest.raises(subprocess.TimeoutExpired):
            taking.wait(1.0)
        other.kill()
        assert taking.wait(10) == 0
        assert taking.communicate()[0] == b"held\n"


# --- what is made of it ----------------------------------------------------------------------------------------------


def test_a_retry_budget_is_of_all_workers() -> None:
    a, b = (RetryBudget(0.2, 0, "m", seat) for seat in Workers(2).seats)
    for _ in range(10):
        a.request(1.0)
        b.request(1.0)
    for _ in range(3):
        assert a.left(1.0)
        a.spend(1.0)
    assert b.left(1.0)
    b.spend(1.0)
    assert not a.left(1.0)
    assert not b.left(1.0)
    assert b.left(40.0) is False  # the window has passed for both, and nothing was asked since


def test_a_breaker_is_of_all_workers() -> None:
    rules = HealthSettings(failures=2, open_initial=5, slow_start=0)
    a, b, c = (Fleet(rules, {"a": 0, "b": 0}, others=seat) for seat in Workers(3).seats)

    def ends(fleet: Fleet, weight: float, now: float) -> None:
        ticket = fleet.begin("a", now)
        fleet.leave(ticket)
        fleet.judge(ticket, Verdict(weight), now, cause="stream.cut" if weight else "")

    assert b.takes("a", 1.0)
    ends(a, 1.0, 1.0)
    ends(a, 1.0, 1.1)
    assert not b.takes("a", 1.1 + LOOK)
    assert b.takes("b", 1.1 + LOOK)
    state = b.state("a", 1.4)
    assert (state.state, state.cause, state.openings) == ("open", "stream.cut", 0)
    # one trial at a time, whoever makes it
    trial = b.begin("a", 6.2)
    assert trial.trial
    assert not a.takes("a", 6.3)
    b.leave(trial)
    assert a.takes("a", 6.3)
    for now in (6.4, 6.5):
        ends(b, 0.0, now)
    assert b.state("a", 6.6).state == "closed"
    assert a.state("a", 6.9).state == "closed"
    assert c.state("a", 6.9).state == "closed"
    ends(a, 1.0, 7.0)
    assert a.takes("a", 7.1)  # what was counted before it closed counts no more


def test_who_comes_later_hears_of_an_open_breaker_though_its_witness_has_gone() -> None:
    workers = Workers(2)
    rules = HealthSettings(failures=1, open_initial=50)
    a, b = (Fleet(rules, {"a": 0, "b": 0}, others=seat) for seat in workers.seats)
    ticket = a.begin("a", 1.0)
    a.leave(ticket)
    a.judge(ticket, Verdict(1.0), 1.0, cause="stream.cut")
    assert not b.takes("a", 2.0)
    workers.table.clear(workers.numbers[0])
    seat = Seat(workers.table.fd, workers.table.seat(), *workers.table.places(CONFIG))
    assert not Fleet(rules, {"a": 0, "b": 0}, others=seat).takes("a", 3.0)


def test_a_breaker_that_was_wrongly_blamed_closes_for_all() -> None:
    rules = HealthSettings(failures=1, open_initial=50, slow_start=0)
    a, b = (Fleet(rules, {"a": 0, "b": 0}, others=seat) for seat in Workers(2).seats)
    for engine, now in (("a", 1.0), ("b", 2.0)):
        ticket = a.begin(engine, now)
        a.leave(ticket)
        a.judge(ticket, Verdict(1.0, of_prompt=True), now, cause="repetition.loop", prompt=7)
        if engine == "a":
            assert not b.takes("a", 1.5)
    assert a.takes("a", 2.5)
    assert b.takes("a", 2.5)


class Doors:
    """Two workers' ways in to an engine with one place."""

    def __init__(self) -> None:
        workers = Workers(2)
        self.entrances = []
        for seat in workers.seats:
            fleet = Fleet(HealthSettings(), {"a": 1, "b": 0}, [("a",)], others=seat)
            router = Router(("a",), fleet, RetryBudget(0.2, 10), balanced=False, origins={"a": ("", "")})
            self.entrances.append(
                Entrance(fleet, {"m": router}, time.monotonic, length=9, wait=5.0, per_tenant=0, others=seat)
            )
        for seat in workers.seats:
            seat.on_turn = lambda where: self.entrances[workers.numbers.index(where)].look()

    def job(self) -> Job:
        request = GenerationRequest("r", "chat", "m", [], tenant="t")
        return Job(request, Policy(), "default", ("a",), None, {}, time.monotonic() + 60)


async def test_who_waits_longest_is_served_first_in_whichever_worker() -> None:
    doors = Doors()
    here, there = doors.entrances
    order: list[str] = []

    async def passes(name: str, entrance: Entrance, *, again: bool = False) -> None:
        entering = entrance.again(doors.job(), ["a"]) if again else entrance.first(doors.job())
        ticket = await entering
        order.append(name)
        await asyncio.sleep(0.001)
        entrance.leave(ticket)

    held = await here.first(doors.job())
    tasks = []
    for name, entrance in (("1", there), ("2", here), ("3", there), ("4", here)):
        tasks.append(asyncio.ensure_future(passes(name, entrance)))
        await asyncio.sleep(0.002)
    tasks.append(asyncio.ensure_future(passes("under way", there, again=True)))
    await asyncio.sleep(0.002)
    began = time.monotonic()
    here.leave(held)
    await asyncio.sleep(0)
    tasks.append(asyncio.ensure_future(passes("5", here)))  # comes when there may be a place, and waits like the others
    await asyncio.gather(*tasks)
    assert order == ["under way", "1", "2", "3", "4", "5"]
    assert time.monotonic() - began < 5 * 0.05  # it was told, and did not look by itself
    assert here.waiting == there.waiting == 0


async def test_a_worker_that_cannot_be_told_looks_by_itself() -> None:
    doors = Doors()
    here, there = doors.entrances
    held = await here.first(doors.job())
    waiting = asyncio.ensure_future(there.first(doors.job()))
    await asyncio.sleep(0.01)
    here._others.on_turn = lambda where: None  # type: ignore[attr-defined]
    here.leave(held)
    ticket = await asyncio.wait_for(waiting, 1)
    there.leave(ticket)
