"""What each kind of engine is sent: golden bodies against recorded requests that the real ones accepted, and the
translation of every constraint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from guard.constraint.spec import Constraint
from guard.constraint.tools import parse_tools
from guard.engines.contract import EngineRequest, Prefix, ResumeUnsupported
from guard.engines.dialects import DIALECTS, WireRequest, capabilities, write_request
from guard.request import GenerationRequest, Sampling, Tool, ToolChoice

ASK = [{"role": "user", "content": "hi"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
ALL = list(DIALECTS)


def write(dialect: str, attempt: dict[str, Any] | None = None, **fields: Any) -> WireRequest:
    fields.setdefault("messages", ASK)
    fields.setdefault("kind", "chat")
    return write_request(dialect, EngineRequest(GenerationRequest(id="r", model="m", **fields), **(attempt or {})), "m")


def body(dialect: str, attempt: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    value = json.loads(write(dialect, attempt, **fields).body)
    assert isinstance(value, dict)
    return value


# --- golden -------------------------------------------------------------------------------------------------------


def from_recorded(asked: dict[str, Any], constraint: Constraint | None = None) -> GenerationRequest:
    """The recorded body as a caller's request."""
    tools = tuple(
        Tool(t["function"]["name"], t["function"].get("parameters"), False, t) for t in asked.get("tools", ())
    )
    return GenerationRequest(
        id="r",
        kind="chat" if "messages" in asked else "completion",
        model=asked["model"],
        messages=asked.get("messages", []),
        prompt=tuple(asked["prompt"]) if isinstance(asked.get("prompt"), list) else asked.get("prompt", ""),
        tools=tools,
        tool_choice_raw=asked.get("tool_choice"),
        constraint=constraint,
        sampling=Sampling(
            max_tokens=asked.get("max_tokens"),
            temperature=asked.get("temperature"),
            seed=asked.get("seed"),
            stop=tuple([asked["stop"]] if isinstance(asked.get("stop"), str) else asked.get("stop", ())),
            logprobs=bool(asked.get("logprobs")),
            top_logprobs=asked.get("top_logprobs", asked.get("logprobs") if "prompt" in asked else None),
        ),
        extra={k: v for k, v in asked.items() if k in ("ignore_eos", "stop_token_ids", "add_special_tokens")},
        return_token_ids=asked.get("return_token_ids", False),
    )


PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
JSON_SCHEMA = Constraint("json_schema", PERSON, name="person")
REGEX = Constraint("regex", "(Paris|London|Berlin) [0-9]{3}")
GRAMMAR = 'root ::= "answer: " ("yes" | "no") "."'


