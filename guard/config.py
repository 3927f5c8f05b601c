"""The configuration: one YAML file, checked whole at startup and frozen afterwards.

Every mistake is reported with the file, the line and the key, all of them at once, and the process ends. Secrets are
never written in the file: a key is named by the environment variable that holds it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import quote

from pydantic import Field, field_validator, model_validator

from guard.checked_yaml import Problem, Problems, parse_yaml, read_text
from guard.constraint.formats.families import FORMATS
from guard.constraint.formats.reasoning import FORMATS as REASONING_FORMATS
from guard.cross_request import CrossRequestSettings
from guard.engines.tokens.check import wrong_tokens
from guard.health.settings import HealthSettings
from guard.limits import Limits
from guard.section import MayBeOff, Seconds, Section, formed
from guard.thresholds import Thresholds
from guard.trace.store import parse_dsn
from guard.triage_settings import TriageSettings

Dialect = Literal["vllm", "sglang", "trtllm", "llamacpp", "dynamo", "plain", "torch"]
Name = Annotated[
    str,
    Field(min_length=1, max_length=64),
    formed(
        r"[A-Za-z0-9][A-Za-z0-9._/:-]*", "a name of letters, digits and . _ / : -, with one of the first two in front"
    ),
]
_PAGE = r"https?://[^\s/]+(/.*)?"


class Timeouts(Section):
    """Seconds. ``first_token`` runs from the sent request to the first byte of the answer, ``between_tokens`` between
    two reads of a stream, ``total`` over the whole attempt."""

    connect: Seconds = 2.0
    first_token: Seconds = 60.0
    between_tokens: Seconds = 20.0
    total: Seconds = 1800.0


class EngineConfig(Section):
    """One engine. ``model`` is the name it serves under (the caller's name is sent when empty); ``version``, ``image``,
    ``cluster``, ``node`` and ``precision`` are the axes that a failure is later attributed to. ``constraints``: guard
    never sends the format that a caller asked for to this engine, and keeps to it by itself. ``tool_format`` and
    ``reasoning_format``: how the model marks calls and reasoning, where the engine leaves them in its text. ``mode``:
    whether it is asked over its chat API or in token ids, for which ``tokenizer`` names the model's files
    (guard/engines/tokens/engine.py). An engine of the dialect torch is a model in this process, at ``torch:///path``
    (guard/engines/torch_engine.py). ``drain``: it is given nothing new. ``max_concurrency``: attempts under way on it
    at once, 0 for any number."""

    name: Name
    url: Annotated[str, formed(rf"{_PAGE}|torch:///.+", "http://host:port, https://host or torch:///path")]
    dialect: Dialect = "plain"
    constraints: Literal["engine", "guard"] = "engine"
    model: str = ""
    api_key_env: str = ""
    headers: dict[str, str] = Field(default_factory=dict)
    version: str = ""
    image: str = ""
    cluster: str = ""
    node: str = ""
    precision: str = ""
    mode: Literal["chat", "tokens", "auto"] = "auto"
    tokenizer: str = ""
    tool_format: str = ""
    reasoning_format: str = "auto"
    metrics_url: Annotated[str, formed(rf"({_PAGE})?", "empty, or the page's address: http://host:port/metrics")] = ""
    timeouts: Timeouts = Timeouts()
    drain: bool = False
    max_concurrency: Annotated[int, Field(ge=0)] = 0

    @field_validator("tool_format")
    @classmethod
    def _a_known_format(cls, value: str) -> str:
        if value and value not in FORMATS:
            raise ValueError(f"{value!r} is no known tool-call format (there are: {', '.join(sorted(FORMATS))})")
        return value

    @field_validator("reasoning_format")
    @classmethod
    def _a_known_way_to_reason(cls, value: str) -> str:
        if value not in REASONING_FORMATS:
            raise ValueError(f"{value!r} is no known format (there are: {', '.join(sorted(REASONING_FORMATS))})")
        return value

    def api_key(self) -> str | None:
        return os.environ[self.api_key_env].strip() if self.api_key_env in os.environ else None


class RouteConfig(Section):
    """``engines``: ordered are tried in this order; least_loaded are asked by what they have to do, one prompt's
    beginning rather by the engine that knows it (guard/routing.py)."""

    model: Name
    engines: Annotated[tuple[Name, ...], Field(min_length=1)]
    policy: str = "default"
    balance: Literal["ordered", "least_loaded"] = "ordered"


class Policy(Section):
    """How an answer is guarded.

    ``detectors``: enforce acts on what they find, observe only records it, off does not run them. ``constraints``: the
    same for the format that the caller asked for. ``json_release``: streaming lets a document out as it comes and
    holds its end until it is valid; on_complete lets nothing out before that. ``repairs``: changes that lose nothing
    are made. ``resume``: an answer may go on from another engine in the middle. ``max_enforcements``: how often an
    answer that broke its format may go on from where it had not yet, beside the attempts; 0: never. ``vary``: one that
    collapsed twice at the same place may go on with other sampling than the caller's, once. ``hedge_after``: seconds
    without a first token (or p95: longer than nearly all first tokens of the route lately) after which a second engine
    is asked as well, and the slower one is cancelled. ``thresholds``: what it takes to condemn an answer
    (guard/thresholds.py).
    """

    detectors: Annotated[Literal["enforce", "observe", "off"], MayBeOff] = "enforce"
    constraints: Literal["enforce", "observe"] = "enforce"
    max_attempts: Annotated[int, Field(ge=1, le=10)] = 3
    max_enforcements: Annotated[int, Field(ge=0, le=1000)] = 12
    resume: bool = True
    json_release: Literal["streaming", "on_complete"] = "streaming"
    repairs: bool = True
    vary: bool = True
    hedge_after: Annotated[float, Field(gt=0, le=3600)] | Literal["p95"] | None = None
    backoff_initial: Seconds = 0.1
    backoff_max: Seconds = 2.0
    thresholds: Thresholds = Thresholds()


class Retention(Section):
    """What content a trace may hold: full, hash (keyed fingerprints) or none. ``default`` is for callers that say
    nothing, ``max`` is the most that a caller may ask for; ``tenants`` lower it further. The strictest always wins."""

    default: Literal["full", "hash", "none"] = "none"
    max: Literal["full", "hash", "none"] = "full"
    tenants: dict[str, Literal["full", "hash", "none"]] = Field(default_factory=dict)
    hash_key_env: str = ""


_STORE = "none, chdb:///path (embedded), or http://user@host:8123/database (a ClickHouse server)"
_ADDRESS = "host:port, as 127.0.0.1:8080, or empty, which turns the protocol off"


class TraceConfig(Section):
    """``store``: ``chdb:///path`` (embedded), ``http://user@host:8123/database`` (a ClickHouse server), or ``none``.
    ``password_env`` names the variable that holds the user's password. ``metrics_interval``: seconds between two looks
    at the metrics pages of the engines that have a ``metrics_url``."""

    password_env: str = ""
    store: Annotated[str, formed(r"none|(chdb|https?|clickhouse)://.+", _STORE)] = "none"
    spool: str = ""
    spool_max_bytes: Annotated[int, Field(ge=1_000_000)] = 1_000_000_000
    retention: Retention = Retention()
    metrics_interval: Annotated[float, Field(ge=1, le=3600)] = 10.0
    otlp_endpoint: Annotated[str, formed(r"(https?://.+)?", "empty, or a collector's address: http://host:4318")] = ""
    service_name: str = "outguard"

    def dsn(self) -> str:
        """The store's address with its password, which never stands in the file."""
        password = os.environ.get(self.password_env, "") if self.password_env else ""
        scheme, _, rest = self.store.partition("://")
        user, at, place = rest.rpartition("@")
        return f"{scheme}://{user}:{quote(password, safe='')}@{place}" if password and at else self.store


class Listen(Section):
    """host:port; port 0 takes a free one; an empty string turns the protocol off. ``api_keys_env`` names a variable
    with comma-separated keys that callers must present; empty: none is asked for."""

    http: Annotated[str, formed(r"|.+:\d+", _ADDRESS)] = "127.0.0.1:8080"
    grpc: Annotated[str, formed(r"|.+:\d+", _ADDRESS)] = "127.0.0.1:9090"
    api_keys_env: str = ""

    def api_keys(self) -> tuple[str, ...]:
        return tuple(k.strip() for k in os.environ.get(self.api_keys_env, "").split(",") if k.strip())


class Config(Section):
    """``workers``: processes that share the addresses (guard/supervisor.py)."""

    listen: Listen = Listen()
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    engines: Annotated[tuple[EngineConfig, ...], Field(min_length=1)]
    routes: Annotated[tuple[RouteConfig, ...], Field(min_length=1)]
    policies: dict[str, Policy] = Field(default_factory=dict, validate_default=True)
    trace: TraceConfig = TraceConfig()
    triage: TriageSettings = TriageSettings()
    limits: Limits = Limits()
    cross_request: CrossRequestSettings = CrossRequestSettings()
    health: HealthSettings = HealthSettings()

    @field_validator("policies")
    @classmethod
    def _a_default_policy(cls, value: dict[str, Policy]) -> dict[str, Policy]:
        return value if "default" in value else {"default": Policy(), **value}

    @model_validator(mode="after")
    def _names_hold(self) -> Config:
        problems: list[Problem] = []
        seen: set[str] = set()
        for i, engine in enumerate(self.engines):
            if engine.name in seen:
                problems.append((("engines", i, "name"), f"a second engine is called {engine.name!r}"))
            seen.add(engine.name)
            if problem := _wrong_address(engine):
                problems.append((("engines", i, "url"), problem))
            problems.extend((("engines", i, key), problem) for key, problem in wrong_tokens(engine))
        models: set[str] = set()
        policies = {"default", *self.policies}
        for i, route in enumerate(self.routes):
            if route.model in models:
                problems.append((("routes", i, "model"), f"a second route serves {route.model!r}"))
            models.add(route.model)
            problems.extend(
                (
                    ("routes", i, "engines", j),
                    f"there is no engine called {name!r} (there are: {', '.join(sorted(seen))})",
                )
                for j, name in enumerate(route.engines)
                if name not in seen
            )
            problems.extend(
                (("routes", i, "engines", j), f"{name!r} stands there twice")
                for j, name in enumerate(route.engines)
                if name in route.engines[:j]
            )
            if route.policy not in policies:
                problems.append((("routes", i, "policy"), f"there is no policy called {route.policy!r}"))
        problems.extend(_missing_secrets(self))
        problems.extend(_wrong_places(self.listen, self.trace))
        if problems:
            raise Problems(problems)
        return self

    def policy_of(self, route: RouteConfig, name: str) -> Policy | None:
        """The policy a request asked for by name, or its route's own. None: there is none of that name."""
        return self.policies.get(name or route.policy)


def _wrong_address(engine: EngineConfig) -> str:
    """What is wrong with the address of a model in this process; nothing for other engines."""
    if (engine.dialect == "torch") != engine.url.startswith("torch:"):
        return "the dialect torch and a torch:/// address go together"
    if engine.dialect != "torch":
        return ""
    from guard.engines.torch_engine import address

    try:
        address(engine.url)
    except ValueError as error:
        return str(error)
    return ""


def _missing_secrets(config: Config) -> Iterator[Problem]:
    """Variables that are named and hold nothing: no key at all would let every caller in."""
    retention, trace = config.trace.retention, config.trace
    named: list[Problem] = [
        (("listen", "api_keys_env"), config.listen.api_keys_env),
        (("cross_request", "key_env"), config.cross_request.key_env),
        (("trace", "retention", "hash_key_env"), retention.hash_key_env),
    ]
    named += [(("engines", i, "api_key_env"), engine.api_key_env) for i, engine in enumerate(config.engines)]
    for path, variable in named:
        value = os.environ.get(variable)
        if variable and not (value or "").strip(" ,\r\n\t"):
            yield path, f"the variable {variable} is {'not set' if value is None else 'empty'}"
    if trace.password_env and trace.password_env not in os.environ:
        yield ("trace", "password_env"), f"the variable {trace.password_env} is not set"
    if trace.password_env and "@" not in trace.store:
        yield ("trace", "store"), "has no user for the password: http://user@host:8123/database"


def _wrong_places(listen: Listen, trace: TraceConfig) -> Iterator[Problem]:
    """Addresses that have the right form and lead nowhere."""
    if not listen.http and not listen.grpc:
        yield ("listen",), "both protocols are off, so nobody could ask anything"
    for name in ("http", "grpc"):
        port = getattr(listen, name).rpartition(":")[2]
        if port and int(port) > 65_535:
            yield ("listen", name), f"there is no port {port}"
    if trace.store != "none":
        try:
            parse_dsn(trace.store)
        except ValueError as error:
            yield ("trace", "store"), str(error)


def load_config(path: str | Path) -> Config:
    """Read and check a file. Raises ConfigError with every problem found."""
    return parse_config(read_text(path), str(path))


def parse_config(text: str, name: str = "config") -> Config:
    return parse_yaml(text, name, Config, "sections (engines, routes, ...)")
