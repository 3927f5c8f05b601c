"""An engine that collapses, dies or is left alone in the middle of an answer."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import engine_process
import openai
import pytest
from engine_process import LlamaCpp, requests_processing, start_engine
from sidecar_process import Sidecar, until

from guard.client import CallError
from guard.events import Finished, Recovery, Release

pytestmark = pytest.mark.engine

STORY = [{"role": "user", "content": "Write a long story about a lighthouse keeper who finds a message in a bottle."}]
LONG = {"messages": STORY, "temperature": 0, "max_tokens": 400}


def test_a_collapse_is_gone_on_from(sidecar: Sidecar) -> None:
    """The fault begins at the 40th piece. The caller sees no more than the clean prefix, then the continuation; the
    trace has both attempts, where the collapse began, and where the second went on."""
    with sidecar.client() as client:
        generation = client.generate("from-shaky", STORY, temperature=0, max_tokens=90, timeout=60)
        before: list[str] = []
        after: list[str] = []
        kinds: list[type] = []
        for event in generation:
            kinds.append(type(event))
            if isinstance(event, Release):
                (after if generation.recoveries else before).append(event.text)
    assert (kinds.count(Recovery), kinds.count(Finished), kinds[-1]) == (1, 1, Finished)
    clean, rest = "".join(before), "".join(after)
    # it need not say the same: a prompt in a cache is rounded otherwise than one that is read (test_splice.py compares)
    whole = sidecar.post({"model": "steady", "messages": STORY, "temperature": 0, "max_tokens": 90})
    assert clean.strip()
    assert "!!" not in clean + rest
    assert len(before) <= 40
    assert rest
    recovery = generation.recoveries[0]
    assert (recovery.action, recovery.from_engine, recovery.to_engine) == ("resume", "shaky", "steady")
    assert recovery.offset == len(clean)
    assert generation.finished[0].attempts == 2
    usage = generation.finished[0].usage
    assert usage.prompt_tokens == whole.json["usage"]["prompt_tokens"]  # the prefix is no part of it
    assert usage.completion_tokens <= 90

    shown = sidecar.outguard("traces", "show", generation.trace_id, "--json")
    assert shown.returncode == 0, shown.stderr
    trace = json.loads(shown.stdout)
    assert (trace["outcome"], trace["recovered"], trace["output_text"]) == ("ok", True, clean + rest)
    first, second = trace["attempts"]
    assert (first["engine"], first["outcome"], first["action"]) == ("shaky", "condemned", "resume")
    assert (first["error_kind"], first["onset"]) == ("repetition.single_token", len(clean))
    assert [finding["onset"] for finding in first["findings"] if finding["severity"] == "error"] == [len(clean)]
    assert (second["engine"], second["outcome"], second["resumed_at"]) == ("steady", "ok", len(clean))


def test_a_collapse_with_nowhere_to_go(sidecar: Sidecar) -> None:
    """The one engine there is collapses again and again: an error, and no finish reason."""
    answer = sidecar.post({"model": "shaky", **LONG, "stream": True})
    assert answer.cut
    assert answer.error["code"] == "collapsed"
    assert "[DONE]" not in answer.events
    assert all(c["finish_reason"] is None for event in answer.events[:-1] for c in event["choices"])
    assert answer.content
    assert "!!" not in answer.content


def test_a_collapse_of_a_whole_answer(sidecar: Sidecar) -> None:
    """A caller that does not stream holds nothing yet: it gets a whole answer, and nothing of the collapse."""
    answer = sidecar.post({"model": "from-shaky", "messages": STORY, "temperature": 0, "max_tokens": 90})
    assert answer.status == 200, answer.text
    assert "!!" not in answer.content
    assert [r["from_engine"] for r in answer.json["outguard"]["recoveries"]] == ["shaky"]
    assert answer.json["choices"][0]["finish_reason"] in ("stop", "length")


# --- engines that die ------------------------------------------------------------------------------------------------


class Pair:
    def __init__(self, sidecar: Sidecar, primary: LlamaCpp, second: LlamaCpp) -> None:
        self.sidecar, self.primary, self.second = sidecar, primary, second


@pytest.fixture
def pair(engine: LlamaCpp, tmp_path: Path) -> Iterator[Pair]:
    """Two engines of this test's own."""
    if reason := engine_process.missing():
        pytest.skip(reason)
    with ThreadPoolExecutor() as pool:
        engines = list(pool.map(lambda _: start_engine(parallel=2, context=4096, threads=1), range(2)))
    with Sidecar(tmp_path, {"primary": engines[0].url, "second": engines[1].url}) as sidecar:
        yield Pair(sidecar, *engines)
    for one in engines:
        one.stop()


