"""Good answers of a real engine, through both protocols, whole and streamed."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from sidecar_process import Sidecar

pytestmark = pytest.mark.engine

QUESTION = [{"role": "user", "content": "Which city is the capital of Italy? Answer in one short sentence."}]
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 20}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
PLAIN = {"model": "m", "messages": QUESTION, "temperature": 0, "max_tokens": 24}


def test_both_protocols_give_the_same_text(sidecar: Sidecar) -> None:
    whole = sidecar.openai.chat.completions.create(**PLAIN)
    streamed = list(
        sidecar.openai.chat.completions.create(**PLAIN, stream=True, stream_options={"include_usage": True})
    )
    with sidecar.client() as client:
        generation = client.generate("m", QUESTION, temperature=0, max_tokens=24, timeout=60)
        over_grpc = generation.text()
    text = whole.choices[0].message.content
    assert text
    assert "".join(c.choices[0].delta.content or "" for c in streamed if c.choices) == text
    assert over_grpc == text
    # and the same end and the same count
    reasons = [c.choices[0].finish_reason for c in streamed if c.choices and c.choices[0].finish_reason]
    assert reasons == [whole.choices[0].finish_reason] == [generation.finished[0].reason]
    counts = [(u.prompt_tokens, u.completion_tokens) for u in (whole.usage, streamed[-1].usage)]
    usage = generation.finished[0].usage
    assert counts == [(usage.prompt_tokens, usage.completion_tokens)] * 2


def test_a_json_schema(sidecar: Sidecar) -> None:
    ask = [{"role": "user", "content": "Invent a person. Answer with a JSON object with name and age."}]
    format_ = {"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}}
    answer = sidecar.openai.chat.completions.create(
        model="m", messages=ask, temperature=0, max_tokens=80, response_format=format_
    )
    with sidecar.client() as client:
        generation = client.generate("m", ask, json_schema=PERSON, temperature=0, max_tokens=80, timeout=60)
        over_grpc = generation.text()
    text = answer.choices[0].message.content
    assert over_grpc == text
    assert json.loads(text).keys() == {"name", "age"}
    assert answer.model_extra["outguard"]["verdicts"][0]["format"] == "ok"
    assert generation.finished[0].verdicts.format == "ok"


def test_a_regex_and_a_choice(sidecar: Sidecar) -> None:
    ask = [{"role": "user", "content": "On which day did the moon landing happen? Answer as YYYY-MM-DD."}]
    date = r"\d{4}-\d{2}-\d{2}"
    with sidecar.client() as client:
        generation = client.generate("m", ask, regex=date, temperature=0, max_tokens=20, timeout=60)
        assert re.fullmatch(date, generation.text())
        assert generation.finished[0].verdicts.format == "ok"
        colours = client.generate("m", "The colour of the sky?", choice=["red", "blue"], temperature=0, timeout=60)
        assert colours.text() in ("red", "blue")
    answer = sidecar.openai.chat.completions.create(
        model="m", messages=ask, temperature=0, extra_body={"structured_outputs": {"regex": date}}
    )
    assert answer.choices[0].message.content == generation.received()


def test_a_tool_call_or_an_honest_error(sidecar: Sidecar) -> None:
    """The small model calls as it pleases; whatever leaves as a call is one of the offered tools, with arguments that
    fit, and an answer in prose to ``required`` is no success."""
    ask = [{"role": "user", "content": "What is the weather in Paris? Call the tool."}]
    asked = {"model": "m", "messages": ask, "tools": [WEATHER], "temperature": 0, "max_tokens": 60}
    for choice in ("auto", "required"):
        answer = sidecar.post({**asked, "tool_choice": choice})
        if answer.status != 200:
            assert choice == "required"
            assert answer.error["code"] == "constraint_violated"
            assert answer.error["outguard"]["verdicts"][0]["tool_choice"] == "failed"
            continue
        calls = answer.json["choices"][0]["message"].get("tool_calls") or []
        assert calls or choice == "auto"
        for call in calls:
            assert call["function"]["name"] == "get_weather"
            assert json.loads(call["function"]["arguments"]).keys() == {"city"}


def test_two_choices(sidecar: Sidecar) -> None:
    asked = {**PLAIN, "n": 2, "temperature": 0.9, "seed": 5}
    whole = sidecar.openai.chat.completions.create(**asked)
    assert [choice.index for choice in whole.choices] == [0, 1]
    assert all(choice.message.content for choice in whole.choices)
    texts = {0: "", 1: ""}
    reasons: dict[int, str] = {}
    for piece in sidecar.openai.chat.completions.create(**asked, stream=True):
        for choice in piece.choices:
            texts[choice.index] += choice.delta.content or ""
            if choice.finish_reason:
                reasons[choice.index] = choice.finish_reason
    assert all(texts.values())
    assert texts[0] != texts[1]  # the seed of each is its own
    assert reasons.keys() == {0, 1}
    assert len(whole.model_extra["outguard"]["verdicts"]) == 2
    record = sidecar.trace(whole.model_extra["outguard"]["trace_id"])
    assert [(a.choice, a.attempt, a.outcome) for a in record.attempts] == [(0, 1, "ok"), (1, 1, "ok")]
    assert json.loads(record.output_text) == [choice.message.content for choice in whole.choices]


def test_log_probabilities(sidecar: Sidecar) -> None:
    answer = sidecar.openai.chat.completions.create(**PLAIN, logprobs=True, top_logprobs=2)
    entries = answer.choices[0].logprobs.content
    # the end token has a probability too, and no text
    assert "".join(entry.token for entry in entries).startswith(answer.choices[0].message.content)
    assert all(entry.logprob <= 0 and len(entry.top_logprobs) == 2 for entry in entries)


def test_the_older_api(sidecar: Sidecar) -> None:
    asked = {"model": "m", "prompt": "The capital of Italy is", "temperature": 0, "max_tokens": 8}
    whole = sidecar.openai.completions.create(**asked)
    streamed = "".join(piece.choices[0].text for piece in sidecar.openai.completions.create(**asked, stream=True))
    with sidecar.client() as client:
        over_grpc = client.generate("m", text="The capital of Italy is", temperature=0, max_tokens=8, timeout=60).text()
    assert whole.choices[0].text
    assert streamed == whole.choices[0].text == over_grpc


@pytest.mark.parametrize("stream", [False, True])
def test_a_token_limit_and_a_stop_string(sidecar: Sidecar, stream: bool) -> None:
    def ask(**more: Any) -> tuple[str, str]:
        answer = sidecar.post({**PLAIN, **more, "stream": stream})
        assert answer.status == 200, answer.text
        if not stream:
            return answer.content, answer.json["choices"][0]["finish_reason"]
        *events, done = answer.events
        assert done == "[DONE]"
        return answer.content, events[-1]["choices"][0]["finish_reason"]

    text, reason = ask(max_tokens=1)
    assert text
    assert reason == "length"
    whole, _ = ask()
    word = whole.split()[2]
    text, reason = ask(stop=[word])
    assert reason == "stop"
    assert whole.startswith(text)
    assert word not in text


def test_pages(sidecar: Sidecar) -> None:
    models = sidecar.openai.models.list().data
    assert [model.id for model in models] == ["m", "from-shaky", "shaky", "steady"]
    assert sidecar.openai.models.retrieve("m").model_extra["outguard"]["engines"] == ["steady", "shaky"]
    assert sidecar.get("/healthz").json == {"status": "ok"}
    assert sidecar.get("/readyz").json == {"status": "ready"}
    before = sidecar.metric("outguard_requests_total")
    sidecar.post({"max_tokens": 1})
    assert sidecar.metric("outguard_requests_total") == before + 1
    with sidecar.client() as client:
        assert [(one.name, one.ok) for one in client.engines()] == [("steady", True), ("shaky", True)]
    listed = sidecar.outguard("engines", "--json")
    assert listed.returncode == 0, listed.stderr
    assert [one["ok"] for one in json.loads(listed.stdout)] == [True, True]


def test_an_unchanged_engine_field_and_unicode(sidecar: Sidecar) -> None:
    """What the guard does not know reaches the engine; what is not ASCII reaches it and comes back whole."""
    answer = sidecar.post(
        {
            "messages": [{"role": "user", "content": "Repeat exactly: 東京 – Ærøskøbing – 🗼👨‍👩‍👧"}],
            "temperature": 0,
            "max_tokens": 40,
            "top_k": 1,
            "grammar": 'root ::= "東京 – Æ 🗼👨‍👩‍👧"',
            "cache_prompt": False,
        }
    )
    assert answer.status == 200, answer.text
    assert answer.json["choices"][0]["message"]["content"] == "東京 – Æ 🗼👨‍👩‍👧"