@pytest.mark.parametrize(
    ("recorded", "constraint"),
    [
        ("vllm/chat_stream_usage", None),
        ("vllm/chat_stream_logprobs", None),
        ("vllm/chat_stream_token_ids", None),
        ("vllm/chat_stop_string_stream", None),
        ("vllm/stop_token_ids_stream", None),
        ("vllm/tool_auto_stream", None),
        ("vllm/tool_required_stream", None),
        ("vllm/tool_named_stream", None),
        ("vllm/completions_text_stream", None),
        ("vllm/completions_token_ids_in_stream", None),
        ("vllm/json_schema_stream", JSON_SCHEMA),
        ("vllm/json_object", Constraint("json_object")),
        ("vllm/constraint_regex_stream", REGEX),
        ("vllm/constraint_choice_stream", Constraint("choice", ("yes", "no"))),
        ("vllm/constraint_grammar", Constraint("grammar", GRAMMAR, syntax="ebnf")),
        ("llamacpp/chat_stream_usage", None),
        ("llamacpp/chat_stream_logprobs", None),
        ("llamacpp/json_schema_stream", JSON_SCHEMA),
        ("llamacpp/json_object", Constraint("json_object")),
        ("llamacpp/constraint_grammar_stream", Constraint("grammar", GRAMMAR, syntax="gbnf")),
        ("llamacpp/completions_continue_json_schema_stream", Constraint("json_schema", PERSON)),
        ("llamacpp/completions_text_stream", None),
        ("sglang/chat_stream_usage", None),
        ("sglang/json_schema_stream", JSON_SCHEMA),
        ("sglang/constraint_regex_stream", REGEX),
        ("sglang/constraint_ebnf", Constraint("grammar", GRAMMAR, syntax="ebnf")),
        ("sglang/completions_continue_json_schema_stream", Constraint("json_schema", PERSON)),
        ("sglang/completions_token_ids_in_stream", None),
        ("transformers/chat_stream_usage", None),
    ],
)
def test_recorded_requests_are_written_again(shared: Path, recorded: str, constraint: Constraint | None) -> None:
    engine, name = recorded.split("/")
    exchange = json.loads((shared / "recordings" / engine / f"{name}.request.json").read_text())
    head = (shared / "recordings" / engine / f"{name}.response").read_bytes()[:40]
    assert b" 200 " in head, "only an accepted request is golden"
    asked = exchange["body_json"]
    request = from_recorded(asked, constraint)
    dialect = "plain" if engine == "transformers" else engine
    wire = write_request(dialect, EngineRequest(request, max_tokens=asked["max_tokens"]), asked["model"])
    assert wire.path == exchange["path"]
    assert wire.unenforced == ()
    written = json.loads(wire.body)
    if isinstance(written.get("json_schema"), str):
        written["json_schema"], asked["json_schema"] = (
            json.loads(written["json_schema"]),
            json.loads(asked["json_schema"]),
        )
    assert written == {**asked, "stream": True, "stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    ("recorded", "constrain"),
    [
        ("vllm/continue_plain_stream", True),
        ("sglang/continue_plain_stream", True),
        ("llamacpp/continue_noflags_stream", True),
        ("llamacpp/continue_json_schema_oddkey_noflags_stream", True),
        ("vllm/continue_json_noconstraint", False),
    ],
)
def test_recorded_continuations_are_written_again(shared: Path, recorded: str, constrain: bool) -> None:
    engine, name = recorded.split("/")
    asked = json.loads((shared / "recordings" / engine / f"{name}.request.json").read_text())["body_json"]
    *messages, begun = asked["messages"]
    form = asked.get("response_format")
    constraint = Constraint("json_schema", form["json_schema"]["schema"], name="p") if form else JSON_SCHEMA
    request = from_recorded({**asked, "messages": messages}, constraint if form or not constrain else None)
    attempt = EngineRequest(
        request, prefix=Prefix(content=begun["content"]), max_tokens=asked["max_tokens"], constrain=constrain
    )
    wire = write_request(engine, attempt, "m")
    assert json.loads(wire.body) == {**asked, "stream": True, "stream_options": {"include_usage": True}}
    assert wire.unenforced == (() if constrain else ("json_schema",))
    assert wire.drop_prefix == (begun["content"] if engine == "llamacpp" else "")


def test_a_resume_by_ids_is_the_recorded_one(shared: Path) -> None:
    folder = shared / "recordings" / "vllm"
    whole = json.loads((folder / "resume_p1_full.response").read_bytes().partition(b"\r\n\r\n")[2])["choices"][0]
    asked = json.loads((folder / "resume_p1_after5.request.json").read_text())["body_json"]
    prefix = Prefix("x", token_ids=tuple(whole["token_ids"][:5]), prompt_token_ids=tuple(whole["prompt_token_ids"]))
    wire = write("vllm", {"prefix": prefix, "max_tokens": 27}, sampling=Sampling(logprobs=True, top_logprobs=2))
    assert wire.path == "/v1/completions"
    written = json.loads(wire.body)
    assert {k: written[k] for k in ("prompt", "max_tokens", "logprobs")} == {
        k: asked[k] for k in ("prompt", "max_tokens", "logprobs")
    }


# --- what is always so --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_always_a_stream_with_usage_and_one_choice(dialect: str, kind: str) -> None:
    written = body(dialect, kind=kind, prompt="x", n=3, stream=False, extra={"n": 4, "stream": False, "model": "other"})
    assert written["stream"] is True
    assert written["stream_options"] == {"include_usage": True}
    assert written["model"] == "m"
    assert "n" not in written


@pytest.mark.parametrize("dialect", ALL)
def test_extra_fields_arrive_as_they_came_and_overwrite_nothing(dialect: str) -> None:
    extra = {
        "top_k": 5,
        "chat_template_kwargs": {"enable_thinking": False},
        "nested": [{"x": None}],
        "messages": [],
        "temperature": 9,
        "max_tokens": 9,
        "max_completion_tokens": 9,
    }
    written = body(dialect, {"max_tokens": 3}, extra=extra, sampling=Sampling(temperature=0.5))
    assert written["top_k"] == 5
    assert written["chat_template_kwargs"] == {"enable_thinking": False}
    assert written["nested"] == [{"x": None}]
    assert written["messages"] == ASK
    assert (written["temperature"], written["max_tokens"]) == (0.5, 3)
    assert "max_completion_tokens" not in written
    assert extra["max_tokens"] == 9, "the caller's own must not change"


