"""From the configuration to the things it names."""

from __future__ import annotations

from guard.config import EngineConfig
from guard.engines.contract import Engine
from guard.engines.openai_http import OpenAIHttpEngine


def build_engine(config: EngineConfig) -> Engine:
    timeouts = config.timeouts
    return OpenAIHttpEngine(
        config.name,
        config.url,
        dialect=config.dialect,
        model=config.model or None,
        api_key=config.api_key(),
        headers=config.headers,
        connect_timeout=timeouts.connect,
        first_token_timeout=timeouts.first_token,
        between_tokens_timeout=timeouts.between_tokens,
        total_timeout=timeouts.total,
    )
