"""An engine that is asked in tokens, over HTTP: what is sent for which request, and when it is asked over its chat API
instead."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import tokenizer_files
from replay_server import ReplayServer, Reply, chunk, sse

from guard.build import build_engine
from guard.checked_yaml import ConfigError
from guard.config import parse_config
from guard.constraint.spec import Constraint
from guard.engines.contract import Engine, EngineError, EngineRequest, Prefix, ResumeUnsupported
from guard.engines.tokens.tokenizer import load
from guard.events import Closed, FinishReason, StreamEvent, TextDelta
from guard.normalise import chat_request

LLAMACPP = sse(
    {"content": "The", "tokens": [504], "stop": False},
    {"content": "", "tokens": [2], "stop": False},
    {"content": "", "stop": True, "stop_type": "eos", "tokens_predicted": 2, "tokens_evaluated": 9},
    done=False,
)
SGLANG = sse(
    {"output_ids": [504, 2], "meta_info": {"completion_tokens": 2, "finish_reason": {"type": "stop", "matched": 2}}}
)
VLLM = sse({"choices": [{"index": 0, "text": "The", "token_ids": [504, 2], "finish_reason": "stop"}]})
ROUTES = "routes: [{model: m, engines: [a]}]"
JSON = {"content-type": "application/json"}
CHAT = sse(chunk("The"), chunk(finish="stop"))
BODIES = {"llamacpp": LLAMACPP, "sglang": SGLANG, "vllm": VLLM}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := tokenizer_files.missing():
        pytest.skip(reason)
    return tokenizer_files.write_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@asynccontextmanager
async def engine(
    folder: Path, *replies: Reply | bytes, dialect: str = "llamacpp", mode: str = "auto", **more: Any
) -> AsyncIterator[tuple[Engine, ReplayServer]]:
    async with ReplayServer(*(r if isinstance(r, Reply) else Reply(r) for r in replies)) as server:
        fields = {"name": "a", "url": server.url, "dialect": dialect, "mode": mode, "tokenizer": str(folder), **more}
        config = parse_config(f"engines: [{fields}]\n{ROUTES}")
        one = build_engine(config.engines[0])
        try:
            yield one, server
        finally:
            await one.aclose()


def asked(prefix: Prefix | None = None, *, most: int | None = 20, **body: Any) -> EngineRequest:
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    request = chat_request({"model": "m", "messages": messages, "max_tokens": 20, **body}, request_id="r")
    return EngineRequest(request, prefix=prefix, max_tokens=most)


async def told(one: Engine, request: EngineRequest) -> list[StreamEvent]:
    stream = await one.open(request)
    return [event async for batch in stream for event in batch]


@pytest.mark.parametrize("dialect", BODIES)
async def test_prompt_ids_go_out_and_a_token_at_a_time_comes_back(folder: Path, dialect: str) -> None:
    async with engine(folder, BODIES[dialect], dialect=dialect) as (one, server):
        stream = await one.open(asked())
        raw = stream.raw  # type: ignore[attr-defined]
        assert raw.vocabulary == one.capabilities.vocabulary
        assert len(raw.prompt) == 37
        events = [event async for batch in stream for event in batch]
        assert next((e.text, e.token_ids) for e in events if isinstance(e, TextDelta)) == ("The", (504,))
        assert any(isinstance(e, FinishReason) for e in events)
        assert events[-1] == Closed(True)
        body = server.requests[0].json
        assert body.get("prompt", body.get("input_ids")) == list(raw.prompt)


async def test_what_was_said_goes_on_in_its_ids(folder: Path) -> None:
    async with engine(folder, LLAMACPP) as (one, server):
        vocabulary = one.capabilities.vocabulary
        said = Prefix(content="The capital", spoken=((504, 3575), " of"), vocabulary=vocabulary)
        await told(one, asked(said, most=17))
        body = server.requests[0].json
        assert body["prompt"][37:] == [504, 3575, 282]
        assert body["n_predict"] == 17


@pytest.mark.parametrize(
    ("prefix", "ids"),
    [
        (Prefix(content="The capital of"), [504, 3575, 282]),
        (Prefix(content="The", spoken=((9, 9),), vocabulary="another"), [504]),
        (Prefix(content="The", reasoning="x", lead="<think>x</think>"), None),
    ],
)
async def test_what_another_kind_of_engine_said_goes_on_as_text(
    folder: Path, prefix: Prefix, ids: list[int] | None
) -> None:
    async with engine(folder, LLAMACPP) as (one, server):
        await told(one, asked(prefix))
        sent = server.requests[0].json["prompt"][37:]
        assert sent == ids if ids else load(folder).vocabulary.text(sent) == "<think>x</think>The"


@pytest.mark.parametrize(
    "prefix",
    [
        Prefix(reasoning="x"),
        Prefix(tool_calls=(("c", "f", "{"),)),
        Prefix(reasoning="x", spoken=((9,),), vocabulary="another"),
    ],
)
async def test_what_cannot_be_gone_on_with_says_so(folder: Path, prefix: Prefix) -> None:
    async with engine(folder, LLAMACPP) as (one, server):
        with pytest.raises(ResumeUnsupported, match="another kind of engine"):
            await one.open(asked(prefix))
        assert not server.requests


IMAGE = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize(
    ("dialect", "body", "path"),
    [
        ("llamacpp", {}, "/completion"),
        ("llamacpp", {"messages": IMAGE}, "/v1/chat/completions"),
        ("vllm", {"tools": [TOOL], "tool_choice": "auto"}, "/v1/completions"),
        ("vllm", {"tools": [TOOL], "tool_choice": "required"}, "/v1/chat/completions"),
        ("llamacpp", {"tools": [TOOL], "tool_choice": "required"}, "/completion"),
        ("sglang", {"reasoning_effort": "high"}, "/v1/chat/completions"),
        ("vllm", {"chat_template_kwargs": {"x": 1}}, "/v1/completions"),
    ],
)
async def test_auto_takes_tokens_where_they_serve_as_well(
    folder: Path, dialect: str, body: dict[str, Any], path: str
) -> None:
    reply = CHAT if path.endswith("chat/completions") else BODIES[dialect]
    async with engine(folder, reply, dialect=dialect) as (one, server):
        await told(one, asked(**body))
        assert server.requests[0].path == path


async def test_a_template_that_refuses(folder: Path, tmp_path: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text("{{ raise_exception('no') }}")
    async with engine(tmp_path, CHAT) as (one, server):
        await told(one, asked())
        assert server.requests[0].path == "/v1/chat/completions"
    async with engine(tmp_path, LLAMACPP, mode="tokens") as (one, server):
        with pytest.raises(EngineError, match="no") as caught:
            await one.open(asked())
        assert (caught.value.status, caught.value.retryable) == (400, False)
        assert not server.requests


async def test_what_is_no_text_is_refused_where_tokens_were_told(folder: Path) -> None:
    async with engine(folder, LLAMACPP, mode="tokens") as (one, _):
        with pytest.raises(EngineError) as caught:
            await one.open(asked(messages=IMAGE))
        assert caught.value.param == "messages[0].content[0]"


async def test_a_constraint_of_a_model_that_thinks(folder: Path, tmp_path: Path) -> None:
    """It would hold from the first token of the reasoning on: so it is asked for over the chat API, or not at all."""
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    (tmp_path / "chat_template.jinja").write_text("<think>{{ messages[0].content }}")
    request = asked()
    request.request.constraint = Constraint("regex", "a+")
    async with engine(tmp_path, CHAT, dialect="vllm") as (one, server):
        await told(one, request)
        assert server.requests[0].path == "/v1/chat/completions"
    async with engine(tmp_path, VLLM, dialect="vllm", mode="tokens") as (one, server):
        stream = await one.open(request)
        assert stream.unenforced == ("regex",)
        await stream.aclose()
        assert "structured_outputs" not in server.requests[0].json


async def test_no_limit_is_the_rest_of_the_context(folder: Path) -> None:
    models = Reply(
        b'{"data": [{"id": "m", "max_model_len": 50}]}', headers={"content-type": "application/json"}, framing="length"
    )
    async with engine(folder, models, VLLM, VLLM, dialect="vllm") as (one, server):
        for _ in range(2):
            await told(one, asked(most=None))
        assert [r.path for r in server.requests] == ["/v1/models", "/v1/completions", "/v1/completions"]
        assert server.requests[1].json["max_tokens"] == 50 - 37
    short = Reply(b'{"data": [{"max_model_len": 30}]}', headers=JSON, framing="length")
    async with engine(folder, short, dialect="vllm") as (one, _):
        with pytest.raises(EngineError, match="37 tokens, and the model's context 30"):
            await one.open(asked(most=None))
    silent = Reply(b"{}", headers=JSON, framing="length")
    async with engine(folder, silent, dialect="sglang") as (one, _):
        with pytest.raises(EngineError, match="how long its context is"):
            await one.open(asked(most=None))


async def test_a_prompt_is_rendered_once_for_all_attempts(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with engine(folder, LLAMACPP) as (one, server):
        request = asked()
        await told(one, request)
        tokenizer = await one.tokenizer()  # type: ignore[attr-defined]
        monkeypatch.setattr(tokenizer, "prompt", None)
        await told(one, request)
        assert server.requests[0].json["prompt"] == server.requests[1].json["prompt"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("dialect: vllm, mode: tokens", "engines[0].mode: tokens: needs a tokenizer"),
        (
            "dialect: plain, mode: tokens, tokenizer: /x",
            "engines[0].mode: tokens: an engine of the dialect plain cannot",
        ),
        ("dialect: vllm, tokenizer: /nowhere", "engines[0].tokenizer: there is no tokenizer.json at /nowhere"),
        ("dialect: vllm, mode: words", "engines[0].mode: input should be 'chat', 'tokens' or 'auto'"),
    ],
)
def test_a_wrong_configuration(fields: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"engines: [{{name: a, url: 'http://h:1', {fields}}}]\n{ROUTES}", "f.yaml")
    assert f"f.yaml:1: {message}" in str(caught.value)


def test_a_tokenizer_that_is_not_used_need_not_be_there() -> None:
    for fields in ("dialect: vllm, mode: chat", "dialect: plain"):
        parse_config(f"engines: [{{name: a, url: 'http://h:1', tokenizer: /x, {fields}}}]\n{ROUTES}")