def test_messages_arrive_as_they_came() -> None:
    odd = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:x"}}], "name": "é\ud83d"}]
    assert body("vllm", messages=odd)["messages"] == odd


def test_unset_sampling_is_not_sent() -> None:
    assert set(body("vllm")) == {"model", "messages", "stream", "stream_options"}


def test_a_seed_of_zero_and_a_temperature_of_zero_are_set() -> None:
    written = body("vllm", sampling=Sampling(seed=0, temperature=0.0, stop=("a", "b")))
    assert (written["seed"], written["temperature"], written["stop"]) == (0, 0.0, ["a", "b"])


def test_numbers_beyond_64_bits() -> None:
    big = Constraint("json_schema", {"const": 10**30})
    assert body("vllm", constraint=big)["response_format"]["json_schema"]["schema"] == {"const": 10**30}


@pytest.mark.parametrize("dialect", ALL)
def test_ids_are_asked_for_where_they_may_be(dialect: str) -> None:
    chat = body(dialect, return_token_ids=True)
    completion = body(dialect, kind="completion", prompt="x", return_token_ids=True)
    assert ("return_token_ids" in chat) == (dialect == "vllm")
    assert ("return_token_ids" in completion) == (dialect in ("vllm", "sglang"))


def test_completion_logprobs_are_a_number() -> None:
    assert body("vllm", kind="completion", prompt="x", sampling=Sampling(logprobs=True))["logprobs"] == 1
    assert body("vllm", sampling=Sampling(logprobs=True)) | {"logprobs": True} == body(
        "vllm", sampling=Sampling(logprobs=True)
    )


# --- constraints --------------------------------------------------------------------------------------------------

TAG = {"type": "structural_tag", "format": {"type": "const_string", "value": "x"}}
OLD_TAG = {"type": "structural_tag", "structures": [], "triggers": ["<"]}
FIELDS = ("response_format", "structured_outputs", "regex", "ebnf", "json_schema", "grammar")

NAMED = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}


