"""The heat map and the seams: what each square says, against what an answer is held, what is shown first."""

from __future__ import annotations

from typing import Any

import pytest

from replay.observation import Cell, Found, Observation
from replay.source import Source
from replay.summary import SEAMS, SEAMS_A_REQUEST, Square, from_delivered, summarise, whole

GOOD = "All is well."


def seen(text: str = GOOD, engine: str = "a", request: str = "r", **more: Any) -> Observation:
    return Observation(request_id=request, cell=Cell(engine=engine), text={"content": text} if text else {}, **more)


def source(name: str = "r", **more: Any) -> Source:
    return Source(name, "chat", {"model": "m"}, **more)


def only(observations: list[Observation]) -> dict[str, Square]:
    found = summarise(observations, [source()])
    return {found.rows[square.row].engine: square for square in found.squares}


@pytest.mark.parametrize(
    ("runs", "mark", "counts"),
    [
        ([seen()], "same", (1, 0, 0, 0, 1)),
        ([seen(), seen("Else.", repeat=1)], "differs", (2, 1, 0, 0, 2)),
        ([seen(), seen(condemned="repetition.token", repeat=1)], "wrong", (2, 0, 1, 0, 1)),
        ([seen(), seen("", error="refused", repeat=1)], "error", (2, 0, 0, 1, 1)),
        ([seen("", error="refused"), seen("x", condemned="json.invalid", repeat=1)], "wrong", (2, 0, 1, 1, 1)),
    ],
)
def test_a_square(runs: list[Observation], mark: str, counts: tuple[int, ...]) -> None:
    square = only([*runs, *[seen(engine="other", repeat=n) for n in range(3)]])["a"]
    assert square.mark == mark
    assert (square.runs, square.differs, square.wrong, square.errors, square.distinct) == counts


def test_answers_are_held_against_the_commonest_sound_one() -> None:
    """Not against what was delivered, nor against a collapse, however common."""
    loops = [seen("!!!!", "b", condemned="repetition.token", repeat=n) for n in range(9)]
    found = summarise([seen(), *loops, seen("Else.", "c")], [source(answered=True, output="!!!!")])
    assert found.common == {"r": GOOD}
    marks = {found.rows[square.row].engine: square.mark for square in found.squares}
    assert marks == {"a": "same", "b": "wrong", "c": "differs"}


def test_seams_are_few_and_the_wrong_answers_come_first() -> None:
    many = [seen(f"Else {n}.", "b", repeat=n) for n in range(20)]
    bad = seen("!!!!", "c", condemned="repetition.token")
    found = summarise([seen(), seen(repeat=1), *many, bad, bad], [source()])
    assert len(found.seams) == SEAMS_A_REQUEST
    assert found.seams[0].right.condemned == "repetition.token"
    assert all(seam.left.content == GOOD for seam in found.seams)
    requests = [f"r{n}" for n in range(SEAMS + 20)]
    pairs = [one for name in requests for one in (seen(request=name), seen("Else.", "b", name))]
    assert len(summarise(pairs, [source(name) for name in requests]).seams) == SEAMS


def test_whether_a_recorded_failure_is_seen_again_by_its_family() -> None:
    recorded = seen(findings=(Found("repetition.token"), Found("leak.template", "warn")))
    again = seen(engine="b", findings=(Found("repetition.period"),), condemned="repetition.period")
    (found,) = summarise([seen(), again], [source(attempts=[recorded])]).reproduced
    assert (found.found, found.again, found.runs) == ("repetition.token", 1, 2)


def test_a_call_is_compared_as_a_trace_keeps_it() -> None:
    call = Observation(request_id="r", cell=Cell(engine="a"), text={"content": "So: ", "tool:0": 'look({"a": "(x)"})'})
    assert whole(call) == 'So: [{"name":"look","arguments":"{\\"a\\": \\"(x)\\"}"}]'
    assert from_delivered(source(answered=True, output=whole(call)), call) is None
    difference = from_delivered(source(answered=True, output="So what"), call)
    assert difference is not None
    assert difference.offset == 2
    assert from_delivered(source(), call) is None  # nothing is known of then


def test_a_request_that_was_never_run_has_a_column() -> None:
    found = summarise([seen()], [source(), source("s")])
    assert found.columns == ["r", "s"]
    assert [square.column for square in found.squares] == [0]
    assert found.row_of(0).runs == 1
