"""What is wrong with an engine's configuration of token mode."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from guard.engines.tokens.tokenizer import TokenizerError, tokenizer_file
from guard.engines.tokens.wire import PATHS


class Configured(Protocol):
    """EngineConfig, of which the configuration knows more."""

    @property
    def dialect(self) -> str: ...

    @property
    def mode(self) -> str: ...

    @property
    def tokenizer(self) -> str: ...


def speaks_tokens(engine: Configured) -> bool:
    return bool(engine.tokenizer) and engine.mode != "chat" and engine.dialect in PATHS


def wrong_tokens(engine: Configured) -> Iterator[tuple[str, str]]:
    """(key, what is wrong with it)."""
    if engine.mode == "tokens":
        if engine.dialect not in PATHS:
            known = ", ".join(PATHS)
            yield "mode", f"tokens: an engine of the dialect {engine.dialect} cannot be asked so ({known} can)"
        if not engine.tokenizer:
            yield "mode", "tokens: needs a tokenizer, the path of the model's files"
    if speaks_tokens(engine):
        try:
            tokenizer_file(engine.tokenizer)
        except TokenizerError as error:
            yield "tokenizer", str(error)