@pytest.mark.parametrize(
    ("constraint", "sent"),
    [
        (
            Constraint("json_schema", SCHEMA),
            {
                "vllm": {"response_format": NAMED},
                "sglang": {"response_format": NAMED},
                "trtllm": {"response_format": {"type": "json", "schema": SCHEMA}},
                "llamacpp": {"response_format": NAMED},
                "dynamo": {"response_format": NAMED},
                "plain": {"response_format": NAMED},
            },
        ),
        (
            Constraint("json_object"),
            {dialect: {"response_format": {"type": "json_object"}} for dialect in ALL},
        ),
        (
            Constraint("regex", "a.b"),
            {
                "vllm": {"structured_outputs": {"regex": "a.b"}},
                "sglang": {"regex": "a.b"},
                "trtllm": {"response_format": {"type": "regex", "regex": "a.b"}},
                "llamacpp": {"grammar": 'root ::= "a" [^\\n] "b"'},
            },
        ),
        (
            Constraint("regex", "(?=a)b"),  # look-ahead: no GBNF
            {
                "vllm": {"structured_outputs": {"regex": "(?=a)b"}},
                "sglang": {"regex": "(?=a)b"},
                "trtllm": {"response_format": {"type": "regex", "regex": "(?=a)b"}},
            },
        ),
        (
            Constraint("choice", ("a.b", 'c"\n')),
            {
                "vllm": {"structured_outputs": {"choice": ["a.b", 'c"\n']}},
                "sglang": {"regex": '(a\\.b)|(c"\\n)'},
                "trtllm": {"response_format": {"type": "regex", "regex": '(a\\.b)|(c"\\n)'}},
                "llamacpp": {"grammar": 'root ::= "a.b" | "c\\"\\n"'},
            },
        ),
        (
            Constraint("grammar", "root ::= a_b\na_b ::= [x]", syntax="ebnf"),
            {
                "vllm": {"structured_outputs": {"grammar": "root ::= a_b\na_b ::= [x]"}},
                "sglang": {"ebnf": "root ::= a_b\na_b ::= [x]"},
                "trtllm": {"response_format": {"type": "ebnf", "ebnf": "root ::= a_b\na_b ::= [x]"}},
                "llamacpp": {"grammar": "root ::= a-b\na-b ::= [x]"},
            },
        ),
        (
            Constraint("grammar", GRAMMAR, syntax="gbnf"),
            {
                "vllm": {"structured_outputs": {"grammar": GRAMMAR}},
                "sglang": {"ebnf": GRAMMAR},
                "trtllm": {"response_format": {"type": "ebnf", "ebnf": GRAMMAR}},
                "llamacpp": {"grammar": GRAMMAR},
            },
        ),
        (
            Constraint("grammar", 'start: "a"', syntax="lark"),
            {"vllm": {"structured_outputs": {"grammar": 'start: "a"'}}},
        ),
        (
            Constraint("structural_tag", TAG),
            {
                "vllm": {"structured_outputs": {"structural_tag": json.dumps(TAG, separators=(",", ":"))}},
                "sglang": {"response_format": TAG},
                "trtllm": {"response_format": TAG},
            },
        ),
        (
            Constraint("structural_tag", OLD_TAG),
            {
                "vllm": {"structured_outputs": {"structural_tag": json.dumps(OLD_TAG, separators=(",", ":"))}},
                "sglang": {"response_format": OLD_TAG},
            },
        ),
        (Constraint("json_schema", True), {}),
    ],
    ids=lambda value: f"{value.kind}-{value.syntax}" if isinstance(value, Constraint) else "",
)  # fmt: skip
@pytest.mark.parametrize("dialect", ALL)
def test_each_constraint_in_each_dialect(dialect: str, constraint: Constraint, sent: dict[str, Any]) -> None:
    wire = write(dialect, constraint=constraint)
    written = json.loads(wire.body)
    fields = {name: written[name] for name in FIELDS if name in written}
    assert fields == json.loads(json.dumps(sent.get(dialect, {})))
    said = f"{constraint.kind}:{constraint.syntax}" if constraint.syntax else constraint.kind
    assert wire.unenforced == (() if dialect in sent else (said,))


@pytest.mark.parametrize("dialect", ALL)
def test_capabilities_say_what_is_sent(dialect: str) -> None:
    easy = {"json_schema": SCHEMA, "json_object": None, "regex": "a", "choice": ("a",)}
    easy |= {"grammar": GRAMMAR, "structural_tag": TAG}
    enforced = {
        kind
        for kind, value in easy.items()
        if not write(dialect, constraint=Constraint(kind, value, syntax="ebnf" if kind == "grammar" else "")).unenforced  # type: ignore[arg-type]
    }
    assert enforced == capabilities(dialect).constraints


@pytest.mark.parametrize("dialect", ALL)
@pytest.mark.parametrize("kind", ["chat", "completion"])
def test_a_constraint_that_is_not_to_be_sent_is_not(dialect: str, kind: str) -> None:
    wire = write(dialect, {"constrain": False}, kind=kind, prompt="x", constraint=Constraint("json_schema", SCHEMA))
    assert not set(FIELDS) & set(json.loads(wire.body))
    assert wire.unenforced == ("json_schema",)


@pytest.mark.parametrize(
    ("dialect", "fields", "unenforced"),
    [
        ("vllm", {"response_format": NAMED}, ()),
        ("sglang", {"json_schema": json.dumps(SCHEMA, separators=(",", ":"))}, ()),
        ("trtllm", {"response_format": {"type": "json", "schema": SCHEMA}}, ()),
        ("llamacpp", {"json_schema": SCHEMA}, ()),
        ("dynamo", {}, ("json_schema",)),
        ("plain", {}, ("json_schema",)),
    ],
)
def test_a_schema_on_a_completion(dialect: str, fields: dict[str, Any], unenforced: tuple[str, ...]) -> None:
    wire = write(dialect, kind="completion", prompt="x", constraint=Constraint("json_schema", SCHEMA))
    written = json.loads(wire.body)
    assert {name: written[name] for name in FIELDS if name in written} == fields
    assert wire.unenforced == unenforced


