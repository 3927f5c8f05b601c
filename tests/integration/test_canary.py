"""A word that nobody may keep goes every way through the sidecar, in both protocols, and is looked for everywhere.

Prompts, answers, reasoning, tool calls and their arguments, schemas, errors of the engine and of the caller, bytes that
no parser can read: under ``none`` and under ``hash`` no byte of it is in the store, the spool, what was set aside, the
logs, the metrics page, or what goes to a collector. Under ``full`` it is found, so the search works.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from replay_server import Reply, chunk, sse
from sidecar_process import Played, Sidecar, played, until

from guard.client import CallError

CANARY = "Quokka7391Zebu"
HEARD = f"the {CANARY} of the house"
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": HEARD,
        "parameters": {"type": "object", "properties": {f"p_{CANARY}": {"enum": [CANARY]}}, "required": ["other"]},
    },
}
SCHEMA = {"type": "object", "properties": {CANARY: {"const": CANARY}}, "required": [CANARY, f"not_{CANARY}"]}
ASK = [{"role": "system", "content": HEARD}, {"role": "user", "content": f"Say {CANARY}."}]
CALL = {
    "index": 0,
    "id": "call_1",
    "type": "function",
    "function": {"name": "look", "arguments": json.dumps({CANARY: 1})},
}
ERROR = json.dumps({"error": {"message": HEARD, "type": CANARY, "code": CANARY, "param": CANARY}}).encode()
JSON = {"content-type": "application/json"}

REPLIES = {
    "an answer": Reply(sse(chunk(f"{HEARD}. "), chunk(CANARY), chunk(finish="stop"))),
    "reasoning": Reply(sse(chunk(reasoning_content=HEARD), chunk("yes"), chunk(finish="stop"))),
    "a tool call": Reply(sse(chunk(tool_calls=[CALL]), chunk(finish="tool_calls"))),
    "a call in the text": Reply(sse(chunk(f"<tool_call>{{{CANARY}</tool_call>"), chunk(finish="stop"))),
    "a loop": Reply(sse(*[chunk(f"{CANARY} ") for _ in range(80)], chunk(finish="stop"))),
    "a broken document": Reply(sse(chunk('{"' + CANARY + '": "' + CANARY), chunk(finish="stop"))),
    "an odd finish": Reply(sse(chunk(CANARY), chunk(finish=CANARY))),
    "an error in the stream": Reply(sse(chunk(CANARY), json.loads(ERROR), done=False)),
    "an error instead": Reply(ERROR, 400, JSON, framing="length"),
    "a failure": Reply(ERROR, 500, JSON, framing="length"),
    "no JSON": Reply(b"data: {" + CANARY.encode() + b"\n\n" + CANARY.encode() + b": x\n\n"),
    "no text": Reply(sse(b'{"choices": [{"delta": {"content": "\xff' + CANARY.encode() + b'"}}]}')),
    "the wrong types": Reply(sse({"choices": [{"index": CANARY, "delta": {"content": [CANARY]}}], "model": HEARD})),
    "a cut": Reply(sse(chunk(CANARY), chunk(CANARY), done=False), end="reset"),
    "no HTTP": Reply(raw=CANARY.encode() * 3, end="close"),
}
QUESTIONS: dict[str, dict[str, Any]] = {
    "plain": {"messages": ASK},
    "tools": {"messages": ASK, "tools": [TOOL]},
    "schema": {
        "messages": ASK,
        "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SCHEMA}},
    },
}


class Listener:
    """An OTLP collector that keeps every byte."""

    def __init__(self) -> None:
        self.bytes = b""
        self.posts = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                zipped = self.headers.get("content-encoding") == "gzip"
                outer.bytes += gzip.decompress(body) if zipped else body
                outer.posts += 1
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()


@pytest.fixture
def listener() -> Iterator[Listener]:
    made = Listener()
    yield made
    made.server.shutdown()
    made.server.server_close()


def ask_everything(sidecar: Sidecar, engine: Played) -> int:
    """Every reply to every question, over both protocols; how many were asked."""
    asked = 0
    with sidecar.client() as client:
        for reply in REPLIES.values():
            for name, question in QUESTIONS.items():
                engine.play(reply)
                sidecar.post({"model": "m", "stream": asked % 2 == 0, **question})
                engine.play(reply)
                more = {"schema": {"json_schema": SCHEMA}, "tools": {"tools": [TOOL]}, "plain": {}}[name]
                with contextlib.suppress(CallError):
                    client.generate("m", ASK, timeout=10, **more).read()
                asked += 2
    for wrong in (
        {"messages": CANARY},
        {"messages": ASK, "temperature": CANARY},
        {"messages": ASK, CANARY: CANARY},
        {"messages": ASK, "model": CANARY},
        {"messages": ASK, "outguard": {"policy": CANARY}},
        {"messages": ASK, "response_format": {"type": CANARY}},
        {
            "messages": ASK,
            "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": CANARY}}},
        },
        {"messages": ASK, "regex": f"({CANARY}"},
    ):
        sidecar.post(wrong)
    sidecar.post(b'{"messages": "' + CANARY.encode())
    sidecar.post({"messages": ASK}, **{"x-outguard-policy": CANARY, "authorization": f"Bearer {CANARY}"})
    sidecar.get(f"/v1/models/{CANARY}")
    return asked


def kept(sidecar: Sidecar, folder: Path) -> dict[str, bytes]:
    """Everything that is left of it, by where it lies."""
    tables = ("requests", "attempts", "findings", "outcomes", "losses", "sketches", "otel_traces")
    rows = {table: sidecar.reader.query(f"SELECT * FROM {table}") for table in tables}
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("outguard.yaml", "sidecar.log")]
    return {
        "store": str(rows).encode(),
        "files": b"".join(path.read_bytes() for path in files),
        "log": sidecar.log.encode(),
        "metrics": sidecar.get("/metrics").body,
    }


@pytest.mark.parametrize("retention", ["none", "hash", "full"])
def test_no_byte_of_it_is_kept(retention: str, tmp_path: Path, listener: Listener) -> None:
    trace = {
        "store": f"chdb://{tmp_path}/store",
        "spool": str(tmp_path / "spool"),
        "retention": {"default": retention, "max": retention},
        "otlp_endpoint": listener.endpoint,
    }
    policies = {"default": {"max_attempts": 2, "backoff_initial": 0.01}}
    with (
        played(REPLIES["an answer"]) as engine,
        Sidecar(tmp_path, {"a": engine.url}, dialect="vllm", trace=trace, policies=policies) as sidecar,
    ):
        asked = ask_everything(sidecar, engine)
        spooled = b"".join(path.read_bytes() for path in (tmp_path / "spool").rglob("*.seg"))
        assert sidecar.reader.flush(30)
        (counted,) = sidecar.reader.query("SELECT count() AS n FROM requests")
        assert counted["n"] >= asked
        found = {**kept(sidecar, tmp_path), "spool": spooled}
        assert until(lambda: listener.posts >= 2)
        sidecar.stop()
        found["collector"] = listener.bytes
        found["log"] = sidecar.log.encode()
    where = sorted(place for place, data in found.items() if CANARY.encode() in data)
    assert len(listener.bytes) > 10_000
    if retention == "full":
        assert "store" in where
        assert not {"log", "metrics", "collector"} & set(where), where
    else:
        assert where == []
