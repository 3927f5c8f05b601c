"""The answer reader on events written by hand: every shape, and what no engine should send."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from replay_server import chunk, sse

from guard.engines.openai_reader import OpenAIReader, read_stream, read_whole
from guard.events import (
    Closed,
    Done,
    Fault,
    FinishReason,
    Opened,
    StreamEvent,
    TextDelta,
    ToolDelta,
    Usage,
)

OPENED = Opened("chatcmpl-1", "m")
END: list[StreamEvent] = [Done(), Closed(True)]


def body_of(*choices: dict[str, Any], **top: Any) -> list[StreamEvent]:
    """The events of one chunk with these choices, between Opened and the end."""
    events = read_stream(sse({"id": "chatcmpl-1", "model": "m", "choices": list(choices), **top}))
    assert events[0] == OPENED
    assert events[-2:] == END
    return events[1:-2]


def delta(**fields: Any) -> list[StreamEvent]:
    return body_of({"index": 0, "delta": fields})


def test_an_ordinary_stream() -> None:
    usage = {"id": "x", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}}
    stream = sse(chunk("", role="assistant"), chunk("Hel"), chunk("lo"), chunk(finish="stop"), usage)
    assert read_stream(stream) == [
        OPENED,
        TextDelta(0, "content", "Hel"),
        TextDelta(0, "content", "lo"),
        FinishReason(0, "stop"),
        Usage(3, 2, 5),
        *END,
    ]


@pytest.mark.parametrize(
    ("fields", "events"),
    [
        ({"content": None}, []),
        ({"reasoning_content": "hm"}, [TextDelta(0, "reasoning", "hm")]),
        ({"reasoning": "hm"}, [TextDelta(0, "reasoning", "hm")]),
        ({"reasoning": "hm", "reasoning_content": "hm"}, [TextDelta(0, "reasoning", "hm")]),
        ({"reasoning": "hm", "content": "so"}, [TextDelta(0, "reasoning", "hm"), TextDelta(0, "content", "so")]),
        ({"refusal": "no"}, [TextDelta(0, "refusal", "no")]),
        ({"function_call": {"name": "f", "arguments": "{"}}, [ToolDelta(0, 0, None, "f", "{")]),
        (
            {
                "content": [
                    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                    {"type": "text", "text": "so"},
                ]
            },
            [TextDelta(0, "reasoning", "hm"), TextDelta(0, "content", "so")],
        ),
    ],
)
def test_channels(fields: dict[str, Any], events: list[StreamEvent]) -> None:
    assert delta(**fields) == events


@pytest.mark.parametrize(
    ("call", "event"),
    [
        (
            {"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}},
            ToolDelta(0, 0, "c", "f"),
        ),
        ({"index": 0, "function": {"arguments": '{"a'}}, ToolDelta(0, 0, None, None, '{"a')),
        ({"function": {"name": "f", "arguments": "{}"}}, ToolDelta(0, None, None, "f", "{}")),
        ({"index": 7, "function": {"arguments": "1"}}, ToolDelta(0, 7, None, None, "1")),
        ({"index": "1", "function": {"arguments": "1"}}, ToolDelta(0, 1, None, None, "1")),
        ({"index": 0, "function": {"name": "f", "arguments": {"a": 1}}}, ToolDelta(0, 0, None, "f", "", {"a": 1})),
        ({"index": 0, "function": {"name": "f", "arguments": [1]}}, ToolDelta(0, 0, None, "f", "", [1])),
        ({"index": 0, "function": {"name": "f", "arguments": None}}, ToolDelta(0, 0, None, "f")),
        ({"index": 0, "id": 5, "function": {"name": "f"}}, ToolDelta(0, 0, "5", "f")),
        ({"index": 0, "id": "c"}, ToolDelta(0, 0, "c")),
        ({"index": 0, "name": "f", "arguments": 7}, ToolDelta(0, 0, None, "f", "", 7)),
        (
            {"index": 0, "id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}},
            ToolDelta(0, 0, "c", "f", "x"),
        ),
    ],
)
def test_tool_calls(call: dict[str, Any], event: ToolDelta) -> None:
    assert delta(tool_calls=[call]) == [event]


def test_a_repeated_name_is_passed_on_as_it_came() -> None:
    """Whether it is a repeat or a piece of the name is for the guard to judge."""
    call = {"index": 0, "function": {"name": "get", "arguments": ""}}
    assert delta(tool_calls=[call, call]) == [ToolDelta(0, 0, None, "get"), ToolDelta(0, 0, None, "get")]


def test_tool_call_ids_of_tokens_go_with_the_last_piece() -> None:
    calls = [{"index": i, "function": {"arguments": str(i)}} for i in (0, 1)]
    events = body_of({"index": 0, "delta": {"tool_calls": calls}, "token_ids": [5, 6]})
    assert events == [ToolDelta(0, 0, arguments="0"), ToolDelta(0, 1, arguments="1", token_ids=(5, 6))]


def test_a_missing_finish_reason_is_no_stop() -> None:
    events = read_stream(sse({"choices": [{"delta": {"content": "a"}}]}, done=False))
    assert events == [Opened("", ""), TextDelta(0, "content", "a"), Closed(True)]


@pytest.mark.parametrize("field", ["stop_reason", "matched_stop"])
@pytest.mark.parametrize("stop", ["##", 2, None])
def test_what_stopped_it(field: str, stop: str | int | None) -> None:
    assert body_of({"delta": {}, "finish_reason": "stop", field: stop}) == [FinishReason(0, "stop", stop)]


def test_a_token_without_text_is_not_lost() -> None:
    entry = {"token": "<eos>", "logprob": -0.5, "bytes": None, "top_logprobs": []}
    choice = {"delta": {}, "finish_reason": "stop", "token_ids": [2], "logprobs": {"content": [entry]}}
    assert body_of(choice) == [TextDelta(0, "content", "", (2,), [entry]), FinishReason(0, "stop")]


def test_ids_in_llamacpp_logprobs_are_the_token_ids() -> None:
    entry = {"id": 60, "token": "L", "bytes": [76], "logprob": -1.5, "top_logprobs": []}
    assert body_of({"delta": {"content": "L"}, "logprobs": {"content": [entry]}}) == [
        TextDelta(0, "content", "L", (60,), [entry])
    ]


def test_completion_logprobs_come_in_the_chat_shape() -> None:
    logprobs = {"tokens": ["a", "b"], "token_logprobs": [-1.0, None], "top_logprobs": [{"a": -1, "x": -2.5}, None]}
    assert body_of({"index": 0, "text": "ab", "logprobs": logprobs})[0] == TextDelta(
        0,
        "content",
        "ab",
        None,
        [
            {
                "token": "a",
                "logprob": -1.0,
                "bytes": None,
                "top_logprobs": [
                    {"token": "a", "logprob": -1.0, "bytes": None},
                    {"token": "x", "logprob": -2.5, "bytes": None},
                ],
            },
            {"token": "b", "logprob": pytest.approx(math.nan, nan_ok=True), "bytes": None, "top_logprobs": []},
        ],
    )


@pytest.mark.parametrize("number", ["null", "NaN", '"x"'])
def test_a_logprob_that_is_no_number_is_nan(number: str) -> None:
    text = '{"choices":[{"delta":{"content":"a"},"logprobs":{"content":[{"token":"a","logprob":HERE}]}}]}'
    event = read_stream(sse(text.replace("HERE", number)))[1]
    assert isinstance(event, TextDelta)
    assert event.logprobs is not None
    assert math.isnan(event.logprobs[0]["logprob"])


def test_usage_anywhere_with_details_and_nulls() -> None:
    usage = {
        "prompt_tokens": 5,
        "completion_tokens": 4,
        "total_tokens": None,
        "prompt_tokens_details": {"cached_tokens": 3},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    assert body_of({"delta": {"content": "a"}}, usage=usage) == [TextDelta(0, "content", "a"), Usage(5, 4, 9, 3, 2)]
    assert body_of(usage={"prompt_tokens": 1, "reasoning_tokens": 1, "prompt_tokens_details": None}) == [
        Usage(1, 0, 1, 0, 1)
    ]
    assert body_of(usage={"prompt_tokens": "many", "completion_tokens": 2.0}) == [Usage(0, 2, 2)]


def test_wrong_types_count_as_absent() -> None:
    junk = {
        "index": "x",
        "delta": {"content": 5, "tool_calls": "no", "refusal": {}},
        "finish_reason": 3,
        "logprobs": [],
    }
    assert body_of(junk, "no choice", token_ids="x", id="chatcmpl-1") == []
    assert body_of({"delta": [], "text": None, "token_ids": [1, "x"], "stop_reason": [1]}) == []
    assert body_of({"index": 1.0, "delta": {"content": "a", "tool_calls": {"index": 0, "id": "c"}}}) == [
        TextDelta(1, "content", "a"),
        ToolDelta(1, 0, "c"),
    ]


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ("{oops}", "no JSON"),
        ("nonsense", "no JSON"),
        ("[1]", "no JSON object"),
        ("null", "no JSON object"),
        ("7", "no JSON object"),
        ('{"choices": [{"index": 0, "delta"', "no JSON"),
        ('{"a":' * 200_000, "nested too deeply"),
        ("[" * 200_000, "nested too deeply"),
    ],
)
def test_what_is_no_json_object_is_a_protocol_fault(payload: str, message: str) -> None:
    events = read_stream(sse(chunk("a"), payload, chunk("b")))
    assert events[:2] == [OPENED, TextDelta(0, "content", "a")]
    fault = events[2]
    assert isinstance(fault, Fault)
    assert fault.kind == "protocol"
    assert message in fault.message
    assert len(events) == 3


@pytest.mark.parametrize(
    ("payload", "fault"),
    [
        ({"error": {"message": "died", "type": "X", "code": 500}}, Fault("error_event", "died", 500)),
        ({"error": {"message": "died", "code": "503"}}, Fault("error_event", "died", 503)),
        ({"error": "died"}, Fault("error_event", "died")),
        ({"object": "error", "message": "died", "code": 400}, Fault("error_event", "died", 400)),
        ({"detail": "died"}, Fault("error_event", "died")),
        ({"error": {"code": 500}}, Fault("error_event", '{"code": 500}', 500)),
        ({"choices": [], "error": {"message": "died"}}, Fault("error_event", "died")),
        ('event: error\ndata: {"message": "died"}', Fault("error_event", "died")),
        ("event: error\ndata: died", Fault("error_event", "died")),
        ("event: error", Fault("error_event", "the engine reported an error")),
        ('error: {"code": 500, "message": "died"}', Fault("error_event", "died", 500)),
    ],
)
def test_an_error_in_the_stream_ends_it(payload: Any, fault: Fault) -> None:
    bad = sse(payload, done=False) if isinstance(payload, dict) else payload.encode() + b"\n\n"
    body = sse(chunk("a"), done=False) + bad + sse(chunk("b"))
    for step in (1, len(body)):
        reader = OpenAIReader()
        events = [e for i in range(0, len(body), step) for e in reader.feed(body[i : i + step])]
        assert events == [OPENED, TextDelta(0, "content", "a"), fault]
        assert reader.ended
        assert reader.end() == []


def test_text_beside_an_error_is_kept() -> None:
    bad = {"choices": [{"delta": {"content": "b"}, "finish_reason": "error"}], "error": {"message": "died"}}
    assert read_stream(sse(chunk("a"), bad))[2:] == [
        TextDelta(0, "content", "b"),
        FinishReason(0, "error"),
        Fault("error_event", "died"),
    ]


def test_a_line_of_raw_json_gives_its_message() -> None:
    body = sse(chunk("a"), done=False) + b'{"error": {"message": "CUDA error"}}\n\n'
    fault = read_stream(body)[-1]
    assert isinstance(fault, Fault)
    assert fault.kind == "protocol"
    assert "(CUDA error)" in fault.message


@pytest.mark.parametrize(
    ("body", "last"),
    [
        (sse(chunk("a")), Closed(False)),
        (sse(chunk("a"), done=False), Fault("cut", "the connection ended in the middle of the answer")),
        (sse(chunk("a"))[:-1], Fault("cut", "the connection ended in the middle of the answer")),
        (b"", Fault("cut", "the connection ended in the middle of the answer")),
    ],
)
def test_a_body_that_ended_early(body: bytes, last: StreamEvent) -> None:
    """After [DONE] nothing was lost; before it, or in the middle of it, something may have been."""
    assert read_stream(body, clean=False)[-1] == last


def test_done_counts_once_and_keep_alives_say_nothing() -> None:
    body = b"data:\n\n: ping\n\ndata: [DONE] \n\ndata: [DONE]\n\n"
    assert read_stream(body) == [Done(), Closed(True)]


def test_a_surrogate_pair_cut_between_chunks_is_joined() -> None:
    halves = ['{"choices":[{"delta":{"content":"' + half + '"}}]}' for half in (r"a\ud83d", r"\ude00b")]
    texts = [e.text for e in read_stream(sse(*halves)) if isinstance(e, TextDelta)]
    assert texts == ["a", "😀b"]


@pytest.mark.parametrize("tail", [[], [chunk(finish="stop")], [chunk("b")]])
def test_half_a_pair_alone_becomes_the_replacement_character(tail: list[dict[str, Any]]) -> None:
    half = r'{"choices":[{"delta":{"content":"a\ud83d"}}]}'
    events = read_stream(sse(half, *tail))
    assert "".join(e.text for e in events if isinstance(e, TextDelta)).startswith("a\ufffd")
    json.dumps([repr(e) for e in events]).encode()


def test_broken_utf8_becomes_the_replacement_character() -> None:
    assert read_stream(sse(b'{"choices":[{"delta":{"content":"a\xf0\x9f"}}]}'))[1] == TextDelta(0, "content", "a\ufffd")


def test_prompt_token_ids_come_with_opened() -> None:
    first = {"id": "x", "model": "m", "choices": [{"delta": {"content": ""}}], "prompt_token_ids": [1, 2]}
    assert read_stream(sse(first, done=False))[0] == Opened("x", "m", (1, 2))
    first = {"id": "x", "model": "m", "choices": [{"text": "a", "prompt_token_ids": [3]}]}
    assert read_stream(sse(first, done=False))[0] == Opened("x", "m", (3,))


# --- whole answers ------------------------------------------------------------------------------------------------


def test_a_whole_chat_answer() -> None:
    message = {
        "role": "assistant",
        "content": "so",
        "reasoning": "hm",
        "tool_calls": [
            {"id": "a", "function": {"name": "f", "arguments": "{}"}},
            {"id": "b", "function": {"name": "g", "arguments": {"x": 1}}},
        ],
    }
    body = {
        "id": "i",
        "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls", "response_token_ids": [1, 2]}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    assert read_whole(json.dumps(body).encode()) == [
        Opened("i", "m"),
        TextDelta(0, "reasoning", "hm"),
        TextDelta(0, "content", "so"),
        ToolDelta(0, 0, "a", "f", "{}"),
        ToolDelta(0, 1, "b", "g", "", {"x": 1}, token_ids=(1, 2)),
        FinishReason(0, "tool_calls"),
        Usage(1, 2, 3),
        Done(),
        Closed(True),
    ]


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b'{"error": {"message": "no"}}', "error_event"),
        (b'{"id": "x"}', "protocol"),
        (b"<html>", "protocol"),
        (b"", "protocol"),
        (b"[]", "protocol"),
    ],
)
def test_a_whole_answer_that_is_none(body: bytes, kind: str) -> None:
    fault = read_whole(body)[-1]
    assert isinstance(fault, Fault)
    assert fault.kind == kind


@pytest.mark.parametrize(("content", "rest"), [("ab c", " c"), ("xab", "xab"), ("ab", "")])
def test_a_repeated_prefix_is_dropped(content: str, rest: str) -> None:
    body = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    texts = [e.text for e in read_whole(json.dumps(body).encode(), drop_prefix="ab") if isinstance(e, TextDelta)]
    assert "".join(texts) == rest


# --- anything at all ----------------------------------------------------------------------------------------------

KEYS = [
    "choices",
    "delta",
    "message",
    "content",
    "tool_calls",
    "function",
    "arguments",
    "name",
    "index",
    "logprobs",
    "tokens",
    "top_logprobs",
    "finish_reason",
    "usage",
    "error",
    "text",
    "token_ids",
    "id",
    "prompt_tokens",
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@given(
    st.dictionaries(st.sampled_from(["choices", "usage", "error", "id", "detail"]), VALUES, max_size=4), st.booleans()
)
def test_no_object_makes_it_fail(value: dict[str, Any], whole: bool) -> None:
    data = json.dumps(value).encode()
    events = read_whole(data) if whole else read_stream(sse(value))
    assert isinstance(events[-1], Closed | Fault)
    assert sum(isinstance(e, Closed | Fault) for e in events) == 1
    for event in events:
        if isinstance(event, TextDelta):
            event.text.encode()


@given(st.binary(max_size=80), st.integers(1, 9))
def test_no_bytes_make_it_fail_and_any_split_is_the_same(data: bytes, step: int) -> None:
    reader = OpenAIReader()
    events = [e for i in range(0, len(data), step) for e in reader.feed(data[i : i + step])] + reader.end()
    assert events == read_stream(data)