def test_the_primary_is_killed_and_then_the_second(pair: Pair) -> None:
    sidecar = pair.sidecar
    with sidecar.client() as client:
        generation = client.generate("m", STORY, temperature=0, max_tokens=70, timeout=60)
        last, gap = time.monotonic(), 0.0
        for event in generation:
            now = time.monotonic()
            if isinstance(event, Release):
                if generation.recoveries and not gap:
                    gap = now - last
                last = now
                if len(generation.received()) > 60 and pair.primary.alive:
                    pair.primary.kill()
    assert [(r.action, r.reason, r.to_engine) for r in generation.recoveries] == [("resume", "stream.cut", "second")]
    assert generation.finished[0].reason in ("stop", "length")
    assert generation.finished[0].usage.completion_tokens > 30
    assert gap < 5  # what the caller saw of it: the second engine reading the prompt and the prefix
    print(f"recovery gap seen by the caller: {gap * 1e3:.0f} ms")

    # the next one finds the primary down, and nobody notices
    answer = sidecar.openai.chat.completions.create(model="m", messages=STORY, temperature=0, max_tokens=5)
    assert answer.choices[0].message.content
    assert [r["reason"] for r in answer.model_extra["outguard"]["recoveries"]] == ["open.connect"]

    # and the second dies in mid-stream, with nothing left behind it
    pieces: list[str] = []
    reasons: list[Any] = []

    def read() -> None:
        for piece in sidecar.openai.chat.completions.create(model="m", **LONG, stream=True):
            pieces.append(piece.choices[0].delta.content or "")
            reasons.append(piece.choices[0].finish_reason)
            if len(pieces) == 10:
                pair.second.kill()

    with pytest.raises(openai.APIError) as caught:
        read()
    assert caught.value.code in ("stream_cut", "engine_unavailable")
    assert "".join(pieces)
    assert set(reasons) == {None}

    # with both gone: in both protocols, whole and streamed
    for stream in (False, True):
        with pytest.raises(openai.APIStatusError) as refused:
            sidecar.openai.chat.completions.create(model="m", messages=STORY, stream=stream)
        assert (refused.value.status_code, refused.value.code) == (503, "engine_unavailable")
    with sidecar.client() as client, pytest.raises(CallError) as call:
        client.generate("m", STORY, timeout=20).read()
    assert (call.value.status, call.value.code) == ("UNAVAILABLE", "engine_unavailable")
    record = sidecar.trace(call.value.trace_id)
    assert (record.outcome, record.error_code) == ("failed", "engine_unavailable")
    assert {a.outcome for a in record.attempts} <= {"refused"}  # none where the breakers are open by now


# --- callers that leave ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["http stream", "http whole", "grpc"])
def test_a_caller_that_leaves_ends_the_engines_work(sidecar: Sidecar, engine: LlamaCpp, how: str) -> None:
    assert until(lambda: requests_processing(engine.url) == 0, 20)
    before = {row.trace_id for row in sidecar.reader.list_requests(1000)}
    asked = {"model": "steady", **LONG}
    if how == "grpc":
        with sidecar.client() as client:
            generation = client.generate("steady", STORY, temperature=0, max_tokens=400, timeout=60)
            for event in generation:
                if isinstance(event, Release) and len(generation.received()) > 20:
                    break
            left = time.monotonic()
            generation.cancel()
    else:
        import socket

        host, port = sidecar.http.removeprefix("http://").split(":")
        body = json.dumps({**asked, "stream": how.endswith("stream")}).encode()
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
            connection.sendall(head.encode() + body)
            if how.endswith("stream"):
                connection.recv(1)
            assert until(lambda: requests_processing(engine.url) > 0)
            left = time.monotonic()
    assert until(lambda: requests_processing(engine.url) == 0, 5)
    waited = time.monotonic() - left
    print(f"{how}: the engine was idle after {waited * 1e3:.0f} ms")
    assert waited < 1

    def row() -> Any:
        sidecar.reader.flush()
        new = [one for one in sidecar.reader.list_requests(1000) if one.trace_id not in before]
        return new[0] if new else None

    record = sidecar.trace(until(row).trace_id)
    assert record.outcome == "cancelled"
    assert [(a.outcome, a.action) for a in record.attempts] == [("cancelled", "stop")]
    assert record.finish_reason == ""