def test_llamacpp_takes_no_grammar_beside_tools_but_a_schema() -> None:
    tool = Tool("f", {}, False, {"type": "function", "function": {"name": "f"}})
    grammar = Constraint("grammar", GRAMMAR, syntax="gbnf")
    assert write("llamacpp", constraint=grammar, tools=(tool,)).unenforced == ("grammar:gbnf",)
    assert write("llamacpp", constraint=grammar, tools=(tool,), tool_choice=ToolChoice("none")).unenforced == ()
    assert write("llamacpp", constraint=Constraint("json_schema", SCHEMA), tools=(tool,)).unenforced == ()


@pytest.mark.parametrize(
    ("schema", "dropped"),
    [
        ({"type": "array", "uniqueItems": True}, {"sglang", "trtllm", "llamacpp"}),
        ({"properties": {"uniqueItems": {"type": "string"}}}, set()),
        ({"items": [{"properties": {"x": {"multipleOf": 2}}}]}, {"sglang", "trtllm", "llamacpp"}),
        ({"$defs": {"a": {"oneOf": [{}, {}]}}}, {"sglang", "trtllm", "vllm"}),
        ({"allOf": [{}]}, set()),
        ({"allOf": 5, "properties": [], "items": None}, set()),
        ({"anyOf": [{"allOf": [{}, {}]}]}, {"sglang", "trtllm", "vllm"}),
        ({"pattern": "a", "maxLength": 3}, {"sglang", "trtllm"}),
        ({"maxLength": 3}, set()),
        ({"maxProperties": 3}, {"llamacpp"}),
        ({"items": {"type": "number", "minimum": 0}}, {"llamacpp"}),
        ({"type": ["null", "number"], "maximum": 0}, {"llamacpp"}),
        ({"type": "integer", "minimum": 0}, set()),
        ({"enum": [{"uniqueItems": True}], "const": {"not": 1}}, set()),
    ],
)
def test_keywords_that_a_grammar_drops_are_named(schema: dict[str, Any], dropped: set[str]) -> None:
    constraint = Constraint("json_schema", schema)
    assert {dialect for dialect in ALL if write(dialect, constraint=constraint).unenforced} == dropped


def test_dropped_keywords_by_name() -> None:
    schema = {"type": "string", "format": "date", "minLength": 3, "not": {"const": "x"}}
    assert write("sglang", constraint=Constraint("json_schema", schema)).unenforced == ("minLength", "not")


def test_a_schema_that_contains_itself_is_walked_once() -> None:
    schema: dict[str, Any] = {"not": {}}
    deep = schema
    for _ in range(20_000):
        deep["items"] = {"type": "array"}
        deep = deep["items"]
    from guard.engines.dialect_constraints import dropped

    assert dropped(Constraint("json_schema", schema), frozenset({"not"})) == ("not",)


@pytest.mark.parametrize("dialect", ALL)
def test_an_engine_is_told_not_to_stop_where_it_knows_how(dialect: str) -> None:
    sent = body(dialect, {"ignore_eos": True})
    assert sent.get("ignore_eos") == (True if dialect in ("vllm", "sglang", "trtllm", "llamacpp") else None)
    assert "ignore_eos" not in body(dialect)


# --- tools --------------------------------------------------------------------------------------------------------


def a_tool(name: str) -> Tool:
    return Tool(name, {}, False, {"type": "function", "function": {"name": name}})


def test_tools_go_out_as_they_came() -> None:
    written = body("vllm", tools=(a_tool("f"),), tool_choice_raw="required", parallel_tool_calls=False)
    assert written["tools"] == [{"type": "function", "function": {"name": "f"}}]
    assert (written["tool_choice"], written["parallel_tool_calls"]) == ("required", False)
    assert "tool_choice" not in body("vllm", tools=(a_tool("f"),))


def test_trtllm_is_told_that_tools_may_be_used() -> None:
    assert body("trtllm", tools=(a_tool("f"),))["tool_choice"] == "auto"


@pytest.mark.parametrize(("required", "choice"), [(True, "required"), (False, "auto")])
def test_allowed_tools_are_the_only_ones_offered(required: bool, choice: str) -> None:
    raw = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}
    fields: dict[str, Any] = {
        "tools": (a_tool("f"), a_tool("g")),
        "tool_choice": ToolChoice("allowed", ("g",), required),
        "tool_choice_raw": raw,
    }
    written = body("sglang", **fields)
    assert [tool["function"]["name"] for tool in written["tools"]] == ["g"]
    assert written["tool_choice"] == choice
    assert body("plain", **fields)["tool_choice"] == raw


