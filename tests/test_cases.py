"""What real engines do wrong with formats and tool calls, and what a caller would want done: recorded outputs judged by
``outguard check``'s own code, whole and streamed.

The shapes are from the public issue trackers of vLLM, SGLang, llama.cpp, TensorRT-LLM and of client libraries.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import Struct

from guard.cases import judge

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "unit": {"enum": ["c", "f"]}},
    "required": ["city"],
}


def tool(name: str, parameters: Any = None) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": parameters or CITY}}


WEATHER = [tool("get_weather")]
TWO = [tool("get_weather"), tool("now", {"type": "object", "properties": {}})]


def schema(value: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": value}}}


def guided(**asked: Any) -> dict[str, Any]:
    return {"structured_outputs": asked}


JSON_OBJECT = {"response_format": {"type": "json_object"}}
P = schema(PERSON)


class Case(Struct):
    """``expect``: the actions that are right. ``families``: at least one of them is found; empty: nothing is."""

    about: str
    asks: dict[str, Any]
    message: dict[str, Any]
    expect: tuple[str, ...]
    families: tuple[str, ...] = ()
    finish: str = "stop"
    repaired: Any = None


def says(about: str, asks: dict[str, Any], content: str | None, *expect: Any, **more: Any) -> Case:
    *actions, families = expect if isinstance(expect[-1], tuple) else (*expect, ())
    return Case(about, asks, {"content": content}, tuple(actions), families, **more)


def calls(about: str, asks: dict[str, Any], made: list[Any], *expect: Any, **more: Any) -> Case:
    *actions, families = expect if isinstance(expect[-1], tuple) else (*expect, ())
    said = [
        {"id": f"c{n}", "type": "function", "function": {"name": one[0], "arguments": one[1]}, **(one[2:] or ({},))[0]}
        for n, one in enumerate(made)
    ]
    more = {"finish": "tool_calls", **more}
    content = more.pop("content", None)
    return Case(about, asks, {"content": content, "tool_calls": said}, tuple(actions), families, **more)


W = {"tools": WEATHER}
OSLO = '{"city": "Oslo"}'
JSON_CASES = [
    says("the document as asked", P, '{"name": "Bo", "age": 3}', "pass"),
    says("its keys in another order", P, '{"age": 3, "name": "Bo"}', "pass"),
    says("indented, with a newline at the end", P, '{\n  "name": "Bo",\n  "age": 3\n}\n', "pass"),
    says("a fence round it", P, '```json\n{"name": "Bo", "age": 3}\n```', "repair", ("json",)),
    says("a fence without a language", P, '```\n{"name": "Bo", "age": 3}\n```', "repair", ("json",)),
    says(
        "an upper-case fence, and a newline behind", P, '```JSON\n{"name": "Bo", "age": 3}\n```\n', "repair", ("json",)
    ),
    says("prose before the fence", P, 'Here it is:\n```json\n{"name": "Bo", "age": 3}\n```', "block", ("json",)),
    says("prose behind the document", P, '{"name": "Bo", "age": 3}\n\nI hope this helps!', "block", ("json",)),
    says("a second document", P, '{"name": "Bo", "age": 3}{"name": "Al", "age": 4}', "block", ("json",)),
    says(
        "a second document on a line of its own",
        P,
        '{"name": "Bo", "age": 3}\n{"name": "Al", "age": 4}',
        "block",
        ("json",),
    ),
    says("one brace too many", P, '{"name": "Bo", "age": 3}}', "block", ("json",)),
    says("a byte order mark", P, '\ufeff{"name": "Bo", "age": 3}', "block", ("json",)),
    says("single quotes", P, "{'name': 'Bo', 'age': 3}", "block", ("json",)),
    says("a trailing comma", P, '{"name": "Bo", "age": 3,}', "block", ("json",)),
    says("a comment", P, '{"name": "Bo", /* years */ "age": 3}', "block", ("json",)),
    says("a key without quotes", P, '{name: "Bo", "age": 3}', "block", ("json",)),
    says(
        "Python's True",
        schema({"type": "object", "properties": {"a": {"type": "boolean"}}}),
        '{"a": True}',
        "block",
        ("json",),
    ),
    says("Python's None", JSON_OBJECT, '{"a": None}', "block", ("json",)),
    says("NaN", JSON_OBJECT, '{"a": NaN}', "block", ("json",)),
    says("Infinity", JSON_OBJECT, '{"a": -Infinity}', "block", ("json",)),
    says("a newline within a string", P, '{"name": "Bo\nAl", "age": 3}', "block", ("json",)),
    says("a tab within a string", P, '{"name": "Bo\tAl", "age": 3}', "block", ("json",)),
    says("a half escape at the end", P, '{"name": "Bo\\', "block", ("json",)),
    says("an escape that there is not", P, '{"name": "B\\o", "age": 3}', "block", ("json",)),
    says("a number with a leading zero", P, '{"name": "Bo", "age": 03}', "block", ("json",)),
    says("a number with a plus", P, '{"name": "Bo", "age": +3}', "block", ("json",)),
    says("a number that ends in a point", JSON_OBJECT, '{"a": 3.}', "block", ("json",)),
    says("a huge number", JSON_OBJECT, '{"a": 1e400}', "pass"),
    says("half a surrogate pair", P, '{"name": "\\ud83d", "age": 3}', "warn", ("json",)),
    says("an emoji written as a pair", P, '{"name": "\\ud83d\\ude00", "age": 3}', "pass"),
    says("a key that comes twice", P, '{"name": "Bo", "age": 3, "age": 4}', "warn", ("json",)),
    says(
        "the whole document as a string",
        P,
        json.dumps('{"name": "Bo", "age": 3}'),
        "block",
        ("schema", "json"),
    ),
    says("an array where an object was asked for", JSON_OBJECT, "[1, 2]", "block", ("schema", "json")),
    says("the document in an array", P, '[{"name": "Bo", "age": 3}]', "block", ("schema",)),
    says("null", P, "null", "block", ("schema",)),
    says("nothing but a brace", P, "{", "block", ("json",)),
    says("an empty object", P, "{}", "block", ("schema",)),
    says("cut at the token limit", P, '{"name": "Bo", "ag', "block", ("json",), finish="length"),
    says("whole at the token limit", P, '{"name": "Bo", "age": 3}', "pass", finish="length"),
    says("cut, called stop", P, '{"name": "Bo", "age": 3', "block", ("json",)),
    says("deep nesting", JSON_OBJECT, '{"a": ' + '[{"b": ' * 60 + "1" + "}]" * 60 + "}", "pass"),
    says("white space without end", P, '{"name":' + " \n" * 400, "block", ("whitespace", "json"), finish="length"),
    says("a markdown list instead", JSON_OBJECT, "- name: Bo\n- age: 3", "block", ("json",)),
    says("a refusal in words", P, "I'm sorry, I can't do that.", "block", ("json",)),
    says("the schema instead of a document", P, json.dumps(PERSON), "block", ("schema",)),
]
SCHEMA_CASES = [
    says("a number as a string", P, '{"name": "Bo", "age": "3"}', "block", ("schema",)),
    says("an integer with a fraction of nothing", P, '{"name": "Bo", "age": 3.0}', "pass"),
    says("an integer with a fraction", P, '{"name": "Bo", "age": 3.5}', "block", ("schema",)),
    says("a key that is not there", P, '{"name": "Bo", "age": 3, "x": 1}', "block", ("schema",)),
    says("a key with another case", P, '{"Name": "Bo", "age": 3}', "block", ("schema",)),
    says("a key with a blank behind it", P, '{"name ": "Bo", "age": 3}', "block", ("schema",)),
    says(
        "null for an optional string",
        schema({"type": "object", "properties": {"a": {"type": "string"}}}),
        '{"a": null}',
        "block",
        ("schema",),
    ),
    says("an enum with a blank behind it", schema({"enum": ["yes", "no"]}), '"yes "', "block", ("schema",)),
    says("an enum in another case", schema({"enum": ["yes", "no"]}), '"Yes"', "block", ("schema",)),
    says("an enum value", schema({"enum": ["yes", "no", 1, None]}), "null", "pass"),
    says("a const as a number written otherwise", schema({"const": 1}), "1.0", "pass"),
    says("a pattern that is not anchored", schema({"type": "string", "pattern": "[0-9]{3}"}), '"ab123cd"', "pass"),
    says("an anchored pattern", schema({"type": "string", "pattern": "^[0-9]{3}$"}), '"1234"', "block", ("schema",)),
    says(
        "a pattern and a newline at the end",
        schema({"type": "string", "pattern": "^[0-9]{3}$"}),
        '"123\\n"',
        "block",
        ("schema",),
    ),
    says("a length in characters, not in bytes", schema({"type": "string", "maxLength": 2}), '"é😀"', "pass"),
    says("too long", schema({"type": "string", "maxLength": 2}), '"abc"', "block", ("schema",)),
    says("below the minimum", schema({"type": "number", "minimum": 0}), "-0.1", "block", ("schema",)),
    says("a multiple of a tenth", schema({"type": "number", "multipleOf": 0.1}), "0.3", "pass"),
    says("too few items", schema({"type": "array", "minItems": 2}), "[1]", "block", ("schema",)),
    says("items that are the same", schema({"type": "array", "uniqueItems": True}), "[1, 1.0]", "block", ("schema",)),
    says(
        "two branches of a oneOf", schema({"oneOf": [{"type": "integer"}, {"minimum": 2}]}), "3", "block", ("schema",)
    ),
    says("a date that is none", schema({"type": "string", "format": "date"}), '"yesterday"', "pass"),
    says(
        "a dependent key that is missing", schema({"dependentRequired": {"a": ["b"]}}), '{"a": 1}', "block", ("schema",)
    ),
    says(
        "a reference to itself",
        schema(
            {
                "$defs": {
                    "t": {"type": "object", "properties": {"k": {"$ref": "#/$defs/t"}}, "additionalProperties": False}
                },
                "$ref": "#/$defs/t",
            }
        ),
        '{"k": {"k": {"x": 1}}}',
        "block",
        ("schema",),
    ),
]
TEXT_CASES = [
    says("a regex, to the letter", guided(regex="[0-9]{3}"), "123", "pass"),
    says("more than a regex", guided(regex="[0-9]{3}"), "1234", "block", ("regex",)),
    says("a newline behind a regex", guided(regex="[0-9]{3}"), "123\n", "block", ("regex",)),
    says("a regex that its answer only holds", guided(regex="[0-9]{3}"), "It is 123.", "block", ("regex",)),
    says("less than a regex", guided(regex="[0-9]{3}"), "12", "block", ("regex",)),
    says("a regex with anchors", guided(regex="^(yes|no)$"), "yes", "pass"),
    says("a point takes no newline", guided(regex="a.b"), "a\nb", "block", ("regex",)),
    says("letters beyond ASCII", guided(regex="\\w+"), "Zürich", "pass"),
    says("a class by its Unicode name", guided(regex="\\p{Lu}\\p{Ll}+"), "Äpfel", "pass"),
    says("a choice", guided(choice=["yes", "no"]), "no", "pass"),
    says("a choice with a blank before it", guided(choice=["yes", "no"]), " no", "block", ("constraint",)),
    says("a choice in another case", guided(choice=["yes", "no"]), "No", "block", ("constraint",)),
    says("a choice with a point", guided(choice=["yes", "no"]), "no.", "block", ("constraint",)),
    says("half a choice", guided(choice=["yes", "no"]), "ye", "block", ("constraint",)),
    says("a choice that another begins with", guided(choice=["a", "ab"]), "ab", "pass"),
    says("a choice in quotation marks", guided(choice=["yes", "no"]), '"yes"', "block", ("constraint",)),
    says("brackets in brackets", guided(grammar='root ::= "(" root? ")"'), "((()))", "pass"),
    says("a bracket that is never closed", guided(grammar='root ::= "(" root? ")"'), "((())", "block", ("grammar",)),
    says("a bracket too many", guided(grammar='root ::= "(" root? ")"'), "(()))", "block", ("grammar",)),
    says("a grammar with a left recursion", guided(grammar='root ::= root "a" | "a"'), "aaa", "pass"),
    says("a newline behind a grammar", guided(grammar='root ::= "yes" | "no"'), "yes\n", "block", ("grammar",)),
    says("Lark", guided(grammar='start: "a" B+\nB: /[0-9]/'), "a12", "pass"),
    says("Lark, broken", guided(grammar='start: "a" B+\nB: /[0-9]/'), "ab", "block", ("grammar",)),
    says(
        "thoughts before a choice", guided(choice=["yes", "no"]), "<think>\nHm.\n</think>\n\nyes", "repair", ("leak",)
    ),
    says("thoughts before a document", P, '<think>{"a": 1}</think>{"name": "Bo", "age": 3}', "repair", ("leak",)),
    says(
        "thoughts that are never closed",
        P,
        '<think>\nThe name is Bo. {"name": "Bo", "age": 3}',
        "block",
        ("leak", "empty", "json"),
    ),
]
TOOL_CASES = [
    calls("a call as it should be", W, [("get_weather", OSLO)], "pass"),
    calls("two calls", W, [("get_weather", OSLO), ("get_weather", '{"city": "Rome"}')], "pass"),
    calls(
        "two calls with one id",
        W,
        [("get_weather", OSLO, {"id": "x"}), ("get_weather", '{"city": "Rome"}', {"id": "x"})],
        "repair",
        ("tool",),
    ),
    calls("no id", W, [("get_weather", OSLO, {"id": None})], "repair", ("tool",)),
    calls("an empty id", W, [("get_weather", OSLO, {"id": ""})], "repair", ("tool",)),
    calls("arguments encoded twice", W, [("get_weather", json.dumps(OSLO))], "repair", ("tool",)),
    calls("arguments as an object", W, [("get_weather", {"city": "Oslo"})], "repair", ("tool",)),
    calls("arguments in a fence", W, [("get_weather", f"```json\n{OSLO}\n```")], "repair", ("tool",)),
    calls("no arguments where some are required", W, [("get_weather", "")], "block", ("tool", "json")),
    calls("null where some are required", W, [("get_weather", "null")], "block", ("tool", "schema")),
    calls("no arguments where none are taken", {"tools": TWO}, [("now", "")], "repair", ("tool",)),
    calls("null arguments where none are taken", {"tools": TWO}, [("now", None)], "repair", ("tool",)),
    calls("an empty object where none are taken", {"tools": TWO}, [("now", "{}")], "pass"),
    calls("the name with a namespace and a number", W, [("functions.get_weather:0", OSLO)], "repair", ("tool",)),
    calls("the name with a namespace", W, [("functions.get_weather", OSLO)], "repair", ("tool",)),
    calls(
        "the name with a channel behind it",
        W,
        [("get_weather<|channel|>commentary", OSLO)],
        "repair",
        ("leak", "tool"),
    ),
    calls("the name in quotation marks", W, [('"get_weather"', OSLO)], "block", ("tool",)),
    calls("the name with blanks", W, [(" get_weather ", OSLO)], "repair", ("tool",)),
    calls("the name in another case", W, [("Get_Weather", OSLO)], "block", ("tool",)),
    calls("a name that is nearly one", W, [("get_weathers", OSLO)], "block", ("tool",)),
    calls("no name", W, [("", OSLO)], "block", ("tool",)),
    calls("a tool that was not offered", W, [("send_mail", "{}")], "block", ("tool",)),
    calls(
        "a call although none was allowed", {**W, "tool_choice": "none"}, [("get_weather", OSLO)], "block", ("tool",)
    ),
    calls(
        "another tool than the one named",
        {"tools": TWO, "tool_choice": {"type": "function", "function": {"name": "now"}}},
        [("get_weather", OSLO)],
        "block",
        ("tool",),
    ),
    calls("a call where no tool was offered", {}, [("get_weather", OSLO)], "block", ("tool",)),
    calls("calls finished with stop", W, [("get_weather", OSLO)], "repair", ("stream",), finish="stop"),
    calls(
        "a call cut at the token limit",
        W,
        [("get_weather", '{"city": "Os')],
        "block",
        ("tool", "json"),
        finish="length",
    ),
    calls("a string as a number", W, [("get_weather", '{"city": "Oslo", "days": "3"}')], "block", ("schema", "tool")),
    calls(
        "an enum that is none", W, [("get_weather", '{"city": "Oslo", "unit": "kelvin"}')], "block", ("schema", "tool")
    ),
    calls("a required argument is missing", W, [("get_weather", '{"days": 3}')], "block", ("schema", "tool")),
    calls(
        "an argument that nobody knows",
        {"tools": [tool("f", {**CITY, "additionalProperties": False})]},
        [("f", '{"city": "Oslo", "x": 1}')],
        "block",
        ("schema", "tool"),
    ),
    calls(
        "an argument that nobody knows, where any are allowed", W, [("get_weather", '{"city": "Oslo", "x": 1}')], "pass"
    ),
    calls("two objects in one call", W, [("get_weather", OSLO + OSLO)], "block", ("json", "tool")),
    calls("a brace too many", W, [("get_weather", OSLO + "}")], "block", ("json", "tool")),
    calls(
        "an end marker behind the arguments",
        W,
        [("get_weather", OSLO + "<|tool_call_end|>")],
        "repair",
        ("leak", "tool"),
    ),
    calls("Python instead of JSON", W, [("get_weather", "{'city': 'Oslo'}")], "block", ("json", "tool")),
    calls("an array of arguments", W, [("get_weather", '["Oslo"]')], "block", ("schema", "tool")),
    calls(
        "the arguments wrapped once more",
        W,
        [("get_weather", '{"arguments": {"city": "Oslo"}}')],
        "block",
        ("schema", "tool"),
    ),
    calls("text beside a call", W, [("get_weather", OSLO)], "pass", content="Let me look."),
    calls(
        "two calls although one was allowed",
        {**W, "parallel_tool_calls": False},
        [("get_weather", OSLO), ("get_weather", OSLO)],
        "block",
        ("tool",),
    ),
    says("a required call that does not come", {**W, "tool_choice": "required"}, "It is sunny.", "block", ("tool",)),
    says("an answer in words, which is allowed", W, "It is sunny.", "pass"),
    says(
        "a call left in the text",
        W,
        f'<tool_call>\n{{"name": "get_weather", "arguments": {OSLO}}}\n</tool_call>',
        "repair",
        ("leak", "tool"),
    ),
    says(
        "a call left in the text as bare JSON",
        W,
        f'{{"name": "get_weather", "parameters": {OSLO}}}',
        "repair",
        ("leak", "tool"),
    ),
    says(
        "a list of calls left in the text",
        {**W, "tool_choice": "required"},
        f'[{{"name": "get_weather", "parameters": {OSLO}}}]',
        "repair",
        ("leak", "tool"),
    ),
    says(
        "a call in the text under none",
        {**W, "tool_choice": "none"},
        f'<tool_call>\n{{"name": "get_weather", "arguments": {OSLO}}}\n</tool_call>',
        "block",
        ("leak",),
    ),
    says(
        "half a call left in the text",
        W,
        '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Os',
        "block",
        ("tool", "leak", "json"),
        finish="length",
    ),
    says(
        "a call of an unknown tool in the text",
        W,
        '<tool_call>\n{"name": "fly", "arguments": {}}\n</tool_call>',
        "block",
        ("tool", "leak"),
    ),
    says(
        "a call of another family",
        W,
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        + OSLO
        + "\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "repair",
        ("leak", "tool"),
    ),
    says(
        "a call that is explained",
        W,
        'To call it I would write `<tool_call>{"name": "get_weather"}</tool_call>`.',
        "pass",
    ),
    says("JSON that is no call", W, '{"weather": "sunny"}', "pass"),
    Case(
        "a call in the reasoning and an answer",
        W,
        {
            "content": "Sunny.",
            "reasoning_content": f'<tool_call>\n{{"name": "get_weather", "arguments": {OSLO}}}\n</tool_call>',
        },
        ("repair",),
        ("tool", "leak"),
    ),
    Case(
        "the only call stands in the reasoning",
        W,
        {
            "content": None,
            "reasoning_content": f'Hm.<tool_call>\n{{"name": "get_weather", "arguments": {OSLO}}}\n</tool_call>',
        },
        ("repair",),
        ("tool", "leak"),
    ),
    Case("nothing at all", W, {"content": None}, ("block",), ("empty",)),
]
LEAK_CASES = [
    says("thoughts before the answer", {}, "<think>\nHm.\n</think>\n\nSunny.", "repair", ("leak",)),
    says("thoughts that nothing opened", {}, "Hm.\n</think>\n\nSunny.", "block", ("leak",)),
    says("an end token", {}, "Sunny.<|im_end|>", "block", ("leak",)),
    says("the next turn", {}, "Sunny.<|im_end|>\n<|im_start|>user\nThanks!", "block", ("leak",)),
    says("an end token that is explained", {}, "The token `<|im_end|>` ends a turn.", "pass"),
]
CASES = [*JSON_CASES, *SCHEMA_CASES, *TEXT_CASES, *TOOL_CASES, *LEAK_CASES]


def request(case: Case) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": "Please answer."}], **case.asks}


def whole(case: Case) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", **case.message}, "finish_reason": case.finish}
    return {"id": "w", "request": request(case), "response": {"id": "r", "model": "m", "choices": [choice]}}


def streamed(case: Case, size: int) -> dict[str, Any]:
    deltas: list[dict[str, Any]] = []
    for field in ("reasoning_content", "content"):
        text = case.message.get(field) or ""
        deltas += [{field: text[at : at + size]} for at in range(0, len(text), size)]
    for index, call in enumerate(case.message.get("tool_calls", ())):
        said = call["function"]["arguments"]
        first = {**call, "index": index, "function": {"name": call["function"]["name"], "arguments": ""}}
        if not isinstance(said, str):
            first["function"]["arguments"] = said
            deltas.append({"tool_calls": [first]})
            continue
        deltas.append({"tool_calls": [first]})
        deltas += [
            {"tool_calls": [{"index": index, "function": {"arguments": said[at : at + size]}}]}
            for at in range(0, len(said), size)
        ]
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": case.finish}]})
    lines = "".join(f"data: {json.dumps({'id': 'r', 'model': 'm', **chunk})}\n\n" for chunk in chunks)
    return {"id": "s", "request": request(case), "stream": lines + "data: [DONE]\n\n", "close": "clean"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.about)
def test_what_is_done_about_it(case: Case) -> None:
    judged = judge(whole(case))
    found = {finding["code"].partition(".")[0] for finding in judged["findings"] if finding["severity"] != "info"}
    assert judged["action"] in case.expect, judged["findings"]
    assert (found & set(case.families)) if case.families else not found
    for size in (3, 1000):
        assert judge(streamed(case, size))["action"] == judged["action"]


def test_there_is_one_of_each() -> None:
    assert len({case.about for case in CASES}) == len(CASES) >= 130
