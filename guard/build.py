"""From the configuration to the things it names."""

from __future__ import annotations

import asyncio
import os

from guard.config import Config, EngineConfig
from guard.engines.contract import Engine, Health
from guard.engines.intake import Wave
from guard.engines.openai_http import OpenAIHttpEngine
from guard.engines.tokens.check import speaks_tokens
from guard.health.fleet import EngineState
from guard.service import EngineStatus
from guard.trace.retention import RetentionRules
from guard.trace.scrape import Source, Sources
from guard.trace.tracing import Tracing


def build_engine(config: EngineConfig, wave: Wave | None = None) -> Engine:
    """``wave``: one for all engines that are used on the same event loop; its own if none is given."""
    timeouts = config.timeouts
    constrains = config.constraints == "engine"
    if config.dialect == "torch":
        from guard.engines.torch_engine import TorchEngine

        return TorchEngine.at(
            config.name,
            config.url,
            model=config.model,
            constrains=constrains,
            first_token_timeout=timeouts.first_token,
            between_tokens_timeout=timeouts.between_tokens,
            total_timeout=timeouts.total,
        )
    engine = OpenAIHttpEngine(
        config.name,
        config.url,
        dialect=config.dialect,
        model=config.model or None,
        api_key=config.api_key(),
        headers=config.headers,
        constrains=constrains,
        connect_timeout=timeouts.connect,
        first_token_timeout=timeouts.first_token,
        between_tokens_timeout=timeouts.between_tokens,
        total_timeout=timeouts.total,
        wave=wave,
    )
    if speaks_tokens(config):
        from guard.engines.tokens.engine import TokenHttpEngine

        return TokenHttpEngine(engine, config.tokenizer, "tokens" if config.mode == "tokens" else "auto")
    return engine


def build_tracing(config: Config) -> Tracing:
    """Raises OSError when the spool cannot be written, ValueError when the store's address is none."""
    trace = config.trace
    key = os.environ[trace.retention.hash_key_env].encode() if trace.retention.hash_key_env else b""
    return Tracing(
        trace.dsn(),
        trace.spool,
        retention=RetentionRules(
            default=trace.retention.default, most=trace.retention.max, tenants=trace.retention.tenants
        ),
        hash_key=key,
        spool_max_bytes=trace.spool_max_bytes,
        sources=Sources(
            tuple(Source(one.name, one.metrics_url, one.cluster) for one in config.engines if one.metrics_url),
            trace.metrics_interval,
            trace.spool_max_bytes,
        ),
        otlp_endpoint=trace.otlp_endpoint,
        service_name=trace.service_name,
    )


async def engine_statuses(config: Config) -> list[EngineStatus]:
    """Every engine asked at once, each on a connection of its own."""
    engines = [build_engine(engine) for engine in config.engines]
    try:
        healths = await asyncio.gather(*(engine.health() for engine in engines))
    finally:
        await asyncio.gather(*(engine.aclose() for engine in engines))
    return [status(engine, health) for engine, health in zip(config.engines, healths, strict=True)]


def status(config: EngineConfig, health: Health, known: EngineState | None = None) -> EngineStatus:
    """``known``: what a running guard knows of it."""
    found = EngineStatus(
        name=config.name,
        dialect=config.dialect,
        url=config.url,
        model=config.model,
        ok=health.ok,
        detail=health.detail,
        version=health.version or config.version,
        image=config.image,
        cluster=config.cluster,
        precision=config.precision,
    )
    if known is not None:
        found.state, found.draining, found.cause = known.state, known.draining, known.cause
        found.under_way, found.failure_rate = known.under_way + known.elsewhere, known.failure_rate
        found.reopens_in = known.reopens_in
    return found
