"""When things happened in a request, and where its answer was sewn together."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from guard.tables import console, trace_page
from guard.trace.record import AttemptRecord, OutcomeRecord, RequestRecord
from guard.trace.timeline import delivered, moments, seams

Make = Callable[..., RequestRecord]


def attempt(number: int, engine: str, **more: object) -> AttemptRecord:
    return msgspec.convert({"choice": 0, "attempt": number, "engine": engine, **more}, AttemptRecord)


def recovered() -> RequestRecord:
    return RequestRecord(
        "a" * 32,
        "req",
        100.0,
        duration_ms=90.0,
        first_token_ms=12.0,
        recovered=True,
        retention="full",
        output_text="All is well that ends well.",
        attempts=[
            attempt(1, "one", started_at=100.0, outcome="refused", error_kind="open.busy", duration_ms=5.0),
            attempt(
                2,
                "one",
                started_at=100.005,
                first_token_ms=6.0,
                duration_ms=35.0,
                outcome="condemned",
                error_kind="repetition.token",
                onset=11,
            ),
            attempt(
                3, "two", started_at=100.045, first_token_ms=8.0, duration_ms=44.0, finish_reason="stop", resumed_at=11
            ),
        ],
    )


def test_everything_in_its_order() -> None:
    told = [OutcomeRecord("a" * 32, "call_1", 101.0, False)]
    assert [(round(moment.at_ms, 1), moment.what) for moment in moments(recovered(), told)] == [
        (0.0, "asked"),
        (0.0, "one is asked"),
        (5.0, "one refused: open.busy"),
        (5.0, "one is asked"),
        (11.0, "one begins to answer"),
        (12.0, "the caller gets the first text"),
        (40.0, "one condemned: repetition.token from character 11 on"),
        (45.0, "two goes on from character 11"),
        (53.0, "two begins to answer"),
        (89.0, "two is done (stop)"),
        (90.0, "the caller hears the end (ok)"),
        (1000.0, "reported: tool call call_1 failed"),
    ]


@pytest.mark.parametrize(
    ("stream", "outcome", "says", "says_not"),
    [
        (True, "failed", "the caller gets the first text", "not delivered"),
        (False, "failed", "released, and not delivered", "caller gets"),
        (False, "cancelled", "released, and not delivered", "caller gets"),
        (False, "ok", "delivered", "not delivered"),
    ],
)
def test_what_a_caller_never_got_is_not_called_delivered(stream: bool, outcome: str, says: str, says_not: str) -> None:
    """Whoever does not stream gets a whole answer or an error."""
    record = msgspec.structs.replace(recovered(), stream=stream, outcome=outcome)
    view = console()
    with view.capture() as page:
        view.print(trace_page(record, []))
    assert says in page.get()
    assert says_not not in page.get()


def test_a_seam_is_where_another_engine_went_on() -> None:
    (seam,) = seams(recovered())
    assert (seam.offset, seam.before, seam.after, seam.why) == (11, "one", "two", "repetition.token")
    assert seam.left + seam.right == "All is well that ends well."
    assert (seam.left, seam.right) == ("All is well", " that ends well.")
    bare = msgspec.structs.replace(recovered(), output_text="")
    assert [(seam.offset, seam.left, seam.right) for seam in seams(bare)] == [(11, "", "")]


def test_each_choice_has_its_own() -> None:
    record = recovered()
    for one in record.attempts:
        one.choice = 1
    record.attempts.append(attempt(1, "three"))
    record.choices, record.output_text = 2, '["first", "All is well, too."]'
    (seam,) = seams(record)
    assert (seam.choice, seam.right) == (1, ", too.")


@pytest.mark.parametrize(
    ("choices", "text", "texts"),
    [(1, "", []), (1, "a", ["a"]), (2, '["a","b"]', ["a", "b"]), (2, "", []), (2, "cut", []), (1, "[1]", ["[1]"])],
)
def test_what_was_delivered(choices: int, text: str, texts: list[str]) -> None:
    assert delivered(RequestRecord("t", "r", 0.0, choices=choices, output_text=text)) == texts


def test_the_page_shows_all_of_it(make: Make) -> None:
    for record in (recovered(), make(1), RequestRecord("t", "r", 0.0)):
        view = console()
        with view.capture() as capture:
            view.print(trace_page(record, []))
        page = capture.get()
        assert record.trace_id in page
        if record.recovered and record.model == "":
            assert "repetition.token" in page
            assert "'All is well' | ' that ends well.'" in page
            assert "two goes on from character 11" in page
