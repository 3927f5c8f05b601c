"""From a request to a job: which engines, which policy, which format, until when. Every refusal happens here, before
any engine is asked."""

from __future__ import annotations

import msgspec
from msgspec import Struct

from guard.config import Config, Policy, RouteConfig
from guard.constraint.cache import ConstraintCache
from guard.constraint.compile import CompiledConstraint
from guard.constraint.formats.families import detect_format
from guard.constraint.toolschema import constraint_of
from guard.request import GenerationRequest, PolicyOverrides, RequestError


class Job(Struct):
    """``tools``: what holds the arguments of each tool's calls. ``engines``: names, in the order in which they are
    tried. ``deadline``: seconds on the monotonic clock. ``tool_formats``: the markup of calls that each engine's model
    speaks (a key of formats.families.FORMATS)."""

    request: GenerationRequest
    policy: Policy
    policy_name: str
    engines: tuple[str, ...]
    compiled: CompiledConstraint | None
    tools: dict[str, CompiledConstraint]
    deadline: float
    tool_formats: dict[str, str] = {}

    @property
    def prompt_hash(self) -> int:
        """Tells prompts apart, within this process."""
        request = self.request
        if request.kind == "completion":
            return hash(request.prompt)
        return hash(tuple(map(str, request.messages)))


async def admit(config: Config, constraints: ConstraintCache, request: GenerationRequest, *, now: float) -> Job:
    """Raises RequestError, naming the field that is wrong."""
    route = route_of(config, request.model)
    policy = config.policy_of(route, request.policy)
    if policy is None:
        known = ", ".join(sorted(config.policies))
        raise RequestError(f"there is no policy called {request.policy!r} (there are: {known})", "outguard.policy")
    policy = _overridden(policy, request.overrides)
    if request.n > config.limits.max_choices:
        raise RequestError(f"at most {config.limits.max_choices} choices can be asked for, not {request.n}", "n")
    engines = _engines(route, request)
    compiled = await constraints.compile(request.constraint) if request.constraint else None
    tools = {
        tool.name: await constraints.compile(constraint)
        for tool in request.tools
        if (constraint := constraint_of(tool)) is not None
    }
    deadline = now + config.limits.request_timeout
    if request.deadline is not None:
        deadline = min(deadline, request.deadline)
    formats = {
        engine.name: engine.tool_format or detect_format(engine.model or request.model)
        for engine in config.engines
        if tools and engine.name in engines
    }
    return Job(request, policy, request.policy or route.policy, engines, compiled, tools, deadline, formats)


def route_of(config: Config, model: str) -> RouteConfig:
    for route in config.routes:
        if route.model == model:
            return route
    known = ", ".join(route.model for route in config.routes)
    raise RequestError(f"the model {model!r} is not served here (served are: {known})", "model", "model_not_found")


def _overridden(policy: Policy, asked: PolicyOverrides | None) -> Policy:
    """A request may ask for more care than its policy, never for less."""
    if asked is None:
        return policy
    most = policy.max_attempts if asked.max_attempts is None else min(policy.max_attempts, asked.max_attempts)
    return policy.model_copy(
        update={
            "max_attempts": max(1, most),
            "resume": policy.resume and not asked.no_resume,
            "repairs": policy.repairs and not asked.no_repairs,
            "json_release": "on_complete" if asked.release_on_complete else policy.json_release,
        }
    )


def _engines(route: RouteConfig, request: GenerationRequest) -> tuple[str, ...]:
    if not request.engines:
        return route.engines
    chosen = tuple(name for name in request.engines if name in route.engines)
    unknown = [name for name in request.engines if name not in route.engines]
    if unknown:
        served = ", ".join(route.engines)
        raise RequestError(
            f"{', '.join(unknown)}: no such engine serves {request.model!r} (these do: {served})", "outguard.engines"
        )
    return chosen


def one_choice(job: Job, choice: int) -> GenerationRequest:
    """vLLM's own way with n and a seed: choice i is sampled with seed + i."""
    request = job.request
    if request.n == 1:
        return request
    seed = request.sampling.seed
    sampling = request.sampling if seed is None else msgspec.structs.replace(request.sampling, seed=seed + choice)
    return msgspec.structs.replace(request, n=1, sampling=sampling)
