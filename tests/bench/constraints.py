"""How right and how fast the constraint checks are: ``python -m tests.bench.constraints [--pairs N]``, and of what a
container ships ``make bench-constraints``.

Times are CPU time of the thread, the best of several rounds, in pieces of 4 characters, with everything compiled and
every step made once before.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema_rs

from guard.constraint import json_syntax
from guard.constraint.cache import ConstraintCache
from guard.constraint.compile import CompiledConstraint, compile_constraint
from guard.constraint.spec import Constraint
from guard.request import RequestError
from tests.bench.schema_pairs import Schemas, pairs
from tests.bench.schema_suite import DRAFTS, cases, registry, shuffled, verdict

SHARED = Path(__file__).resolve().parents[3] / "shared"
SUITE = SHARED / "data" / "json-schema-test-suite"
VENDOR = SHARED / "data" / "kimi-schemas"

SUITE_PARTS = (("", "required"), ("optional", "optional"), ("optional/format", "format (an annotation here)"))
TICKET = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "maxLength": 80},
        "priority": {"enum": ["low", "normal", "high"]},
        "count": {"type": "integer", "minimum": 0},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 8},
        "summary": {"type": "string"},
        "assignee": {
            "anyOf": [
                {"type": "null"},
                {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "mail": {"type": "string", "pattern": "^[^@]+@[^@]+$"}},
                    "required": ["name"],
                    "additionalProperties": False,
                },
            ]
        },
    },
    "required": ["title", "priority"],
    "additionalProperties": False,
}
ANSWER = {
    "title": "Printer on floor 3 answers every job with an error",
    "priority": "high",
    "count": 12,
    "tags": ["printer", "floor-3", "urgent"],
    "summary": 'Since Tuesday the printer says "busy".\nA restart helps for an hour, then it comes back. ' * 4,
    "assignee": {"name": "Robin", "mail": "robin@example.com"},
}
GRAMMAR = r"""
root ::= value
value ::= "{" ws (pair ("," ws pair)*)? "}" ws | "[" ws (value ("," ws value)*)? "]" ws | string | number | "null" ws
pair ::= string ":" ws value
string ::= "\"" ([^"\\\x00-\x1f] | "\\" ["\\/bfnrtu])* "\"" ws
number ::= "-"? [0-9]+ ("." [0-9]+)? ws
ws ::= [ \t\n]*
"""


def cost(jobs: Sequence[tuple[CompiledConstraint, str]], rounds: int = 7) -> float:
    """Microseconds a piece of 4 characters, the end of each answer included."""
    pieces = [[text[at : at + 4] for at in range(0, len(text), 4)] for _, text in jobs]
    count = sum(map(len, pieces))
    best = float("inf")
    for _ in range(rounds):
        checkers = [compiled.checker() for compiled, _ in jobs]
        begun = time.thread_time()
        for checker, parts in zip(checkers, pieces, strict=True):
            for part in parts:
                checker.feed(part)
            checker.finish(False)
        best = min(best, time.thread_time() - begun)
    return best / count * 1e6


def cost_of_all(jobs: Sequence[tuple[CompiledConstraint, str]]) -> None:
    """Of those that are taken, of those that are refused (once an answer: why is told too), and of all."""
    taken = [verdict(compiled, text, 4) for compiled, text in jobs]
    valid = [job for job, fits in zip(jobs, taken, strict=True) if fits]
    invalid = [job for job, fits in zip(jobs, taken, strict=True) if not fits]
    length = sum(len(text) for _, text in jobs) / len(jobs)
    print(
        f"  {cost(valid, 5):.2f} us a piece of the valid ones, {cost(invalid, 5):.2f} of the others, whose refusal is"
        f" explained; {cost(jobs, 5):.2f} of all ({length:.0f} characters a document)"
    )


def turn() -> float:
    """Nanoseconds for a turn of an empty loop: 20 or so on an idle machine of 3 GHz; the others scale with it."""
    best = float("inf")
    for _ in range(5):
        begun = time.thread_time()
        for _ in range(200_000):
            pass
        best = min(best, time.thread_time() - begun)
    return best / 200_000 * 1e9


def costs() -> None:
    modules = "compiled" if str(json_syntax.__file__).endswith(".so") else "Python"
    print(f"the checkers are {modules} here; an empty loop turns in {turn():.0f} ns")
    print("cost a piece of 4 characters, us")
    schema = compile_constraint(Constraint("json_schema", TICKET))
    compact = json.dumps(ANSWER, separators=(",", ":"))
    spread = json.dumps(ANSWER, indent=2)
    dense = json.dumps([{"id": i, "v": [1, 2, 3], "s": "xxxxx"} for i in range(300)], separators=(",", ":"))
    items = {"type": "object", "properties": {"id": {"type": "integer"}, "v": {"items": {"type": "integer"}}}}
    lines: list[tuple[str, CompiledConstraint, str]] = [
        ("a schema, compact document", schema, compact),
        ("a schema, indented document", schema, spread),
        ("json_object", compile_constraint(Constraint("json_object")), compact),
        ("structure without text", compile_constraint(Constraint("json_schema", {"items": items})), dense),
        ("a regex", compile_constraint(Constraint("regex", r'(?s)(\w+|[ .,:"{}\[\]@\\-])*')), compact),
        ("a choice", compile_constraint(Constraint("choice", (compact, spread))), compact),
        ("a recursive grammar (GBNF)", compile_constraint(Constraint("grammar", GRAMMAR, syntax="gbnf")), compact),
        ("a grammar (Lark)", compile_constraint(Constraint("grammar", "start: /(?s:.)+/", syntax="lark")), compact),
    ]
    for name, compiled, text in lines:
        print(f"  {name:30} {cost([(compiled, text)]):6.2f}")


def suite() -> None:
    rng = random.Random(1)
    jobs: list[tuple[CompiledConstraint, str]] = []
    for part, called in SUITE_PARTS:
        for folder in DRAFTS:
            known = registry(SUITE, folder)
            runs = wrong = refused = 0
            for _, schema, tests in cases(SUITE, folder, part):
                try:
                    compiled = compile_constraint(Constraint("json_schema", schema), registry=known)
                except RequestError:
                    refused += 1
                    continue
                for test in tests:
                    for text in (json.dumps(test["data"]), json.dumps(shuffled(test["data"], rng), indent=2)):
                        for size in (1, 3, 10**6):
                            runs += 1
                            wrong += verdict(compiled, text, size) != test["valid"]
                        jobs.append((compiled, text))
            print(f"suite {folder:13} {called}: {runs} streamed, {wrong} verdicts differ, {refused} schemas refused")
    cost_of_all(jobs)


def vendor() -> None:
    times: list[float] = []
    refused = 0
    for path in sorted(VENDOR.glob("*/valid.jsonl")):
        for line in path.read_text().splitlines():
            if line.strip():
                constraint = Constraint("json_schema", json.loads(line))
                begun = time.thread_time()
                try:
                    compile_constraint(constraint).checker().feed("{")
                except RequestError:
                    refused += 1
                times.append((time.thread_time() - begun) * 1e3)
    print(f"vendor's tool schemas: {len(times)}, {refused} refused; compile ms {spread_of(times)}")


def spread_of(values: Sequence[float]) -> str:
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[min(int(len(ordered) * share), len(ordered) - 1)]

    return f"p50 {at(0.5):.2f}, p95 {at(0.95):.2f}, max {ordered[-1]:.2f}"


def generated(count: int) -> None:
    schemas = Schemas(0)
    valid = wrong = differs = 0
    done = 0
    jobs: list[tuple[CompiledConstraint, str]] = []
    times: list[float] = []
    for schema, documents in pairs(11, count):
        begun = time.thread_time()
        try:
            compiled = compile_constraint(Constraint("json_schema", schema))
        except RequestError:
            continue
        times.append((time.thread_time() - begun) * 1e3)
        judge = jsonschema_rs.validator_for(schema, offline=True, validate_formats=False)
        for value, text in documents:
            done += 1
            fits = judge.is_valid(value)
            valid += fits
            for parts in ([text], list(text), schemas.split(text)):
                checker = compiled.checker()
                errors = [one for part in parts for one in checker.feed(part) if one.severity == "error"]
                errors.extend(one for one in checker.finish(False) if one.severity == "error")
                wrong += fits == bool(errors)
            differs += verdict(compiled, text, 4) != fits
            jobs.append((compiled, text))
    print(f"generated pairs: {done} ({valid} valid), 4 splits each: {wrong + differs} verdicts differ")
    cost_of_all(jobs)
    print(f"  compile ms {spread_of(times)}")


def hostile() -> None:
    long = "x" * 100
    pyramid = [f'r{i} ::= "x" r{i + 1}' for i in range(5_999)]
    counted = [rf"A{i}: /\w{{1,300}}x{i}/" for i in range(2_000)]
    called = " ".join(f"A{i}" for i in range(2_000))
    levels: Any = {}
    for _ in range(10_000):
        levels = {"not": levels}
    twice: dict[str, Any] = {"d0": {}}
    for level in range(1, 41):
        twice[f"d{level}"] = {"allOf": [{"$ref": f"#/$defs/d{level - 1}"}] * 2}
    lines: list[tuple[str, Constraint]] = [
        ("schema of 5 MB", _schema({"properties": {f"p{i}": {"title": long} for i in range(45_000)}})),
        ("schema of 450 KB", _schema({"properties": {f"p{i}": {"maxLength": i} for i in range(14_000)}})),
        ("10,000 levels", _schema(levels)),
        ("a circle of $ref", _schema({"$ref": "#"})),
        ("2^40 evaluations", _schema({"$defs": twice, "$ref": "#/$defs/d40"})),
        ("pattern of 10^9 states", _schema({"pattern": "((a{1,1000}){1,1000}){1,1000}"})),
        ("regex of 10^6 states", Constraint("regex", "((a{1,100}){1,100}){1,100}")),
        ("regex (a+)+$", Constraint("regex", "(a+)+$")),
        ("grammar of 10^12 characters", _grammar("root ::= a{9999}\na ::= b{9999}\nb ::= [a-z]{9999}", "ebnf")),
        ("grammar of 6,000 rules", _grammar("\n".join(["root ::= r0", *pyramid, 'r5999 ::= "x"']), "gbnf")),
        ("Lark of 2,000 counted terminals", _grammar("\n".join([f"start: {called}", *counted]), "lark")),
    ]
    asyncio.run(_hostile(lines))


def _schema(schema: Any) -> Constraint:
    return Constraint("json_schema", schema)


def _grammar(text: str, syntax: str) -> Constraint:
    return Constraint("grammar", text, syntax=syntax)


async def _hostile(lines: Sequence[tuple[str, Constraint]]) -> None:
    cache = ConstraintCache()
    print("hostile constraints: CPU here and in the process that tries them, and what comes of it")
    for name, constraint in lines:
        own = time.process_time()
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        try:
            compiled = await cache.compile(constraint)
            compiled.checker().feed("aaaa")
            outcome = "accepted"
        except RequestError as error:
            outcome = f"{error.code}: {error.message}"
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        child = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"  {name:32} {time.process_time() - own:5.2f} s, {child:5.2f} s  {outcome[:110]}")
    peak = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) >> 10
    print(f"  peak memory of either: {peak} MB")
    cache.close()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--pairs", type=int, default=20_000, help="generated (schema, document) pairs")
    pairs_wanted = options.parse_args().pairs
    steps: list[Callable[[], None]] = [costs]
    if SUITE.is_dir():
        steps += [suite, vendor]
    else:
        print("the folder shared/ is not beside this checkout: no suite, no vendor's schemas", file=sys.stderr)
    for step in (*steps, lambda: generated(pairs_wanted), hostile):
        step()


if __name__ == "__main__":
    main()
