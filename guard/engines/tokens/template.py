"""A chat template, rendered as the engines render it: Jinja in a sandbox, with the names that the transformers library
gives to templates. Nothing of that library is needed for it.

Rules. Text parts of a message are joined by line feeds, other parts are refused: nothing is left out of a prompt in
silence. Past tool calls get their arguments as objects, which is what templates expect. A turn that is to be gone on
with is cut behind its last character, wherever the template would have gone on.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment


class TemplateError(Exception):
    """What the template does not take, or what is wrong with it."""


class Unrendered(TemplateError):
    """A message with something that is no text: an image, audio. ``param`` is its path."""

    def __init__(self, message: str, param: str) -> None:
        super().__init__(message)
        self.param = param


class ChatTemplate:
    """``names``: what the tokenizer's configuration calls its special tokens (bos_token and so on). ``now`` is read by
    templates that write the date. Raises TemplateError when ``source`` is no template."""

    def __init__(self, source: str, names: Mapping[str, str], now: Callable[[], datetime]) -> None:
        self.source = source
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols]
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = lambda form: now().strftime(form)
        try:
            self._template = environment.from_string(source)
        except jinja2.TemplateError as error:
            raise TemplateError(f"the chat template is none: {error}") from error
        self._names = dict(names)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        goes_on: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> str:
        """The prompt. ``goes_on``: the last message is open, and the answer its continuation; ``arguments``: further
        names for the template (``chat_template_kwargs``). Raises TemplateError."""
        plain = [plain_message(message, f"messages[{i}]") for i, message in enumerate(messages)]
        given = {"add_generation_prompt": not goes_on, **self._names, **(arguments or {})}
        try:
            text = self._template.render(messages=plain, tools=list(tools) or None, documents=None, **given)
        except TemplateError:
            raise
        except Exception as error:  # a template raises what it likes
            raise TemplateError(f"the chat template does not take these messages: {error}") from error
        return _open_end(text, plain[-1]["content"]) if goes_on else text


def plain_message(message: Mapping[str, Any], path: str) -> dict[str, Any]:
    """A message as templates expect it. Raises Unrendered."""
    out = {key: value for key, value in message.items() if value is not None or key == "content"}
    content = message.get("content")
    if isinstance(content, list):
        parts: list[str] = []
        for i, part in enumerate(content):
            text = part if isinstance(part, str) else part.get("text") if part.get("type") == "text" else None
            if not isinstance(text, str):
                raise Unrendered("only text can be sent to this engine", f"{path}.content[{i}]")
            parts.append(text)
        out["content"] = "\n".join(parts)
    elif content is None:
        out["content"] = ""
    if calls := message.get("tool_calls"):
        out["tool_calls"] = [_with_object(call) for call in calls]
    return out


def _with_object(call: Any) -> Any:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = json.loads(function["arguments"] or "{}")
    except ValueError:
        return call
    return {**call, "function": {**function, "arguments": arguments}}


def _open_end(text: str, content: str) -> str:
    """``text`` up to the end of its last message's ``content``. The template may have stripped that."""
    for wanted in (content, content.strip()):
        at = text.rfind(wanted) if wanted else -1
        if at >= 0:
            return text[: at + len(wanted)]
    raise TemplateError("the chat template does not show the last message as it is, so that it cannot be gone on with")


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None, **more: Any) -> str:
    """Jinja's own escapes for HTML, which prompts are not."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **more)


def _refuse(message: str) -> None:
    raise TemplateError(str(message))


class _Generation(Extension):
    """``{% generation %}``: templates mark with it what a model has said. For a prompt it is nothing."""

    tags = {"generation"}  # noqa: RUF012  Jinja's own form

    def parse(self, parser: Any) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)
