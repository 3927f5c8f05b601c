"""What the trace keeps of an answer in token mode: every id of the prompt and of what was said, calls and markup
included, over all attempts, and only where content is kept."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from guard.config import parse_config
from guard.constraint.cache import ConstraintCache
from guard.engines.contract import EngineRequest, Raw
from guard.engines.scripted import ALL, Play, ScriptedEngine
from guard.events import Closed, Done, Failed, Fault, Finished, FinishReason, Opened, Usage
from guard.normalise import chat_request
from guard.pipeline import Pipeline
from guard.trace.record import RequestRecord
from guard.trace.retention import reduce
from guard.trace.tracing import Tracing
from tests.test_spoken import ANSWERS, tokens_of

CONFIG = """\
engines: [{name: a, url: "http://x:1", tool_format: hermes}, {name: b, url: "http://x:2", tool_format: hermes}]
routes: [{model: qwen3, engines: [a, b]}]
policies: {default: {backoff_initial: 0.001, backoff_max: 0.002}}
"""
PROMPT = (7, 8, 9, 250_000)


class Kept(Tracing):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[RequestRecord] = []

    def write(self, record: RequestRecord) -> None:
        self.records.append(record)


class TokenEngine(ScriptedEngine):
    """Says a text in tokens whose ids are their places, from where the answer goes on; ``cut`` ends it early."""

    def __init__(self, name: str, text: str, cut: int | None = None) -> None:
        self._tokens = tokens_of(text, 3)
        self._cut = cut
        super().__init__(name, self._says, capabilities=replace(ALL, resume="token_ids", vocabulary="v"))

    def _says(self, request: EngineRequest) -> Play:
        spoken = request.prefix.spoken if request.prefix is not None else None
        said = sum(len(part) for part in spoken or ())
        tokens = self._tokens[said:]
        if self._cut is not None:
            return Play([[Opened("x", "m")], *([one] for one in tokens[: self._cut]), [Fault("cut", "cut")]])
        ends: list[Any] = [FinishReason(0, "stop"), Usage(4, len(tokens), 4 + len(tokens)), Done(), Closed(True)]
        return Play([[Opened("x", "m")], *([one] for one in tokens), ends])

    async def open(self, request: EngineRequest) -> Any:
        stream: Any = await super().open(request)
        stream.raw = Raw("v", PROMPT, "t")
        return stream


async def _record(kind: str, cut: int | None, *, stream: bool) -> RequestRecord:
    body, text = ANSWERS[kind]
    tracing = Kept()
    engines = {"a": TokenEngine("a", text, cut), "b": TokenEngine("b", text)}
    pipeline = Pipeline(parse_config(CONFIG), engines, ConstraintCache(), tracing)
    asked = {"model": "qwen3", "messages": [{"role": "user", "content": "x"}], "stream": stream, **body}
    events = [event async for batch in pipeline.generate(chat_request(asked, request_id="r")) for event in batch]
    assert isinstance(next(one for one in reversed(events) if isinstance(one, Finished | Failed)), Finished)
    (record,) = tracing.records
    return record


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("kind", ["text", "json", "calls", "reasoning and calls"])
async def test_every_id_is_kept_over_all_attempts(kind: str, stream: bool) -> None:
    ids = [delta.token_ids[0] for delta in tokens_of(ANSWERS[kind][1], 3) if delta.token_ids]
    count = len(ids)
    whole = await _record(kind, None, stream=stream)
    assert [one.output_token_ids for one in whole.attempts] == [ids]
    assert whole.attempts[0].prompt_token_ids == list(PROMPT)
    for cut in range(0, count, max(1, count // 9)):
        record = await _record(kind, cut, stream=stream)
        said = [token for one in record.attempts for token in one.output_token_ids]
        fresh = [one.prompt_token_ids for one in record.attempts if one.resumed_at < 0]
        assert len(record.attempts) == 2
        if record.attempts[1].resumed_at < 0:  # nothing of the first was kept
            said = record.attempts[1].output_token_ids
        assert said == ids, cut
        assert fresh == [list(PROMPT)] * len(fresh)
        assert all(not one.prompt_token_ids for one in record.attempts if one.resumed_at >= 0)


@pytest.mark.parametrize("retention", ["hash", "none"])
async def test_and_only_where_content_is(retention: str) -> None:
    record = await _record("calls", 9, stream=True)
    bare = reduce(record, retention, b"key")
    assert all(not one.output_token_ids and not one.prompt_token_ids for one in bare.attempts)
    full = reduce(record, "full", b"key")
    assert any(one.prompt_token_ids for one in full.attempts)
