"""A replay matrix as it is declared, in YAML or by flags, and the cells that it means.

    engines: [primary, second]           # by name; none named: those of the requests' route
    only: {cluster: [a, b]}              # and of these only the ones with such an axis
    concurrency: [alone, "copies:8"]     # what else runs on the engine meanwhile
    cache: [cold, warm]
    repeats: 5

A cell is one engine under one load with its cache in one state. Image, version, cluster, node and precision are an
engine's own: one that is to be compared in two precisions is two engines of the configuration. What cannot be had (a
cold cache on an engine that offers no way to it) is no cell, and is said so with its reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import Field, field_validator, model_validator

from guard.config import EngineConfig, Name
from guard.section import Section
from replay.load import MAX_AT_ONCE, Cache, Impossible, Load, MatrixCell, read_load
from replay.observation import Cell


class Only(Section):
    """An engine takes part when its axis is among these. Empty: any."""

    version: tuple[str, ...] = ()
    image: tuple[str, ...] = ()
    cluster: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    precision: tuple[str, ...] = ()

    def takes(self, engine: EngineConfig) -> bool:
        wanted = ((getattr(self, axis), getattr(engine, axis)) for axis in type(self).model_fields)
        return all(not values or value in values for values, value in wanted)


class Asked(Section):
    """What replaces the recorded sampling. None leaves it as it was."""

    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    seed: int | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None


class Limits(Section):
    """``per_engine``: requests in flight on one engine at most. ``per_second``: requests started on one engine; 0 does
    not pace them. ``requests``: in all; a plan with more is refused before anything is sent; 0 is no limit."""

    per_engine: Annotated[int, Field(ge=1, le=MAX_AT_ONCE)] = 32
    per_second: Annotated[float, Field(ge=0)] = 0.0
    requests: Annotated[int, Field(ge=0)] = 0


class Matrix(Section):
    """``top_logprobs``: how many alternatives a token are asked for, 0 for no log probabilities (then no ruling of a
    near tie is possible). ``echo``: so many known-answer tasks are added, which expose corruption. ``kernels``: what an
    engine promises of its kernels, by engine (``batch_invariant``). ``seed``: of what is drawn (sample, echo tasks)."""

    engines: tuple[Name, ...] = ()
    only: Only = Only()
    concurrency: Annotated[tuple[str, ...], Field(min_length=1)] = ("alone",)
    cache: Annotated[tuple[Cache, ...], Field(min_length=1)] = ("as_is",)
    repeats: Annotated[int, Field(ge=1, le=10_000)] = 1
    echo: Annotated[int, Field(ge=0, le=1000)] = 0
    sampling: Asked = Asked()
    top_logprobs: Annotated[int, Field(ge=0, le=20)] = 5
    kernels: dict[Name, str] = Field(default_factory=dict)
    limits: Limits = Limits()
    seed: int = 0

    @field_validator("concurrency")
    @classmethod
    def _loads(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for text in value:
            read_load(text)
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _within_limits(self) -> Matrix:
        for load in self.loads:
            if load.at_once > self.limits.per_engine:
                raise ValueError(f"{load.name} is more than limits.per_engine ({self.limits.per_engine}) allows")
        return self

    @property
    def loads(self) -> tuple[Load, ...]:
        return tuple(map(read_load, self.concurrency))


def chosen(matrix: Matrix, configured: Sequence[EngineConfig], routed: Sequence[str]) -> list[EngineConfig]:
    """The engines of a matrix: those it names, else the ``routed`` ones, else all. Raises ValueError."""
    by_name = {engine.name: engine for engine in configured}
    known = ", ".join(by_name)
    if missing := [name for name in (*matrix.engines, *matrix.kernels) if name not in by_name]:
        raise ValueError(f"no such engine: {', '.join(missing)} (there are: {known})")
    names = matrix.engines or tuple(name for name in routed if name in by_name) or tuple(by_name)
    found = [by_name[name] for name in dict.fromkeys(names) if matrix.only.takes(by_name[name])]
    if not found:
        raise ValueError(f"no engine is left by the matrix's engines and only (there are: {known})")
    return found


COLD: Final = {"llamacpp": "cache_prompt", "vllm": "cache_salt", "sglang": "cache_salt", "trtllm": "cache_salt"}
"""The field of a request that keeps it off what the engine's prefix cache holds, by dialect."""


def cells(matrix: Matrix, engines: Sequence[EngineConfig]) -> tuple[list[MatrixCell], list[Impossible]]:
    """Every engine under every load in every state of its cache, in that order."""
    found: list[MatrixCell] = []
    impossible: list[Impossible] = []
    for engine in engines:
        for load in matrix.loads:
            if engine.dialect == "torch" and load.at_once > 1:
                impossible.append(
                    Impossible(engine.name, load.name, "a model in this process makes one answer at a time")
                )
                continue
            for cache in matrix.cache:
                if why := _no_cache(engine, cache):
                    impossible.append(Impossible(engine.name, f"a {cache} cache", why))
                    continue
                found.append(MatrixCell(_cell(matrix, engine, load, cache), load, cache, engine.url))
    return found, list(dict.fromkeys(impossible))


def _no_cache(engine: EngineConfig, cache: Cache) -> str:
    """Why this engine's cache cannot be in that state."""
    if cache == "as_is" or engine.dialect in COLD:
        return ""
    if engine.dialect == "torch":
        return "" if cache == "cold" else "a model in this process keeps none between requests"
    if cache == "warm":
        return ""
    return f"a request cannot keep off the cache of an engine of the kind {engine.dialect}"


def _cell(matrix: Matrix, engine: EngineConfig, load: Load, cache: Cache) -> Cell:
    return Cell(
        engine=engine.name,
        version=engine.version,
        image=engine.image,
        cluster=engine.cluster,
        node=engine.node,
        precision=engine.precision,
        concurrency=load.at_once,
        neighbours="none" if load.kind == "alone" else load.kind,
        cache="" if cache == "as_is" else cache,
        kernels=matrix.kernels.get(engine.name, ""),
    )


OWN_AXES: Final = ("version", "image", "cluster", "node", "precision")


def confounded(engines: Sequence[EngineConfig]) -> list[tuple[str, ...]]:
    """Groups of an engine's own axes that never vary apart over these engines, so that no run can tell between them.
    Axes with one value throughout are no matter."""
    groups: dict[tuple[int, ...], list[str]] = {}
    for axis in OWN_AXES:
        values = [getattr(engine, axis) for engine in engines]
        ids = {value: n for n, value in enumerate(dict.fromkeys(values))}
        if len(ids) > 1:
            groups.setdefault(tuple(ids[value] for value in values), []).append(axis)
    return [tuple(axes) for axes in groups.values() if len(axes) > 1]
