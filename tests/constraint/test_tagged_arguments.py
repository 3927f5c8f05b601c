"""Objects that are written as tags, held against the judge of the same objects as JSON."""

from __future__ import annotations

import time
from typing import Any

import jsonschema_rs
import pytest

from guard.constraint.compile import compile_constraint
from guard.constraint.spec import Constraint
from guard.constraint.tagged_arguments import TaggedArguments
from guard.request import RequestError
from tests.bench.schema_pairs import Schemas
from tests.constraint.test_structural import STYLED, written_by


def outcome(compiled: Any, style: str, pieces: list[str]) -> tuple[list[tuple[str, int]], int, int, bool]:
    check = TaggedArguments(compiled, style)
    found = [one for piece in pieces for one in check.feed(piece)]
    before = check.safe
    found += check.finish(False)
    return [(one.code, one.onset) for one in found if one.severity == "error"], before, check.good, check.complete


@pytest.mark.parametrize("seed", range(3))
def test_a_valid_object_is_never_refused_and_an_invalid_one_never_finished(seed: int) -> None:
    schemas = Schemas(seed)
    schemas.draft = 2020
    judged = 0
    while judged < 250:
        schema = schemas._object(3)
        try:
            compiled = compile_constraint(Constraint("json_schema", schema))
        except RequestError:
            continue
        judge = jsonschema_rs.validator_for(schema, offline=True, validate_formats=False)
        for _ in range(6):
            value = schemas.document(schema, schema)
            if schemas.rng.random() < 0.4:
                value = schemas.mutated(value)
            style = schemas.rng.choice(sorted(STYLED))
            text = written_by(style, value)
            if text is None:
                continue
            judged += 1
            whole = outcome(compiled, style, [text])
            assert outcome(compiled, style, list(text)) == whole, (style, schema, text)
            assert outcome(compiled, style, schemas.split(text)) == whole, (style, schema, text)
            if judge.is_valid(value):
                assert whole[0] == [], (style, schema, text)
            elif style.startswith("deepseek"):  # there each value has one reading
                assert whole[0] != [], (style, schema, text)
                assert whole[1] < len(text) or not text


@pytest.mark.parametrize(
    "text",
    [
        "<parameter=" + "k" * 200_000,
        '<parameter=a>{"k": "' + "</parameter>" * 10_000,
        "<parameter=a>" + "</parameter" * 15_000,
        "".join(f"<parameter=a{i}>x{i}</parameter>" for i in range(3_000)),
        " " * 200_000,
    ],
)
def test_no_text_takes_more_than_its_length(text: str) -> None:
    compiled = compile_constraint(Constraint("json_schema", {}))
    begun = time.process_time()
    outcome(compiled, "qwen_xml", [text[at : at + 16] for at in range(0, len(text), 16)])
    assert time.process_time() - begun < 10.0
