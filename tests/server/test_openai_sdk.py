"""The official client against the real server over a socket: what it understands is what callers get."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from pydantic import BaseModel

from detectors.finding import Finding
from guard.events import Found, Recovery, Repair, ToolRelease
from guard.request import GenerationRequest, RequestError
from tests.server.openai_scripted import TRACE, OpenAIScript, failed, finished, serving, started, text

HI: Any = [{"role": "user", "content": "hi"}]
LOGPROBS = [
    {"token": "Hel", "logprob": -0.1, "bytes": [72, 101, 108], "top_logprobs": []},
    {"token": "lo", "logprob": -0.2, "bytes": [108, 111], "top_logprobs": []},
]


class client_of:
    """An async client of a served script; retries are off, so that one answer is one request."""

    def __init__(self, service: OpenAIScript, *, key: str = "none", timeout: float = 10, **options: Any) -> None:
        self._serving = serving(service, **options)
        self._key = key
        self._timeout = timeout

    async def __aenter__(self) -> AsyncOpenAI:
        host, port = await self._serving.__aenter__()
        self._client = AsyncOpenAI(
            base_url=f"http://{host}:{port}/v1", api_key=self._key, max_retries=0, timeout=self._timeout
        )
        return self._client

    async def __aexit__(self, *error: Any) -> None:
        await self._client.close()
        await self._serving.__aexit__(*error)


def script(*steps: Any) -> OpenAIScript:
    return OpenAIScript(lambda request: [started(request), *steps])


async def test_a_whole_chat_answer() -> None:
    async with client_of(OpenAIScript()) as client:
        answer = await client.chat.completions.create(model="m", messages=HI)
    assert answer.choices[0].message.content == "Hello"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"
    assert answer.id == f"chatcmpl-{TRACE}"
    assert answer.object == "chat.completion"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (7, 3, 10)
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 2
    assert answer.model_extra is not None
    assert answer.model_extra["outguard"]["trace_id"] == TRACE


async def test_the_sync_client_streams() -> None:
    service = OpenAIScript()

    def run(url: str) -> list[Any]:
        with OpenAI(base_url=url, api_key="none", max_retries=0) as client:
            return list(client.chat.completions.create(model="m", messages=HI, stream=True))

    async with serving(service) as (host, port):
        chunks = await asyncio.to_thread(run, f"http://{host}:{port}/v1")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hello"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, None, "stop"]
    assert {(chunk.id, chunk.created, chunk.model) for chunk in chunks} == {
        (f"chatcmpl-{TRACE}", chunks[0].created, "m")
    }


async def test_a_stream_with_usage_and_evidence() -> None:
    finding = Finding("repetition.token", "error", "one token over and over", onset=3, detected_at=40)
    service = script(
        [text("Hel")],
        [Found(0, finding, "a", 1), Recovery(0, 2, "resume", "a", "b", "repetition.token", "content", 3)],
        [text("lo"), Repair(0, "json.fence", "a markdown fence was taken off")],
        [finished()],
    )
    async with client_of(service) as client:
        stream = await client.chat.completions.create(
            model="m", messages=HI, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert stream.response.headers["x-outguard-trace-id"] == TRACE
    assert [bool(chunk.choices) for chunk in chunks] == [True] * 4 + [False]
    assert [chunk.usage is None for chunk in chunks] == [True] * 4 + [False]
    assert chunks[-1].usage.total_tokens == 10
    told = chunks[-1].model_extra["outguard"]
    assert told["findings"][0]["code"] == "repetition.token"
    assert told["findings"][0]["onset"] == 3
    assert told["recoveries"] == [
        {
            "choice": 0,
            "attempt": 2,
            "action": "resume",
            "from_engine": "a",
            "to_engine": "b",
            "reason": "repetition.token",
            "channel": "content",
            "offset": 3,
        }
    ]
    assert told["repairs"] == [{"choice": 0, "code": "json.fence", "message": "a markdown fence was taken off"}]
    assert told["verdicts"][0]["format"] == "ok"


def calls() -> OpenAIScript:
    return script(
        [ToolRelease(0, 0, "", "call_1", "get_weather")],
        [ToolRelease(0, 0, '{"city":'), ToolRelease(0, 0, ' "Oslo"}')],
        [ToolRelease(0, 1, '{"city": "Rom"}', "call_2", "get_weather")],
        [finished(reason="tool_calls")],
    )


TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]


async def test_tool_calls_whole() -> None:
    service = calls()
    async with client_of(service) as client:
        answer = await client.chat.completions.create(model="m", messages=HI, tools=TOOLS, tool_choice="required")
    message = answer.choices[0].message
    assert message.content is None
    assert message.tool_calls is not None
    assert [(call.id, call.function.name, call.function.arguments) for call in message.tool_calls] == [  # type: ignore[union-attr]
        ("call_1", "get_weather", '{"city": "Oslo"}'),
        ("call_2", "get_weather", '{"city": "Rom"}'),
    ]
    assert answer.choices[0].finish_reason == "tool_calls"
    assert service.request.tools[0].name == "get_weather"
    assert service.request.tool_choice.mode == "required"


async def test_tool_calls_streamed_through_the_clients_own_accumulator() -> None:
    async with (
        client_of(calls()) as client,
        client.chat.completions.stream(model="m", messages=HI, tools=TOOLS) as stream,
    ):
        answer = await stream.get_final_completion()
    found = answer.choices[0].message.tool_calls
    assert found is not None
    assert [(call.id, call.function.name, call.function.parsed_arguments) for call in found] == [
        ("call_1", "get_weather", {"city": "Oslo"}),
        ("call_2", "get_weather", {"city": "Rom"}),
    ]


@pytest.mark.parametrize("stream", [False, True])
async def test_two_choices_keep_apart(stream: bool) -> None:
    service = script(
        [text("a", 1), text("b", 0)], [text("c", 0)], [finished(1, "length")], [text("d", 0)], [finished(0)]
    )
    async with client_of(service) as client:
        if stream:
            answers = await client.chat.completions.create(
                model="m", messages=HI, n=2, stream=True, stream_options={"include_usage": True}
            )
            texts, reasons = ["", ""], ["", ""]
            async for chunk in answers:
                for choice in chunk.choices:
                    texts[choice.index] += choice.delta.content or ""
                    reasons[choice.index] += choice.finish_reason or ""
                usage = chunk.usage
        else:
            answer = await client.chat.completions.create(model="m", messages=HI, n=2)
            texts = [choice.message.content or "" for choice in answer.choices]
            reasons = [choice.finish_reason for choice in answer.choices]
            usage = answer.usage
    assert texts == ["bcd", "a"]
    assert reasons == ["stop", "length"]
    assert usage is not None
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 6, 13)
    assert service.request.n == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_log_probabilities(stream: bool) -> None:
    service = script([text("Hel", logprobs=LOGPROBS[:1])], [text("lo", logprobs=LOGPROBS[1:])], [finished()])
    async with client_of(service) as client:
        if stream:
            chunks = await client.chat.completions.create(
                model="m", messages=HI, logprobs=True, top_logprobs=2, stream=True
            )
            found = [
                entry
                async for chunk in chunks
                if chunk.choices[0].logprobs
                for entry in chunk.choices[0].logprobs.content or []
            ]
        else:
            answer = await client.chat.completions.create(model="m", messages=HI, logprobs=True, top_logprobs=2)
            assert answer.choices[0].logprobs is not None
            found = answer.choices[0].logprobs.content or []
    assert [(entry.token, entry.logprob) for entry in found] == [("Hel", -0.1), ("lo", -0.2)]
    assert service.request.sampling.top_logprobs == 2


async def test_reasoning_and_refusal_have_fields_of_their_own() -> None:
    service = script([text("Hm", channel="reasoning")], [text("I will not", channel="refusal")], [finished()])
    async with client_of(service) as client:
        answer = await client.chat.completions.create(model="m", messages=HI)
        chunks = [chunk async for chunk in await client.chat.completions.create(model="m", messages=HI, stream=True)]
    message = answer.choices[0].message
    assert message.content is None
    assert message.refusal == "I will not"
    assert message.model_extra is not None
    assert message.model_extra["reasoning_content"] == "Hm"
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert "".join(delta.refusal or "" for delta in deltas) == "I will not"
    assert "".join(getattr(delta, "reasoning_content", "") or "" for delta in deltas) == "Hm"


class Person(BaseModel):
    name: str
    age: int


async def test_the_parse_helper_sends_a_schema_and_reads_the_answer() -> None:
    service = script([text('{"name": "Al')], [text('ice", "age": 30}')], [finished()])
    async with client_of(service) as client:
        answer = await client.chat.completions.parse(model="m", messages=HI, response_format=Person)
        async with client.chat.completions.stream(model="m", messages=HI, response_format=Person) as stream:
            streamed = await stream.get_final_completion()
    assert answer.choices[0].message.parsed == Person(name="Alice", age=30)
    assert streamed.choices[0].message.parsed == Person(name="Alice", age=30)
    asked = service.request.constraint
    assert asked is not None
    assert asked.kind == "json_schema"
    assert set(asked.value["properties"]) == {"name", "age"}


async def test_what_the_guard_need_not_understand_reaches_the_request() -> None:
    service = OpenAIScript()
    parts: Any = [{"type": "text", "text": "what is it"}, {"type": "image_url", "image_url": {"url": "data:,"}}]
    async with client_of(service) as client:
        await client.chat.completions.create(
            model="m",
            messages=[{"role": "user", "content": parts}],
            user="u",
            reasoning_effort="low",
            logit_bias={"5": 1},
            extra_body={"top_k": 20, "chat_template_kwargs": {"x": [1]}, "outguard": {"retention": "hash"}},
        )
    assert service.request.messages[0]["content"] == parts
    assert service.request.extra == {
        "user": "u",
        "reasoning_effort": "low",
        "logit_bias": {"5": 1},
        "top_k": 20,
        "chat_template_kwargs": {"x": [1]},
    }
    assert service.request.retention == "hash"


@pytest.mark.parametrize(
    ("step", "error", "status", "code"),
    [
        (RequestError("not served", "model", "model_not_found"), openai.NotFoundError, 404, "model_not_found"),
        (RequestError("no regex", "regex", "invalid_constraint"), openai.BadRequestError, 400, "invalid_constraint"),
        (RequestError("full", "", "overloaded"), openai.RateLimitError, 429, "overloaded"),
        ([failed("overloaded", retry_after=2.2)], openai.RateLimitError, 429, "overloaded"),
        ([failed("engine_rejected", engine_status=422)], openai.UnprocessableEntityError, 422, "engine_rejected"),
        ([failed("engine_rejected", engine_status=500)], openai.BadRequestError, 400, "engine_rejected"),
        ([failed("collapsed")], openai.InternalServerError, 502, "collapsed"),
        ([failed("constraint_violated")], openai.InternalServerError, 502, "constraint_violated"),
        ([failed("engine_unavailable")], openai.InternalServerError, 503, "engine_unavailable"),
        ([failed("deadline_exceeded")], openai.InternalServerError, 504, "deadline_exceeded"),
        ([failed("of_a_new_kind")], openai.InternalServerError, 500, "of_a_new_kind"),
        (RequestError("wrong", "n", "of_a_new_kind"), openai.BadRequestError, 400, "of_a_new_kind"),
        (ValueError("a bug"), openai.InternalServerError, 500, "internal"),
        (0.0, openai.InternalServerError, 500, "internal"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_failures_before_the_first_text_are_the_clients_exceptions(
    step: Any, error: type[openai.APIStatusError], status: int, code: str, stream: bool, caplog: Any
) -> None:
    caplog.set_level(logging.CRITICAL, "outguard.http")

    def play(request: GenerationRequest) -> list[Any]:
        return [step] if isinstance(step, Exception) else [started(request), step]

    async with client_of(OpenAIScript(play)) as client:
        with pytest.raises(error) as raised:
            await client.chat.completions.create(model="m", messages=HI, stream=stream)
    assert raised.value.status_code == status
    assert raised.value.code == code
    headers = raised.value.response.headers
    assert headers["x-request-id"]
    assert ("retry-after" in headers) == (status in (429, 503))
    if code == "overloaded" and isinstance(step, list):
        assert headers["retry-after"] == "3"
    if isinstance(step, list):
        assert headers["x-outguard-trace-id"] == TRACE
        assert raised.value.body["outguard"]["verdicts"][0]["error"] == code  # type: ignore[index]


@pytest.mark.parametrize("end", [[failed("stream_cut")], ValueError("a bug"), 0.0], ids=["failed", "raised", "ended"])
async def test_a_failure_in_mid_stream_raises_in_the_client(end: Any, caplog: Any) -> None:
    caplog.set_level(logging.CRITICAL, "outguard.http")
    chunks: list[Any] = []
    async with client_of(script([text("Hel")], end)) as client:
        stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
        with pytest.raises(openai.APIError) as raised:
            await gather(stream, chunks)
    assert not isinstance(raised.value, openai.APIConnectionError)
    assert raised.value.code == ("stream_cut" if isinstance(end, list) else "internal")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "Hel"
    assert all(chunk.choices[0].finish_reason is None for chunk in chunks)


async def gather(stream: Any, into: list[Any]) -> None:
    """What came before an error counts too."""
    async for chunk in stream:
        into.append(chunk)  # noqa: PERF401


async def test_one_choice_of_two_fails_in_mid_stream() -> None:
    service = script([text("a", 0), text("b", 1)], [failed("collapsed", 0)], [text("c", 1)], [finished(1)])
    async with client_of(service) as client:
        stream = await client.chat.completions.create(model="m", messages=HI, stream=True, n=2)
        chunks: list[Any] = []
        with pytest.raises(openai.APIError, match="choice 0 of 2"):
            await gather(stream, chunks)
        choices = [chunk.choices[0] for chunk in chunks]
        assert "".join(choice.delta.content or "" for choice in choices if choice.index == 1) == "bc"
        assert {choice.index for choice in choices if choice.finish_reason} == {1}
        with pytest.raises(openai.InternalServerError, match="choice 0 of 2"):
            await client.chat.completions.create(model="m", messages=HI, n=2)


async def test_completions() -> None:
    service = script([text("Hel", logprobs=LOGPROBS[:1])], [text("lo", logprobs=LOGPROBS[1:])], [finished()])
    async with client_of(service) as client:
        answer = await client.completions.create(model="m", prompt="Say", logprobs=1)
        streamed = await client.completions.create(model="m", prompt=[1, 2, 3], logprobs=1, stream=True)
        chunks = [chunk async for chunk in streamed]
    assert answer.object == "text_completion"
    assert answer.id == f"cmpl-{TRACE}"
    assert answer.choices[0].text == "Hello"
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.tokens == ["Hel", "lo"]
    assert answer.choices[0].logprobs.token_logprobs == [-0.1, -0.2]
    assert answer.choices[0].logprobs.text_offset == [0, 3]
    assert "".join(chunk.choices[0].text for chunk in chunks) == "Hello"
    assert [o for c in chunks if c.choices[0].logprobs for o in c.choices[0].logprobs.text_offset or []] == [0, 3]
    assert chunks[-1].choices[0].finish_reason == "stop"
    assert service.request.prompt == (1, 2, 3)


async def test_models() -> None:
    async with client_of(OpenAIScript()) as client:
        listed = [model.id async for model in client.models.list()]
        one = await client.models.retrieve("org/big")
        with pytest.raises(openai.NotFoundError) as raised:
            await client.models.retrieve("nope")
    assert listed == ["m", "org/big"]
    assert one.id == "org/big"
    assert raised.value.code == "model_not_found"


async def test_keys() -> None:
    service = OpenAIScript()
    async with client_of(service, key="right", api_keys=("left", "right")) as client:
        await client.models.list()
        with pytest.raises(openai.AuthenticationError) as raised:
            await client.with_options(api_key="wrong").chat.completions.create(model="m", messages=HI)
    assert raised.value.code == "unauthenticated"
    assert service.requests == []


async def test_a_client_that_runs_out_of_patience_is_noticed() -> None:
    service = script([text("Hel")], 30.0, [finished()])
    async with client_of(service, timeout=0.3) as client:
        with pytest.raises(openai.APITimeoutError):
            await client.chat.completions.create(model="m", messages=HI)
        for _ in range(100):
            if service.closed_at:
                break
            await asyncio.sleep(0.01)
    assert service.closed_at


async def test_text_that_json_must_escape_and_utf8_cannot_hold() -> None:
    odd = 'a"b\\c\n\x00\x1f\u2028é😀</script>'
    async with client_of(script([text(odd), text("\ud83d")], [finished()])) as client:
        answer = await client.chat.completions.create(model="m", messages=HI)
        stream = await client.chat.completions.create(model="m", messages=HI, stream=True)
        streamed = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
    assert streamed == answer.choices[0].message.content
    assert streamed.startswith(odd)
    assert set(streamed[len(odd) :]) == {"\ufffd"}


async def test_the_client_does_not_repeat_what_the_guard_has_given_up() -> None:
    service = script([failed("collapsed")])
    async with client_of(service) as client:
        with pytest.raises(openai.InternalServerError):
            await client.with_options(max_retries=2).chat.completions.create(model="m", messages=HI)
    assert len(service.requests) == 1
