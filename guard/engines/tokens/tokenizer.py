"""One model's tokenizer and chat template, from local files: prompts in, token ids out.

``tokenizers`` and ``jinja2`` are imported by who loads one, and by nobody else: a sidecar without token mode has
neither in memory. Nothing is fetched. Loading and encoding take from milliseconds to a second, so they are for threads;
the tokenizer itself may be used by several at once.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from guard.constraint.custom_tool import as_function_calls, as_functions
from guard.engines.tokens.vocabulary import Vocabulary, fingerprint, read_vocabulary
from guard.request import GenerationRequest

if TYPE_CHECKING:
    from guard.engines.tokens.template import ChatTemplate

FILE: Final = "tokenizer.json"


class TokenizerError(Exception):
    """Files that are missing, or hold what is not known."""


def tokenizer_file(path: str | Path) -> Path:
    """The tokenizer.json that a directory holds, that lies beside a GGUF file, or that is named itself. Raises
    TokenizerError."""
    place = Path(path)
    found = place if place.name.endswith(".json") else (place if place.is_dir() else place.parent) / FILE
    if not found.is_file():
        raise TokenizerError(f"there is no {FILE} at {path}")
    return found


def vocabulary_name(path: str | Path) -> str:
    """What Vocabulary.name will be, without loading it. Raises TokenizerError."""
    return fingerprint(_read(tokenizer_file(path)))


class ChatTokenizer:
    """``templates``: by name; ``default``, and where there is one ``tool_use``."""

    def __init__(self, encoder: Any, vocabulary: Vocabulary, templates: Mapping[str, ChatTemplate]) -> None:
        self.vocabulary = vocabulary
        self._encoder = encoder
        self._templates = templates

    @property
    def template_hash(self) -> str:
        default = self._templates.get("default")
        return fingerprint(default.source.encode()) if default is not None else ""

    @property
    def thinks(self) -> bool:
        """Whether the template knows reasoning: then an answer need not begin with what was asked for."""
        return any("think" in template.source for template in self._templates.values())

    def encode(self, text: str) -> list[int]:
        """The ids of a text in the middle of others."""
        return list(self._encoder.encode(text, add_special_tokens=False).ids)

    def prompt(self, request: GenerationRequest, *, goes_on: bool = False) -> list[int]:
        """The ids of a whole prompt. ``goes_on``: the last message is gone on with. Raises TemplateError, and
        TokenizerError where there is no template."""
        if request.kind == "completion":
            if isinstance(request.prompt, tuple):
                return list(request.prompt)
            return list(self._encoder.encode(request.prompt).ids)
        offered = [tool.raw for tool in as_functions(request.tools)] if request.tool_choice.mode != "none" else []
        template = self._templates.get("tool_use" if offered else "default") or self._templates.get("default")
        if template is None:
            raise TokenizerError("the tokenizer has no chat template")
        arguments = request.extra.get("chat_template_kwargs")
        text = template.render(
            as_function_calls(request.messages),
            offered,
            goes_on=goes_on,
            arguments=arguments if isinstance(arguments, dict) else None,
        )
        return self.encode(text)


def load(path: str | Path) -> ChatTokenizer:
    """Raises TokenizerError."""
    try:
        import tokenizers

        from guard.engines.tokens.template import ChatTemplate, TemplateError
    except ImportError as error:
        raise TokenizerError(f"not installed: {error.name} (it comes with outguard[tokens])") from error

    file = tokenizer_file(path)
    data = _read(file)
    try:
        encoder = tokenizers.Tokenizer.from_str(data.decode())
        encoder.no_truncation()
        encoder.no_padding()
        config = _object(file.with_name("tokenizer_config.json"))
        names = {name: text for name, value in config.items() if name.endswith("_token") and (text := _text(value))}
        vocabulary = read_vocabulary(fingerprint(data), json.loads(data), _ends(file, names, encoder.token_to_id))
        templates = {
            name: ChatTemplate(source, names, lambda: datetime.now().astimezone())
            for name, source in _templates(file, config)
        }
    except TemplateError as error:
        raise TokenizerError(f"{file.parent}: {error}") from error
    except Exception as error:  # the library has no error of its own
        raise TokenizerError(f"{file} cannot be used: {error}") from error
    return ChatTokenizer(encoder, vocabulary, templates)


def _ends(file: Path, names: Mapping[str, str], to_id: Any) -> set[int]:
    named = _object(file.with_name("generation_config.json")).get("eos_token_id")
    ends = {one for one in (named if isinstance(named, list) else [named]) if isinstance(one, int)}
    eos = to_id(names["eos_token"]) if "eos_token" in names else None
    return ends | ({eos} if eos is not None else set())


def _templates(file: Path, config: Mapping[str, Any]) -> Sequence[tuple[str, str]]:
    own = file.with_name("chat_template.jinja")
    if own.is_file():
        return [("default", own.read_text(encoding="utf-8"))]
    found = config.get("chat_template")
    if isinstance(found, list):
        return [(str(one.get("name")), str(one.get("template"))) for one in found]
    return [("default", found)] if isinstance(found, str) else []


def _text(value: Any) -> str:
    """A special token is written as its text, or as an object that holds it."""
    content = value.get("content") if isinstance(value, dict) else value
    return content if isinstance(content, str) else ""


def _object(file: Path) -> dict[str, Any]:
    if not file.is_file():
        return {}
    value = json.loads(_read(file))
    return value if isinstance(value, dict) else {}


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise TokenizerError(f"{file} cannot be read: {error.strerror}") from error
