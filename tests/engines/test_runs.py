"""Chunks that are taken by their bytes say what they say when each is decoded, wherever the stream is cut."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from joining import joined

from guard.engines.openai_reader import OpenAIReader, read_stream
from guard.engines.runs import Runs
from guard.events import REASONING, StreamEvent, TextDelta

HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
PIECES = [
    "the",
    " of",
    "\n\n",
    "“x”",
    "é",
    "\\n",
    '"',
    "",
    "\U0001f600",
    "\x7f",
    "</s>",
    "\\",
    "\t",
    "data: ",
    "outguard",
]


def chunk(delta: dict[str, Any], ascii_: bool = True, finish: str | None = None, index: int = 0) -> bytes:
    choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
    data = json.dumps({**HEAD, "choices": [choice]}, ensure_ascii=ascii_, separators=(",", ":"))
    return b"data: " + data.encode() + b"\n\n"


ODD = [
    chunk({"content": "x"}, finish="stop"),
    chunk({"content": "x"}, index=1),
    chunk({"content": "x", "reasoning_content": "y"}),
    chunk({"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]}),
    b": a comment\n\n",
    b'data: {"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n',
    b'data: {"error":{"message":"out of memory"}}\n\n',
    chunk({"content": "@"}).replace(b"@", b"\\ud83d"),
    chunk({"content": "@"}).replace(b"@", b"\\ude00"),
    chunk({"content": "@"}).replace(b"@", b"\xc3"),
    chunk({"content": "@"}).replace(b"@", b"\xa9"),
    chunk({"content": "@"}).replace(b"@", b"a\x01b"),
    chunk({"content": "@"}).replace(b"@", b'a","b":"c'),
    chunk({"content": "@"}).replace(b"@", b"a\\qb"),
    chunk({"content": "a"}).replace(b"\n\n", b"\r\n\r\n"),
    b"<html>\n\n",
]


def stream(rng: Random, field: str) -> bytes:
    events = [chunk({"role": "assistant", "content": ""})]
    for _ in range(rng.randrange(80)):
        text = rng.choice(PIECES) if rng.random() < 0.3 else f" word{rng.randrange(9)}"
        events.append(chunk({field: text}, rng.random() < 0.5))
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        events.insert(rng.randrange(1, len(events) + 1), rng.choice(ODD))
    return b"".join(events) + b"data: [DONE]\n\n"


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
@pytest.mark.parametrize("seed", range(100))
def test_a_run_says_what_its_chunks_say(seed: int, field: str) -> None:
    rng = Random(seed)
    body = stream(rng, field)
    expected = joined(read_stream(body))
    for _ in range(3):
        reader, seen, at = OpenAIReader(joins=True), [], 0
        while at < len(body):
            size = rng.choice((len(body), 3000, rng.randrange(1, 6000)))
            seen += reader.feed(body[at : at + size])
            at += size
        seen += reader.end()
        assert joined(seen) == expected


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
@pytest.mark.parametrize("seed", range(100))
def test_a_chunk_that_comes_alone_says_what_it_says_when_it_is_decoded(seed: int, field: str) -> None:
    body = stream(Random(seed), field)
    reader, plain = OpenAIReader(joins=True), OpenAIReader()
    for event in body.split(b"\n\n"):
        assert joined(reader.feed(event + b"\n\n")) == joined(plain.feed(event + b"\n\n"))
    assert reader.end() == plain.end()


def test_what_a_run_is_is_not_learnt_again_and_again() -> None:
    """A stream of which no chunk is like the one before is read in the ordinary way, at little more cost."""
    runs, parsed = Runs(), 0

    def parse(data: bytes, out: list[StreamEvent]) -> None:
        nonlocal parsed
        parsed += 1
        out.append(TextDelta(0, "content", json.loads(data)["text"]))

    for number in range(1000):
        data = json.dumps({"number": number, "text": "word"}).encode()
        out: list[StreamEvent] = []
        if not runs.one(b"data: " + data + b"\n\n", out):
            runs.wonder(data, [TextDelta(0, "content", "word")], parse)
    assert parsed < 20


@pytest.mark.parametrize(("field", "channel"), [("content", "content"), ("reasoning_content", REASONING)])
def test_a_run_is_one_delta_that_counts_its_tokens(field: str, channel: str) -> None:
    body = b"".join(chunk({field: text}) for text in ["Hello", *([" my", " dear", ""] * 20)])
    reader = OpenAIReader(joins=True)
    assert reader.feed(chunk({"role": "assistant", "content": ""}))
    deltas = [event for event in reader.feed(body) if isinstance(event, TextDelta)]
    assert len(deltas) < 6
    assert {delta.channel for delta in deltas} == {channel}
    assert "".join(delta.text for delta in deltas) == "Hello" + " my dear" * 20
    assert sum(delta.count for delta in deltas) == 41


def test_log_probabilities_and_token_ids_stay_with_their_tokens() -> None:
    entry = {"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}
    named = [
        {**HEAD, "choices": [{"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [entry]}}]},
        {**HEAD, "choices": [{"index": 0, "delta": {"content": "a"}, "token_ids": [7]}]},
    ]
    for one in named:
        body = b"".join(b"data: " + json.dumps(one).encode() + b"\n\n" for _ in range(60))
        assert OpenAIReader(joins=True).feed(body) == read_stream(body)[:-1]
