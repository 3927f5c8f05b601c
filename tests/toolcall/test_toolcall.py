"""Tool calls as engines frame them: what is repaired, what is refused, and what has left by then."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from guard.constraint.formats.contract import TextCall
from guard.constraint.toolcall import ToolCallGuard
from guard.constraint.tools import parse_tool_choice, parse_tools
from guard.events import Finding, Repair, ToolDelta, ToolRelease
from guard.request import ToolChoice

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS = parse_tools(
    {
        "tools": [
            {"name": "get_weather", "inputSchema": CITY},
            {"name": "get_time", "inputSchema": {"type": "object", "properties": {}}},
            {"name": "get", "inputSchema": {"type": "object", "properties": {"n": {"type": "integer"}}}},
            {"type": "custom", "custom": {"name": "sql"}},
        ]
    }
)


class Ran:
    """What came out: the calls as a client puts them together, the codes, and what each step released."""

    def __init__(self, deltas: Sequence[ToolDelta], *, truncated: bool = False, **options: Any) -> None:
        choice = options.pop("choice", ToolChoice())
        options.setdefault("mint", lambda index: f"minted{index}")
        self.guard = ToolCallGuard(options.pop("tools", TOOLS), choice, **options)
        self.calls: list[dict[str, str]] = []
        self.findings: list[Finding] = []
        self.repairs: list[Repair] = []
        self.before_end: list[str] = []
        for delta in deltas:
            self._take(self.guard.feed(delta))
        self.before_end = [call["arguments"] for call in self.calls]
        self._take(self.guard.finish(truncated))

    def _take(self, pieces: Sequence[ToolRelease | Finding | Repair]) -> None:
        for piece in pieces:
            if isinstance(piece, Finding):
                self.findings.append(piece)
            elif isinstance(piece, Repair):
                self.repairs.append(piece)
            else:
                if piece.index == len(self.calls):
                    assert piece.id
                    assert piece.name is not None
                    self.calls.append({"id": piece.id, "name": piece.name, "arguments": ""})
                else:
                    assert piece.id is None
                    assert piece.name is None
                self.calls[piece.index]["arguments"] += piece.arguments

    @property
    def errors(self) -> list[str]:
        return [f.code for f in self.findings if f.severity == "error"]

    @property
    def warnings(self) -> list[str]:
        return [f.code for f in self.findings if f.severity == "warn"]

    @property
    def repaired(self) -> list[str]:
        return [r.code for r in self.repairs]

    @property
    def got(self) -> list[tuple[str, str, str]]:
        return [(c["id"], c["name"], c["arguments"]) for c in self.calls]


def d(
    index: int | None = 0, id: str | None = None, name: str | None = None, arguments: str = "", raw: Any = None
) -> ToolDelta:
    return ToolDelta(0, index, id, name, arguments, raw)


OSLO = '{"city": "Oslo"}'


def test_a_good_call_streams_but_its_end_waits() -> None:
    ran = Ran([d(0, "a", "get_weather"), d(arguments='{"city"'), d(arguments=': "Oslo"'), d(arguments="}")])
    assert ran.before_end == ['{"city": "Oslo"']
    assert ran.got == [("a", "get_weather", OSLO)]
    assert ran.findings == []
    assert ran.guard.verdict() == "ok"


def test_the_end_of_a_call_leaves_when_the_next_begins() -> None:
    ran = Ran([d(0, "a", "get_weather", OSLO), d(1, "b", "get_weather", '{"city": "Bergen"}')])
    assert ran.before_end == [OSLO, '{"city": "Bergen"']
    assert ran.findings == []


def test_interleaved_calls_are_kept_apart() -> None:
    ran = Ran(
        [
            d(0, "a", "get_weather"),
            d(1, "b", "get_time"),
            d(0, arguments='{"city": '),
            d(1, arguments="{}"),
            d(0, arguments='"X"}'),
        ]
    )
    assert ran.got == [("a", "get_weather", '{"city": "X"}'), ("b", "get_time", "{}")]
    assert ran.findings == []


REPAIRED: dict[str, tuple[list[ToolDelta], list[str], list[tuple[str, str, str]]]] = {
    "every index 0": (
        [d(0, "a", "get_weather", OSLO), d(0, "b", "get_weather", OSLO)],
        ["tool.wrong_index"],
        [("a", "get_weather", OSLO), ("b", "get_weather", OSLO)],
    ),
    "every index 0, no ids": (
        [d(0, None, "get_weather", OSLO), d(0, None, "get_time", "{}")],
        ["tool.missing_id", "tool.wrong_index", "tool.missing_id"],
        [("minted0", "get_weather", OSLO), ("minted1", "get_time", "{}")],
    ),
    "no index": (
        [d(None, "a", "get_weather", '{"city": '), d(None, None, None, '"Oslo"}'), d(None, "b", "get_time", "{}")],
        ["tool.wrong_index", "tool.wrong_index"],
        [("a", "get_weather", OSLO), ("b", "get_time", "{}")],
    ),
    "index from 1": ([d(1, "a", "get_time", "{}")], ["tool.wrong_index"], [("a", "get_time", "{}")]),
    "no id": ([d(0, None, "get_weather", OSLO)], ["tool.missing_id"], [("minted0", "get_weather", OSLO)]),
    "empty id": ([d(0, "", "get_weather", OSLO)], ["tool.missing_id"], [("minted0", "get_weather", OSLO)]),
    "id known": ([d(0, "old", "get_weather", OSLO)], ["tool.duplicate_id"], [("minted0", "get_weather", OSLO)]),
    "id twice": (
        [d(0, "a", "get_time", "{}"), d(1, "a", "get_time", "{}")],
        ["tool.duplicate_id"],
        [("a", "get_time", "{}"), ("minted1", "get_time", "{}")],
    ),
    "kimi id known": (
        [d(0, "functions.get_weather:0", "get_weather", OSLO)],
        ["tool.duplicate_id"],
        [("functions.get_weather:2", "get_weather", OSLO)],
    ),
    "name in every chunk": (
        [d(0, "a", "get_weather"), d(0, "a", "get_weather", '{"city"'), d(0, "a", "get_weather", ': "Oslo"}')],
        ["tool.name_repeated"],
        [("a", "get_weather", OSLO)],
    ),
    "header behind the name": (
        [d(0, "a", "get_weather<|channel|>commentary", OSLO)],
        ["tool.name_markup"],
        [("a", "get_weather", OSLO)],
    ),
    "header behind the name, in pieces": (
        [d(0, "a", "get_weather"), d(0, None, "<|channel|>"), d(0, None, "commentary"), d(0, arguments=OSLO)],
        ["tool.name_markup"],
        [("a", "get_weather", OSLO)],
    ),
    "native arguments in the name": (
        [d(0, "a", "get<arg_key>n</arg_key>\n<arg_value>3</arg_value>", "{}")],
        ["tool.name_markup"],
        [("a", "get", '{"n": 3}')],
    ),
    "prefix before the name": (
        [d(0, "a", "functions.get_time:0", "{}")],
        ["tool.name_decorated"],
        [("a", "get_time", "{}")],
    ),
    "object": (
        [d(0, "a", "get_weather", raw={"city": "Oslo"})],
        ["tool.arguments_object"],
        [("a", "get_weather", OSLO)],
    ),
    "encoded twice": (
        [d(0, "a", "get_weather", json.dumps(OSLO))],
        ["tool.double_encoded"],
        [("a", "get_weather", OSLO)],
    ),
    "fence": (
        [d(0, "a", "get_weather", f"```json\n{OSLO}\n```")],
        ["tool.fenced_arguments"],
        [("a", "get_weather", OSLO)],
    ),
    "no arguments": ([d(0, "a", "get_time", "")], ["tool.empty_arguments"], [("a", "get_time", "{}")]),
    "null": ([d(0, "a", "get_time", "null")], ["tool.empty_arguments"], [("a", "get_time", "{}")]),
    "marker behind": ([d(0, "a", "get_time", "{}</tool_call>")], ["tool.trailing_markup"], [("a", "get_time", "{}")]),
}


@pytest.mark.parametrize("case", REPAIRED)
def test_what_loses_nothing_is_put_right_and_recorded(case: str) -> None:
    deltas, codes, calls = REPAIRED[case]
    known = {"old", "functions.get_weather:0", "functions.get_weather:1"}
    ran = Ran(deltas, known_ids=known)
    assert ran.repaired == codes
    assert [c for c in ran.warnings if c.startswith("tool.")] == codes
    assert ran.errors == []
    assert ran.got == calls
    assert ran.guard.verdict() == "ok"


@pytest.mark.parametrize("case", REPAIRED)
def test_without_leave_to_repair_it_is_an_error(case: str) -> None:
    deltas, codes, _ = REPAIRED[case]
    ran = Ran(deltas, known_ids={"old", "functions.get_weather:0", "functions.get_weather:1"}, repairs=False)
    assert codes[0] in ran.errors
    assert ran.repaired == []


def test_a_name_in_pieces_is_joined_and_waits() -> None:
    ran = Ran([d(0, "a", "get"), d(0, None, "_"), d(0, None, "weather"), d(0, arguments=OSLO)])
    assert ran.got == [("a", "get_weather", OSLO)]
    assert ran.findings == []


REFUSED: dict[str, tuple[list[ToolDelta], list[str], str]] = {
    "unknown name": ([d(0, "a", "run", "{}")], ["tool.unknown_name"], "failed"),
    "no name": ([d(0, "a", None, "{}")], ["tool.unknown_name"], "failed"),
    "values in the name": (
        [d(0, "a", "get<parameter=n>3", "{}")],
        ["leak.tool_markup", "tool.unknown_name"],
        "failed",
    ),
    "truncated": ([d(0, "a", "get_weather", '{"city": "Os')], ["json.truncated", "tool.truncated"], "ok"),
    "no closing brace": ([d(0, "a", "get_weather", '{"city": "Os"')], ["json.truncated", "tool.truncated"], "ok"),
    "nothing for a tool that wants something": ([d(0, "a", "get_weather")], ["json.truncated", "tool.truncated"], "ok"),
    "extra brace": ([d(0, "a", "get_weather", OSLO + "}")], ["json.extra_bracket", "tool.invalid_json"], "ok"),
    "two objects": ([d(0, "a", "get_weather", OSLO + OSLO)], ["json.concatenated", "tool.invalid_json"], "ok"),
    "text behind": ([d(0, "a", "get_weather", OSLO + " ok")], ["json.extra_data", "tool.invalid_json"], "ok"),
    "no JSON": ([d(0, "a", "get_weather", "{'city': 1}")], ["json.invalid", "tool.invalid_json"], "ok"),
    "NaN": ([d(0, "a", "get", '{"n": NaN}')], ["json.invalid", "tool.invalid_json"], "ok"),
    "wrong type": ([d(0, "a", "get", '{"n": "x"}')], ["schema.type", "tool.invalid_arguments"], "ok"),
    "empty value": ([d(0, "a", "get", '{"n": ""}')], ["schema.type", "tool.invalid_arguments"], "ok"),
    "missing key": ([d(0, "a", "get_weather", "{}")], ["schema.required", "tool.invalid_arguments"], "ok"),
    "list": ([d(0, "a", "get_weather", "[1]")], ["schema.type", "tool.invalid_arguments"], "ok"),
    "list for an unnamed schema": ([d(0, "a", "get_time", raw=[1])], ["schema.type", "tool.invalid_arguments"], "ok"),
    "markup in a key": ([d(0, "a", "get", '{"<arg_key>n": 1}')], ["leak.tool_markup"], "ok"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_have_to_be_invented_is_refused(case: str) -> None:
    deltas, codes, verdict = REFUSED[case]
    ran = Ran(deltas)
    assert ran.errors == codes
    assert ran.guard.verdict() == verdict
    for _, _, arguments in ran.got:
        assert not arguments.endswith("}")


@pytest.mark.parametrize("case", REFUSED)
def test_where_nothing_is_enforced_it_leaves_as_it_came(case: str) -> None:
    deltas, codes, _ = REFUSED[case]
    ran = Ran(deltas, enforce=False)
    assert ran.errors[0] == codes[0]
    if deltas[0].name in ("get_weather", "get", "run"):
        assert ran.got[0][2] == deltas[0].arguments


@pytest.mark.parametrize(
    ("choice", "deltas", "code", "verdict"),
    [
        (ToolChoice("none"), [d(0, "a", "get_time", "{}")], "tool.forbidden", "failed"),
        (ToolChoice("none"), [], None, "ok"),
        (ToolChoice("auto"), [], None, "none"),
        (ToolChoice("required"), [], "tool.missing_call", "failed"),
        (ToolChoice("named", ("get",)), [], "tool.missing_call", "failed"),
        (ToolChoice("named", ("get",)), [d(0, "a", "get_time", "{}")], "tool.not_allowed", "failed"),
        (ToolChoice("named", ("get_time",)), [d(0, "a", "get_time", "{}")], None, "ok"),
        (ToolChoice("allowed", ("get",)), [], None, "none"),
        (ToolChoice("allowed", ("get",), True), [], "tool.missing_call", "failed"),
        (ToolChoice("allowed", ("get",)), [d(0, "a", "get_time", "{}")], "tool.not_allowed", "failed"),
    ],
)
def test_choice(choice: ToolChoice, deltas: list[ToolDelta], code: str | None, verdict: str) -> None:
    ran = Ran(deltas, choice=choice)
    assert ran.errors == ([code] if code else [])
    assert ran.guard.verdict() == verdict
    if code:
        assert ran.got == []


def test_one_call_only() -> None:
    ran = Ran([d(0, "a", "get_time", "{}"), d(1, "b", "get_time", "{}")], parallel=False)
    assert ran.errors == ["tool.parallel"]
    assert ran.got == [("a", "get_time", "{}")]
    assert ran.guard.verdict() == "failed"


def test_cut_by_the_limit_says_so() -> None:
    ran = Ran([d(0, "a", "get_weather", '{"city')], truncated=True)
    assert ran.errors == ["json.truncated", "tool.truncated"]
    assert ran.got == [("a", "get_weather", '{"city')]


def test_held_whole_when_asked() -> None:
    ran = Ran([d(0, "a", "get_weather", '{"city": '), d(0, arguments='"Oslo"}')], hold=True)
    assert ran.before_end == []
    assert ran.got == [("a", "get_weather", OSLO)]
    assert Ran([d(0, "a", "get_weather", '{"city": 1}')], hold=True).got == []


def test_custom_tools_take_text() -> None:
    ran = Ran([d(0, "a", "sql", "select "), d(0, arguments="1}")])
    assert (ran.got, ran.findings) == ([("a", "sql", "select 1}")], [])


@pytest.mark.parametrize("size", [1, 3, 200])
@pytest.mark.parametrize(
    ("sent", "said", "error"),
    [
        ('{"input": "go 12"}', "go 12", None),
        (' {\n "input" : "go 12" }\n', "go 12", None),
        ('{"input": "g\\u006f 12"}', "go 12", None),
        ("go 12", "go 12", None),
        ('{"input": "go north"}', "go ", "tool.invalid_arguments"),
        ('{"input": "go 1', "go 1", "tool.truncated"),
        ('{"input": "go 12"}}', "go 12", "tool.invalid_arguments"),
        ('{"input": "go 12", "why": 1}', "go 12", "tool.invalid_arguments"),
        ('{"text": "go 12"}', "", "tool.invalid_arguments"),
        ('{"input": 12}', "", "tool.invalid_arguments"),
        ('{"inp', "", "tool.invalid_arguments"),
        ("", "", "tool.truncated"),
    ],
)
def test_a_custom_tools_input_is_read_as_text_and_as_a_functions_argument(
    sent: str, said: str, error: str | None, size: int
) -> None:
    form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-z]+ [0-9]+"}}
    tools = parse_tools({"tools": [{"type": "custom", "custom": {"name": "cmd", "format": form}}]})
    pieces = [d(0, arguments=sent[at : at + size]) for at in range(0, len(sent), size)]
    ran = Ran([d(0, "a", "cmd"), *pieces], tools=tools)
    assert ran.errors[-1:] == ([error] if error else [])
    assert said.startswith(ran.got[0][2])
    assert error or ran.got == [("a", "cmd", said)]


def test_a_custom_tool_that_takes_json_gets_it_as_it_came() -> None:
    for text in ('{"query": {"input": "x"}}', '{"input": ["x"]}', "[1]", '{"inputs": "x"}', "{"):
        assert Ran([d(0, "a", "sql", text[:5]), d(0, arguments=text[5:])]).got == [("a", "sql", text)]
    assert Ran([d(0, "a", "sql", '{"input": "say \\"hi\\"\\n"}')]).got == [("a", "sql", 'say "hi"\n')]


def test_a_call_read_out_of_text_owes_no_id() -> None:
    ran = Ran([TextCall(0, 0, None, "get_time", "{}"), TextCall(0, 1, "own", "get_time", "{}")])
    assert ran.got == [("minted0", "get_time", "{}"), ("own", "get_time", "{}")]
    assert ran.findings == []


def test_a_call_that_is_said_as_text_and_framed_is_made_once() -> None:
    text = [TextCall(0, 0, None, "get_weather", '{"city": '), TextCall(0, 0, None, None, '"Oslo"}')]
    framed = [d(0, "a", "get_weather", '{"city":"Oslo"}')]
    for deltas in ([*text, *framed], [*framed, *text]):
        ran = Ran(deltas)
        assert [json.loads(arguments) for _, _, arguments in ran.got] == [{"city": "Oslo"}]
        assert ran.repaired == ["tool.repeated_in_text"]
    ran = Ran([*text, d(0, "a", "get_weather", '{"city":"Bergen"}')])
    assert [json.loads(arguments) for _, _, arguments in ran.got] == [{"city": "Oslo"}, {"city": "Bergen"}]
    assert ran.repaired == []


def test_a_call_in_the_reasoning_is_a_draft_unless_it_is_all_there_is() -> None:
    draft = TextCall(0, 0, None, "get_time", "{}", source="reasoning")
    assert Ran([draft]).got == [("minted0", "get_time", "{}")]
    ran = Ran([draft, d(0, "a", "get_weather", OSLO)])
    assert (ran.got, ran.warnings) == ([("a", "get_weather", OSLO)], ["tool.draft_in_reasoning"])
    guard = ToolCallGuard(TOOLS, ToolChoice(), mint=str)
    assert guard.feed(draft) == []
    assert [p.code for p in guard.finish(answered=True) if isinstance(p, Finding)] == ["tool.draft_in_reasoning"]


def test_custom_input_is_held_to_its_grammar() -> None:
    form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-z]+ [0-9]+"}}
    tools = parse_tools({"tools": [{"type": "custom", "custom": {"name": "cmd", "format": form}}]})
    assert Ran([d(0, "a", "cmd", "go "), d(0, arguments="12")], tools=tools).got == [("a", "cmd", "go 12")]
    ran = Ran([d(0, "a", "cmd", "go "), d(0, arguments="north")], tools=tools)
    assert ran.errors[-1] == "tool.invalid_arguments"
    assert ran.got == [("a", "cmd", "go ")]
    assert Ran([d(0, "a", "cmd", "go ")], tools=tools).errors


def test_a_flood_of_calls_ends() -> None:
    ran = Ran([d(i, f"c{i}", "get_time", "{}") for i in range(400)])
    assert ran.errors == ["tool.too_many_calls"]
    assert len(ran.got) == 256
    assert ran.got[-1][2] == "{"


def test_a_value_that_ends_with_a_marker_is_recorded() -> None:
    ran = Ran([d(0, "a", "get_weather", '{"city": "Oslo</parameter_x><|im_end|>"}')])
    assert (ran.warnings, ran.errors) == (["leak.tool_markup"], [])


DOCUMENTS = [
    *(OSLO, OSLO + "}", OSLO + OSLO, '{"city": "a\\"}{"}', '{"city": "<|im_end|>"}', "[]", "x", json.dumps(OSLO)),
    *(
        f"```json\n{OSLO}\n```",
        f"  {OSLO}  ",
        OSLO + " </tool_call>",
        '{"city": "é\\u00e9"',
        "{]",
        "```",
        '"',
        "",
        "null",
    ),
    *('{"city": {"a": [1, "}"]}}', '{"city": "x", "y": NaN}', '"\\"x\\""', "\n"),
]


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(DOCUMENTS), st.sampled_from(["get_weather", "get_time", "get"]), st.data())
def test_any_split_of_arguments_gives_the_same(document: str, name: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(document)), max_size=6)))
    pieces = [document[a:b] for a, b in zip([0, *cuts], [*cuts, len(document)], strict=True)]
    whole = Ran([d(0, "a", name, document)])
    split = Ran([d(0, "a", name, pieces[0]), *(d(0, arguments=piece) for piece in pieces[1:])])
    assert (split.got, split.findings, split.repairs) == (whole.got, whole.findings, whole.repairs)


PARTS = st.builds(
    ToolDelta,
    st.just(0),
    st.sampled_from([None, 0, 0, 1, 2, 7]),
    st.sampled_from([None, None, "", "a", "b", "old", "functions.get_time:0"]),
    st.sampled_from(
        [None, None, "", "get_weather", "get", "_time", "get_time", "nope", "get_time<|channel|>final", "sql"]
    ),
    st.sampled_from(
        ["", "", " ", "{", "}", OSLO, '{"city', '": "x"}', "null", '"', "```", "[]", "</tool_call>", "NaN"]
    ),
    st.sampled_from([None, None, None, None, {"city": "x"}, {}, [1], 3, float("nan")]),
)
TEXT_PARTS = st.builds(
    TextCall,
    st.just(0),
    st.sampled_from([0, 1]),
    st.none(),
    st.sampled_from([None, "get_time", "get_weather"]),
    st.sampled_from(["", "{}", OSLO, "{"]),
    source=st.sampled_from(["content", "reasoning"]),
)


@settings(max_examples=400, deadline=None)
@given(
    st.lists(PARTS | TEXT_PARTS, max_size=8),
    st.sampled_from([ToolChoice(), ToolChoice("none"), ToolChoice("required"), ToolChoice("named", ("get_time",))]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_whatever_engines_send_is_judged(
    deltas: list[ToolDelta], choice: ToolChoice, repairs: bool, enforce: bool, hold: bool, truncated: bool
) -> None:
    ran = Ran(
        deltas, choice=choice, repairs=repairs, enforce=enforce, hold=hold, truncated=truncated, known_ids={"old"}
    )
    ids = [id_ for id_, _, _ in ran.got]
    assert len(set(ids)) == len(ids)
    assert "old" not in ids or not repairs
    if not ran.errors:
        for _, name, arguments in ran.got:
            assert name in {tool.name for tool in TOOLS}
            if name != "sql":
                assert isinstance(json.loads(arguments), dict)
    if enforce and ran.errors and hold:
        assert all(name == "sql" or json.loads(arguments) is not None for _, name, arguments in ran.got)


# --- the recorded failures -------------------------------------------------------------------------------------------


def deltas_of(case: dict[str, Any]) -> list[ToolDelta]:
    if "response" in case:
        calls = case["response"]["choices"][0]["message"].get("tool_calls") or []
        parts = [(i, call) for i, call in enumerate(calls)]
    else:
        chunks = [json.loads(line[6:]) for line in case["stream"].splitlines() if line.startswith("data: {")]
        parts = [(c["index"], c) for chunk in chunks for c in chunk["choices"][0]["delta"].get("tool_calls", [])]
    found = []
    for index, call in parts:
        function = call["function"]
        arguments = function.get("arguments") or ""
        text, raw = (arguments, None) if isinstance(arguments, str) else ("", arguments)
        found.append(ToolDelta(0, index, call.get("id"), function.get("name"), text, raw))
    return found


EXPECTED = {
    "br043": ("repair", {"leak", "tool"}),
    "br051": ("block", {"json", "tool"}),
    "br054": ("repair", {"stream", "tool"}),
    "br055": ("repair", {"tool"}),
    "br057": ("block", {"json", "tool"}),
    "br060": ("repair", {"tool"}),
    "br061": ("repair", {"tool"}),
    "br063": ("block", {"tool"}),
    "br064": ("repair", {"leak", "tool"}),
    "br065": ("block", {"schema", "tool"}),
    "br067": ("block", {"json", "tool"}),
    "br070": ("block", {"schema", "tool"}),
    "br073": ("pass", set()),
    "br077": ("block", {"json", "tool"}),
}


def test_recorded_failures_are_judged_as_expected(shared: Path) -> None:
    cases = {}
    for line in (shared / "cases" / "outputs.jsonl").read_text().splitlines():
        case = json.loads(line)
        cases[case["id"]] = case
    for id_, (action, families) in EXPECTED.items():
        case = cases[id_]
        tools = parse_tools(case["request"])
        used = [c["id"] for m in case["request"]["messages"] for c in m.get("tool_calls") or []]
        ran = Ran(deltas_of(case), tools=tools, choice=parse_tool_choice(case["request"], tools), known_ids=used)
        judged = "block" if ran.errors else "repair" if ran.repairs else "warn" if ran.warnings else "pass"
        assert (id_, judged) == (id_, action)
        assert (id_, {f.family for f in ran.findings}) == (id_, families)


def test_nothing_more_of_a_call_leaves_behind_an_error() -> None:
    tools = parse_tools({"tools": [{"name": "f", "inputSchema": {"type": "object"}}]})
    guard = ToolCallGuard(tools, ToolChoice("auto"), mint=lambda index: f"m{index}")
    out = guard.feed(ToolDelta(0, 0, "c", "f", '{"a": '))
    out += guard.feed(ToolDelta(0, 0, name="g"))
    out += guard.feed(ToolDelta(0, 0, arguments="{}"))
    assert "tool.unknown_name" in [piece.code for piece in out if isinstance(piece, Finding)]
    assert guard.feed(ToolDelta(0, 0, arguments="1, ")) == []


@pytest.mark.parametrize(
    "schema", [{}, {"properties": {"a": {}}}, {"minProperties": 0}, {"anyOf": [{}, {"required": ["a"]}]}]
)
@pytest.mark.parametrize("arguments", ["[]", "7", '"text"', "true", '"[1]"', "[{}]"])
def test_arguments_are_an_object_though_their_schema_leaves_it_open(schema: dict[str, Any], arguments: str) -> None:
    guard = ToolCallGuard(parse_tools({"tools": [{"name": "f", "inputSchema": schema}]}), ToolChoice("auto"), mint=str)
    out = [*guard.feed(ToolDelta(0, 0, "c", "f", arguments)), *guard.finish()]
    assert "tool.invalid_arguments" in [one.code for one in out if isinstance(one, Finding) and one.severity == "error"]
    assert "".join(one.arguments for one in out if isinstance(one, ToolRelease)) == ""


def test_an_object_that_was_encoded_twice_is_one_though_its_schema_takes_text() -> None:
    guard = ToolCallGuard(parse_tools({"tools": [{"name": "f", "inputSchema": {}}]}), ToolChoice("auto"), mint=str)
    out = [*guard.feed(ToolDelta(0, 0, "c", "f", '"{\\"a\\": 1}"')), *guard.finish()]
    assert "".join(one.arguments for one in out if isinstance(one, ToolRelease)) == '{"a": 1}'
    assert "tool.double_encoded" in [one.code for one in out if isinstance(one, Repair)]
