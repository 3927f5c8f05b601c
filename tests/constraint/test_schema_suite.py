"""The official JSON-Schema test suite, as streamed documents."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from guard.constraint.compile import compile_constraint
from guard.constraint.spec import Constraint
from tests.bench.schema_suite import DRAFTS, cases, registry, shuffled, verdict


@pytest.fixture(scope="module")
def suite(shared: Path) -> Path:
    return shared / "data" / "json-schema-test-suite"


def spellings(data: Any, rng: random.Random) -> Iterator[str]:
    yield json.dumps(data)
    yield json.dumps(shuffled(data, rng), indent=2)
    yield "\n " + json.dumps(shuffled(data, rng), ensure_ascii=False, separators=(" ,\t", "\r\n:")) + " \n"


@pytest.mark.parametrize("folder", DRAFTS)
def test_every_verdict_is_the_suites(suite: Path, folder: str) -> None:
    rng = random.Random(1)
    known = registry(suite, folder)
    count = 0
    wrong: list[str] = []
    for name, schema, tests in cases(suite, folder):
        compiled = compile_constraint(Constraint("json_schema", schema), registry=known)
        for test in tests:
            for text in spellings(test["data"], rng):
                for size in (1, 3, 4, 10**6):
                    count += 1
                    if verdict(compiled, text, size) != test["valid"]:
                        wrong.append(f"{name}: {test['description']} as {text!r} by {size}")
    assert not wrong
    assert count > 10_000


def test_schemas_that_a_vendor_publishes_are_accepted(shared: Path) -> None:
    count = 0
    for path in sorted((shared / "data" / "kimi-schemas").glob("*/valid.jsonl")):
        for line in path.read_text().splitlines():
            if line.strip():
                compile_constraint(Constraint("json_schema", json.loads(line))).checker().feed('{"a": 1}')
                count += 1
    assert count == 212
