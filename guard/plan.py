"""What an answer will be held against: the detectors, the checker and the tools that its request and its policy call
for.

Made once a request; every attempt at the answer gets fresh ones from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from detectors import Leak, Panel, StreamIntegrity
from detectors.contract import Detector
from detectors.empty import Facts
from detectors.tail import Tail
from guard.calling import owes_call
from guard.config import Policy
from guard.constraint.compile import CompiledConstraint
from guard.constraint.formats.content import ContentToolParser
from guard.constraint.formats.reasoning import reasoning_form
from guard.constraint.formats.splitter import ReasoningSplitter
from guard.constraint.toolcall import ToolCallGuard
from guard.events import CONTENT
from guard.request import GenerationRequest
from guard.watch import Plan, Watcher

PROMPT_CHARS = 20_000
"""How much of the prompt's end detectors may look at: what a caller asks for stands in the last turns."""


def plan_for(
    request: GenerationRequest,
    policy: Policy,
    compiled: CompiledConstraint | None,
    tools: Mapping[str, CompiledConstraint] | None = None,
    beside: Callable[[str], Detector] | None = None,
) -> Plan:
    """``tools`` holds what was compiled already of the tools' schemas, by name; what is missing is compiled when
    called. ``beside`` makes one more detector for a channel."""
    prompt = prompt_text(request)
    asked = prompt_text(request, said_by_others=True)
    json_content = request.constraint is not None and request.constraint.kind in ("json_schema", "json_object")
    tool_names = tuple(tool.name for tool in request.tools)

    def new_panel(channel: str) -> Watcher:
        if policy.detectors == "off":
            return Unwatched()
        is_json = channel.startswith("tool:") or (json_content and channel == CONTENT)
        leak = Leak(channel, prompt_text=prompt, tool_names=tool_names)
        more = (beside(channel),) if beside else ()
        return Panel(policy.thresholds.bars, channel, prompt, json=is_json, extra=(Tail(), leak, *more))

    def new_tools() -> ToolCallGuard:
        return ToolCallGuard(
            request.tools,
            request.tool_choice,
            parallel=request.parallel_tool_calls is not False,
            known_ids=known_call_ids(request.messages),
            repairs=policy.repairs,
            mint=lambda index: minted_id(request.id, index),
            enforce=policy.constraints == "enforce",
            compiled=tools,
        )

    def new_text_calls(channel: str, format: str, model: str, raw: bool = False) -> ContentToolParser:
        return ContentToolParser(
            format,
            request.tools,
            request.tool_choice,
            channel=channel,
            model=model or request.model,
            bare=request.constraint is None,
            told=raw or None,
        )

    def new_splitter(format: str, model: str, inside: bool, raw: bool = False) -> ReasoningSplitter | None:
        told = raw or format != "auto"
        if not (told or policy.repairs):
            return None
        form = reasoning_form(format, model or request.model, extra=request.extra, prompt=asked)
        return ReasoningSplitter(form, told=told, inside=inside) if form is not None else None

    return Plan(
        new_panel=new_panel,
        new_integrity=lambda: StreamIntegrity(json=json_content),
        new_checker=(lambda: compiled.checker(policy.json_release, policy.repairs)) if compiled else None,
        new_tools=new_tools if request.tools else None,
        new_splitter=new_splitter if request.kind == "chat" else None,
        new_text_calls=new_text_calls if request.tools else None,
        owes_call=bool(request.tools) and owes_call(request.tool_choice),
        act_on_detectors=policy.detectors == "enforce",
        act_on_constraints=policy.constraints == "enforce",
        repairs=policy.repairs,
    )


class Unwatched:
    """A channel that no detector watches: nothing in it is ever in doubt."""

    def __init__(self) -> None:
        self.doubt = 0
        self._visible = 0

    def feed(self, text: str, token_ids: object = None, logprobs: object = None) -> tuple[()]:
        self.doubt += len(text)
        self._visible += len(text.strip())
        return ()

    def finish(self) -> tuple[()]:
        return ()

    def facts(self) -> Facts:
        return Facts(self.doubt, self._visible)


def prompt_text(request: GenerationRequest, *, said_by_others: bool = False) -> str | None:
    """The text that the caller sent, its end at most; None for a prompt of token ids. ``said_by_others``: without the
    earlier answers of the model itself."""
    if request.kind == "completion":
        return request.prompt[-PROMPT_CHARS:] if isinstance(request.prompt, str) else None
    parts: list[str] = []
    size = 0
    for message in reversed(request.messages):
        if said_by_others and message.get("role") == "assistant":
            continue
        text = _text(message.get("content"))
        parts.append(text)
        size += len(text)
        if size >= PROMPT_CHARS:
            break
    return "\n".join(reversed(parts))[-PROMPT_CHARS:]


def known_call_ids(messages: list[dict[str, Any]]) -> frozenset[str]:
    """The ids that this conversation has already used."""
    calls = (call for message in messages for call in message.get("tool_calls") or () if isinstance(call, dict))
    return frozenset(id_ for call in calls if isinstance(id_ := call.get("id"), str))


def minted_id(request_id: str, index: int) -> str:
    """An id for a call whose engine gave none: equal for equal requests, so that a replay shows no false difference."""
    return "call_" + hashlib.sha256(f"{request_id}:{index}".encode()).hexdigest()[:24]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(p["text"] for p in content if isinstance(p, dict) and isinstance(p.get("text"), str))
    return ""
