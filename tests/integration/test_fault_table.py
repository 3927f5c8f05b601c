"""The faults that other systems were measured with (reference/peers.md), each injected into the first of two engines:
what those pass on, cut off or rewrite, a caller of this one never sees. Every row of that table is here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from replay_server import Reply, chunk, sse
from sidecar_process import Answered, Played, Sidecar

Stage = tuple[Sidecar, Played, Played]
STOP = chunk(finish="stop")
WELL = "All is well."
TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}
CALLS = {"tools": [TOOL]}
HELD = {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}}


def _call(name: str, arguments: str) -> Reply:
    call = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return Reply(sse(chunk(tool_calls=[call]), chunk(finish="tool_calls")))


class Fault(NamedTuple):
    """``first`` is what the first engine sends, ``then`` what either does when it is asked next; ``asked`` is added to
    the request. A call that has left in part goes on behind the quote that its schema wants next."""

    row: str
    first: Reply
    then: Reply = Reply(sse(chunk(WELL), STOP))
    asked: Mapping[str, Any] = MappingProxyType({})
    streams: tuple[bool, ...] = (True, False)


def _text(text: str) -> Reply:
    return Reply(sse(*map(chunk, text), STOP))


WHOLE, STREAMED = (False,), (True,)
REST = Reply(sse(chunk(" well."), STOP))
GOOD_CALL = _call("get_weather", '{"city": "Rome"}')
LOOPS = "`!` x 2000, 3-chunk loop x 667"
MARKUP = "special tokens in the text, bad tool arguments, unknown tool name"
FAULTS = {
    "500": Fault("500 before the first byte", Reply(b"oops", 500, {}, framing="length")),
    "cut": Fault("stream cut half way", Reply(sse(chunk("All is"), done=False), end="close"), REST),
    "reset": Fault("stream cut half way", Reply(sse(chunk("All is"), done=False), end="reset"), REST),
    "no finish": Fault("clean close without finish reason", Reply(sse(chunk("All is"), done=False)), REST),
    "done, no finish": Fault("clean close without finish reason", Reply(sse(chunk("All is"))), REST),
    "stall": Fault("stall", Reply(sse(chunk("All is"), done=False), end="hang"), REST),
    "!": Fault(LOOPS, Reply(sse(*[chunk("!")] * 2000, chunk(finish="length")))),
    "loop": Fault(LOOPS, Reply(sse(*[chunk(one) for one in (" the", " old", " sea")] * 667, chunk(finish="length")))),
    "special": Fault(
        MARKUP, Reply(sse(chunk("All is"), chunk("<|im_end|>"), chunk("<|im_start|>assistant"), STOP)), REST
    ),
    "arguments": Fault(MARKUP, _call("get_weather", '{"city": "Rome", '), GOOD_CALL, CALLS, WHOLE),
    "arguments, streamed": Fault(MARKUP, _call("get_weather", '{"city": '), _text('Rome"}}'), CALLS, STREAMED),
    "schema": Fault(MARKUP, _call("get_weather", '{"town": 5}'), GOOD_CALL, CALLS, WHOLE),
    "schema, streamed": Fault(MARKUP, _call("get_weather", '{"city": 5}'), _text('Rome"}}'), CALLS, STREAMED),
    "name": Fault(MARKUP, _call("get_whether", '{"city": "Rome"}'), GOOD_CALL, CALLS),
    "JSON": Fault("bad JSON, not streamed", _text('{"a": tru'), _text("1}"), HELD, WHOLE),
    "JSON, streamed": Fault("bad JSON, streamed", _text("Sure: "), _text('{"a": 1}'), HELD, STREAMED),
    "JSON, in the middle": Fault("bad JSON, streamed", _text('{"a": tru'), _text("1}"), HELD, STREAMED),
}


def _calls(answer: Answered) -> list[tuple[str, str]]:
    """Name and arguments of each, streamed or whole."""
    if not answer.body.startswith(b"data:"):
        whole = answer.json["choices"][0]["message"].get("tool_calls") or []
        return [(one["function"]["name"], one["function"]["arguments"]) for one in whole]
    said: dict[int, list[str]] = {}
    for event in answer.events:
        for choice in event["choices"] if event != "[DONE]" and "choices" in event else ():
            for call in choice["delta"].get("tool_calls") or ():
                one = said.setdefault(call["index"], ["", ""])
                one[0] += call["function"].get("name") or ""
                one[1] += call["function"].get("arguments") or ""
    return [(name, arguments) for _, (name, arguments) in sorted(said.items())]


CASES = [(name, stream) for name, fault in FAULTS.items() for stream in fault.streams]


@pytest.mark.parametrize(
    ("name", "stream"), CASES, ids=[f"{name}, {'streamed' if s else 'whole'}" for name, s in CASES]
)
def test_no_caller_sees_it(stage: Stage, name: str, stream: bool) -> None:
    sidecar, one, two = stage
    fault = FAULTS[name]
    one.play(fault.first, fault.then)
    two.play(fault.then)
    answer = sidecar.post({"stream": stream, **fault.asked})
    assert answer.status == 200, answer.text
    assert not answer.cut
    if fault.asked is CALLS:
        ((called, arguments),) = _calls(answer)
        assert (called, json.loads(arguments)) == ("get_weather", {"city": "Rome"})
    elif fault.asked is HELD:
        assert json.loads(answer.content) == {"a": 1}
    elif fault.row == LOOPS:
        assert answer.content.endswith(WELL)
        assert len(answer.content) < 60  # of the loop only what was none yet
    else:
        assert answer.content == WELL
    if stream:
        assert answer.events[-1] == "[DONE]"
    record = sidecar.trace(answer.headers["x-outguard-trace-id"])
    assert (record.outcome, record.recovered) == ("ok", True)
    assert record.attempts[0].engine == "one"
    assert record.attempts[0].outcome != "ok"
    assert record.attempts[-1].outcome == "ok"


def test_every_row_of_the_table_is_here(shared: Path) -> None:
    text = (shared / "reference" / "peers.md").read_text()
    table = text[text.index("| fault |") :]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)[1:]
    assert {fault.row for fault in FAULTS.values()} == {row for row in rows if row != "---"}
