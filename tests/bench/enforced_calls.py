"""Tool calls that a real engine owes and does not make: ``python -m tests.bench.enforcement`` runs this too.

The same llama.cpp engine, with the plain chat template of its model, which knows no tools: every request demands a call
(required, or a named one), and the engine answers each with prose. Counted is what the guard makes of it.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import jsonschema_rs
from msgspec import Struct

from guard.constraint.tools import parse_tool_choice, parse_tools
from guard.events import Failed, Finished, Release, ToolRelease
from guard.pipeline import Pipeline
from guard.request import GenerationRequest, Sampling


def function(name: str, about: str, required: list[str], **properties: Any) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "description": about, "parameters": parameters}}


WEATHER = function(
    "get_weather",
    "The weather of a city.",
    ["city", "unit"],
    city={"type": "string", "maxLength": 20},
    unit={"enum": ["celsius", "fahrenheit"]},
)
MAIL = function(
    "send_mail",
    "Sends a mail.",
    ["to", "subject"],
    to={"type": "string", "maxLength": 30},
    subject={"type": "string", "maxLength": 40},
    urgent={"type": "boolean"},
)
TIMER = function("set_timer", "Sets a timer.", ["minutes"], minutes={"type": "integer", "minimum": 1, "maximum": 600})
NOTE = function(
    "add_note",
    "Keeps a note with tags.",
    ["text"],
    text={"type": "string", "maxLength": 40},
    tags={"type": "array", "items": {"enum": ["home", "work", "idea"]}, "maxItems": 2},
)
ASKED: list[tuple[list[dict[str, Any]], str, str]] = [
    ([WEATHER], "", "What is the weather in Paris?"),
    ([WEATHER, MAIL], "", "How warm is it in Oslo today?"),
    ([TIMER], "", "Wake me in ten minutes."),
    ([MAIL, TIMER, NOTE], "send_mail", "Tell bob@example.org that I will be late."),
    ([NOTE], "", "Remember that the milk is empty."),
    ([WEATHER, TIMER], "set_timer", "Boil the eggs for six minutes."),
    ([WEATHER, MAIL, TIMER, NOTE], "", "Write to Ann about the party."),
    ([NOTE, TIMER], "add_note", "An idea: solar bikes."),
    ([TIMER, WEATHER], "", "Is it raining in Rome?"),
    ([MAIL], "", "Cancel my meeting with the boss."),
]


class Called(Struct):
    number: int
    name: str
    arguments: str
    valid: bool
    end: Finished | Failed
    prose: str


def request(number: int, model: str) -> GenerationRequest:
    offered, named, prompt = ASKED[number % len(ASKED)]
    tools = parse_tools({"tools": offered})
    choice: Any = {"type": "function", "function": {"name": named}} if named else "required"
    return GenerationRequest(
        id=f"{model}-call-{number}",
        kind="chat",
        model=model,
        messages=[{"role": "user", "content": prompt}],
        tools=tools,
        tool_choice=parse_tool_choice({"tool_choice": choice}, tools),
        tool_choice_raw=choice,
        sampling=Sampling(max_tokens=120, temperature=0.0 if number % 2 else 0.7, seed=number),
        stream=number % 3 != 0,
    )


async def ask(pipeline: Pipeline, number: int, model: str) -> Called:
    asked = request(number, model)
    events = [event async for batch in pipeline.generate(asked) for event in batch]
    end = next(event for event in events if isinstance(event, Finished | Failed))
    calls = [event for event in events if isinstance(event, ToolRelease)]
    name = next((call.name for call in calls if call.name), "")
    arguments = "".join(call.arguments for call in calls if call.index == 0)
    prose = "".join(event.text for event in events if isinstance(event, Release))
    schema = next((tool.parameters for tool in asked.tools if tool.name == name), False)
    chosen = not asked.tool_choice.names or name in asked.tool_choice.names
    return Called(number, name, arguments, isinstance(end, Finished) and chosen and fits(arguments, schema), end, prose)


def fits(arguments: str, schema: Any) -> bool:
    try:
        return bool(jsonschema_rs.validator_for(schema).is_valid(json.loads(arguments)))
    except ValueError:
        return False


async def calls(pipeline: Pipeline, count: int, model: str, *, show: bool) -> bool:
    made = [await ask(pipeline, number, model) for number in range(count)]
    attempts = [call.end.attempts for call in made]
    wasted = sum(call.end.wasted_tokens for call in made if isinstance(call.end, Finished))
    print(
        f"calls     valid {sum(call.valid for call in made)} of {count}"
        f"  attempts {sum(attempts)} ({sum(attempts) / count:.2f} a call, most {max(attempts)})"
        f"  tokens delivered {sum(call.end.usage.completion_tokens for call in made)}, thrown away {wasted}"
        f"  of them with prose as well {sum(bool(call.prose) for call in made)}"
    )
    print(f"{'':11}{dict(Counter(call.name for call in made))}")
    for call in made:
        if show or not call.valid:
            print(f"  {call.number:3} {call.end.attempts:3} {call.name}({call.arguments})")
            if isinstance(call.end, Failed):
                print(f"      {call.end.code}: {call.end.message}")
    return all(call.valid for call in made)