SQL_TOOL: dict[str, Any] = {
    "type": "custom",
    "custom": {
        "name": "sql",
        "description": "Runs it.",
        "format": {"type": "grammar", "grammar": {"syntax": "regex", "definition": "SELECT .*"}},
    },
}


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "trtllm", "llamacpp", "dynamo"])
@pytest.mark.parametrize("choice", [{"type": "custom", "custom": {"name": "sql"}}, {"type": "custom", "name": "sql"}])
def test_an_engine_that_knows_no_custom_tools_is_sent_a_function(dialect: str, choice: dict[str, Any]) -> None:
    said = {"id": "c1", "type": "custom", "custom": {"name": "sql", "input": 'SELECT "a"'}}
    fields: dict[str, Any] = {
        "tools": parse_tools({"tools": [SQL_TOOL]}),
        "tool_choice": ToolChoice("named", ("sql",)),
        "tool_choice_raw": choice,
        "messages": (
            {"role": "user", "content": "Go."},
            {"role": "assistant", "content": None, "tool_calls": [said]},
            {"role": "tool", "tool_call_id": "c1", "content": "1"},
        ),
    }
    written = body(dialect, **fields)
    (tool,) = written["tools"]
    assert (tool["type"], tool["function"]["name"], tool["function"]["description"]) == ("function", "sql", "Runs it.")
    schema = tool["function"]["parameters"]
    jsonschema_rs.validator_for(schema).validate({"input": "SELECT 1"})
    assert "SELECT .*" in schema["properties"]["input"]["description"]
    assert written["tool_choice"] == {"type": "function", "function": {"name": "sql"}}
    (call,) = written["messages"][1]["tool_calls"]
    assert (call["id"], call["type"], call["function"]["name"]) == ("c1", "function", "sql")
    assert json.loads(call["function"]["arguments"]) == {"input": 'SELECT "a"'}
    plain = body("plain", **fields)
    assert (plain["tools"], plain["tool_choice"], plain["messages"][1]["tool_calls"]) == ([SQL_TOOL], choice, [said])


# --- going on -----------------------------------------------------------------------------------------------------


def prefixed(**fields: Any) -> dict[str, Any]:
    return {"prefix": Prefix(**fields), "max_tokens": 9}


@pytest.mark.parametrize("dialect", ALL)
def test_an_empty_prefix_is_none(dialect: str) -> None:
    assert body(dialect, prefixed())["messages"] == ASK


@pytest.mark.parametrize("dialect", ["trtllm", "dynamo", "plain"])
def test_who_cannot_go_on_with_a_chat(dialect: str) -> None:
    with pytest.raises(ResumeUnsupported, match=dialect):
        write(dialect, prefixed(content="a"))
    assert capabilities(dialect).resume == "no"


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
@pytest.mark.parametrize("prefix", [{"reasoning": "hm"}, {"content": "a", "tool_calls": (("c", "f", "{"),)}])
def test_what_cannot_be_gone_on_with(dialect: str, prefix: dict[str, Any]) -> None:
    with pytest.raises(ResumeUnsupported) as raised:
        write(dialect, prefixed(**prefix))
    assert raised.value.kind == "resume"


@pytest.mark.parametrize("dialect", ["vllm", "sglang"])
def test_going_on_behind_the_callers_own_beginning(dialect: str) -> None:
    begun = [*ASK, {"role": "assistant", "content": "Well, "}]
    flags = {"continue_final_message": True, "add_generation_prompt": False}
    written = body(dialect, prefixed(content="a"), messages=begun, extra=flags)
    assert written["messages"] == [*ASK, {"role": "assistant", "content": "Well, a"}]
    written = body(dialect, prefixed(content="a"), messages=begun)
    assert written["messages"] == [*begun, {"role": "assistant", "content": "a"}]
    assert begun[-1]["content"] == "Well, "


def test_llamacpp_goes_on_with_the_callers_beginning_always() -> None:
    begun = [*ASK, {"role": "assistant", "content": "Well, "}]
    wire = write("llamacpp", prefixed(content="a"), messages=begun)
    assert json.loads(wire.body)["messages"][-1] == {"role": "assistant", "content": "Well, a"}
    assert wire.drop_prefix == "Well, a"
    with pytest.raises(ResumeUnsupported):
        write("llamacpp", prefixed(content="a"), messages=[*ASK, {"role": "assistant", "content": [{"type": "text"}]}])


