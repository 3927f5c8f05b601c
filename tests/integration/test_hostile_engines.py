"""Engines that break, lie, stall and babble. Whatever they send, a caller gets a good answer of the other engine, the
same answer in both protocols, or an error that says what happened; and every row is kept."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from replay_server import Reply, broken_streams, chunk, inside_characters, sse
from sidecar_process import ASK, Played, Sidecar

from guard.client import CallError

Stage = tuple[Sidecar, Played, Played]
STOP = chunk(finish="stop")
JSON = {"content-type": "application/json"}


def _says(content: Any = "x", **more: Any) -> dict[str, Any]:
    return {"id": "1", "model": "m", "choices": [{"index": 0, "delta": {"content": content}, **more}]}


def _counts(**usage: Any) -> dict[str, Any]:
    return {"choices": [], "usage": usage}


def _entry(**entry: Any) -> bytes:
    whole = {"token": "x", "logprob": -1.0, "bytes": None, "top_logprobs": [], **entry}
    return sse(_says(logprobs={"content": [whole]}), STOP)


def _busy(status: int, retry_after: str) -> Reply:
    body = b'{"error": {"message": "busy"}}'
    return Reply(body, status, {**JSON, "retry-after": retry_after}, framing="length")


# --- one of two is broken --------------------------------------------------------------------------------------------

HELP_COMES = {
    **broken_streams(),
    "nothing at all": Reply(b""),
    "done and nothing else": Reply(sse()),
    "no finish reason": Reply(sse(chunk("Hel"))),
    "an error event": Reply(sse(chunk("Hel"), {"error": {"message": "CUDA error", "code": 500}})),
    "a head that never comes": Reply(sse(chunk("Hel"), STOP), head_delay=4),
    "silence in the middle": Reply(sse(chunk("Hel"), done=False), end="hang"),
    "a redirect": Reply(b"", 302, {"location": "http://127.0.0.1:1/"}, framing="length"),
    "not found": Reply(b'{"detail": "no such model"}', 404, JSON, framing="length"),
    "a crash": Reply(b"oops", 500, {}, framing="length"),
    "busy": _busy(429, "30"),
    "a call of no tool": Reply(
        sse(
            chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]),
            chunk(finish="tool_calls"),
        )
    ),
    "thoughts without an answer": Reply(sse(chunk(reasoning_content="Hmm."), STOP)),
    "one token for ever": Reply(sse(*[chunk("!")] * 200, chunk(finish="length"))),
    "empty": Reply(sse(chunk(""), STOP)),
    "white space": Reply(sse(*[chunk("\n")] * 100, chunk(finish="length"))),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("what", HELP_COMES)
def test_the_other_engine_takes_over(stage: Stage, what: str, stream: bool) -> None:
    sidecar, one, two = stage
    one.play(HELP_COMES[what])
    began = time.monotonic()
    answer = sidecar.post({"stream": stream})
    if what.startswith("thoughts") and stream:  # they have left, and no chat engine can go on from the middle of them
        assert answer.cut
        assert answer.error["code"] == "collapsed"
        return
    assert answer.status == 200, answer.text
    assert not answer.cut
    assert answer.content in ("All is well.", "HelAll is well.")
    assert len(two.asked) == 1
    assert time.monotonic() - began < 3
    if not stream:
        record = sidecar.trace(answer.headers["x-outguard-trace-id"])
        assert (record.outcome, record.recovered) == ("ok", True)
        assert [a.engine for a in record.attempts if a.outcome == "ok"] == ["two"]
        assert record.output_text == answer.content


# --- numbers and names that cannot be --------------------------------------------------------------------------------

NUMBERS = {
    "usage below zero": sse(_says(), STOP, _counts(prompt_tokens=-5, completion_tokens=-1, total_tokens=-2)),
    "usage beyond 32 bits": sse(_says(), STOP, _counts(prompt_tokens=2**40, completion_tokens=2**50)),
    "usage beyond 64 bits": sse(
        _says(),
        STOP,
        _counts(
            prompt_tokens=10**30,
            completion_tokens=10**30,
            prompt_tokens_details={"cached_tokens": 10**30},
            completion_tokens_details={"reasoning_tokens": -(10**30)},
        ),
    ),
    "usage of another kind": sse(_says(), STOP, _counts(prompt_tokens=1e300, completion_tokens="many")),
    "ids below zero": sse(_says(token_ids=[-1]), STOP),
    "ids beyond 32 bits": sse(_says(token_ids=[2**33]), STOP),
    "ids beyond 64 bits": sse(_says(token_ids=[10**30]), STOP),
    "ids that are text": sse(_says(token_ids=["a"]), STOP),
    "an entry's id": _entry(id=10**30),
    "alternatives of another kind": _entry(top_logprobs=[5, None, {"logprob": "x"}, {"token": 7, "logprob": 10**400}]),
    "alternatives that are none": _entry(top_logprobs="zz"),
    "a token that is a number": _entry(token=5),
    "bytes that are none": _entry(bytes=[999, -1]),
    "a stop token beyond all bits": sse(_says(), _says(None, finish_reason="stop", stop_reason=10**30)),
    "ids of the prompt": sse({**_says(), "prompt_token_ids": [10**30]}, STOP),
    "names of a megabyte": sse({**_says(), "id": "i" * 10**6, "model": "m" * 10**6}, STOP),
    "names of half a character": sse(json.dumps({**_says(), "id": "\ud800", "model": "\udfff"}), STOP),
    "another index": sse({"choices": [{"index": 7, "delta": {"content": "x"}, "finish_reason": "stop"}]}),
    "an index beyond all bits": sse({"choices": [{"index": 10**30, "delta": {"content": "x"}}]}, STOP),
}


@pytest.mark.parametrize("what", NUMBERS)
def test_what_cannot_be_does_no_harm(stage: Stage, what: str) -> None:
    sidecar, one, _ = stage
    one.play(Reply(NUMBERS[what]))
    asked = {"logprobs": True, "top_logprobs": 2, "return_token_ids": True}
    answers = [sidecar.post({"model": "one", "stream": stream, **asked}) for stream in (False, True)]
    for answer in answers:
        assert answer.status == 200, answer.text
        assert (answer.cut, answer.content) == (False, "x")
    with sidecar.client() as client:
        generation = client.generate("one", ASK, logprobs=True, top_logprobs=2, return_token_ids=True, timeout=20)
        assert generation.text() == "x"
    for trace_id in (*(answer.headers["x-outguard-trace-id"] for answer in answers), generation.trace_id):
        record = sidecar.trace(trace_id)
        assert (record.outcome, len(record.attempts)) == ("ok", 1)
        assert len(record.attempts[0].engine_model) < 1000
    assert len(answers[0].body) < 10_000


def test_a_logprob_that_is_no_number_is_a_finding(stage: Stage) -> None:
    sidecar, one, _ = stage
    for bad in ("x", None, 10**400):
        one.play(Reply(_entry(logprob=bad)))
        answer = sidecar.post({"model": "one", "logprobs": True})
        assert answer.status in (200, 502), answer.text
        findings = (answer.json if answer.status == 200 else answer.error)["outguard"]["findings"]
        assert any("logprob" in finding["message"] for finding in findings)


# --- text of every kind ----------------------------------------------------------------------------------------------

TEXTS = {
    "beyond ASCII": "日本語 – Ærøskøbing – 🗼👨‍👩‍👧 – עברית – e\u0301",
    "controls": "a\x0bb\x1b[0m\x0c\x07\r\n\u2028\u2029c\x1f",
    "looks like the protocol": "data: [DONE]\n\ndata: {}\n\nevent: error\n",
    "looks like JSON": '{"a": "\\u0000", "b": "\\"}"}',
    "long": " ".join(random.Random(1).choices(["lamp", "keeper", "sea", "letter", "storm", "night", "boat"], k=40)),
}


@pytest.mark.parametrize("what", TEXTS)
def test_text_comes_out_as_it_went_in(stage: Stage, what: str) -> None:
    """In both protocols, whole and streamed, however the bytes were cut."""
    sidecar, one, _ = stage
    text = TEXTS[what]
    thirds = [text[i : i + max(1, len(text) // 3)] for i in range(0, len(text), max(1, len(text) // 3))]
    body = sse(*map(chunk, thirds), STOP)
    for how in ({"every": 1}, {"cuts": inside_characters(body)}, {}):
        one.play(Reply(body, **how))
        for stream in (False, True):
            assert sidecar.post({"model": "one", "stream": stream}).content == text
    with sidecar.client() as client:
        assert client.generate("one", ASK, timeout=20).text() == text
    pieces = sidecar.openai.chat.completions.create(model="one", messages=ASK, stream=True)
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == text


def test_surrogates_that_come_apart(stage: Stage) -> None:
    sidecar, one, _ = stage
    halves = [json.dumps(_says(half)) for half in ("a\ud83d", "\uddfc b")]
    one.play(Reply(sse(*halves, STOP)))
    assert sidecar.post({"model": "one"}).content == "a🗼 b"
    one.play(Reply(sse(halves[0], STOP)))
    assert sidecar.post({"model": "one", "stream": True}).content == "a\ufffd"


def test_a_prompt_of_200_000_characters(stage: Stage) -> None:
    sidecar, one, _ = stage
    prompt = " ".join(random.Random(2).choices(["lamp", "keeper", "sea", "ключ", "灯台"], k=45_000))[:200_000]
    messages = [{"role": "user", "content": prompt}]
    began = time.monotonic()
    assert sidecar.post({"messages": messages}).content == "All is well."
    with sidecar.client() as client:
        assert client.generate("m", messages, timeout=20).text() == "All is well."
    assert time.monotonic() - began < 3
    assert [body["messages"] for body in one.asked] == [messages] * 2


def test_a_flood(stage: Stage) -> None:
    """An answer of 20,000 pieces in one go, and one of a single piece of a megabyte: as they are, and in a while."""
    sidecar, one, _ = stage
    rng = random.Random(3)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(rng.choices(letters, k=rng.randint(3, 9))) + " " for _ in range(150_000)]
    for pieces in (words[:20_000], ["".join(words)]):
        one.play(Reply(sse(*map(chunk, pieces), STOP)))
        began = time.monotonic()
        assert sidecar.post({"model": "one", "stream": True}).content == "".join(pieces)
        assert time.monotonic() - began < 10


# --- errors --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [False, True])
def test_patience_has_an_end(stage: Stage, stream: bool) -> None:
    """An engine that asks for minutes is not waited for: the caller hears how long."""
    sidecar, one, two = stage
    one.play(_busy(503, "300"))
    two.play(_busy(429, "120"))
    began = time.monotonic()
    answer = sidecar.post({"stream": stream})
    assert time.monotonic() - began < 1
    assert (answer.status, answer.error["code"]) == (429, "overloaded")
    assert int(answer.headers["retry-after"]) >= 120
    one.play(_busy(429, "1"), Reply(sse(chunk("Now."), STOP)))
    two.play(_busy(429, "1"))
    assert sidecar.post({"stream": stream}).content == "Now."


def test_a_refusal_of_the_engine_is_passed_on(stage: Stage) -> None:
    sidecar, one, two = stage
    refusal = Reply(b'{"error": {"message": "the context is too long", "code": 400}}', 400, JSON, framing="length")
    one.play(refusal)
    answer = sidecar.post()
    assert (answer.status, answer.error["code"]) == (400, "engine_rejected")
    assert answer.error["message"] == "the context is too long"
    assert not two.asked
    with sidecar.client() as client, pytest.raises(CallError) as caught:
        client.generate("m", ASK, timeout=20).read()
    assert (caught.value.status, caught.value.code) == ("INVALID_ARGUMENT", "engine_rejected")


def test_an_error_is_of_bounded_length(stage: Stage) -> None:
    sidecar, one, _ = stage
    for reply in (
        Reply(sse(chunk("a"), {"error": {"message": "CUDA " * 100_000}})),
        Reply(json.dumps({"error": {"message": "CUDA " * 100_000}}).encode(), 500, JSON, framing="length"),
    ):
        one.play(reply)
        answer = sidecar.post({"model": "one"})
        assert answer.status == 502
        assert "CUDA" in answer.error["message"]
        assert len(answer.error["message"]) < 5000
        with sidecar.client() as client, pytest.raises(CallError) as caught:
            client.generate("one", ASK, timeout=20).read()
        assert caught.value.code == "engine_error"


def test_one_choice_of_several_fails(stage: Stage) -> None:
    """Streamed, the others are whole and the error comes at the end; whole, it is an error; in gRPC it is an event."""
    sidecar, one, _ = stage
    loop = Reply(sse(*[chunk("!")] * 100, chunk(finish="length")))
    good = Reply(sse(chunk("All is well."), STOP))
    one.play(good, loop)
    with sidecar.client() as client:
        generation = client.generate("one", ASK, n=2, timeout=20).read()
    assert len(generation.finished) == len(generation.failed) == 1
    (lived,), (died,) = generation.finished, generation.failed
    assert generation.received(lived) == "All is well."
    assert generation.failed[died].code == "collapsed"
    one.play(good, loop)
    answer = sidecar.post({"model": "one", "n": 2, "stream": True})
    assert answer.cut
    assert answer.error["code"] == "collapsed"
    reasons = [c["finish_reason"] for e in answer.events[:-1] for c in e["choices"] if c["finish_reason"]]
    assert reasons == ["stop"]
    one.play(good, loop)
    assert sidecar.post({"model": "one", "n": 2}).error["code"] == "collapsed"


def test_a_stream_of_the_callers_own(stage: Stage) -> None:
    """Checked, not generated: the same guard, no engine, a row of its own."""
    sidecar, one, _ = stage
    good = sse(chunk("All is"), chunk(" well."), STOP)
    loop = sse(chunk("All is"), *[chunk("!")] * 100, STOP)
    with sidecar.client() as client:
        passed = client.check([good[:30], good[30:]], "m", ASK, timeout=20)
        assert passed.text() == "All is well."
        assert passed.finished[0].reason == "stop"
        blocked = client.check([loop], "m", ASK, timeout=20).read()
        assert blocked.failed[0].code == "collapsed"
        assert "!!" not in blocked.received()
        cut = client.check([sse(chunk("All is"), done=False)], "m", ASK, timeout=20).read()
        assert cut.failed[0].code == "stream_cut"
        assert client.check([], "m", ASK, timeout=20).read().failed
    assert not one.asked
    assert [sidecar.trace(each.trace_id).outcome for each in (passed, blocked, cut)] == ["ok", "failed", "failed"]
