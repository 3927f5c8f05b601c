"""What is sent to an engine that is asked in tokens, field by field."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from guard.constraint.spec import Constraint
from guard.engines.contract import EngineRequest
from guard.engines.tokens.wire import write_tokens
from guard.request import GenerationRequest, Sampling

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}


def asked(dialect: str, *, room: int = 100, **more: Any) -> dict[str, Any]:
    fields = {name: more.pop(name) for name in ("sampling", "constraint", "extra") if name in more}
    request = GenerationRequest(id="r", kind="chat", model="m", messages=[{"role": "user", "content": "x"}], **fields)
    wire = write_tokens(dialect, EngineRequest(request, **more), "served", [5, 6, 7], room)
    return {"path": wire.path, "unenforced": wire.unenforced, **json.loads(wire.body)}


SAMPLING = Sampling(
    max_tokens=9,
    temperature=0.5,
    top_p=0.9,
    seed=3,
    frequency_penalty=0.1,
    presence_penalty=0.2,
    stop=("a", "b"),
    logprobs=True,
    top_logprobs=2,
)
COMMON = {"temperature": 0.5, "top_p": 0.9, "frequency_penalty": 0.1, "presence_penalty": 0.2, "stop": ["a", "b"]}


def test_everything_that_was_asked_for() -> None:
    more: dict[str, Any] = {"sampling": SAMPLING, "max_tokens": 9, "extra": {"top_k": 4, "chat_template_kwargs": {}}}
    assert asked("vllm", **more) == {
        "path": "/v1/completions",
        "unenforced": (),
        "model": "served",
        "prompt": [5, 6, 7],
        "max_tokens": 9,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_token_ids": True,
        "seed": 3,
        "logprobs": 2,
        "top_k": 4,
        **COMMON,
    }
    assert asked("llamacpp", **more) == {
        "path": "/completion",
        "unenforced": (),
        "model": "served",
        "prompt": [5, 6, 7],
        "n_predict": 9,
        "stream": True,
        "return_tokens": True,
        "seed": 3,
        "n_probs": 2,
        "top_k": 4,
        **COMMON,
    }
    assert asked("sglang", **more) == {
        "path": "/generate",
        "unenforced": (),
        "input_ids": [5, 6, 7],
        "sampling_params": {"max_new_tokens": 9, "sampling_seed": 3, "top_k": 4, **COMMON},
        "stream": True,
        "return_logprob": True,
        "logprob_start_len": -1,
        "top_logprobs_num": 2,
    }


@pytest.mark.parametrize(("dialect", "field"), [("vllm", "max_tokens"), ("llamacpp", "n_predict")])
def test_no_limit_is_what_the_context_has_room_for(dialect: str, field: str) -> None:
    assert asked(dialect, room=-1)[field] == -1
    assert asked(dialect, room=40, max_tokens=3)[field] == 3


@pytest.mark.parametrize(
    ("dialect", "constraint", "field", "value"),
    [
        ("vllm", Constraint("regex", "[0-9]+"), "structured_outputs", {"regex": "[0-9]+"}),
        ("llamacpp", Constraint("choice", ("a", "b")), "grammar", 'root ::= "a" | "b"'),
        (
            "llamacpp",
            Constraint("json_schema", {"type": "integer", "minimum": 3}),
            "json_schema",
            {"type": "integer", "minimum": 3},
        ),
    ],
)
def test_a_constraint_from_its_root(dialect: str, constraint: Constraint, field: str, value: Any) -> None:
    assert asked(dialect, constraint=constraint)[field] == value


def test_sglang_takes_constraints_among_the_sampling() -> None:
    sampling = asked("sglang", constraint=Constraint("json_schema", SCHEMA))["sampling_params"]
    assert json.loads(sampling["json_schema"]) == SCHEMA


def test_llamacpp_gets_the_grammar_that_a_resume_would_go_on_with() -> None:
    body = asked("llamacpp", constraint=Constraint("json_schema", SCHEMA))
    assert body["grammar"].startswith("root ::= ")
    assert "json_schema" not in body


@pytest.mark.parametrize(("dialect", "place"), [("vllm", "structured_outputs"), ("llamacpp", "grammar")])
def test_the_remainder_instead_of_the_constraint(dialect: str, place: str) -> None:
    body = asked(dialect, constraint=Constraint("json_schema", SCHEMA), constrain=True, remainder='root ::= "1}"')
    assert body[place] in ('root ::= "1}"', {"grammar": 'root ::= "1}"'})
    assert body["unenforced"] == ()
    assert asked("sglang", constraint=Constraint("regex", "a"), remainder="g")["sampling_params"]["ebnf"] == "g"


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "llamacpp"])
def test_a_constraint_that_is_not_sent(dialect: str) -> None:
    assert asked(dialect, constraint=Constraint("regex", "a"), constrain=False)["unenforced"] == ("regex",)


@pytest.mark.parametrize(
    ("dialect", "name"),
    [
        ("vllm", "vllm/completions_token_ids_in_stream"),
        ("sglang", "sglang/native_generate_stream"),
        ("llamacpp", "llamacpp/native_completion_stream"),
    ],
)
def test_the_shape_that_real_engines_took(shared: Path, dialect: str, name: str) -> None:
    """No field that the recorded engine was not asked with, but for those that are known to be its own."""
    request = json.loads((shared / "recordings" / f"{name}.request.json").read_text())
    taken = request["body_json"]
    body = asked(
        dialect, sampling=Sampling(max_tokens=24, temperature=0.0, logprobs=True, top_logprobs=2), max_tokens=24
    )
    assert body.pop("path") == request["path"]
    known = {"unenforced", "stream_options", "logprob_start_len", "model"}
    assert body.keys() - known <= taken.keys()
    if dialect == "sglang":
        assert body["sampling_params"] == taken["sampling_params"]