@pytest.mark.parametrize("dialect", ALL)
def test_a_completion_goes_on_with_its_text(dialect: str) -> None:
    written = body(dialect, prefixed(content=" b"), kind="completion", prompt="a")
    assert (written["prompt"], written["max_tokens"]) == ("a b", 9)


def test_a_completion_over_ids() -> None:
    known = prefixed(content="b", token_ids=(3, 4))
    assert body("vllm", known, kind="completion", prompt=(1, 2))["prompt"] == [1, 2, 3, 4]
    with pytest.raises(ResumeUnsupported, match="not every id"):
        write("vllm", prefixed(content="b"), kind="completion", prompt=(1, 2))
    with pytest.raises(ResumeUnsupported):
        write("plain", known, kind="completion", prompt=(1, 2))
    with pytest.raises(ResumeUnsupported):
        write("vllm", prefixed(reasoning="b"), kind="completion", prompt="a")


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
def test_a_chat_goes_on_by_ids_where_all_are_known(dialect: str) -> None:
    known = prefixed(content="b", token_ids=(3,), prompt_token_ids=(1, 2))
    wire = write(dialect, known)
    assert wire.path == "/v1/completions"
    written = json.loads(wire.body)
    assert written["prompt"] == [1, 2, 3]
    assert "messages" not in written
    assert wire.drop_prefix == ""


@pytest.mark.parametrize(
    ("attempt", "fields"),
    [
        ({"max_tokens": None}, {}),
        ({}, {"tools": (a_tool("f"),)}),
        ({}, {"constraint": Constraint("json_object")}),
        ({"prefix": Prefix("b", token_ids=(3,))}, {}),
        ({"prefix": Prefix("b", prompt_token_ids=(3,))}, {}),
    ],
)
def test_and_by_text_where_an_id_or_a_parser_would_be_missed(attempt: dict[str, Any], fields: dict[str, Any]) -> None:
    known = prefixed(content="b", token_ids=(3,), prompt_token_ids=(1, 2))
    written = body("vllm", {**known, **attempt}, **fields)
    assert written["messages"][-1] == {"role": "assistant", "content": "b"}


# --- behind reasoning ---------------------------------------------------------------------------------------------


def _said(dialect: str, model: str = "m", constraint: Constraint | None = None, **prefix: Any) -> str:
    request = GenerationRequest(
        id="r", kind="chat", model="m", messages=[{"role": "user", "content": "q"}], constraint=constraint
    )
    attempt = EngineRequest(request, prefix=Prefix(**prefix), constrain=False)
    last = json.loads(write_request(dialect, attempt, model).body)["messages"][-1]
    assert last["role"] == "assistant"
    return str(last["content"])


def test_an_answer_goes_on_behind_the_reasoning_that_was_split_off_it() -> None:
    lead = "<think>\nhm\n</think>\n\n"
    for dialect in ("vllm", "sglang", "llamacpp"):
        assert _said(dialect, content="so", reasoning="hm", lead=lead) == lead + "so"
        assert _said(dialect, reasoning="hm", lead=lead) == lead


def test_reasoning_that_the_engine_split_off_is_written_as_its_model_does() -> None:
    held = Constraint("json_object")
    assert _said("vllm", "Qwen/Qwen3-8B", held, content="{", reasoning="hm") == "<think>\nhm\n</think>\n\n{"
    with pytest.raises(ResumeUnsupported):  # of a model that is not known nothing is written
        _said("vllm", "m", held, content="{", reasoning="hm")
    with pytest.raises(ResumeUnsupported):  # where nothing checks what comes, it might be taken for reasoning again
        _said("vllm", "Qwen/Qwen3-8B", content="so", reasoning="hm")


def test_llamacpp_shows_tools_to_the_template_where_it_refuses_log_probabilities_beside_them() -> None:
    tool = a_tool("f")
    sampling = Sampling(logprobs=True, top_logprobs=3)
    extra = {"chat_template_kwargs": {"enable_thinking": False}}
    fields: dict[str, Any] = {"tools": (tool,), "sampling": sampling, "extra": extra}
    written = body("llamacpp", tool_choice=ToolChoice("none"), **fields)
    assert "tools" not in written
    assert written["chat_template_kwargs"] == {"enable_thinking": False, "tools": [tool.raw]}
    assert body("llamacpp", **fields)["tools"] == [tool.raw]
    assert body("vllm", tool_choice=ToolChoice("none"), **fields)["tools"] == [tool.raw]
