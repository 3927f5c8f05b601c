"""The writers of answers as pure functions of guard events."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletion

from detectors.finding import Finding
from guard.events import Failed, Found, GuardEvent, Started, ToolRelease, Usage
from guard.server.openai_answer import AnswerWriter
from guard.server.openai_logprobs import LegacyLogprobs
from guard.server.openai_outcome import MAX_NOTES, Outcome
from guard.server.openai_stream import StreamWriter
from tests.server.openai_scripted import TRACE, failed, finished, text

HEAD = f'"id":"chatcmpl-{TRACE}","object":"chat.completion.chunk","created":5,"model":"m"'


def opened(choices: int = 1, kind: Any = "chat", **options: Any) -> StreamWriter:
    writer = StreamWriter(Outcome(choices, "asked"), kind, 5, **options)
    assert writer.feed([Started("r", TRACE, "m", "a")]) == b""
    return writer


def events(data: bytes) -> list[Any]:
    parts = data.decode().split("\n\n")
    assert parts.pop() == ""
    return [json.loads(part.removeprefix("data: ")) for part in parts if part != "data: [DONE]"]


def test_the_bytes_of_a_delta() -> None:
    writer = opened()
    first = f'data: {{{HEAD},"choices":[{{"index":0,"delta":{{"role":"assistant","content":""}},'
    delta = f'data: {{{HEAD},"choices":[{{"index":0,"delta":{{"content":"a\\"é"}},'
    quiet = '"logprobs":null,"finish_reason":null}]}\n\n'
    assert writer.feed([text('a"é')]).decode() == first + quiet + delta + quiet
    assert writer.feed([text('a"é'), text('a"é')]).decode() == (delta + quiet) * 2
    assert writer.feed([]) == b""


def test_the_bytes_of_the_end() -> None:
    writer = opened(usage=True)
    assert writer.feed([text("a")]).count(b',"usage":null}\n\n') == 2
    assert writer.feed([finished(matched_stop=" is")]) == b""
    *_, finish, usage = events(writer.end())
    assert finish["choices"] == [
        {"index": 0, "delta": {}, "logprobs": None, "finish_reason": "stop", "stop_reason": " is"}
    ]
    assert finish["usage"] is None
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens_details"] == {"reasoning_tokens": 1}
    assert usage["outguard"]["trace_id"] == TRACE


def test_an_answer_without_any_text_has_its_role_and_its_end() -> None:
    writer = opened()
    assert writer.feed([finished()]) == b""
    role, finish = events(writer.end())
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert finish["choices"][0]["finish_reason"] == "stop"


def test_token_ids_where_they_were_asked_for() -> None:
    writer = opened(token_ids=True)
    _, with_ids, without = events(writer.feed([text("a", token_ids=(5, 6)), text("b")]))
    assert with_ids["choices"][0]["token_ids"] == [5, 6]
    assert without["choices"][0]["token_ids"] is None
    whole = AnswerWriter(Outcome(1, "m"), "chat", 5, token_ids=True)
    whole.feed([text("a", token_ids=(5, 6)), text("b", token_ids=(7,)), finished()])
    assert json.loads(whole.body())["choices"][0]["token_ids"] == [5, 6, 7]
    plain = opened()
    assert b"token_ids" not in plain.feed([text("a", token_ids=(5, 6))])


def test_refusals_have_their_own_log_probabilities() -> None:
    entry = {"token": "a", "logprob": -1.0, "bytes": None, "top_logprobs": []}
    _, refusal, thought = events(
        opened().feed(
            [text("a", channel="refusal", logprobs=[entry]), text("a", channel="reasoning", logprobs=[entry])]
        )
    )
    assert refusal["choices"][0]["logprobs"] == {"content": None, "refusal": [entry]}
    assert thought["choices"][0]["delta"] == {"reasoning_content": "a"}
    assert thought["choices"][0]["logprobs"] == {"content": [entry], "refusal": None}


def test_the_older_shape_of_log_probabilities() -> None:
    entries = [
        {
            "token": "é",
            "logprob": -1.0,
            "top_logprobs": [{"token": "é", "logprob": -1.0}, {"token": "e", "logprob": -2}],
        },
        {"token": "ab", "logprob": -0.5, "top_logprobs": []},
    ]
    lists = LegacyLogprobs().take(entries)
    assert lists == {
        "tokens": ["é", "ab"],
        "token_logprobs": [-1.0, -0.5],
        "top_logprobs": [{"é": -1.0, "e": -2}, {"ab": -0.5}],
        "text_offset": [0, 1],
    }


def test_reasoning_of_a_completion_is_not_lost() -> None:
    (chunk,) = events(opened(kind="completion").feed([text("hm", channel="reasoning")]))
    assert chunk["choices"][0]["text"] == ""
    assert chunk["choices"][0]["reasoning_content"] == "hm"


def test_the_failure_told_is_a_servers_before_a_callers() -> None:
    outcome = Outcome(3, "m")
    for event in (failed("engine_rejected", 0), failed("collapsed", 2), finished(1)):
        outcome.note(event)
    failure = outcome.failure()
    assert isinstance(failure, Failed)
    assert failure.choice == 2


def test_evidence_is_bounded() -> None:
    outcome = Outcome(1, "m")
    for number in range(1000):
        outcome.note(Found(0, Finding("leak.control", "info", "a token"), "a", number))
    told = outcome.extension()
    assert len(told["findings"]) == MAX_NOTES
    assert told["omitted"] == 1000 - MAX_NOTES


def test_what_is_not_known_of_an_unended_choice_is_not_counted() -> None:
    outcome = Outcome(2, "m")
    outcome.note(Failed(0, "collapsed", "x", 3, usage=Usage(5, 2, 7)))
    outcome.close()
    assert outcome.extension()["attempts"] == 3
    assert [verdict["error"] for verdict in outcome.extension()["verdicts"]] == ["collapsed", "internal"]


@pytest.mark.parametrize("kind", ["chat", "completion"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_how_events_are_batched_does_not_matter(kind: Any, data: st.DataObject) -> None:
    choices = data.draw(st.integers(1, 3))
    channels = ["content", "reasoning", "refusal"] if kind == "chat" else ["content"]
    choice = st.integers(0, choices - 1)
    piece = st.builds(text, st.text(max_size=5), choice, st.sampled_from(channels))
    call = st.builds(ToolRelease, choice, st.integers(0, 2), st.text(max_size=4), st.just("i"), st.just("f"))
    said: list[Any] = data.draw(st.lists(piece | call if kind == "chat" else piece, max_size=12))
    script: list[GuardEvent] = [*said, *(finished(index) for index in range(choices))]

    def play(cuts: set[int]) -> bytes:
        writer = opened(choices, kind, usage=True)
        out, batch = b"", []
        for index, event in enumerate(script):
            batch.append(event)
            if index in cuts:
                out += writer.feed(batch)
                batch = []
        return out + writer.feed(batch) + writer.end()

    cuts = data.draw(st.sets(st.integers(0, len(script))))
    streamed = play(cuts)
    assert streamed == play(set()) == play(set(range(len(script))))

    # and a stream says the same as a whole answer
    whole = AnswerWriter(Outcome(choices, "m"), kind, 5)
    whole.feed(script)
    told = json.loads(whole.body())["choices"]
    for index in range(choices):
        mine = [
            one.get("delta", one) for chunk in events(streamed) for one in chunk["choices"] if one["index"] == index
        ]
        field = "content" if kind == "chat" else "text"
        message = told[index].get("message", told[index])
        assert "".join(delta.get(field) or "" for delta in mine) == (message[field] or "")
        assert "".join(delta.get("reasoning_content") or "" for delta in mine) == message.get("reasoning_content", "")
        calls: dict[int, str] = {}
        for delta in mine:
            for piece_of_call in delta.get("tool_calls", []):
                at = piece_of_call["index"]
                calls[at] = calls.get(at, "") + piece_of_call["function"]["arguments"]
        found = message.get("tool_calls", [])
        assert [calls[at] for at in sorted(calls)] == [one["function"]["arguments"] for one in found]


def test_a_custom_tools_call_has_its_own_shape() -> None:
    pieces = [
        ToolRelease(0, 0, "ls ", "call_1", "shell"),
        ToolRelease(0, 1, '{"a":', "call_2", "look_up"),
        ToolRelease(0, 0, '"-l"'),
        ToolRelease(0, 1, "1}"),
    ]
    outcome = Outcome(1, "m", custom=["shell"])
    _, *sent = events(StreamWriter(outcome, "chat", 5).feed(pieces))
    deltas = [event["choices"][0]["delta"]["tool_calls"][0] for event in sent]
    assert deltas[0] == {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "shell", "input": "ls "}}
    assert deltas[1]["function"] == {"name": "look_up", "arguments": '{"a":'}
    assert deltas[2:] == [
        {"index": 0, "custom": {"input": '"-l"'}},
        {"index": 1, "function": {"arguments": "1}"}},
    ]
    whole = AnswerWriter(Outcome(1, "m", custom=["shell"]), "chat", 5)
    whole.feed([*pieces, finished()])
    shell, look_up = json.loads(whole.body())["choices"][0]["message"]["tool_calls"]
    assert shell == {"id": "call_1", "type": "custom", "custom": {"name": "shell", "input": 'ls "-l"'}}
    assert look_up["function"] == {"name": "look_up", "arguments": '{"a":1}'}
    ChatCompletion.model_validate_json(whole.body())
